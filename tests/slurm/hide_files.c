/* A stand-in for a container plugin: joins each task to another mount namespace, in which the machine's
 * own files are not to be seen, as pyxis does. */
#include <sched.h>
#include <slurm/spank.h>
#include <string.h>
#include <sys/mount.h>

/* cppcheck-suppress unknownMacro */
SPANK_PLUGIN(hide_files, 1)

int slurm_spank_task_init(spank_t sp, int argc, char **argv)
{
    (void)sp;
    (void)argc;
    (void)argv;
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/sys", "tmpfs", 0, NULL) != 0 ||
        mount("none", "/etc", "tmpfs", 0, NULL) != 0)
        slurm_spank_log("hide_files: not allowed here");
    return 0;
}
