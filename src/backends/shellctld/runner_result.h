/* The runner's records in the job folder: who it is, when the script began, how it ended. */
#pragma once

#include "backends/shellctld/job_runner.h"

/** Reserve disk space for exit.json, so that a job can end on a full disk. */
bool result_reserve(const char *job_dir, struct error *err) MUST_CHECK;

/** Write exit.json. */
bool result_write(const char *job_dir, const struct runner_exit *exit,
                  struct error *err) MUST_CHECK;

/** Write started.json with the present time. */
bool result_write_started(const char *job_dir, struct error *err) MUST_CHECK;

/** UTC milliseconds since the epoch. */
int64_t result_wall_ms(void);
