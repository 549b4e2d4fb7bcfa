/* Ending a job: it is over when its processes have gone, not when the signal was sent. */
#pragma once

#include "backends/shellctld/job.h"
#include "core/runtime/op.h"

/** One stop. */
struct job_stop {
    struct op op;
    struct job_table *jobs;
    const char *job_id;
    struct scope scope;
    int64_t grace_ms;
    int64_t ask_until_ms, give_up_ms; /* loop times */
    struct job_watcher watcher;
};

/** Stop a job and wait until it has ended, at most the grace and some seconds. A job that has ended
 * already is left as it is. Ids and scope are borrowed. Fails with the faults JOB_NOT_FOUND and
 * STOP_FAILED (its processes would not go). */
struct job_stop *job_stop_new(struct loop *loop, struct arena *arena, struct op *parent,
                              struct job_table *jobs, const char *job_id, const struct scope *scope,
                              int64_t grace_ms);
