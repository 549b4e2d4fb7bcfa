/* The bodies that shellctl's API answers with (shellctl protocol section 5), no key more or less. */
#pragma once

#include "backends/shellctld/job_wait.h"

struct exchange;

/** JobResult: run, wait, input, tail. */
void reply_result(struct exchange *x, const struct job_result *result);
/** JobStatusView: status, terminate. */
void reply_view(struct exchange *x, const struct job *job);
/** `{"jobs":[JobInfo…]}`: the newest `limit` jobs of the scope, with `status` (NULL: any) only. */
void reply_list(struct exchange *x, struct job_table *jobs, const struct scope *scope,
                const char *status, int64_t limit);
void reply_deleted(struct exchange *x, const char *job_id);
void reply_health(struct exchange *x);
/** `{"error":{"code","message"}}` with the fault's status. */
void reply_fault(struct exchange *x, const struct error *err);
