#include "core/runtime/op.h"

#include <stdio.h>

static struct {
    enum op_torture what;
    uint32_t k;
    uint32_t waits;
} torture;

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
        op_wake(parent, &op->error);
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
        if (op_failed(op)) { /* cancelled before its first step: it has nothing to undo */
            op_finish(op);
            return;
        }
    }
    if (op->type->step(op) == OP_DONE)
        op_finish(op);
    else
        POST(op->waiting || !list_empty(&op->task.link));
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
        if (op->error.code == why->code)
            said.admitted = op->error.admitted;
        op_wake(op, &said);
    }
}

static void op_abort_with(struct op *op, const struct error *why)
{
    if (op->done || op->undoing || op_failed(op))
        return;
    op->error = *why;
    if (!op->waiting || op->mode == OP_WAIT_HELD)
        return; /* queued, stepping, or must finish: the error is seen at the next resume */
    if (op->child != NULL)
        op_abort_with(op->child, why);
    else
        wait_cut(op, why);
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
    if (!op->undoing) {
        op_abort_with(op, &error);
        return;
    }
    if (!op->waiting) /* undo ran out of its budget: cut whatever it waits for, the step goes on */
        return;
    if (op->child != NULL)
        op_abort_with(op->child, &error);
    else
        wait_cut(op, &error);
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

/* ---- inside a step -------------------------------------------------------------------------- */

void op_fail(struct op *op, enum err_code code, const char *format, ...)
{
    char message[ERROR_MESSAGE_MAX];
    va_list args;

    if (op_failed(op))
        return;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    error_set(&op->error, code, "%s", message);
}

void op_fail_with(struct op *op, const struct error *error)
{
    if (!op_failed(op))
        op->error = *error;
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
    PRE(!op->waiting && !op->done && op->child == NULL);
    op->state = state;
    op->mode = mode;
    op->waiting = true;
    op->cancel = NULL;
    op->cancel_ctx = NULL;
    op->waits++;
    torture.waits++;
    if (torture.what == OP_TORTURE_FAIL && torture.waits == torture.k) {
        struct error injected;
        error_set(&injected, ERR_INTERNAL, "injected failure of wait %u", torture.k);
        op_wake(op, &injected);
        return false;
    }
    if (op_failed(op) && !op->undoing) {
        struct error why = op->error;
        op_wake(op, &why);
        return false;
    }
    return true;
}

void op_check_wait(const struct op *op)
{
    /* The start expression began a leaf, queued a child, or completed at once. */
    POST(op->cancel != NULL || op->child != NULL || !op->waiting);
    if (torture.what == OP_TORTURE_CANCEL && torture.waits == torture.k && op->waiting) {
        struct op *root = (struct op *)op;
        while (root->parent != NULL)
            root = root->parent;
        torture.what = OP_TORTURE_NONE;
        op_cancel(root, "injected cancellation");
    }
}

void op_wait_begin(struct op *op, op_cancel_fn cancel, void *ctx)
{
    PRE(op->waiting && op->cancel == NULL && op->child == NULL && cancel != NULL);
    op->cancel = cancel;
    op->cancel_ctx = ctx;
}

void op_wake(struct op *op, const struct error *error)
{
    static const struct error success;

    PRE(op->waiting && !op->done);
    op->waiting = false;
    op->cancel = NULL;
    op->cancel_ctx = NULL;
    op->last = error != NULL ? *error : success;
    if (torture.what == OP_TORTURE_LOSE && torture.waits == torture.k && !op_last_failed(op)) {
        torture.what = OP_TORTURE_NONE;
        error_set(&op->last, ERR_UPSTREAM_LOST, "injected loss of an answer");
        op->last.admitted = ADMITTED_UNKNOWN;
    }
    if (op_last_failed(op) && op->mode != OP_WAIT_ANY && !op_failed(op))
        op->error = op->last;
    loop_post(op->loop, &op->task);
}

void op_note_admitted_unknown(struct op *op)
{
    enum err_code reason = op->error.code;

    for (struct op *o = op; o != NULL && o->error.code == reason; o = o->parent) {
        if (o->error.admitted == ADMITTED_NO)
            o->error.admitted = ADMITTED_UNKNOWN;
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

/* ---- wait lists ----------------------------------------------------------------------------- */

void op_waitlist_init(struct op_waitlist *list)
{
    list_init(&list->waiters);
}

static void waitlist_leave(void *ctx)
{
    struct op *op = ctx;

    list_remove(&op->wait_link);
}

void op_waitlist_wait(struct op_waitlist *list, struct op *op)
{
    list_push(&list->waiters, &op->wait_link);
    op_wait_begin(op, waitlist_leave, op);
}

int op_waitlist_wake_one(struct op_waitlist *list, const struct error *error)
{
    struct list *node = list_pop(&list->waiters);

    if (node == NULL)
        return 0;
    op_wake(container_of(node, struct op, wait_link), error);
    return 1;
}

int op_waitlist_wake_all(struct op_waitlist *list, const struct error *error)
{
    int woken = 0;

    while (op_waitlist_wake_one(list, error) == 1)
        woken++;
    return woken;
}

bool op_waitlist_empty(const struct op_waitlist *list)
{
    return list_empty(&list->waiters);
}

/* ---- observation and torture ---------------------------------------------------------------- */

void op_set_observer(void (*observe)(void *ctx, const struct op *op), void *ctx)
{
    observer.observe = observe;
    observer.ctx = ctx;
}

void op_torture_arm(enum op_torture what, uint32_t k)
{
    torture.what = what;
    torture.k = k;
    torture.waits = 0;
}

uint32_t op_torture_waits(void)
{
    return torture.waits;
}
