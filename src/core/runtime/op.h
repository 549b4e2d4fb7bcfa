/* One running continuation: a multi-step operation with a deadline, cancellation and undo.
 *
 * An operation is a struct that embeds `struct op` first, and a step function with named resume
 * points. The step starts one wait at a time with AWAIT and returns; the engine calls it again
 * when the wait is over, at the label of that wait. docs/continuations.md shows how to write one.
 *
 * The engine's rules:
 *  1. Only the loop's ready queue calls a step.
 *  2. A wait completes through op_wake exactly once and never runs the step itself: no recursion,
 *     no re-entry, the stack stays flat.
 *  3. An op waits for one thing: a leaf (HTTP exchange, timer, SQL, wait list) or a child op. A
 *     deadline or cancellation reaches the deepest wait.
 *  4. A cancelled op never runs its first step, and a wait started on a failed op is cancelled at
 *     once (except in undo, which is deaf to cancellation and has a deadline of its own).
 *  5. Frees happen at the end of the turn in which the op is done.
 *
 * The first error wins; what fails in undo is kept aside (op_last_failed) for the op to record. */
#pragma once

#include "core/runtime/arena.h"
#include "core/runtime/error.h"
#include "core/runtime/loop.h"

enum op_poll {
    OP_PENDING, /* a wait was started */
    OP_DONE,    /* finished; op_error says how */
};

struct op;

/** What kind of operation it is: one static constant per operation. */
struct op_type {
    const char *name;          /* `enterprise_create`: in logs, metrics, tests */
    const char *const *states; /* names of the resume points, indexed by state */
    int state_count;
    enum op_poll (*step)(struct op *op);
    /** Release what the arena does not own; NULL allowed. At the end of the turn in which the op
     * ended; not for one that was made and never run, so making one must acquire nothing. */
    void (*fini)(struct op *op);
};

/** Begin a wait's cancellation: after it returns, the leaf must never touch the op again. */
typedef void (*op_cancel_fn)(void *ctx);

/** How a wait treats trouble. */
enum op_wait_mode {
    OP_WAIT_PLAIN, /* a failed wait fails the op; a cancelled op cancels the wait */
    OP_WAIT_ANY,   /* a failed wait is only reported by op_last_failed */
    OP_WAIT_HELD,  /* as PLAIN, but cancellation waits for the wait's own end: what it creates
                      must not be lost. The wait must be bounded by a timeout of its own. */
};

/** Embedded first in each operation's struct. Fields are read freely, written by the engine. */
struct op {
    const struct op_type *type;
    struct loop *loop;
    struct arena *arena;    /* of the whole tree; ends with the root op's owner */
    struct op *parent;      /* NULL for a root */
    int state;              /* the resume point */
    enum op_wait_mode mode; /* of the wait in progress */
    bool waiting, started, done, undoing;
    bool abort_unseen;          /* stopped from outside, and the step has not taken notice yet */
    bool owns_arena;            /* a root made by op_root_new frees its arena when it is freed */
    struct error *error_;       /* first failure; NULL = none yet. See op_error */
    struct error *last_;        /* result of the latest wait; NULL = none failed yet. See op_last */
    struct timer deadline;      /* own deadline, if armed */
    const char *deadline_phase; /* what the deadline is of, for the message; static text */
    struct timer nap;           /* op_sleep */
    struct op *child;           /* the child waited for */
    op_cancel_fn cancel;        /* of the leaf waited for */
    void *cancel_ctx;
    struct list wait_link; /* in an op_waitlist */
    struct task task;      /* in the ready queue */
    int64_t started_us;
    void (*on_done)(struct op *op, void *ctx);
    void *on_done_ctx;
    uint32_t waits; /* waits begun so far, for the torture harness */
};

/* ---- making and running -------------------------------------------------------------------- */

/** A zeroed operation of `size` bytes whose first member is `struct op`, in the parent's arena.
 * Run it with op_await_child. It lives until the arena ends, but must not be used after its end. */
void *op_child_new(struct op *parent, const struct op_type *type, size_t size);

/** A root operation. With `arena` NULL it gets one of its own, freed at the end of the turn in
 * which it is done; otherwise `arena` must outlive that turn's frees: end it from on_done by
 * loop_defer_free at the earliest. */
void *op_root_new(struct loop *loop, const struct op_type *type, size_t size, struct arena *arena);

#define OP_CHILD(parent, type_, struct_)                                                           \
    ((struct struct_ *)op_child_new(parent, type_, sizeof(struct struct_)))
#define OP_ROOT(loop, type_, struct_, arena)                                                       \
    ((struct struct_ *)op_root_new(loop, type_, sizeof(struct struct_), arena))

/** Queue the first step of a root. `on_done` (may be NULL) is called from the ready queue, once,
 * with op_error final; the op is freed at the end of that turn. */
void op_start(struct op *root, void (*on_done)(struct op *op, void *ctx), void *ctx);

/** Stop it: the deepest wait is cancelled and the op runs its undo. No effect on an op that is
 * done, failed already, or undoing. For a child the parent learns of it when the child has ended.
 *
 * When the step returns OP_DONE without having come by the cancellation (it arrived during a last
 * AWAIT_ANY, or from within the step itself), all the work is done and nothing was undone: the op
 * has succeeded. Allowed anywhere, also inside the op's own step or start expression. */
void op_cancel(struct op *op, const char *why);

/** As op_cancel, with another code (ERR_DEADLINE, ERR_DRAINING, …). */
void op_abort(struct op *op, enum err_code code, const char *why);

/** Fail with ERR_DEADLINE when it is not done `after_ms` from now. `phase` is static text that
 * completes "… was not over in time". Later calls replace both. */
void op_set_deadline_ms(struct op *op, int64_t after_ms, const char *phase);

/** Milliseconds until the nearest deadline of the op and its ancestors; `if_none` when none. */
int64_t op_remaining_ms(const struct op *op, int64_t if_none);

/* ---- inside a step ------------------------------------------------------------------------- */

/** Fail with a code and message unless it failed before; continue at the `undo` label. */
void op_fail(struct op *op, enum err_code code, const char *format, ...) PRINTF_LIKE(3, 4);

/** Fail with a given error unless it failed before. */
void op_fail_with(struct op *op, const struct error *error);

/** Enter undo: deaf to cancellation, a fresh deadline of `budget_ms`, the first error stays. In undo
 * use AWAIT_ANY only. When the budget is over, the wait in progress is cut; each further one gets
 * OP_UNDO_GRACE_MS, so that what could not be removed is still recorded. */
enum { OP_UNDO_GRACE_MS = 5000 };

void op_begin_undo(struct op *op, int64_t budget_ms);

/** The first failure; of code ERR_NONE while there is none. Valid as long as the op. */
static inline const struct error *op_error(const struct op *op)
{
    return op->error_ != NULL ? op->error_ : &error_none;
}

/** The result of the latest wait; of code ERR_NONE when it succeeded. Valid until the next wait ends. */
static inline const struct error *op_last(const struct op *op)
{
    return op->last_ != NULL ? op->last_ : &error_none;
}

/** The same to write to. An error is large, and most ops never have one: it is made when first asked for,
 * in the op's arena. */
struct error *op_error_edit(struct op *op);
struct error *op_last_edit(struct op *op);

/** Whether it has failed or was stopped. A step that asks has taken notice of a cancellation and
 * must act on it; observers look at op_error instead. */
static inline bool op_failed(struct op *op)
{
    op->abort_unseen = false;
    return error_is(op_error(op));
}

/** Whether the latest wait failed; its error is op_last. */
static inline bool op_last_failed(const struct op *op)
{
    return error_is(op_last(op));
}

/** Name of the current state, for logs. */
const char *op_state_name(const struct op *op);

/* The three waits. `label` is an enumerator of the op's state enum; `start` is an expression that
 * begins exactly one wait on `op`. AWAIT and AWAIT_HELD go to `undo:` when the op has failed;
 * AWAIT_ANY goes on. Locals do not survive a wait: keep state in the struct. */
#define AWAIT_(op_, label, mode_, start)                                                           \
    do {                                                                                           \
        if (op_prepare_wait((op_), (label), (mode_)))                                              \
            (start);                                                                               \
        op_check_wait(op_);                                                                        \
        return OP_PENDING;                                                                         \
    case (label):;                                                                                 \
    } while (0)

#define AWAIT(op_, label, start)                                                                   \
    do {                                                                                           \
        AWAIT_(op_, label, OP_WAIT_PLAIN, start);                                                  \
        if (op_failed(op_))                                                                        \
            goto undo;                                                                             \
    } while (0)

#define AWAIT_HELD(op_, label, start)                                                              \
    do {                                                                                           \
        AWAIT_(op_, label, OP_WAIT_HELD, start);                                                   \
        if (op_failed(op_))                                                                        \
            goto undo;                                                                             \
    } while (0)

#define AWAIT_ANY(op_, label, start) AWAIT_(op_, label, OP_WAIT_ANY, start)

/** End of a step's switch: reached only when a state has no resume point. */
#define unreachable_state(op_) UNREACHABLE((op_)->type->name)

/* ---- waits --------------------------------------------------------------------------------- */

/** Leaf: wake after `ms`. */
void op_sleep(struct op *op, int64_t ms);

/** Run `child` (from op_child_new with this parent) and wake when it has ended, with its error. */
void op_await_child(struct op *op, struct op *child);

/** Complete the current wait at once, before it began: `error` NULL or all-zero for success. Use
 * it in a "start" function that finds it has nothing to wait for. */
void op_complete(struct op *op, const struct error *error);

/** Operations that wait for the same event, in order of arrival. Embedded in the event's owner. */
struct op_waitlist {
    struct list waiters;
};

void op_waitlist_init(struct op_waitlist *list);
void op_waitlist_wait(struct op_waitlist *list, struct op *op);
/** Wake the first, or all; `error` as op_wake. Returns how many. */
int op_waitlist_wake_one(struct op_waitlist *list, const struct error *error);
int op_waitlist_wake_all(struct op_waitlist *list, const struct error *error);
bool op_waitlist_empty(const struct op_waitlist *list);

/* ---- for writers of leaves ----------------------------------------------------------------- */

/** A leaf registers its cancel function when it starts. The op must be in a prepared wait. */
void op_wait_begin(struct op *op, op_cancel_fn cancel, void *ctx);

/** The leaf is over; exactly once per op_wait_begin, never after its cancel function ran.
 * `error` NULL or all-zero for success. Safe from inside a library's callback. */
void op_wake(struct op *op, const struct error *error);

/** From a cancel function: the effect of the wait given up may have taken place all the same. Says
 * so (`admitted` unknown) in the error of the op and of each ancestor that fails for this reason. */
void op_note_admitted_unknown(struct op *op);

/* ---- engine internals used by the macros ---------------------------------------------------- */

bool op_prepare_wait(struct op *op, int state, enum op_wait_mode mode);
void op_check_wait(struct op *op);

/* ---- observation and torture ---------------------------------------------------------------- */

/** Called when any op ends (root or child); for metrics and the log. One per process. */
void op_set_observer(void (*observe)(void *ctx, const struct op *op), void *ctx);

/** What the torture harness does to one wait (tests/support/op_torture.h drives it). */
enum op_torture {
    OP_TORTURE_NONE,
    OP_TORTURE_FAIL,        /* the wait is never started and fails with ERR_INTERNAL "injected" */
    OP_TORTURE_LOSE,        /* a leaf runs, its success is replaced by ERR_UPSTREAM_LOST; no effect
                               on the wait for a child, which has no answer to lose */
    OP_TORTURE_CANCEL,      /* the root is cancelled right after the wait began */
    OP_TORTURE_CANCEL_LATE, /* the root is cancelled when the wait is over, before the step runs */
};

/** Arm the harness: the `k`-th wait from now (from 1) of any op gets `what`. Process-wide. */
void op_torture_arm(enum op_torture what, uint32_t k);
/** A second victim, which fails as by OP_TORTURE_FAIL: for undo. After op_torture_arm; 0 = none. */
void op_torture_also_fail(uint32_t k);
/** While suspended, waits are neither counted nor met: for making a scenario's world. */
void op_torture_suspend(bool suspended);
/** Waits counted since op_torture_arm. */
uint32_t op_torture_waits(void);
/** How many of the armed troubles have taken place. */
int op_torture_hits(void);
/** "type.state" of the first victim, for messages; "nowhere" before it was met. */
const char *op_torture_where(void);
