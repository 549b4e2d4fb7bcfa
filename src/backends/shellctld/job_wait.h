/* The wait of shellctl's API: until a job's output is worth sending (protocol section 8.1). Also
 * the last part of run and input. */
#pragma once

#include "backends/shellctld/job.h"
#include "backends/shellctld/requests.h"
#include "core/runtime/buf.h"
#include "core/runtime/op.h"

/** What a JobResult says. Texts of the op's arena. */
struct job_result {
    const char *job_id, *output_path;
    enum job_status status;
    int exit_code;     /* of `exited` */
    struct buf output; /* released with the arena */
    int64_t offset;
    bool truncated;
};

/** One wait. Make it with job_wait_new, run it as a root or a child, read `result` when done. */
struct job_wait {
    struct op op;
    struct job_table *jobs;
    const char *job_id;
    struct scope scope;
    struct wait_request request;
    int64_t deadline_ms, growth_ms, nap_ms; /* loop times; the pause before the next look */
    int64_t size;        /* of the output at the latest look; -1 = not looked yet */
    int64_t window_size; /* … when `result` was read; -1 = not read */
    bool more_to_come;   /* … and whether it could still grow */
    struct job_watcher watcher;
    struct job_result result;
};

/** For `parent` (NULL: a root in `arena`). Ids and scope are borrowed until it is done. Fails with
 * the faults JOB_NOT_FOUND and INVALID_OFFSET; a wait whose time is over is a success. */
struct job_wait *job_wait_new(struct loop *loop, struct arena *arena, struct op *parent,
                              struct job_table *jobs, const char *job_id, const struct scope *scope,
                              const struct wait_request *request);

/** Fill a result from a job and a window that was read from it; for tail. */
void job_result_of(struct job_result *ret, struct arena *arena, const struct job *job);
