/* Delete a transient job when its result is known or no longer wanted. */
#pragma once

#include "backends/shellctl/client.h"

/** Delete by force, in the background: an operation of its own with its own copies. A failure is
 * counted (bindery_probe_jobs_left_total) and logged, never reported. Not for endpoints with a
 * dialer, which ends with its plane: await shellctl_delete there and, when that fails, call
 * job_delete_failed. */
void job_delete_later(struct backend *b, const struct endpoint *endpoint, const char *job_id);

/** Count a job that stays behind; `job_id` NULL when not even its id is known. */
void job_delete_failed(struct backend *b, const char *job_id, const struct error *why);

/** Deletes that are under way in the whole process. None may be left when its HTTP client is
 * freed. */
int job_deletes_running(void);

/** For the end of the process: call `done` from the loop when none is under way any more; what
 * takes longer than `limit_ms` is cancelled and counted as a failure. Once. */
void job_deletes_finish(struct loop *loop, int64_t limit_ms, void (*done)(void *ctx), void *ctx);
