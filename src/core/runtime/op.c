#include "core/runtime/op.h"

#include "core/runtime/op_trouble.h"

static struct {
    void (*observe)(void *ctx, const struct op *op);
    void *ctx;
} observer;

static void op_run(void *ctx);
static void on_deadline(void *ctx);
static void on_nap_over(void *ctx);

/* ---- making --------------------------------------------------------------------------------- */

static void op_init(struct op *op, const struct op_type *type, struct loop *loop,
                    struct arena *arena, struct op *parent)
{
    op->type = type;
    op->loop = loop;
    op->arena = arena;
    op->parent = parent;
    op->started_us = loop_now_us(loop);
    task_init(&op->task, op_run, op);
    timer_init(&op->deadline, on_deadline, op);
    timer_init(&op->nap, on_nap_over, op);
    list_init(&op->wait_link);
}

void *op_child_new(struct op *parent, const struct op_type *type, size_t size)
{
    struct op *op = arena_alloc(parent->arena, size);

    PRE(size >= sizeof(struct op));
    op_init(op, type, parent->loop, parent->arena, parent);
    return op;
}

void *op_root_new(struct loop *loop, const struct op_type *type, size_t size, struct arena *arena)
{
    struct arena *own = arena != NULL ? arena : arena_new();
    struct op *op = arena_alloc(own, size);

    PRE(size >= sizeof(struct op));
    op_init(op, type, loop, own, NULL);
    op->owns_arena = arena == NULL;
    return op;
}

void op_start(struct op *root, void (*on_done)(struct op *op, void *ctx), void *ctx)
{
    PRE(root->parent == NULL && !root->started && !root->done);
    root->on_done = on_done;
    root->on_done_ctx = ctx;
    loop_post(root->loop, &root->task);
}

/* ---- ending --------------------------------------------------------------------------------- */

static void op_release(void *ptr)
{
    struct op *op = ptr;

    if (op->type->fini != NULL)
        op->type->fini(op);
    if (op->owns_arena)
        arena_free(op->arena);
}

static void wait_over(struct op *op, const struct error *error);

static void op_finish(struct op *op)
{
    struct op *parent = op->parent;

    PRE(!op->waiting && !op->done);
    op->done = true;
    timer_cancel(op->loop, &op->deadline);
    task_cancel(&op->task);
    if (observer.observe != NULL)
        observer.observe(observer.ctx, op);
    loop_defer_free(op->loop, op_release, op);
    if (parent != NULL) {
        POST(parent->child == op);
        parent->child = NULL;
        wait_over(parent, op_error(op));
    } else if (op->on_done != NULL) {
        op->on_done(op, op->on_done_ctx);
    }
}

static void op_run(void *ctx)
{
    struct op *op = ctx;

    PRE(!op->done && !op->waiting);
    if (!op->started) {
        op->started = true;
        if (error_is(op_error(op))) { /* cancelled before its first step: it has nothing to undo */
            op_finish(op);
            return;
        }
    }
    if (op->type->step(op) == OP_PENDING) {
        POST(op->waiting || !list_empty(&op->task.link));
        return;
    }
    if (op->abort_unseen && !op->undoing) /* too late: there was nothing left to stop */
        error_clear(op_error_edit(op));
    op_finish(op);
}

/* ---- stopping ------------------------------------------------------------------------------- */

/* Give up the leaf waited for: afterwards the op is in the ready queue with `last` set. */
static void wait_cut(struct op *op, const struct error *why)
{
    op_cancel_fn cancel = op->cancel;
    void *ctx = op->cancel_ctx;

    op->cancel = NULL;
    op->cancel_ctx = NULL;
    if (cancel != NULL)
        cancel(ctx);
    if (op->waiting) { /* a cancel function must not wake; tolerate none that does */
        struct error said = *why;
        if (op_error(op)->code == why->code)
            said.admitted = op_error(op)->admitted;
        op_wake(op, &said);
    }
}

static void op_abort_with(struct op *op, const struct error *why);

/* Bring trouble to the wait in progress. An op that is queued or in its step sees the error at its
 * next wait or resume; a held wait must finish; one whose start expression is running just now is
 * stopped by op_check_wait. */
static void wait_stop(struct op *op, const struct error *why)
{
    if (!op->waiting || op->mode == OP_WAIT_HELD)
        return;
    if (op->child != NULL)
        op_abort_with(op->child, why);
    else if (op->cancel != NULL)
        wait_cut(op, why);
}

static void op_abort_with(struct op *op, const struct error *why)
{
    if (op->done || op->undoing || error_is(op_error(op)))
        return;
    *op_error_edit(op) = *why;
    op->abort_unseen = true;
    wait_stop(op, why);
}

void op_abort(struct op *op, enum err_code code, const char *why)
{
    struct error error;

    error_set(&error, code, "%s", why);
    op_abort_with(op, &error);
}

void op_cancel(struct op *op, const char *why)
{
    op_abort(op, ERR_CANCELLED, why);
}

static void on_deadline(void *ctx)
{
    struct op *op = ctx;
    struct error error;

    error_set(&error, ERR_DEADLINE, "%s was not over in time (%s, state %s)",
              op->deadline_phase != NULL ? op->deadline_phase : "the operation", op->type->name,
              op_state_name(op));
    if (op->undoing) /* out of its budget: what it waits for is cut, the step goes on */
        wait_stop(op, &error);
    else
        op_abort_with(op, &error);
}

void op_set_deadline_ms(struct op *op, int64_t after_ms, const char *phase)
{
    PRE(!op->done);
    op->deadline_phase = phase;
    timer_set_ms(op->loop, &op->deadline, after_ms);
}

int64_t op_remaining_ms(const struct op *op, int64_t if_none)
{
    int64_t nearest_us = INT64_MAX;
    int64_t left_ms;

    for (const struct op *o = op; o != NULL; o = o->undoing ? NULL : o->parent) {
        if (timer_armed(&o->deadline) && o->deadline.due_us < nearest_us)
            nearest_us = o->deadline.due_us;
    }
    if (nearest_us == INT64_MAX)
        return if_none;
    left_ms = (nearest_us - loop_now_us(op->loop)) / 1000;
    return left_ms > 0 ? left_ms : 0;
}

/* ---- errors --------------------------------------------------------------------------------- */

static struct error *made(struct op *op, struct error **error)
{
    if (*error == NULL)
        *error = ARENA_NEW(op->arena, struct error);
    return *error;
}

struct error *op_error_edit(struct op *op)
{
    return made(op, &op->error_);
}

struct error *op_last_edit(struct op *op)
{
    return made(op, &op->last_);
}

/* ---- inside a step -------------------------------------------------------------------------- */

void op_fail(struct op *op, enum err_code code, const char *format, ...)
{
    va_list args;

    if (op_failed(op))
        return;
    va_start(args, format);
    error_vset(op_error_edit(op), code, format, args);
    va_end(args);
}

void op_fail_with(struct op *op, const struct error *error)
{
    if (!op_failed(op))
        *op_error_edit(op) = *error;
}

void op_begin_undo(struct op *op, int64_t budget_ms)
{
    op->undoing = true;
    op->deadline_phase = "cleaning up";
    timer_set_ms(op->loop, &op->deadline, budget_ms);
}

const char *op_state_name(const struct op *op)
{
    if (!op->started)
        return "queued";
    if (op->state < 0 || op->state >= op->type->state_count)
        return "?";
    return op->type->states[op->state];
}

/* ---- waits ---------------------------------------------------------------------------------- */

bool op_prepare_wait(struct op *op, int state, enum op_wait_mode mode)
{
    struct error injected;

    PRE(!op->waiting && !op->done && op->child == NULL);
    PRE(!op->undoing || mode == OP_WAIT_ANY); /* others would go to `undo` again, for ever */
    op->state = state;
    op->mode = mode;
    op->waiting = true;
    op->cancel = NULL;
    op->cancel_ctx = NULL;
    op->waits++;
    if (trouble_begins(op, &injected)) {
        wait_over(op, &injected);
        return false;
    }
    if (op->undoing && !timer_armed(&op->deadline))
        timer_set_ms(op->loop, &op->deadline, OP_UNDO_GRACE_MS);
    if (error_is(op_error(op)) && !op->undoing) {
        struct error why = *op_error(op);
        wait_over(op, &why);
        return false;
    }
    return true;
}

static void cancel_root(struct op *op)
{
    while (op->parent != NULL)
        op = op->parent;
    op_cancel(op, "injected cancellation");
}

void op_check_wait(struct op *op)
{
    /* The start expression began a leaf, queued a child, or completed at once. */
    POST(op->cancel != NULL || op->child != NULL || !op->waiting);
    if (trouble_cancels(op))
        cancel_root(op);
    if (error_is(op_error(op)) && !op->undoing) /* it was stopped by its own start expression */
        wait_stop(op, op_error(op));
}

void op_wait_begin(struct op *op, op_cancel_fn cancel, void *ctx)
{
    PRE(op->waiting && op->cancel == NULL && op->child == NULL && cancel != NULL);
    op->cancel = cancel;
    op->cancel_ctx = ctx;
}

/* The wait has ended, whatever it was: note the result and queue the step. */
static void wait_over(struct op *op, const struct error *error)
{
    PRE(op->waiting && !op->done);
    op->waiting = false;
    op->cancel = NULL;
    op->cancel_ctx = NULL;
    if (error != NULL && error_is(error))
        *op_last_edit(op) = *error;
    else if (op->last_ != NULL)
        error_clear(op->last_);
    if (op_last_failed(op) && op->mode != OP_WAIT_ANY && !error_is(op_error(op)))
        *op_error_edit(op) = *op_last(op);
    loop_post(op->loop, &op->task);
    if (trouble_ends(op))
        cancel_root(op);
}

void op_wake(struct op *op, const struct error *error)
{
    struct error lost;

    if ((error == NULL || !error_is(error)) && trouble_loses(op, &lost))
        error = &lost;
    wait_over(op, error);
}

void op_note_admitted_unknown(struct op *op)
{
    enum err_code reason = op_error(op)->code;

    for (struct op *o = op; o != NULL && op_error(o)->code == reason; o = o->parent) {
        if (op_error(o)->admitted == ADMITTED_NO)
            op_error_edit(o)->admitted = ADMITTED_UNKNOWN;
    }
}

void op_complete(struct op *op, const struct error *error)
{
    op_wake(op, error);
}

static void nap_cancel(void *ctx)
{
    struct op *op = ctx;

    timer_cancel(op->loop, &op->nap);
}

static void on_nap_over(void *ctx)
{
    op_wake(ctx, NULL);
}

void op_sleep(struct op *op, int64_t ms)
{
    timer_set_ms(op->loop, &op->nap, ms);
    op_wait_begin(op, nap_cancel, op);
}

void op_await_child(struct op *op, struct op *child)
{
    PRE(op->waiting && child->parent == op && !child->started && !child->done);
    op->child = child;
    loop_post(op->loop, &child->task);
}

/* ---- observation --------------------------------------------------------------------------- */

void op_set_observer(void (*observe)(void *ctx, const struct op *op), void *ctx)
{
    observer.observe = observe;
    observer.ctx = ctx;
}
