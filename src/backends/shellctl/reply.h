/* What a shellctl answers, decoded strictly: types and required fields are checked, unknown fields
 * ignored (protocol "shellctl" sections 5, 13.4, 18). Pure functions over bytes from outside.
 *
 * Errors:
 *   ERR_UPSTREAM_STATUS    any status but 2xx. `upstream_status`, and `upstream_code` from the
 *                          envelope: `invalid_json` when the body is no JSON (a plain 404 of an
 *                          unknown route), `request_failed` when it is JSON of another form.
 *                          admitted: no below 500, else unknown
 *   ERR_UPSTREAM_PROTOCOL  a 2xx whose body is not what the protocol says (admitted yes) */
#pragma once

#include "core/runtime/arena.h"
#include "core/runtime/error.h"
#include "core/runtime/http_client.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** JobResult: a job and one window of its output. Strings live in the arena. */
struct shellctl_job {
    const char *job_id; /* usable as one path segment */
    const char *status; /* `created`, `starting`, `running`; terminal: `exited`, `terminated`,
                           `failed`, `lost` */
    bool done;
    bool has_exit_code;
    int exit_code; /* tells of success only when status is `exited` (section 6) */
    const char *output_path;
    const char *output; /* UTF-8, NUL-terminated; may hold NULs */
    size_t output_len;
    int64_t offset; /* of the next window */
    bool truncated; /* there is more behind `offset` */
};

/** JobStatusView. */
struct shellctl_view {
    const char *job_id, *status;
    bool done, has_exit_code;
    int exit_code;
    int64_t offset; /* size of the output */
};

/** One element of a list. */
struct shellctl_info {
    const char *job_id, *status, *created_at;
};

struct shellctl_list {
    struct shellctl_info *jobs; /* newest first */
    size_t n_jobs;
};

/** `peer` names the sender in messages. */
bool shellctl_read_job(struct arena *arena, const char *peer, const struct http_response *response,
                       struct shellctl_job *ret, struct error *err) MUST_CHECK;
bool shellctl_read_view(struct arena *arena, const char *peer, const struct http_response *response,
                        struct shellctl_view *ret, struct error *err) MUST_CHECK;
bool shellctl_read_list(struct arena *arena, const char *peer, const struct http_response *response,
                        struct shellctl_list *ret, struct error *err) MUST_CHECK;
/** The answer to a delete, or to health: only whether it is one. */
bool shellctl_read_deleted(struct arena *arena, const char *peer,
                           const struct http_response *response, struct error *err) MUST_CHECK;
bool shellctl_read_health(struct arena *arena, const char *peer,
                          const struct http_response *response, struct error *err) MUST_CHECK;

/** Whether the far end said that the sandbox itself is gone: a code of `not_found`,
 * `sandbox_expired`, `sandbox_not_found`, in any case. `job_not_found`, a plain 404 and every
 * other answer prove nothing. */
bool shellctl_says_gone(const struct error *err);
bool shellctl_code_says_gone(const char *code);

/** Give an inner error the code of what it stopped: 401 and 403 become ERR_BACKEND_AUTH, 429
 * ERR_RATE_LIMITED, every other upstream error `code`. What a caller can act on (deadline,
 * cancellation, overload, …) keeps its own. */
void shellctl_wrap_error(struct error *err, enum err_code code);

/** The `code` of an error envelope, or NULL. */
const char *shellctl_error_code(struct arena *arena, const char *body, size_t len);
