/* One stream of a job's output: from a pipe or terminal through the filter into its file, bounded.
 * What goes beyond the limit, or meets a full disk, is read, counted and dropped: the job neither
 * blocks nor dies of it. */
#pragma once

#include "backends/shellctld/output_filter.h"
#include "core/runtime/error.h"

#include <stdbool.h>
#include <stdint.h>

/** Embedded; free with job_stream_close. */
struct job_stream {
    int source; /* owned; -1 after its end */
    int file;   /* owned */
    struct output_filter filter;
    struct buf ready;
    int64_t limit; /* bytes kept; 0 = no bound */
    int64_t kept, dropped;
    bool full; /* the limit was reached, and said in the file */
};

enum { JOB_STREAM_IDLE_MS = 100 }; /* silence after which an unfinished line is let out */

/** Create `<job_dir>/<name>` (0600). `source` is set later. */
bool job_stream_open(struct job_stream *s, const char *job_dir, const char *name,
                     enum filter_kind kind, int64_t limit, struct error *err) MUST_CHECK;

/** Read once and store. Does not block on a non-blocking source. False when nothing was read: then
 * `source` is -1 if it has ended. */
bool job_stream_pump(struct job_stream *s);

/** Silence: let an unfinished line out. */
void job_stream_idle(struct job_stream *s);

/** Everything still held goes to the file. */
void job_stream_finish(struct job_stream *s);
void job_stream_close(struct job_stream *s);
