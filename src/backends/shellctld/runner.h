/* One running job, inside the runner process: its streams, its first process, its end. */
#pragma once

#include "backends/shellctld/job_runner.h"
#include "backends/shellctld/job_stream.h"
#include "core/runtime/arena.h"
#include "core/runtime/buf.h"

/** Where the job is. */
enum runner_phase {
    RUNNER_RUNNING,  /* the first process lives */
    RUNNER_CLEARING, /* it has ended: the rest of the tree is killed, output drained */
    RUNNER_DONE,
};

/** The process has one. */
struct runner {
    const char *job_dir, *job_id;
    char *state_dir;
    struct arena *arena;
    struct runner_spec spec;
    struct job_stream out, err; /* err: stdio mode only */
    int signal_fd;              /* SIGCHLD, and SIGTERM which asks for a terminate */
    int status_fd;              /* the jail's message; -1 once it came */
    int master;                 /* for input; -1 without a terminal. A duplicate of out.source */
    struct buf commands;        /* received, not yet whole frames */
    struct buf input;           /* for the terminal, not yet taken by it */

    enum runner_phase phase;
    pid_t main_pid;
    int main_status;   /* as waitpid gives it */
    bool has_children; /* processes of the job are left */
    char said[512];    /* the jail's message */
    bool terminating;
    int64_t term_at, kill_at; /* on the monotonic clock; INT64_MAX = never */
    int64_t last_output_at, clear_by, next_kill_at;
};

/** Monotonic milliseconds. */
int64_t runner_now_ms(void);

/** Run until the job is over, all of its processes are gone and its output is stored. */
void runner_run(struct runner *r);

/** How it ended. */
void runner_describe_end(const struct runner *r, struct runner_exit *ret);
