/* One short script of ours, run to completion: probes and maintenance (protocol "shellctl" section
 * 15, without its traps: one total deadline, and only a script that really ran to its end is
 * success). */
#pragma once

#include "backends/shellctl/client.h"

enum { CONTROL_OUTPUT_MAX = 262144 };

struct control_command {
    const char *script;
    const char *cwd;        /* NULL = the daemon's default */
    const char *const *env; /* NAME, value, …, NULL; may be NULL */
    enum shellctl_mode mode;
    int64_t deadline_ms; /* for everything but the deletion of the job */
    const char *phase;   /* static text for the deadline's message: "the validation probe" */
    bool await_delete;   /* end only when the job is deleted: nothing of it runs any more */
    bool repeatable; /* may run twice: then a job that shellctl has forgotten is run again once */
};

/** How the script ended by itself. */
struct control_result {
    int exit_code;
    const char *output; /* of the op's arena; NUL-terminated */
    size_t output_len;
};

/** Run it. One round trip when the job ends within it; its deletion goes on in the background
 * (awaited over a dialer). Succeeds with whatever exit code the script had.
 *
 * Errors: those of client.h; ERR_DEADLINE; and
 *   ERR_UPSTREAM_STATUS    with `upstream_code` `job_failed`, `job_lost`, `job_terminated`: the
 *                          script did not run to its end; `job_not_found`: shellctl forgot it
 *   ERR_UPSTREAM_PROTOCOL  too much output, or a window that does not advance
 * `admitted` says whether the script may have run. */
void control_command_run(struct backend *b, struct op *op, const struct endpoint *endpoint,
                         const struct control_command *command, struct control_result *ret);
