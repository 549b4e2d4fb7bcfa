#include "backends/shellctld/runner.h"

#include "backends/shellctld/jail.h"
#include "backends/shellctld/process.h"
#include "backends/shellctld/pty.h"
#include "backends/shellctld/runner_control.h"
#include "backends/shellctld/runner_result.h"
#include "backends/shellctld/small_file.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    CONTROL_FD = STDIN_FILENO,
    SIGTERM_GRACE_MS = 10000, /* a terminate that came as a signal */
    TERM_AFTER_MAX_MS = 2000,
    CLEAR_MS = 10000, /* bound for killing the rest of the tree */
    DRAIN_MS = 2000,  /* bound for output once no process is left */
    KILL_EVERY_MS = 20,
    PUMPS_PER_TURN = 16, /* reads before the other descriptors are looked at again */
};

int64_t runner_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- ending the job ---------------------------------------------------------------------------- */

static bool in_bwrap(const struct runner *r)
{
    return r->spec.scope == RUNNER_SCOPED && (r->spec.isolation.layers & LAYER_BWRAP) != 0;
}

/* To every process of the job. Bubblewrap's own two must live until theirs are gone. */
static void signal_job(const struct runner *r, int sig)
{
    process_signal_descendants(getpid(), sig, in_bwrap(r) ? r->main_pid : 0);
}

/* Everything at once: the control group cannot be escaped by forking; below it bubblewrap's end
 * takes its process namespace along; whatever else there is has this runner as its ancestor. */
static void kill_job(struct runner *r)
{
    if (r->spec.scope == RUNNER_SCOPED)
        (void)cgroup_kill(&r->spec.isolation.cgroups, r->job_id);
    process_signal_descendants(getpid(), SIGKILL, 0);
    r->next_kill_at = runner_now_ms() + KILL_EVERY_MS;
}

static void interrupt(struct runner *r)
{
    if (r->master >= 0)
        (void)write_all(r->master, "\x03", 1); /* when it does not fit, SIGTERM follows */
    else
        signal_job(r, SIGINT);
}

static void terminate(struct runner *r, int64_t grace_ms)
{
    int64_t now = runner_now_ms();
    int64_t kill_at = now + (grace_ms < 0 ? 0 : grace_ms);

    if (r->phase != RUNNER_RUNNING)
        return;
    if (r->terminating) {
        r->kill_at = kill_at < r->kill_at ? kill_at : r->kill_at;
        return;
    }
    r->terminating = true;
    r->kill_at = kill_at;
    r->term_at = now + (grace_ms / 2 < TERM_AFTER_MAX_MS ? grace_ms / 2 : TERM_AFTER_MAX_MS);
    /* Without a grace the timers are due at once. A job that has not begun yet could not notice. */
    if (grace_ms > 0 && r->status_fd < 0)
        interrupt(r);
}

static void fire_timers(struct runner *r, int64_t now)
{
    if (r->phase == RUNNER_RUNNING && now >= r->kill_at) {
        kill_job(r);
        r->kill_at = r->next_kill_at;
        r->term_at = INT64_MAX;
    } else if (r->phase == RUNNER_RUNNING && now >= r->term_at) {
        signal_job(r, SIGTERM);
        r->term_at = INT64_MAX;
    }
    if (r->phase == RUNNER_CLEARING && r->has_children && now >= r->next_kill_at)
        kill_job(r);
    if (now - r->last_output_at >= JOB_STREAM_IDLE_MS && output_filter_holds(&r->out.filter))
        job_stream_idle(&r->out);
}

/* ---- what comes in ----------------------------------------------------------------------------- */

static void take_input_file(struct runner *r, const struct control_frame *frame)
{
    char name[64], path[4096];
    struct error err = {0};
    const char *text;
    size_t len;

    if (frame->len == 0 || frame->len >= sizeof name || memchr(frame->payload, '/', frame->len))
        return;
    snprintf(name, sizeof name, "%.*s", (int)frame->len, frame->payload);
    struct arena *arena = arena_new();
    if (small_file_read(r->job_dir, name, CONTROL_INPUT_MAX, arena, &text, &len, &err))
        buf_add(&r->input, text, len);
    else
        fprintf(stderr, "input lost: %s\n", err.message);
    arena_free(arena);
    snprintf(path, sizeof path, "%s/%s", r->job_dir, name);
    unlink(path);
}

static void obey(struct runner *r, const struct control_frame *frame)
{
    int32_t size[2];
    int64_t grace_ms;

    switch (frame->type) {
    case CONTROL_INPUT:
        if (r->master >= 0)
            buf_add(&r->input, frame->payload, frame->len);
        break;
    case CONTROL_INPUT_FILE:
        take_input_file(r, frame);
        break;
    case CONTROL_RESIZE:
        if (frame->len == sizeof size && r->master >= 0) {
            memcpy(size, frame->payload, sizeof size);
            (void)pty_resize(r->master, size[0], size[1]); /* the job may just have ended */
        }
        break;
    case CONTROL_TERMINATE:
        if (frame->len == sizeof grace_ms) {
            memcpy(&grace_ms, frame->payload, sizeof grace_ms);
            terminate(r, grace_ms);
        }
        break;
    default: /* of a newer daemon: not understood, and none of our business */
        break;
    }
}

static void take_commands(struct runner *r)
{
    struct control_frame frame;
    char chunk[16384];
    size_t at = 0;
    ssize_t n = read(CONTROL_FD, chunk, sizeof chunk);

    if (n <= 0)
        return;
    buf_add(&r->commands, chunk, (size_t)n);
    while (control_next(&r->commands, &at, &frame))
        obey(r, &frame);
    buf_drain(&r->commands, at);
}

static void feed_terminal(struct runner *r)
{
    ssize_t n = write(r->master, r->input.data, r->input.len);

    if (n > 0)
        buf_drain(&r->input, (size_t)n);
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        buf_clear(&r->input); /* nobody holds the terminal any more */
}

static void take_status(struct runner *r)
{
    ssize_t n = read(r->status_fd, r->said, sizeof r->said - 1);
    struct error err = {0};

    if (n < 0 && errno == EINTR)
        return;
    r->said[n > 0 ? n : 0] = '\0';
    if (r->said[0] == JAIL_STARTED && !result_write_started(r->job_dir, &err))
        fprintf(stderr, "%s\n", err.message); /* a full disk; the job runs on without the record */
    close(r->status_fd);
    r->status_fd = -1;
    if (r->terminating)
        interrupt(r);
}

/* Reap whatever has ended; the first process decides how the job ended. */
static void reap(struct runner *r)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == r->main_pid && r->phase == RUNNER_RUNNING) {
            r->main_status = status;
            r->phase = RUNNER_CLEARING;
            r->clear_by = runner_now_ms() + CLEAR_MS;
            r->next_kill_at = 0;
        }
    }
    r->has_children = pid == 0;
}

static void take_signals(struct runner *r)
{
    struct signalfd_siginfo info[16];
    ssize_t n = read(r->signal_fd, info, sizeof info);

    for (ssize_t i = 0; i < n / (ssize_t)sizeof *info; i++) {
        if (info[i].ssi_signo == SIGTERM)
            terminate(r, SIGTERM_GRACE_MS);
    }
    reap(r);
}

static void pump(struct runner *r, struct job_stream *s)
{
    for (int i = 0; i < PUMPS_PER_TURN && job_stream_pump(s); i++)
        r->last_output_at = runner_now_ms();
}

/* ---- the loop ---------------------------------------------------------------------------------- */

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int timeout_ms(const struct runner *r)
{
    int64_t now = runner_now_ms(), due = INT64_MAX;

    if (r->phase == RUNNER_RUNNING)
        due = earlier(r->term_at, r->kill_at);
    else
        due = r->has_children ? earlier(r->next_kill_at, r->clear_by) : r->clear_by;
    if (output_filter_holds(&r->out.filter))
        due = earlier(due, r->last_output_at + JOB_STREAM_IDLE_MS);
    if (due == INT64_MAX)
        return -1;
    return due <= now ? 0 : (int)earlier(due - now, 60000);
}

/* Over when no process is left and the output has ended, or the bounds for both are spent. */
static void check_end(struct runner *r)
{
    static bool alone;
    int64_t now = runner_now_ms();

    if (r->phase != RUNNER_CLEARING)
        return;
    if (!r->has_children && !alone) {
        alone = true;
        r->clear_by = now + DRAIN_MS;
    }
    if ((!r->has_children && r->out.source < 0 && r->err.source < 0) || now >= r->clear_by)
        r->phase = RUNNER_DONE;
}

void runner_run(struct runner *r)
{
    enum { CONTROL, SIGNALS, STATUS, OUT, ERR, COUNT };

    r->last_output_at = runner_now_ms();
    while (r->phase != RUNNER_DONE) {
        bool writable = r->master >= 0 && r->input.len > 0 && r->out.source >= 0;
        struct pollfd fds[COUNT] = {
            [CONTROL] = {.fd = CONTROL_FD, .events = POLLIN},
            [SIGNALS] = {.fd = r->signal_fd, .events = POLLIN},
            [STATUS] = {.fd = r->status_fd, .events = POLLIN},
            [OUT] = {.fd = r->out.source, .events = (short)(POLLIN | (writable ? POLLOUT : 0))},
            [ERR] = {.fd = r->err.source, .events = POLLIN},
        };
        if (poll(fds, COUNT, timeout_ms(r)) < 0 && errno != EINTR)
            break;
        if (fds[STATUS].revents != 0)
            take_status(r);
        if (fds[CONTROL].revents != 0)
            take_commands(r);
        if ((fds[OUT].revents & POLLOUT) != 0)
            feed_terminal(r);
        if ((fds[OUT].revents & ~POLLOUT) != 0)
            pump(r, &r->out);
        if (fds[ERR].revents != 0)
            pump(r, &r->err);
        if (fds[SIGNALS].revents != 0)
            take_signals(r);
        fire_timers(r, runner_now_ms());
        check_end(r);
    }
    job_stream_finish(&r->out);
    job_stream_finish(&r->err);
}

/* ---- the end ----------------------------------------------------------------------------------- */

static int main_code(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void describe_start_failure(const struct runner *r, struct runner_exit *ret)
{
    ret->status = RUNNER_FAILED;
    ret->exit_code = JAIL_EXIT_SETUP;
    snprintf(ret->reason, sizeof ret->reason, "start_failed");
    if (r->said[0] == JAIL_FAILED)
        snprintf(ret->message, sizeof ret->message, "%.470s", r->said + 1);
    else
        snprintf(ret->message, sizeof ret->message,
                 "%s ended with %d before the script began; its words are in the output",
                 in_bwrap(r) ? "bubblewrap" : "the start", main_code(r->main_status));
}

void runner_describe_end(const struct runner *r, struct runner_exit *ret)
{
    int64_t oom_kills = r->spec.scope == RUNNER_SCOPED
                            ? cgroup_oom_kills(&r->spec.isolation.cgroups, r->job_id)
                            : 0;

    ret->status = RUNNER_EXITED;
    ret->exit_code = main_code(r->main_status);
    if (r->terminating) {
        ret->status = RUNNER_TERMINATED;
        snprintf(ret->reason, sizeof ret->reason, "terminated");
    } else if (r->said[0] != JAIL_STARTED) {
        describe_start_failure(r, ret);
    }
    if (r->has_children)
        snprintf(ret->message, sizeof ret->message, "some of its processes could not be killed");
    else if (oom_kills > 0 && ret->message[0] == '\0')
        snprintf(ret->message, sizeof ret->message,
                 "%" PRId64 " of its processes were killed at the memory limit of %" PRId64
                 " bytes",
                 oom_kills, r->spec.limits.max_memory_bytes);
}
