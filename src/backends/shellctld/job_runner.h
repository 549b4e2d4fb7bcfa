/* The process side of a job, as the daemon sees it.
 *
 * One job is one folder `<state>/jobs/<id>/` (0700) and one runner process, which starts the
 * isolated job, drains its output and survives a restart of the daemon. Files in the folder:
 *
 *   script        daemon   what to run (0600); first line `#!` = executed directly, else by sh
 *   job.json      daemon   runner_spec.h
 *   control       daemon   FIFO of commands to the runner, made by job_runner_spawn
 *   runner.pid    runner   pid, start time and boot id (who it is, never just a number)
 *   started.json  runner   when the script began to run
 *   output.log    runner   valid UTF-8 only; pty: without control sequences
 *   stderr.log    runner   stdio mode only; valid UTF-8
 *   exit.json     runner   how it ended; appears (by rename) once, after all output is written and
 *                          every process of the job is gone
 *   runner.log    runner   diagnostics of the runner itself
 *
 * The daemon learns of progress by watching the folder (inotify: output.log IN_MODIFY, *.json
 * IN_MOVED_TO) or by looking, and of the runner's end by its pidfd. A runner that is gone without
 * exit.json is a `lost` job: call job_runner_clean_up for what it may have left.
 *
 * None of these functions blocks for longer than a small file operation. */
#pragma once

#include "backends/shellctld/runner_spec.h"
#include "core/runtime/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- starting and watching ----------------------------------------------------------------- */

/** A runner as a process of ours or of an earlier daemon. */
struct job_runner {
    pid_t pid;
    int pidfd; /* readable when the runner has ended; close-on-exec; owned by the caller */
};

/** Start the runner of a folder that holds `script` and `job.json`. The runner has its own session,
 * no descriptor of ours, default signals. It is a child of this process: when pidfd becomes
 * readable, reap it with job_runner_reap. About 1 ms (posix_spawn). ERR_OVERLOADED when the system
 * has no process or descriptor left, ERR_INTERNAL otherwise. */
bool job_runner_spawn(const char *job_dir, struct job_runner *ret, struct error *err) MUST_CHECK;

/** Reap a runner that job_runner_spawn made; false while it still runs. Never blocks. */
bool job_runner_reap(const struct job_runner *runner);

/** After a restart: the living runner of this folder. False when there is none: the identity in
 * runner.pid is compared with the process behind that pid (start time, boot id), so that a pid
 * that now belongs to another process is never watched or signalled. A runner that was spawned
 * a moment before the daemon died may not have written runner.pid yet: see job_runner_alive. */
bool job_runner_open(const char *job_dir, struct job_runner *ret);

/** True while a runner holds the folder's control FIFO: from job_runner_spawn until it ends. */
bool job_runner_alive(const char *job_dir);

/** Last resort against a runner that does not answer a terminate: SIGKILL through its pidfd. */
void job_runner_kill(const struct job_runner *runner);

/** Remove what a runner that ended without exit.json may have left outside the job folder: kills
 * the job's remaining processes (cgroup), removes its cgroups and temporary folder. False while
 * processes are still going away: call again a little later. Harmless after a clean end. */
bool job_runner_clean_up(const char *job_dir);

/* ---- commands ------------------------------------------------------------------------------ */

/* Each is delivered whole or not at all. False with ERR_CONFLICT when the runner is gone,
 * ERR_OVERLOADED when it does not keep up (repeat later), ERR_INTERNAL when the disk is full. */

/** Write to the job's terminal, verbatim. Any length. */
bool job_runner_input(const char *job_dir, const char *bytes, size_t len,
                      struct error *err) MUST_CHECK;
bool job_runner_resize(const char *job_dir, int cols, int rows, struct error *err) MUST_CHECK;
/** End the job: Ctrl-C (pty) or SIGINT at once, SIGTERM to every process after half the grace (at
 * most 2 s), SIGKILL to whatever is left after it. `grace_ms` 0 kills at once. A second command can
 * only shorten the grace. The end shows as exit.json, as soon as the processes are gone. */
bool job_runner_terminate(const char *job_dir, int64_t grace_ms, struct error *err) MUST_CHECK;

/* ---- results ------------------------------------------------------------------------------- */

enum runner_status { RUNNER_EXITED, RUNNER_TERMINATED, RUNNER_FAILED };

/** Content of exit.json. A value. */
struct runner_exit {
    enum runner_status status;
    int exit_code;     /* EXITED: the script's, 128+signal, or 111/126/127; TERMINATED: how the main
                    * process ended, for information; FAILED: 125 */
    char reason[32];   /* "" or `start_failed`, `terminated` */
    char message[480]; /* for a person; names the isolation layer that failed */
    int64_t ended_wall_ms;
    int64_t output_bytes, output_dropped; /* bytes in output.log; bytes read beyond the limit or
                                           * while the disk was full */
    int64_t stderr_bytes, stderr_dropped;
};

/** False when there is none (yet). A file that cannot be understood is reported as RUNNER_FAILED
 * with a message. */
bool job_runner_read_exit(const char *job_dir, struct runner_exit *ret);

/** When the script began to run; false when it has not. */
bool job_runner_read_started(const char *job_dir, int64_t *ret_wall_ms);

/* ---- the other process --------------------------------------------------------------------- */

/** `bindery shellctl-runner <job_dir>`: run one job to its end. Exit 0 when exit.json was written,
 * 1 when not, 64 on usage. */
int job_runner_main(int argc, char **argv);
