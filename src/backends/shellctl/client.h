/* The calls of shellctl's HTTP API over an endpoint, each one wait of an op (protocol "shellctl"
 * sections 3, 4, 13). Timeouts are those of 13.2; a deadline of the op comes on top.
 *
 * Errors: those of http_client.h and reply.h. */
#pragma once

#include "backends/shellctl/reply.h"
#include "core/domain/backend.h"

enum shellctl_mode {
    SHELLCTL_MODE_UNSAID, /* leave the field out: older shellctls do not know it */
    SHELLCTL_MODE_PTY,
    SHELLCTL_MODE_STDIO,
};

/** How a call waits for output (section 8.1). Zeroes: the defaults named. */
struct shellctl_window {
    int64_t offset;
    int64_t timeout_ms;   /* 0 = look once (wait) or 30 s (run, input) */
    int64_t output_limit; /* bytes; 0 = 16,384 */
};

struct shellctl_run {
    const char *script;
    const char *cwd;        /* NULL = the daemon's default */
    const char *const *env; /* NAME, value, …, NULL; may be NULL */
    enum shellctl_mode mode;
    struct shellctl_window window; /* `offset` is not used */
    bool repeatable;               /* may run twice: a stale connection is not an unknown outcome */
};

/** Everything borrowed until the wait ends. `b` gives the HTTP client. */
void shellctl_run(struct backend *b, struct op *op, const struct endpoint *endpoint,
                  const struct shellctl_run *run, struct shellctl_job *ret);
void shellctl_wait(struct backend *b, struct op *op, const struct endpoint *endpoint,
                   const char *job_id, const struct shellctl_window *window,
                   struct shellctl_job *ret);
void shellctl_input(struct backend *b, struct op *op, const struct endpoint *endpoint,
                    const char *job_id, const char *text, const struct shellctl_window *window,
                    struct shellctl_job *ret);
void shellctl_tail(struct backend *b, struct op *op, const struct endpoint *endpoint,
                   const char *job_id, int64_t output_limit, struct shellctl_job *ret);
void shellctl_status(struct backend *b, struct op *op, const struct endpoint *endpoint,
                     const char *job_id, struct shellctl_view *ret);
void shellctl_terminate(struct backend *b, struct op *op, const struct endpoint *endpoint,
                        const char *job_id, int64_t grace_ms, struct shellctl_view *ret);
/** By force; the shellctl's own grace. An unknown job is success. */
void shellctl_delete(struct backend *b, struct op *op, const struct endpoint *endpoint,
                     const char *job_id);
void shellctl_jobs(struct backend *b, struct op *op, const struct endpoint *endpoint,
                   struct shellctl_list *ret);
/** Without Authorization, with the routing headers. */
void shellctl_health(struct backend *b, struct op *op, const struct endpoint *endpoint);

/** A deep copy of an endpoint, for work that outlives its plane. The dialer is not copied. */
const struct endpoint *shellctl_endpoint_copy(struct arena *arena, const struct endpoint *endpoint);
