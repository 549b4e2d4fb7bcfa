/* From a job's description to its first process: everything that happens around the fork. */
#pragma once

#include "backends/shellctld/runner_spec.h"
#include "core/runtime/arena.h"

#include <stdbool.h>
#include <sys/types.h>

/** One start. */
struct launch {
    const char *state_dir, *job_id;
    const char *script_path; /* outside; readable by us */
    const struct runner_spec *spec;
    int stdio[3]; /* the job's descriptors 0-2; stay open here */
};

/** Start it. On success `*ret_pid` is our child (bubblewrap or the script itself) and `*ret_status`
 * a pipe on which one message of jail.h arrives, or the end when bubblewrap itself failed. False
 * names the layer that failed; launch_clean_up undoes what was made either way. */
bool launch_start(const struct launch *launch, struct arena *arena, pid_t *ret_pid, int *ret_status,
                  struct error *err) MUST_CHECK;

/** Remove the job's groups and temporary folder, killing what still is in the groups. False while
 * processes are still going away. */
bool launch_clean_up(const char *state_dir, const char *job_id, const struct isolation *iso);
