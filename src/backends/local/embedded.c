#include "backends/local/embedded.h"

#include "backends/local/embedded_spawn.h"
#include "core/runtime/backoff.h"
#include "core/runtime/buf.h"
#include "core/runtime/json.h"
#include "core/runtime/log.h"
#include "core/runtime/metrics.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RESTART_FIRST_MS = 100,
    RESTART_MAX_MS = 10000,
    STEADY_MS = 30000, /* a child that was ready this long begins with short pauses again */
    START_MS = 30000,  /* from start to ready; the probe of isolation takes a part of it */
    TERM_MS = 8000,    /* from SIGTERM to SIGKILL; the child drains for up to 6 s */
    READY_LINE_MAX = 65536,
};

enum embedded_state {
    EMBEDDED_PAUSING,  /* no child; the timer starts one */
    EMBEDDED_STARTING, /* the child has not said that it is ready */
    EMBEDDED_READY,
    EMBEDDED_STOPPING, /* told to end */
    EMBEDDED_STOPPED,  /* for good */
};

struct embedded {
    struct loop *loop;
    struct embedded_paths paths;
    struct buf environment; /* NAME=value\0 … of the child */
    char *program;
    void (*on_change)(void *ctx, bool ready);
    void *change_ctx;

    enum embedded_state state;
    struct embedded_child child; /* descriptors -1 when there is none */
    struct event *ended, *speaks;
    struct buf ready_line; /* what the child says of itself */
    char reason[200];      /* why it is not ready */
    struct timer timer;    /* pause, start deadline, grace */
    struct backoff backoff;
    int64_t ready_since_ms;
    int64_t restarts;
    void (*on_stopped)(void *ctx);
    void *stopped_ctx;
};

static void start_child(struct embedded *e);

static void set_state(struct embedded *e, enum embedded_state state)
{
    bool was_ready = e->state == EMBEDDED_READY;

    e->state = state;
    if (was_ready != (state == EMBEDDED_READY) && e->on_change != NULL)
        e->on_change(e->change_ctx, state == EMBEDDED_READY);
}

static void drop_event(struct event **event, int *fd)
{
    if (*event != NULL)
        event_free(*event);
    *event = NULL;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void forget_child(struct embedded *e)
{
    drop_event(&e->ended, &e->child.pidfd);
    drop_event(&e->speaks, &e->child.ready_fd);
    buf_clear(&e->ready_line);
    timer_cancel(e->loop, &e->timer);
}

/* ---- ending ------------------------------------------------------------------------------------ */

static void pause_then_start(struct embedded *e)
{
    int64_t pause_ms;

    if (e->state == EMBEDDED_READY && loop_now_ms(e->loop) - e->ready_since_ms >= STEADY_MS)
        e->backoff.attempts = 0;
    pause_ms = backoff_next_ms(&e->backoff);
    set_state(e, EMBEDDED_PAUSING);
    e->restarts++;
    metric_add(METRIC_CHILD_RESTARTS, LABELS("shellctl"), 1);
    log_warn("the embedded sandbox %s; it is started again in %lld ms", e->reason,
             (long long)pause_ms);
    timer_set_ms(e->loop, &e->timer, pause_ms);
}

static void stopped(struct embedded *e)
{
    set_state(e, EMBEDDED_STOPPED);
    embedded_paths_remove(&e->paths);
    if (e->on_stopped != NULL)
        e->on_stopped(e->stopped_ctx);
}

static void on_ended(evutil_socket_t fd, short what, void *ctx)
{
    struct embedded *e = ctx;
    siginfo_t info = {0};

    (void)what;
    loop_touch(e->loop);
    if (waitid(P_PIDFD, (id_t)fd, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0)
        return; /* not yet: the descriptor stays readable */
    if (info.si_code == CLD_EXITED)
        snprintf(e->reason, sizeof(e->reason), "ended with status %d", info.si_status);
    else
        snprintf(e->reason, sizeof(e->reason), "was ended by signal %d", info.si_status);
    forget_child(e);
    if (e->state == EMBEDDED_STOPPING)
        stopped(e);
    else
        pause_then_start(e);
}

/* ---- starting ---------------------------------------------------------------------------------- */

static void on_speaks(evutil_socket_t fd, short what, void *ctx)
{
    struct embedded *e = ctx;
    char bytes[4096];
    ssize_t n = read(fd, bytes, sizeof(bytes));

    (void)what;
    loop_touch(e->loop);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        buf_add(&e->ready_line, bytes, (size_t)n);
    if (n > 0 && bytes[n - 1] != '\n' && e->ready_line.len < READY_LINE_MAX)
        return;
    drop_event(&e->speaks, &e->child.ready_fd);
    if (n <= 0 || bytes[n - 1] != '\n' || e->state != EMBEDDED_STARTING)
        return; /* it is about to end, or will be late */
    e->ready_line.data[--e->ready_line.len] = '\0';
    timer_cancel(e->loop, &e->timer);
    e->ready_since_ms = loop_now_ms(e->loop);
    set_state(e, EMBEDDED_READY);
}

static void on_timer(void *ctx)
{
    struct embedded *e = ctx;

    if (e->state == EMBEDDED_PAUSING) {
        start_child(e);
        return;
    }
    log_error("the embedded sandbox %s in time and is killed",
              e->state == EMBEDDED_STOPPING ? "did not end" : "was not ready");
    embedded_child_signal(&e->child, SIGKILL);
}

static void start_child(struct embedded *e)
{
    struct error err = {0};

    if (!embedded_spawn(&e->paths, &e->environment, e->program, &e->child, &err)) {
        snprintf(e->reason, sizeof(e->reason), "could not be started (%.150s)", err.message);
        pause_then_start(e);
        return;
    }
    set_state(e, EMBEDDED_STARTING);
    snprintf(e->reason, sizeof(e->reason), "is starting");
    e->ended = event_new(loop_base(e->loop), e->child.pidfd, EV_READ | EV_PERSIST, on_ended, e);
    e->speaks =
        event_new(loop_base(e->loop), e->child.ready_fd, EV_READ | EV_PERSIST, on_speaks, e);
    PRE(e->ended != NULL && e->speaks != NULL);
    PRE(event_add(e->ended, NULL) == 0 && event_add(e->speaks, NULL) == 0);
    timer_set_ms(e->loop, &e->timer, START_MS);
}

struct embedded *embedded_start(struct loop *loop, const struct embedded_options *options,
                                struct error *err)
{
    struct embedded *e = xcalloc(1, sizeof(*e));

    if (!embedded_paths_make(&e->paths, options->data_dir, err)) {
        embedded_paths_fini(&e->paths);
        free(e);
        return NULL;
    }
    e->loop = loop;
    embedded_environment(&e->environment, options);
    e->program = xstrdup(options->program != NULL ? options->program : "/proc/self/exe");
    e->on_change = options->on_change;
    e->change_ctx = options->ctx;
    e->child = (struct embedded_child){.pid = -1, .pidfd = -1, .ready_fd = -1};
    e->backoff = (struct backoff){.base_ms = RESTART_FIRST_MS, .cap_ms = RESTART_MAX_MS};
    timer_init(&e->timer, on_timer, e);
    start_child(e);
    return e;
}

/* ---- asking ------------------------------------------------------------------------------------ */

bool embedded_ready(const struct embedded *e, struct error *err)
{
    if (e->state == EMBEDDED_READY)
        return true;
    error_set(err, ERR_BACKEND_UNAVAILABLE, "the embedded sandbox %s",
              e->state >= EMBEDDED_STOPPING ? "is shut down" : e->reason);
    return false;
}

bool embedded_is_child(const struct embedded *e, pid_t pid)
{
    return e->child.pidfd >= 0 && e->child.pid == pid;
}

const char *embedded_socket(const struct embedded *e)
{
    return e->paths.socket;
}

void embedded_describe(const struct embedded *e, struct json_writer *w)
{
    json_object_begin(w);
    json_member_bool(w, "ready", e->state == EMBEDDED_READY);
    if (e->state == EMBEDDED_READY)
        json_member_int(w, "pid", e->child.pid);
    else
        json_member_string(w, "reason", e->reason);
    json_member_int(w, "restarts", e->restarts);
    if (e->state == EMBEDDED_READY) {
        json_key(w, "child");
        json_raw(w, e->ready_line.data, e->ready_line.len);
    }
    json_object_finish(w);
}

/* ---- stopping ---------------------------------------------------------------------------------- */

void embedded_stop(struct embedded *e, void (*on_stopped)(void *ctx), void *ctx)
{
    PRE(e->state < EMBEDDED_STOPPING);
    e->on_stopped = on_stopped;
    e->stopped_ctx = ctx;
    timer_cancel(e->loop, &e->timer);
    if (e->child.pidfd < 0) {
        stopped(e);
        return;
    }
    set_state(e, EMBEDDED_STOPPING);
    embedded_child_signal(&e->child, SIGTERM);
    timer_set_ms(e->loop, &e->timer, TERM_MS);
}

void embedded_free(struct embedded *e)
{
    if (e == NULL)
        return;
    if (e->child.pidfd >= 0) {
        embedded_child_signal(&e->child, SIGKILL);
        waitid(P_PIDFD, (id_t)e->child.pidfd, &(siginfo_t){0}, WEXITED);
    }
    forget_child(e);
    if (e->state != EMBEDDED_STOPPED)
        embedded_paths_remove(&e->paths);
    embedded_paths_fini(&e->paths);
    buf_fini(&e->environment);
    buf_fini(&e->ready_line);
    free(e->program);
    free(e);
}
