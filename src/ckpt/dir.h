/* A writer's hold on a checkpoint directory; private to ckpt.c and save.c. */
#ifndef LS_CKPT_DIR_H
#define LS_CKPT_DIR_H

struct ls_ckpt_dir {
    char *path;
    int fd;             /* the directory: every name is relative to it */
    int lock;           /* holds the lock while it is open */
    char *saved;        /* path of the last saved checkpoint */
    char warning[1024]; /* what went wrong after its commit; "": nothing */
};

#endif
