/* From a run request to a starting job: folder, working directory, limits, runner. */
#pragma once

#include "backends/shellctld/isolation.h"
#include "backends/shellctld/job_store.h"
#include "backends/shellctld/requests.h"
#include "backends/shellctld/runner_spec.h"

/** How a daemon's jobs are started. Owned by the daemon. */
struct launcher {
    struct job_store *store;
    struct job_table *jobs;
    struct isolation isolation;         /* of a binding's jobs */
    struct isolation unbound_isolation; /* of others, see launcher_set_isolation */
    struct runner_limits limits;
    size_t max_live;
    const char *user_home; /* of the daemon: default folder of unconfined jobs */
    bool confine_unscoped; /* isolate requests without a scope to their HOME and cwd */
};

/** Take the probe's result. Jobs that belong to no binding run in folders that are not ours: they
 * keep the daemon's uid, since a uid of their own would mean to give it the user's Home. */
void launcher_set_isolation(struct launcher *launcher, const struct isolation *isolation);

/** Make and start a job; a job whose start fails is returned in state `failed`. NULL with a fault
 * and nothing left behind: SANDBOX_NOT_FOUND, INVALID_CWD, OVERLOADED, INTERNAL, …
 * `arena` is for scratch texts. */
struct job *job_launch(struct launcher *launcher, struct arena *arena, const struct scope *scope,
                       const struct run_request *request, struct error *err) MUST_CHECK;
