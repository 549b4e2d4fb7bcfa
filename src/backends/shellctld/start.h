/* What a job's first process needs, made before the fork: the second half of launch.h. */
#pragma once

#include "backends/shellctld/jail.h"
#include "backends/shellctld/launch.h"

#include <limits.h>

/** On the stack of launch_start. Strings in its arena. */
struct start {
    const struct launch *launch;
    const struct isolation *iso;
    unsigned layers; /* of this job: none for a control job */
    struct jail jail;
    uid_t uid;
    char **bwrap;     /* argument vector, or NULL */
    int inherited[8]; /* what bubblewrap passes on */
    int n_inherited;
    int status_fd; /* the child's end */
};

/** Fill in everything from `s->launch`, `s->iso`, `s->layers` and `s->status_fd`: checks the folders,
 * gives them their uid, makes temporary folder and control groups, opens what bubblewrap passes on.
 * On failure what was made stays for launch_clean_up and the caller, who closes `s->inherited`. */
bool start_prepare(struct start *s, struct arena *arena, struct error *err) MUST_CHECK;

/** The temporary folder of a job without a mount namespace. */
void start_temporary_path(const char *state_dir, const char *job_id, char ret[PATH_MAX]);
