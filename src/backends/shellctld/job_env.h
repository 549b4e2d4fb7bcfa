/* The environment of a job: what it starts with and what is laid over it. */
#pragma once

#include "backends/shellctld/runner_spec.h"

/** NAME=value, …, NULL in `arena`. A binding's job starts from nothing of ours: a fixed PATH, the
 * user that the sandbox shows, HOME, the locale and time zone, TERM with a terminal, and TMPDIR. A
 * control job inherits `inherited` without our own settings (SHELLCTL_…, DIFY_…, BINDERY_…), which
 * hold secrets. Then the job's own variables, which win. */
const char **job_env_build(struct arena *arena, const struct runner_spec *spec,
                           char *const *inherited, const char *user, const char *temporary);

/** Is `item` (NAME=value) one of our own settings? */
bool job_env_is_ours(const char *item);
