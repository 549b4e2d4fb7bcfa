/* What one job is: the content of `<job_dir>/job.json`, written by the daemon before it spawns the
 * runner and read by the runner alone. The script itself is the file `<job_dir>/script`. */
#pragma once

#include "backends/shellctld/isolation.h"
#include "core/runtime/arena.h"
#include "core/runtime/error.h"

#include <stdbool.h>
#include <stdint.h>

enum runner_mode {
    RUNNER_PTY,   /* a terminal; output merged, control sequences stripped */
    RUNNER_STDIO, /* stdin is /dev/null; stdout → output.log, stderr → stderr.log */
};

/** Whose job it is. */
enum runner_scope {
    RUNNER_SCOPED,  /* a binding's: isolated, sees its Home and Workspace only */
    RUNNER_CONTROL, /* the server's own maintenance: the daemon's rights, no isolation */
};

/** Bounds of one job. 0 = no bound. */
struct runner_limits {
    int64_t max_processes;
    int64_t max_memory_bytes;
    int64_t max_open_files;   /* per process */
    int64_t nice;             /* added to the daemon's own; 0 = none */
    int64_t max_output_bytes; /* kept of output.log and of stderr.log each */
};

/** One job. Strings are borrowed from the caller when written, from the arena when read. */
struct runner_spec {
    enum runner_mode mode;
    enum runner_scope scope;
    int cols, rows;         /* 1..4096; the terminal's size */
    const char *cwd;        /* absolute; must be a directory that the job may enter */
    const char *home;       /* absolute; $HOME. Scoped: must exist, is never created */
    const char *workspace;  /* absolute; scoped only: must exist */
    const char *const *env; /* NAME, value, NAME, value, …, NULL: laid over the base environment */
    struct runner_limits limits;
    struct isolation isolation; /* read only: what to apply; see isolation_probe */
};

/** Write `<job_dir>/job.json` (0600, atomically). `iso` is the probe's result: the layers it found
 * are recorded in the job, so that exactly these are applied, whatever the next daemon finds. Small synchronous file writes.
 * ERR_BAD_REQUEST for a spec that no job can have, ERR_INTERNAL when the file cannot be written. */
bool runner_spec_write(const char *job_dir, const struct runner_spec *spec,
                       const struct isolation *iso, struct error *err) MUST_CHECK;

/** The runner's side. Everything read is checked. */
bool runner_spec_read(const char *job_dir, struct arena *arena, struct runner_spec *ret,
                      struct error *err) MUST_CHECK;
