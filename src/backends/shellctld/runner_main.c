/* `bindery shellctl-runner <job_dir>`: sets up one job, runs it, records its end. */
#include "backends/shellctld/launch.h"
#include "backends/shellctld/process.h"
#include "backends/shellctld/pty.h"
#include "backends/shellctld/runner.h"
#include "backends/shellctld/runner_result.h"
#include "backends/shellctld/small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    EXIT_USAGE_ERROR = 64,
    JAIL_SETUP = 125,
    CLEAN_UP_MS = 2000,
    RESULT_TRIES = 100,
    RETRY_US = 100000,
};

static bool fail(struct error *err, const char *what)
{
    error_set(err, ERR_INTERNAL, "%s: %s", what, strerror(errno));
    return false;
}

/* ---- setting up -------------------------------------------------------------------------------- */

static bool record_identity(const char *job_dir, struct error *err)
{
    struct process_id id;
    char text[96];

    if (!process_id_of(getpid(), &id))
        return fail(err, "cannot tell who this process is");
    process_id_format(&id, text, sizeof text);
    return small_file_write(job_dir, "runner.pid", text, strlen(text), err);
}

/* Orphans of the job become our children, whatever they do to leave its session and groups. */
static bool prepare_process(struct runner *r, struct error *err)
{
    struct rlimit files;
    sigset_t watched;

    umask(077);
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    sigaddset(&watched, SIGTERM);
    sigprocmask(SIG_BLOCK, &watched, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 1024) {
        files.rlim_cur = files.rlim_max < 1024 ? files.rlim_max : 1024;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    r->signal_fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    return (r->signal_fd >= 0 && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0) ||
           fail(err, "cannot watch over processes");
}

static bool open_pipe(struct job_stream *s, int *ret_writer, struct error *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0)
        return fail(err, "no pipe");
    s->source = ends[0];
    *ret_writer = ends[1];
    return true;
}

/* The job's descriptors 0-2 into `stdio`, our ends into the streams. */
static bool open_streams(struct runner *r, int stdio[3], struct error *err)
{
    int64_t limit = r->spec.limits.max_output_bytes;

    if (r->spec.mode == RUNNER_PTY) {
        if (!job_stream_open(&r->out, r->job_dir, "output.log", FILTER_TERMINAL, limit, err) ||
            !pty_open(r->spec.cols, r->spec.rows, &r->out.source, &stdio[0], err))
            return false;
        stdio[1] = stdio[2] = stdio[0];
        r->master = dup(r->out.source);
        return (r->master >= 0 && fcntl(r->master, F_SETFD, FD_CLOEXEC) == 0) ||
               fail(err, "no descriptor");
    }
    stdio[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return (stdio[0] >= 0 || fail(err, "cannot open /dev/null")) &&
           job_stream_open(&r->out, r->job_dir, "output.log", FILTER_PLAIN, limit, err) &&
           job_stream_open(&r->err, r->job_dir, "stderr.log", FILTER_PLAIN, limit, err) &&
           open_pipe(&r->out, &stdio[1], err) && open_pipe(&r->err, &stdio[2], err);
}

static void close_stdio(const int stdio[3])
{
    for (int i = 0; i < 3; i++) {
        if (stdio[i] > 2 && (i == 0 || stdio[i] != stdio[0]))
            close(stdio[i]);
    }
}

static bool start(struct runner *r, struct error *err)
{
    int stdio[3] = {-1, -1, -1};
    bool ok = prepare_process(r, err) && result_reserve(r->job_dir, err) &&
              runner_spec_read(r->job_dir, r->arena, &r->spec, err) && open_streams(r, stdio, err);

    if (ok) {
        const struct launch launch = {
            .state_dir = r->state_dir,
            .job_id = r->job_id,
            .script_path = arena_printf(r->arena, "%s/script", r->job_dir),
            .spec = &r->spec,
            .stdio = {stdio[0], stdio[1], stdio[2]},
        };
        ok = launch_start(&launch, r->arena, &r->main_pid, &r->status_fd, err);
    }
    close_stdio(stdio);
    return ok;
}

/* ---- ending ------------------------------------------------------------------------------------ */

/* A disk that is full now may not be in a moment; without the record the job would be lost. */
static bool record_end(const struct runner *r, const struct runner_exit *exit)
{
    struct error err = {0};

    for (int i = 0; i < RESULT_TRIES; i++) {
        if (result_write(r->job_dir, exit, &err))
            return true;
        usleep(RETRY_US);
    }
    fprintf(stderr, "%s\n", err.message);
    return false;
}

static void clean_up(const struct runner *r)
{
    int64_t until = runner_now_ms() + CLEAN_UP_MS;

    if (r->spec.scope != RUNNER_SCOPED || r->spec.home == NULL)
        return;
    while (!launch_clean_up(r->state_dir, r->job_id, &r->spec.isolation)) {
        if (runner_now_ms() >= until) {
            fprintf(stderr, "the job's control groups could not be removed\n");
            return;
        }
        usleep(1000);
    }
}

static int run(struct runner *r)
{
    struct runner_exit exit = {0};
    struct error err = {0};
    bool recorded;

    if (start(r, &err)) {
        runner_run(r);
        runner_describe_end(r, &exit);
    } else {
        exit.status = RUNNER_FAILED;
        exit.exit_code = JAIL_SETUP;
        snprintf(exit.reason, sizeof exit.reason, "start_failed");
        snprintf(exit.message, sizeof exit.message, "%s", err.message);
    }
    exit.output_bytes = r->out.kept;
    exit.output_dropped = r->out.dropped;
    exit.stderr_bytes = r->err.kept;
    exit.stderr_dropped = r->err.dropped;
    exit.ended_wall_ms = result_wall_ms();
    recorded = record_end(r, &exit);
    clean_up(r);
    return recorded ? 0 : 1;
}

int job_runner_main(int argc, char **argv)
{
    struct runner r = {.out = {.source = -1, .file = -1},
                       .err = {.source = -1, .file = -1},
                       .signal_fd = -1,
                       .status_fd = -1,
                       .master = -1,
                       .term_at = INT64_MAX,
                       .kill_at = INT64_MAX};
    struct error err = {0};
    const char *slash;
    int code;

    if (argc != 2 || argv[1][0] != '/' || (slash = strrchr(argv[1], '/')) == argv[1]) {
        fprintf(stderr, "usage: shellctl-runner <absolute job folder>\n");
        return EXIT_USAGE_ERROR;
    }
    close_range(3, ~0U, 0);
    r.arena = arena_new();
    r.job_dir = argv[1];
    r.job_id = slash + 1;
    /* <state_dir>/jobs/<job_id> */
    r.state_dir = arena_memdup(r.arena, argv[1], (size_t)(slash - argv[1]));
    char *parent = strrchr(r.state_dir, '/');
    *parent = '\0';
    if (!record_identity(r.job_dir, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    code = run(&r);
    job_stream_close(&r.out);
    job_stream_close(&r.err);
    buf_fini(&r.commands);
    buf_fini(&r.input);
    arena_free(r.arena);
    return code;
}
