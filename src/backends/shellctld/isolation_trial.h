/* One trial job of the isolation probe. */
#pragma once

#include "backends/shellctld/isolation.h"

/** Does a job start with the layers of `iso`, work in its folders, and fail to read beside them? Runs
 * one through the steps that real jobs take; blocks until it has ended. `note` says why not. */
bool isolation_trial(const struct isolation_options *options, const struct isolation *iso,
                     char note[ISOLATION_NOTE_MAX]);
