/* Collection of ended jobs: folder and record go some minutes after the end (shellctl protocol
 * section 6: every 60 s those that ended 300 s ago or earlier). */
#pragma once

#include "backends/shellctld/job.h"

/** Embedded in its owner. */
struct job_gc {
    struct job_table *jobs;
    int64_t interval_ms, retention_ms;
    struct timer timer;
};

/** Collect in the next turn, then every `interval_ms`. A pass that finds much goes on in later turns. */
void job_gc_start(struct job_gc *gc, struct job_table *jobs, int64_t interval_ms,
                  int64_t retention_ms);
void job_gc_stop(struct job_gc *gc);
