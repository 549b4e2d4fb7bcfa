/* Work on another thread: order, return to the loop, and an end that loses nothing. */
#include "core/runtime/worker.h"

#include "core/runtime/check.h"
#include "core/runtime/loop.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

TestSuite(worker, .timeout = 30);

enum { N = 100 };

struct piece {
    struct work work;
    struct trail *trail;
    int number;
};

/* What was run and what came back, in order. */
struct trail {
    int ran[N], back[N];
    int n_ran, n_back;
    pthread_t thread;
    bool signals_blocked;
    sem_t may_run;
};

static void piece_run(void *ctx)
{
    struct piece *piece = ctx;
    struct trail *trail = piece->trail;
    sigset_t mask;

    sem_wait(&trail->may_run);
    trail->ran[trail->n_ran++] = piece->number;
    trail->thread = pthread_self();
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    trail->signals_blocked = sigismember(&mask, SIGTERM) == 1;
}

static void piece_done(void *ctx)
{
    struct piece *piece = ctx;

    piece->trail->back[piece->trail->n_back++] = piece->number;
}

static void pieces_init(struct piece *pieces, struct trail *trail, unsigned may_run)
{
    *trail = (struct trail){0};
    sem_init(&trail->may_run, 0, may_run);
    for (int i = 0; i < N; i++) {
        pieces[i].trail = trail;
        pieces[i].number = i;
        work_init(&pieces[i].work, piece_run, piece_done, &pieces[i]);
    }
}

Test(worker, runs_in_order_elsewhere_and_tells_the_loop)
{
    static struct piece pieces[N];
    static struct trail trail;
    struct loop *loop = loop_new(NULL);
    struct worker *worker = worker_new(loop, "test");

    pieces_init(pieces, &trail, N);
    for (int i = 0; i < N; i++)
        worker_submit(worker, &pieces[i].work);
    while (trail.n_back < N)
        loop_turn(loop, true);
    for (int i = 0; i < N; i++) {
        cr_assert(eq(int, trail.ran[i], i));
        cr_assert(eq(int, trail.back[i], i));
        cr_assert(not(pieces[i].work.away));
    }
    cr_assert(not(pthread_equal(trail.thread, pthread_self())));
    cr_assert(trail.signals_blocked);
    worker_free(worker);
    loop_free(loop);
    sem_destroy(&trail.may_run);
}

Test(worker, end_waits_for_what_is_away_and_calls_nobody)
{
    static struct piece pieces[N];
    static struct trail trail;
    struct loop *loop = loop_new(NULL);
    struct worker *worker = worker_new(loop, "test");

    pieces_init(pieces, &trail, N);
    for (int i = 0; i < N; i++)
        worker_submit(worker, &pieces[i].work);
    worker_free(worker);
    cr_assert(eq(int, trail.n_ran, N));
    cr_assert(eq(int, trail.n_back, 0));
    cr_assert(not(pieces[N - 1].work.away));
    loop_free(loop);
    sem_destroy(&trail.may_run);
}

static void release(void *ctx)
{
    sem_post(&((struct trail *)ctx)->may_run);
}

/* The work is let go by an event of the loop, and the clock has not moved when it comes back. */
Test(worker, virtual_clock_stands_still_while_work_is_away)
{
    static struct piece pieces[N];
    static struct trail trail;
    struct loop *loop = loop_new(&(struct loop_options){.virtual_clock = true});
    struct worker *worker = worker_new(loop, "test");
    struct timer late;
    int64_t before_ms = loop_now_ms(loop);
    struct task task;

    pieces_init(pieces, &trail, 0);
    timer_init(&late, piece_done, &pieces[1]);
    timer_set_ms(loop, &late, 10);
    task_init(&task, release, &trail);
    loop_post(loop, &task);
    worker_submit(worker, &pieces[0].work);
    loop_advance_ms(loop, 20);
    cr_assert(eq(int, trail.n_back, 2));
    cr_assert(eq(int, trail.back[0], 0), "the timer came first: time went on meanwhile");
    cr_assert(eq(i64, loop_now_ms(loop), before_ms + 20));
    worker_free(worker);
    loop_free(loop);
    sem_destroy(&trail.may_run);
}
