/* Typing into a job's terminal, then waiting for what it says. */
#pragma once

#include "backends/shellctld/job_wait.h"

struct job_input {
    struct op op;
    struct job_table *jobs;
    const char *job_id;
    struct scope scope;
    struct input_request request;
    int64_t give_up_ms; /* loop time */
    struct job_watcher watcher;
    struct job_wait *wait; /* its result is the answer */
};

/** Fails with the faults JOB_NOT_FOUND, JOB_NOT_RUNNING, INPUT_UNSUPPORTED (no terminal),
 * OVERLOADED (the job does not read), and those of the wait. A root in `arena`; the request's
 * text is borrowed. */
struct job_input *job_input_new(struct loop *loop, struct arena *arena, struct job_table *jobs,
                                const char *job_id, const struct scope *scope,
                                const struct input_request *request);
