/* The event loop: one thread, one libevent base, a ready queue, timers on an injectable clock,
 * end-of-turn hooks and frees, and a watchdog that measures every turn.
 *
 * A turn is: libevent callbacks, then due timers, then the ready queue until it is empty, then the
 * end-of-turn hooks, then deferred frees. Callbacks of libraries store a result and post; all our
 * own logic runs from the ready queue, so no library frame is ever below it on the stack.
 *
 * Every function here must be called on the loop's thread. What blocks goes to a worker
 * (core/runtime/worker.h). */
#pragma once

#include "core/runtime/list.h"

#include <stdbool.h>
#include <stdint.h>

struct event_base;
struct loop;

/** How a loop is made. */
struct loop_options {
    bool virtual_clock;      /* time moves only by loop_advance_ms; for tests */
    int64_t virtual_wall_ms; /* first UTC time of a virtual clock, milliseconds since the epoch */
};

/** `options` may be NULL: real clock. Aborts when libevent cannot be set up. Free with loop_free. */
struct loop *loop_new(const struct loop_options *options);

/** Runs the deferred frees that are due, then frees the base. Everything registered with the loop
 * must be gone. */
void loop_free(struct loop *loop);

/** The libevent base, for events of libraries. Owned by the loop. */
struct event_base *loop_base(struct loop *loop);

/** Turn after turn until loop_stop; the turn that called it is finished first. A stop that came
 * before the start counts: then not one turn is made. */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

/** One turn. With `may_block` it waits for the next event or timer if nothing is ready. */
void loop_turn(struct loop *loop, bool may_block);

/** First line of every libevent callback: starts the turn's clock. Cheap when already started;
 * reading the time and arming a timer do it, too. */
void loop_touch(struct loop *loop);

/* ---- time ---------------------------------------------------------------------------------- */

/** Monotonic time, read once per turn (outside of turns, at each call). Never compare it with wall
 * time. */
int64_t loop_now_ms(struct loop *loop);
int64_t loop_now_us(struct loop *loop);

/** UTC milliseconds since the epoch. May jump; never use it for deadlines inside the process. */
int64_t loop_wall_ms(const struct loop *loop);

/** Virtual clock only: move time forward in the steps at which timers are due, with as many turns at
 * each as there is work. */
void loop_advance_ms(struct loop *loop, int64_t ms);

/** Something is under way outside of the loop (+1) or has come back (-1). A virtual clock stands still
 * meanwhile, so that work which takes no virtual time takes none. */
void loop_count_away(struct loop *loop, int change);

/** Virtual clock only: let wall time jump, monotonic time stays. */
void loop_jump_wall_ms(struct loop *loop, int64_t ms);

/* ---- timers -------------------------------------------------------------------------------- */

/** One-shot timer, embedded in its owner. Initialise with timer_init; must be idle when freed. */
struct timer {
    int64_t due_us;
    void (*fire)(void *ctx); /* runs inside the turn, before the ready queue */
    void *ctx;
    uint32_t heap_index; /* 1-based; 0 = idle */
};

void timer_init(struct timer *timer, void (*fire)(void *ctx), void *ctx);

/** (Re)arm: fire once, `after_ms` from now (at least 0). */
void timer_set_ms(struct loop *loop, struct timer *timer, int64_t after_ms);

/** Idle afterwards; safe on an idle timer. */
void timer_cancel(struct loop *loop, struct timer *timer);

static inline bool timer_armed(const struct timer *timer)
{
    return timer->heap_index != 0;
}

/* ---- ready queue --------------------------------------------------------------------------- */

/** Something to run in this turn, embedded in its owner. */
struct task {
    struct list link;
    void (*run)(void *ctx);
    void *ctx;
};

void task_init(struct task *task, void (*run)(void *ctx), void *ctx);

/** Queue once; posting a queued task again changes nothing. */
void loop_post(struct loop *loop, struct task *task);

/** Take it out of the queue if it is there. */
void task_cancel(struct task *task);

/* ---- end of turn --------------------------------------------------------------------------- */

/** A hook that runs once at the end of every turn in which it was requested (group commit, log
 * flush). Embedded in its owner; it may post tasks: they run in the next turn, without waiting. */
struct turn_hook {
    struct list link;
    void (*run)(void *ctx);
    void *ctx;
};

void turn_hook_init(struct turn_hook *hook, void (*run)(void *ctx), void *ctx);
void loop_at_turn_end(struct loop *loop, struct turn_hook *hook);
void turn_hook_cancel(struct turn_hook *hook);

/** Call `release(ptr)` after everything else of this turn: nobody's frame can still use it. */
void loop_defer_free(struct loop *loop, void (*release)(void *ptr), void *ptr);

/* ---- watchdog ------------------------------------------------------------------------------ */

/** What the watchdog saw. Times exclude waiting for events. */
struct loop_stats {
    uint64_t turns;
    int64_t longest_turn_us;
    int64_t last_turn_us;
    int64_t last_turn_cpu_us; /* of which the thread had a processor; with the poll before it */
};

const struct loop_stats *loop_stats(const struct loop *loop);

/** Called at the end of every turn with its length and its processor time: what the length has beyond
 * that, the thread was kept waiting, for a processor or in a call that blocks. For histograms and
 * slow-turn logs. */
void loop_set_turn_observer(struct loop *loop,
                            void (*observe)(void *ctx, int64_t turn_us, int64_t cpu_us), void *ctx);
