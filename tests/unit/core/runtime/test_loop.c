/* The event loop: order within a turn, timers under both clocks, hooks, deferred frees, fairness. */
#include "core/runtime/check.h"
#include "core/runtime/loop.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct loop *loop;
static char trace[200];

static void set_up(void)
{
    loop = loop_new(&(struct loop_options){.virtual_clock = true, .virtual_wall_ms = 1000000});
    trace[0] = '\0';
}

static void set_up_real(void)
{
    loop = loop_new(NULL);
    trace[0] = '\0';
}

static void tear_down(void)
{
    loop_free(loop);
}

TestSuite(loop, .init = set_up, .fini = tear_down, .timeout = 20);
TestSuite(loop_real, .init = set_up_real, .fini = tear_down, .timeout = 20);

static void note(void *ctx)
{
    strncat(trace, ctx, sizeof(trace) - strlen(trace) - 1);
}

static void advance_for(int64_t ms, const char *expected)
{
    trace[0] = '\0';
    loop_advance_ms(loop, ms);
    cr_assert_str_eq(trace, expected);
}

/* ---- timers ---------------------------------------------------------------------------------- */

Test(loop, timers_fire_in_order_of_their_time)
{
    struct timer t[4];
    int64_t start_ms = loop_now_ms(loop);

    timer_init(&t[0], note, "a");
    timer_init(&t[1], note, "b");
    timer_init(&t[2], note, "c");
    timer_init(&t[3], note, "d");
    timer_set_ms(loop, &t[0], 30);
    timer_set_ms(loop, &t[1], 10);
    timer_set_ms(loop, &t[2], 20);
    timer_set_ms(loop, &t[3], -5);
    cr_assert(timer_armed(&t[0]));
    advance_for(9, "d");
    advance_for(1, "b");
    timer_cancel(loop, &t[2]);
    timer_cancel(loop, &t[2]);
    advance_for(100, "a");
    cr_assert(not(timer_armed(&t[0])));
    cr_assert(eq(i64, loop_now_ms(loop), start_ms + 110));
}

Test(loop, a_timer_can_be_moved)
{
    struct timer t;

    timer_init(&t, note, "x");
    timer_set_ms(loop, &t, 10);
    timer_set_ms(loop, &t, 50);
    advance_for(49, "");
    timer_set_ms(loop, &t, 5);
    advance_for(5, "x");
    timer_set_ms(loop, &t, INT64_MAX); /* never, and no overflow */
    advance_for(1000000, "");
    timer_cancel(loop, &t);
}

/* A heap of many against the obvious model: times only grow, each timer fires once. */
struct counted {
    struct timer timer;
    int64_t due_ms;
    int fired;
};

static int64_t last_ms;

static void fire_counted(void *ctx)
{
    struct counted *c = ctx;

    c->fired++;
    cr_assert(eq(i64, loop_now_ms(loop), c->due_ms));
    cr_assert(c->due_ms >= last_ms);
    last_ms = c->due_ms;
}

Test(loop, many_timers_with_cancellations)
{
    enum { N = 2000 };
    static struct counted c[N];
    unsigned seed = 1;

    for (int i = 0; i < N; i++) {
        timer_init(&c[i].timer, fire_counted, &c[i]);
        c[i].due_ms = loop_now_ms(loop) + rand_r(&seed) % 500;
        timer_set_ms(loop, &c[i].timer, c[i].due_ms - loop_now_ms(loop));
    }
    for (int i = 0; i < N; i += 3)
        timer_cancel(loop, &c[i].timer);
    loop_advance_ms(loop, 1000);
    for (int i = 0; i < N; i++)
        cr_assert(eq(int, c[i].fired, i % 3 != 0));
}

static struct timer self;
static int self_fired;

static void fire_again(void *ctx)
{
    (void)ctx;
    self_fired++;
    timer_set_ms(loop, &self, 0);
}

Test(loop, a_timer_that_rearms_itself_cannot_hold_the_turn)
{
    struct timer other;

    timer_init(&self, fire_again, NULL);
    timer_init(&other, note, "other");
    timer_set_ms(loop, &self, 0);
    timer_set_ms(loop, &other, 0);
    loop_turn(loop, false);
    loop_turn(loop, false);
    cr_assert_str_eq(trace, "other");
    cr_assert(self_fired <= 4, "%d", self_fired);
    timer_cancel(loop, &self);
}

static struct timer victim;

static void cancel_victim(void *ctx)
{
    note(ctx);
    timer_cancel(loop, &victim);
}

Test(loop, a_timer_can_cancel_another_that_is_due)
{
    struct timer killer;

    timer_init(&killer, cancel_victim, "k");
    timer_init(&victim, note, "v");
    timer_set_ms(loop, &killer, 1);
    timer_set_ms(loop, &victim, 2);
    advance_for(0, "");
    trace[0] = '\0';
    loop_advance_ms(loop, 5);
    cr_assert_str_eq(trace, "k");
}

/* ---- a turn ---------------------------------------------------------------------------------- */

static struct task task_a, task_b;
static struct turn_hook hook;

static void run_a(void *ctx)
{
    note(ctx);
    loop_post(loop, &task_b);
    loop_post(loop, &task_b); /* once is enough */
    loop_at_turn_end(loop, &hook);
    loop_at_turn_end(loop, &hook);
}

static void run_hook(void *ctx)
{
    note(ctx);
    loop_post(loop, &task_a);
}

static void release(void *ptr)
{
    note("f");
    free(ptr);
}

static void run_b(void *ctx)
{
    note(ctx);
    loop_defer_free(loop, release, xmalloc(1));
}

Test(loop, a_turn_runs_timers_tasks_hooks_frees)
{
    struct timer t;

    timer_init(&t, note, "t");
    task_init(&task_a, run_a, "a");
    task_init(&task_b, run_b, "b");
    turn_hook_init(&hook, run_hook, "h");
    loop_post(loop, &task_a);
    timer_set_ms(loop, &t, 0);
    loop_turn(loop, false);
    cr_assert_str_eq(trace, "tabhf");
    trace[0] = '\0';
    loop_turn(loop, true); /* the hook posted a task: it does not block */
    cr_assert_str_eq(trace, "abhf");
    task_cancel(&task_a);
    trace[0] = '\0';
    loop_turn(loop, false);
    cr_assert_str_eq(trace, "");
}

Test(loop, hooks_and_tasks_can_be_taken_back)
{
    turn_hook_init(&hook, run_hook, "h");
    task_init(&task_a, note, "a");
    loop_at_turn_end(loop, &hook);
    loop_post(loop, &task_a);
    turn_hook_cancel(&hook);
    task_cancel(&task_a);
    loop_turn(loop, false);
    cr_assert_str_eq(trace, "");
}

static void release_more(void *ptr)
{
    note("1");
    loop_defer_free(loop, release, ptr);
}

Test(loop, frees_run_in_order_and_may_defer_more)
{
    for (int i = 0; i < 70; i++) /* beyond the first allocation of the queue */
        loop_defer_free(loop, release_more, xmalloc(1));
    loop_turn(loop, false);
    cr_assert(eq(sz, strlen(trace), 140));
    cr_assert(eq(chr, trace[69], '1'));
    cr_assert(eq(chr, trace[70], 'f'));
}

Test(loop, freeing_the_loop_runs_the_deferred_frees)
{
    struct loop *other = loop_new(NULL);

    loop_defer_free(other, release, xmalloc(1));
    loop_free(other);
    cr_assert_str_eq(trace, "f");
    loop_free(NULL);
}

static struct timer later;
static int64_t task_ran_at_ms;

static void note_time(void *ctx)
{
    (void)ctx;
    task_ran_at_ms = loop_now_ms(loop);
}

static void post_from_hook(void *ctx)
{
    loop_post(loop, ctx);
}

static void request_hook(void *ctx)
{
    loop_at_turn_end(loop, ctx);
}

/* A task that a hook posts must not run at the time of the next timer. */
Test(loop, virtual_time_waits_for_the_work_of_the_moment)
{
    struct timer t;
    int64_t start_ms = loop_now_ms(loop);

    task_init(&task_a, note_time, NULL);
    turn_hook_init(&hook, post_from_hook, &task_a);
    timer_init(&t, request_hook, &hook);
    timer_init(&later, note, "l");
    timer_set_ms(loop, &t, 10);
    timer_set_ms(loop, &later, 5000);
    loop_advance_ms(loop, 6000);
    cr_assert(eq(i64, task_ran_at_ms, start_ms + 10));
}

Test(loop, wall_time_can_jump)
{
    int64_t now_ms = loop_now_ms(loop);

    cr_assert(eq(i64, loop_wall_ms(loop), 1000000));
    loop_advance_ms(loop, 5);
    loop_jump_wall_ms(loop, -3600000);
    cr_assert(eq(i64, loop_wall_ms(loop), 1000005 - 3600000));
    cr_assert(eq(i64, loop_now_ms(loop), now_ms + 5));
}

/* ---- real clock ------------------------------------------------------------------------------ */

static void stop(void *ctx)
{
    note(ctx);
    loop_stop(loop);
}

Test(loop_real, runs_until_stopped)
{
    struct timer t;
    int64_t start_us = loop_now_us(loop);

    timer_init(&t, stop, "s");
    timer_set_ms(loop, &t, 5);
    loop_run(loop);
    cr_assert_str_eq(trace, "s");
    cr_assert(loop_now_us(loop) - start_us >= 5000);
    cr_assert(ge(i64, (int64_t)loop_stats(loop)->turns, 1));
}

Test(loop_real, a_stop_before_the_start_counts_once)
{
    struct timer t;

    loop_stop(loop);
    loop_run(loop);
    timer_init(&t, stop, "s");
    timer_set_ms(loop, &t, 1);
    loop_run(loop);
    cr_assert_str_eq(trace, "s");
}

/* A library's callback that does not touch the loop still arms timers on the time of now. */
static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
    char c;

    (void)what;
    cr_assert(eq(i64, read(fd, &c, 1), 1));
    timer_set_ms(loop, ctx, 50);
    loop_stop(loop);
}

Test(loop_real, timers_armed_by_library_callbacks_are_not_early)
{
    struct timer t;
    struct event *event;
    int fds[2];

    cr_assert(eq(int, pipe(fds), 0));
    timer_init(&t, note, "t");
    event = event_new(loop_base(loop), fds[0], EV_READ, on_readable, &t);
    event_add(event, NULL);
    usleep(20000); /* what a sleeping loop or a long start does */
    cr_assert(eq(i64, write(fds[1], "x", 1), 1));
    loop_run(loop);
    cr_assert(ge(i64, t.due_us, loop_now_us(loop) + 50000 - 15000));
    timer_cancel(loop, &t);
    event_free(event);
    close(fds[0]);
    close(fds[1]);
}

static void on_still_readable(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    (void)ctx;
}

/* Descriptors that are always ready must not keep a turn from its ready queue. */
Test(loop_real, a_turn_polls_once)
{
    struct event *event;
    struct task t;
    int fds[2];

    cr_assert(eq(int, pipe(fds), 0));
    cr_assert(eq(i64, write(fds[1], "x", 1), 1));
    event = event_new(loop_base(loop), fds[0], EV_READ | EV_PERSIST, on_still_readable, NULL);
    event_add(event, NULL);
    task_init(&t, note, "r");
    loop_post(loop, &t);
    loop_turn(loop, false);
    loop_post(loop, &t);
    loop_turn(loop, true);
    cr_assert_str_eq(trace, "rr");
    event_free(event);
    close(fds[0]);
    close(fds[1]);
}

static struct task spinner;
static int spins;

static void spin(void *ctx)
{
    (void)ctx;
    usleep(1000);
    spins++;
    loop_post(loop, &spinner);
}

Test(loop_real, endless_work_still_lets_the_turn_end)
{
    task_init(&spinner, spin, NULL);
    loop_post(loop, &spinner);
    loop_turn(loop, false);
    cr_assert(spins >= 1 && spins < 20000);
    cr_assert(eq(u64, loop_stats(loop)->turns, 1));
    cr_assert(gt(i64, loop_stats(loop)->longest_turn_us, 1000));
    task_cancel(&spinner);
}

struct observed {
    int64_t turn_us, cpu_us;
};

static void observe(void *ctx, int64_t turn_us, int64_t cpu_us)
{
    *(struct observed *)ctx = (struct observed){turn_us, cpu_us};
}

Test(loop_real, the_watchdog_sees_every_turn)
{
    struct observed observed = {-1, -1};

    loop_set_turn_observer(loop, observe, &observed);
    loop_turn(loop, false);
    cr_assert(ge(i64, observed.turn_us, 0));
    cr_assert(eq(i64, observed.turn_us, loop_stats(loop)->last_turn_us));
}

static void sleep_long(void *ctx)
{
    (void)ctx;
    usleep(50000);
}

/* A turn that blocks is long and takes no processor. */
Test(loop_real, the_watchdog_tells_work_from_waiting)
{
    struct observed observed = {-1, -1};
    struct task sleeper;

    loop_set_turn_observer(loop, observe, &observed);
    task_init(&sleeper, sleep_long, NULL);
    loop_post(loop, &sleeper);
    loop_turn(loop, false);
    cr_assert(ge(i64, observed.turn_us, 50000));
    cr_assert(ge(i64, observed.cpu_us, 0));
    cr_assert(lt(i64, observed.cpu_us, observed.turn_us / 2));
}
