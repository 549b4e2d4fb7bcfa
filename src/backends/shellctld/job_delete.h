/* Removing a job, by force even while it runs. */
#pragma once

#include "backends/shellctld/job_stop.h"

struct job_delete {
    struct op op;
    struct job_table *jobs;
    const char *job_id;
    struct scope scope;
    bool force;
    int64_t grace_ms;
    struct job_stop *stop;
};

/** Remove a job that has ended; with `force` end it first. Fails with the faults JOB_NOT_FOUND,
 * JOB_RUNNING (live, without force) and STOP_FAILED. A root in `arena`; ids are borrowed. */
struct job_delete *job_delete_new(struct loop *loop, struct arena *arena, struct job_table *jobs,
                                  const char *job_id, const struct scope *scope, bool force,
                                  int64_t grace_ms);
