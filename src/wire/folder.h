/* A folder for the PMIx server's files that is removed even if its owner was killed: by the next
 * one. */
#ifndef LS_WIRE_FOLDER_H
#define LS_WIRE_FOLDER_H

#include "wire/wire.h"

struct ls_wire_folder {
    char path[512];
    int fd; /* open on the folder, holding an exclusive flock; -1: no folder */
};
/* Removes what dead owners left in `parent`, then creates a folder there. Errors: IO, USAGE (path
 * too long). */
enum ls_status ls_wire_folder_make(const char *parent, struct ls_wire_folder *folder,
                                   struct ls_error *err);
/* Removes the folder and what is in it. */
void ls_wire_folder_remove(struct ls_wire_folder *folder);

#endif
