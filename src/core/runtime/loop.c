#include "core/runtime/loop.h"

#include "core/runtime/check.h"
#include "core/runtime/timer_heap.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    READY_RUNS_MAX = 20000, /* tasks of one turn; the rest runs in the next, after a poll */
    TURN_BUDGET_US = 5000,  /* likewise, measured every LOOK_EVERY tasks or timers */
    LOOK_EVERY = 32,
};

/* No timer is further away: 146,000 years, so that sums of two never overflow. */
static const int64_t longest_ms = INT64_MAX / 2000;

struct deferred {
    void (*release)(void *ptr);
    void *ptr;
};

struct loop {
    struct event_base *base;
    struct event *wakeup; /* the earliest timer, as a libevent timeout */
    bool stopping;
    bool virtual_clock;
    bool in_turn;
    int64_t now_us;
    int64_t wall_offset_ms; /* virtual clock: wall = now + offset */
    int64_t turn_started_us;
    int away;              /* pieces of work that other threads have */
    int64_t wakeup_due_us; /* what `wakeup` is armed for; INT64_MAX = not armed */

    struct timer_heap timers;
    struct list ready;
    struct list hooks;
    struct deferred *frees;
    size_t n_frees, cap_frees;

    struct loop_stats stats;
    int64_t cpu_us; /* the thread's, at the end of the last turn */
    void (*observe)(void *ctx, int64_t turn_us, int64_t cpu_us);
    void *observe_ctx;
};

static int64_t clock_us(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* ---- timers ---------------------------------------------------------------------------------- */

void timer_init(struct timer *timer, void (*fire)(void *ctx), void *ctx)
{
    *timer = (struct timer){.fire = fire, .ctx = ctx};
}

void timer_cancel(struct loop *loop, struct timer *timer)
{
    timer_heap_remove(&loop->timers, timer);
}

void timer_set_ms(struct loop *loop, struct timer *timer, int64_t after_ms)
{
    PRE(timer->fire != NULL);
    timer_cancel(loop, timer);
    after_ms = after_ms < 0 ? 0 : after_ms > longest_ms ? longest_ms : after_ms;
    timer->due_us = loop_now_us(loop) + after_ms * 1000;
    timer_heap_add(&loop->timers, timer);
}

/* Whether other turns' events have waited long enough. Under the virtual clock a turn has no
 * length: tests must not depend on how fast the machine is. */
static bool turn_is_long(const struct loop *loop, int done)
{
    return done % LOOK_EVERY == 0 && !loop->virtual_clock &&
           clock_us(CLOCK_MONOTONIC) - loop->turn_started_us > TURN_BUDGET_US;
}

/* As many as were armed at the start: one that re-arms itself with 0 ms cannot hold the turn. */
static void timers_run(struct loop *loop)
{
    int64_t until_us = loop->now_us;
    uint32_t budget = loop->timers.len;

    for (int done = 1; budget > 0; budget--, done++) {
        struct timer *timer = timer_heap_first(&loop->timers);
        if (timer == NULL || timer->due_us > until_us)
            break;
        timer_cancel(loop, timer);
        timer->fire(timer->ctx);
        if (turn_is_long(loop, done))
            break;
    }
}

/* ---- ready queue, hooks, frees -------------------------------------------------------------- */

void task_init(struct task *task, void (*run)(void *ctx), void *ctx)
{
    *task = (struct task){.run = run, .ctx = ctx};
    list_init(&task->link);
}

void loop_post(struct loop *loop, struct task *task)
{
    if (list_empty(&task->link))
        list_push(&loop->ready, &task->link);
}

void task_cancel(struct task *task)
{
    list_remove(&task->link);
}

static void ready_run(struct loop *loop)
{
    for (int done = 1; done <= READY_RUNS_MAX; done++) {
        struct list *node = list_pop(&loop->ready);
        if (node == NULL)
            return;
        struct task *task = container_of(node, struct task, link);
        task->run(task->ctx);
        if (turn_is_long(loop, done))
            return;
    }
}

void turn_hook_init(struct turn_hook *hook, void (*run)(void *ctx), void *ctx)
{
    *hook = (struct turn_hook){.run = run, .ctx = ctx};
    list_init(&hook->link);
}

void loop_at_turn_end(struct loop *loop, struct turn_hook *hook)
{
    if (list_empty(&hook->link))
        list_push(&loop->hooks, &hook->link);
}

void turn_hook_cancel(struct turn_hook *hook)
{
    list_remove(&hook->link);
}

static void hooks_run(struct loop *loop)
{
    struct list now = LIST_INIT(now);

    list_splice(&now, &loop->hooks); /* a hook that asks again runs at the end of the next turn */
    for (struct list *node; (node = list_pop(&now)) != NULL;) {
        struct turn_hook *hook = container_of(node, struct turn_hook, link);
        hook->run(hook->ctx);
    }
}

void loop_defer_free(struct loop *loop, void (*release)(void *ptr), void *ptr)
{
    if (loop->n_frees == loop->cap_frees) {
        loop->cap_frees = loop->cap_frees == 0 ? 64 : loop->cap_frees * 2;
        loop->frees = xrealloc(loop->frees, loop->cap_frees * sizeof(*loop->frees));
    }
    loop->frees[loop->n_frees++] = (struct deferred){release, ptr};
}

static void frees_run(struct loop *loop)
{
    for (size_t i = 0; i < loop->n_frees; i++) { /* a release may defer more: same pass */
        struct deferred d = loop->frees[i];
        d.release(d.ptr);
    }
    loop->n_frees = 0;
}

/* ---- turns ---------------------------------------------------------------------------------- */

static void on_wakeup(evutil_socket_t fd, short what, void *ctx)
{
    struct loop *loop = ctx;

    (void)fd;
    (void)what;
    loop->wakeup_due_us = INT64_MAX;
    loop_touch(loop);
}

struct loop *loop_new(const struct loop_options *options)
{
    struct loop *loop = xcalloc(1, sizeof(*loop));
    struct event_config *config = event_config_new();

    PRE(config != NULL);
    /* No precise timers: they cost two system calls a turn, and milliseconds are enough. */
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    loop->base = event_base_new_with_config(config);
    event_config_free(config);
    PRE(loop->base != NULL);
    loop->wakeup = event_new(loop->base, -1, 0, on_wakeup, loop);
    PRE(loop->wakeup != NULL);
    loop->wakeup_due_us = INT64_MAX;
    list_init(&loop->ready);
    list_init(&loop->hooks);
    loop->virtual_clock = options != NULL && options->virtual_clock;
    if (loop->virtual_clock) {
        loop->now_us = 1000000;
        loop->wall_offset_ms = options->virtual_wall_ms - loop->now_us / 1000;
    } else {
        loop->now_us = clock_us(CLOCK_MONOTONIC);
    }
    loop->cpu_us = clock_us(CLOCK_THREAD_CPUTIME_ID);
    return loop;
}

void loop_free(struct loop *loop)
{
    if (loop == NULL)
        return;
    frees_run(loop);
    event_free(loop->wakeup);
    event_base_free(loop->base);
    timer_heap_fini(&loop->timers);
    free(loop->frees);
    free(loop);
}

struct event_base *loop_base(struct loop *loop)
{
    return loop->base;
}

void loop_touch(struct loop *loop)
{
    if (loop->turn_started_us != 0 && loop->in_turn)
        return;
    loop->turn_started_us = clock_us(CLOCK_MONOTONIC);
    if (!loop->virtual_clock)
        loop->now_us = loop->turn_started_us;
}

static void wakeup_arm(struct loop *loop)
{
    const struct timer *first = timer_heap_first(&loop->timers);
    int64_t due_us = first == NULL ? INT64_MAX : first->due_us;
    int64_t wait_us;
    struct timeval tv;

    if (loop->virtual_clock || due_us >= loop->wakeup_due_us)
        return; /* armed early enough: a wake-up too early only costs an empty turn */
    wait_us = due_us - clock_us(CLOCK_MONOTONIC);
    wait_us = wait_us > 0 ? wait_us : 0;
    tv = (struct timeval){.tv_sec = wait_us / 1000000, .tv_usec = wait_us % 1000000};
    event_add(loop->wakeup, &tv);
    loop->wakeup_due_us = due_us;
}

static void watch_turn(struct loop *loop)
{
    struct loop_stats *stats = &loop->stats;
    int64_t cpu_us = clock_us(CLOCK_THREAD_CPUTIME_ID);

    stats->last_turn_us = clock_us(CLOCK_MONOTONIC) - loop->turn_started_us;
    stats->last_turn_cpu_us = cpu_us - loop->cpu_us;
    loop->cpu_us = cpu_us;
    stats->turns++;
    if (stats->last_turn_us > stats->longest_turn_us)
        stats->longest_turn_us = stats->last_turn_us;
    if (loop->observe != NULL)
        loop->observe(loop->observe_ctx, stats->last_turn_us, stats->last_turn_cpu_us);
}

void loop_turn(struct loop *loop, bool may_block)
{
    bool block = may_block && list_empty(&loop->ready) && list_empty(&loop->hooks);

    PRE(!loop->in_turn);
    loop->in_turn = true;
    loop->turn_started_us = 0;
    if (block)
        wakeup_arm(loop);
    /* One poll in either case: EVLOOP_NONBLOCK alone goes on while any descriptor is ready, and
     * under load one always is. */
    event_base_loop(loop->base, EVLOOP_ONCE | (block ? EVLOOP_NO_EXIT_ON_EMPTY : EVLOOP_NONBLOCK));
    loop_touch(loop);
    timers_run(loop);
    ready_run(loop);
    hooks_run(loop);
    frees_run(loop);
    watch_turn(loop);
    loop->in_turn = false;
}

void loop_run(struct loop *loop)
{
    while (!loop->stopping)
        loop_turn(loop, true);
    loop->stopping = false;
}

void loop_stop(struct loop *loop)
{
    loop->stopping = true;
}

/* ---- time ----------------------------------------------------------------------------------- */

/* A library's callback that did not touch the loop must not arm timers on the time at which the
 * loop went to sleep. */
int64_t loop_now_us(struct loop *loop)
{
    loop_touch(loop);
    return loop->now_us;
}

int64_t loop_now_ms(struct loop *loop)
{
    return loop_now_us(loop) / 1000;
}

int64_t loop_wall_ms(const struct loop *loop)
{
    if (loop->virtual_clock)
        return loop->now_us / 1000 + loop->wall_offset_ms;
    return clock_us(CLOCK_REALTIME) / 1000;
}

/* Turns until nothing is left to do at this moment, so that no task runs later than it should. */
static void settle(struct loop *loop)
{
    do {
        loop_turn(loop, loop->away > 0);
    } while (!list_empty(&loop->ready) || !list_empty(&loop->hooks) || loop->away > 0);
}

void loop_advance_ms(struct loop *loop, int64_t ms)
{
    int64_t until_us = loop->now_us + ms * 1000;

    PRE(loop->virtual_clock && ms >= 0 && ms < longest_ms);
    settle(loop);
    for (const struct timer *first; (first = timer_heap_first(&loop->timers)) != NULL;) {
        if (first->due_us > until_us)
            break;
        if (first->due_us > loop->now_us)
            loop->now_us = first->due_us;
        settle(loop);
    }
    loop->now_us = until_us;
    settle(loop);
}

void loop_count_away(struct loop *loop, int change)
{
    loop->away += change;
    PRE(loop->away >= 0);
}

void loop_jump_wall_ms(struct loop *loop, int64_t ms)
{
    PRE(loop->virtual_clock);
    loop->wall_offset_ms += ms;
}

const struct loop_stats *loop_stats(const struct loop *loop)
{
    return &loop->stats;
}

void loop_set_turn_observer(struct loop *loop,
                            void (*observe)(void *ctx, int64_t turn_us, int64_t cpu_us), void *ctx)
{
    loop->observe = observe;
    loop->observe_ctx = ctx;
}
