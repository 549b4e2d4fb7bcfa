/* The scripts of the Local backend. POSIX sh plus what Debian and busybox share. Output goes to one
 * stream, for people; results are exit codes. All paths and ids are quoted. */
#pragma once

#include "core/runtime/arena.h"

#include <stdbool.h>
#include <stdint.h>

/** Exit codes that mean something. */
enum {
    LOCAL_EXIT_EXISTS = 81,           /* the folder */
    LOCAL_EXIT_NO_SOURCE = 82,        /* the folder to copy from */
    LOCAL_EXIT_NO_WORKSPACE = 83,     /* to attach to */
    LOCAL_EXIT_WORKSPACE_EXISTS = 84, /* where a new one is asked for */
    LOCAL_EXIT_GIVEN_UP = 85,         /* local_script_unmake ran first */
    LOCAL_EXIT_ABSENT = 86,           /* local_script_find */
    LOCAL_EXIT_BUSY = 87,             /* another script works on the id for too long */
};

/** A folder `root`/`id` to make: a Home (with a Workspace) or a Snapshot (without). */
struct local_make {
    const char *root, *id;
    const char *token;  /* of this attempt, by which its clean-up knows what is its own */
    const char *source; /* folder whose content is copied, or NULL */
    const char *workspace_root, *workspace_id; /* or both NULL */
    bool attach;                               /* the Workspace must exist */
    const char *instance_id;
};

/** Make it: under the id's lock, built aside, moved into place; complete or not at all. A script
 * that fails or is terminated removes what it made; what a crash left of an earlier one is removed
 * first. */
const char *local_script_make(struct arena *arena, const struct local_make *make);

/** Remove what the attempt `make->token` made, and only that, whether it failed, finished or has
 * not begun: then it will not. */
const char *local_script_unmake(struct arena *arena, const struct local_make *make);

/** Remove `root`/`id` with its record, and the Workspace unless `workspace_path` is NULL. Absent is
 * success. */
const char *local_script_remove(struct arena *arena, const char *root, const char *id,
                                const char *workspace_path);

/** Print at most `max` records behind `after`, in order, one a line:
 * `<id> <workspace_id or -> <token> <instance> <seconds since the epoch>`. */
const char *local_script_list(struct arena *arena, const char *root, const char *after, int max);

/** Exit 0 when `root`/`id` is there with a record that names this workspace, LOCAL_EXIT_ABSENT when
 * not. */
const char *local_script_find(struct arena *arena, const char *root, const char *id,
                              const char *workspace_id);
