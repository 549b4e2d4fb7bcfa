#include "core/runtime/reaper.h"

#include "core/runtime/check.h"
#include "core/runtime/loop.h"

#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AGAIN_MS = 200 };

struct reaper {
    struct loop *loop;
    struct event *sigchld;
    struct timer again;
    bool (*is_ours)(void *ctx, pid_t pid);
    void *ctx;
};

bool reaper_sweep(bool (*is_ours)(void *ctx, pid_t pid), void *ctx)
{
    for (;;) {
        siginfo_t info = {0};

        /* a look first: the status of our own children belongs to who started them */
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            return false;
        if (is_ours(ctx, info.si_pid))
            return true;
        (void)waitpid(info.si_pid, NULL, WNOHANG);
    }
}

static void sweep(void *ctx)
{
    struct reaper *r = ctx;

    if (reaper_sweep(r->is_ours, r->ctx))
        timer_set_ms(r->loop, &r->again, AGAIN_MS);
}

static void on_sigchld(evutil_socket_t number, short what, void *ctx)
{
    struct reaper *r = ctx;

    (void)number;
    (void)what;
    loop_touch(r->loop);
    sweep(r);
}

struct reaper *reaper_start(struct loop *loop, bool (*is_ours)(void *ctx, pid_t pid), void *ctx)
{
    struct reaper *r;

    if (getpid() != 1)
        return NULL;
    r = xcalloc(1, sizeof(*r));
    r->loop = loop;
    r->is_ours = is_ours;
    r->ctx = ctx;
    timer_init(&r->again, sweep, r);
    r->sigchld = evsignal_new(loop_base(loop), SIGCHLD, on_sigchld, r);
    PRE(r->sigchld != NULL);
    event_add(r->sigchld, NULL);
    sweep(r);
    return r;
}

void reaper_free(struct reaper *r)
{
    if (r == NULL)
        return;
    event_free(r->sigchld);
    timer_cancel(r->loop, &r->again);
    free(r);
}
