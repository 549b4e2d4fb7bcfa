/* The sandbox's own view of the machine, by bubblewrap: its mounts, processes, network, host name
 * and users. */
#pragma once

#include "core/runtime/arena.h"
#include "core/runtime/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BWRAP_PROGRAM "/usr/bin/bwrap"

enum { BWRAP_UID = 1000 }; /* uid and gid inside */

/** What the sandbox shows. Sources are paths outside; NULL source = same path as the destination. */
struct bwrap_view {
    const char *home, *workspace;               /* inside; writable */
    const char *home_source, *workspace_source; /* outside, when they differ */
    const char *hidden;                         /* folder covered by an empty one; NULL: none */
    int script_fd, passwd_fd, group_fd;         /* copied in, read-only; inherited by bwrap */
    bool whole_etc;                             /* Landlock narrows it to what is needed */
    bool network;                               /* the host's network instead of none */
    int64_t temporary_bytes;                    /* size of /tmp and /dev/shm each; 0 = no bound */
};

/** The argument vector that runs `command` (NULL-terminated) in the sandbox. */
char **bwrap_arguments(struct arena *arena, const struct bwrap_view *view,
                       const char *const *command);

/** Make Home and Workspace reachable for a user who may not pass through the folders above them:
 * in a mount namespace of its own for the calling process, as `BWRAP_STAGE_HOME` and
 * `BWRAP_STAGE_WORKSPACE`. As root, in a forked child. */
bool bwrap_stage(const char *home, const char *workspace, struct error *err) MUST_CHECK;

#define BWRAP_STAGE           "/tmp"
#define BWRAP_STAGE_HOME      BWRAP_STAGE "/home"
#define BWRAP_STAGE_WORKSPACE BWRAP_STAGE "/workspace"
