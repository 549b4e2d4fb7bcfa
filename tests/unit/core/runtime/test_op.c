/* The operation engine under a virtual clock: order of resumption, failure, deadline,
 * cancellation, undo, child operations, and the torture harness over an operation of three waits. */
#include "core/runtime/op.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

static struct loop *loop;

static void set_up(void)
{
    loop = loop_new(&(struct loop_options){.virtual_clock = true});
}

static void tear_down(void)
{
    loop_free(loop);
}

TestSuite(op, .init = set_up, .fini = tear_down, .timeout = 10);

/* Makes a thing, waits twice, and removes the thing if anything fails after it was made. */
struct maker {
    struct op op;
    int *things;
    bool made;
};

enum maker_state { MAKER_START, MAKER_MAKING, MAKER_PAUSING, MAKER_CHECKING, MAKER_UNDOING };
static const char *const maker_states[] = {"start", "making", "pausing", "checking", "undoing"};

static void make_thing(struct maker *m)
{
    m->made = true;
    (*m->things)++;
    op_sleep(&m->op, 100);
}

static void remove_thing(struct maker *m)
{
    (*m->things)--;
    op_sleep(&m->op, 10);
}

static enum op_poll maker_step(struct op *op)
{
    struct maker *m = container_of(op, struct maker, op);

    switch ((enum maker_state)op->state) {
    case MAKER_START:
        AWAIT_HELD(op, MAKER_MAKING, make_thing(m));
        AWAIT(op, MAKER_PAUSING, op_sleep(op, 50));
        AWAIT(op, MAKER_CHECKING, op_sleep(op, 50));
        return OP_DONE;

    undo:
        op_begin_undo(op, 1000);
        if (m->made)
            AWAIT_ANY(op, MAKER_UNDOING, remove_thing(m));
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type maker_type = {"maker", maker_states, 5, maker_step, NULL};

/* A parent that runs one maker as its child. */
struct holder {
    struct op op;
    int *things;
};

enum holder_state { HOLDER_START, HOLDER_MAKING };
static const char *const holder_states[] = {"start", "making"};

static enum op_poll holder_step(struct op *op)
{
    struct holder *h = container_of(op, struct holder, op);
    struct maker *m;

    switch ((enum holder_state)op->state) {
    case HOLDER_START:
        m = OP_CHILD(op, &maker_type, maker);
        m->things = h->things;
        AWAIT(op, HOLDER_MAKING, op_await_child(op, &m->op));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type holder_type = {"holder", holder_states, 2, holder_step, NULL};

struct outcome {
    int calls;
    struct error error;
};

static void note_outcome(struct op *op, void *ctx)
{
    struct outcome *o = ctx;

    o->calls++;
    o->error = *op_error(op);
}

static struct maker *start_maker(int *things, struct outcome *o)
{
    struct maker *m = OP_ROOT(loop, &maker_type, maker, NULL);

    m->things = things;
    op_start(&m->op, note_outcome, o);
    return m;
}

Test(op, runs_from_first_wait_to_last)
{
    struct outcome o = {0};
    int things = 0;
    struct maker *m = start_maker(&things, &o);

    loop_turn(loop, false);
    cr_assert_str_eq(op_state_name(&m->op), "making");
    loop_advance_ms(loop, 120);
    cr_assert_str_eq(op_state_name(&m->op), "pausing");
    loop_advance_ms(loop, 80);
    cr_assert(eq(int, o.calls, 1));
    cr_assert(eq(int, o.error.code, ERR_NONE));
    cr_assert(eq(int, things, 1));
}

Test(op, cancel_before_first_step_runs_nothing)
{
    struct outcome o = {0};
    int things = 0;
    struct maker *m = start_maker(&things, &o);

    op_cancel(&m->op, "changed my mind");
    loop_advance_ms(loop, 1000);
    cr_assert(eq(int, o.calls, 1));
    cr_assert(eq(int, o.error.code, ERR_CANCELLED));
    cr_assert(eq(int, things, 0));
}

Test(op, cancel_during_a_held_wait_lets_it_finish_then_undoes)
{
    struct outcome o = {0};
    int things = 0;
    struct maker *m = start_maker(&things, &o);

    loop_advance_ms(loop, 10);
    op_cancel(&m->op, "gone");
    loop_advance_ms(loop, 80);
    cr_assert(eq(int, o.calls, 0), "the create was not given up");
    loop_advance_ms(loop, 100);
    cr_assert(eq(int, o.calls, 1));
    cr_assert(eq(int, o.error.code, ERR_CANCELLED));
    cr_assert(eq(int, things, 0));
}

Test(op, deadline_reaches_the_child_and_its_undo_still_runs)
{
    struct outcome o = {0};
    int things = 0;
    struct holder *h = OP_ROOT(loop, &holder_type, holder, NULL);

    h->things = &things;
    op_set_deadline_ms(&h->op, 120, "holding");
    op_start(&h->op, note_outcome, &o);
    loop_advance_ms(loop, 125);
    cr_assert(eq(int, o.calls, 0), "undo takes 10 ms");
    loop_advance_ms(loop, 10);
    cr_assert(eq(int, o.calls, 1));
    cr_assert(eq(int, o.error.code, ERR_DEADLINE));
    cr_assert(eq(int, things, 0));
}

Test(op, remaining_time_is_the_nearest_deadline)
{
    struct outcome o = {0};
    int things = 0;
    struct holder *h = OP_ROOT(loop, &holder_type, holder, NULL);

    h->things = &things;
    op_set_deadline_ms(&h->op, 5000, "holding");
    op_start(&h->op, note_outcome, &o);
    loop_turn(loop, false);
    cr_assert(eq(i64, op_remaining_ms(h->op.child, 1), 5000));
    op_set_deadline_ms(h->op.child, 300, "making");
    cr_assert(eq(i64, op_remaining_ms(h->op.child, 1), 300));
    loop_advance_ms(loop, 1000);
    cr_assert(eq(int, o.calls, 1));
}

/* The harness in miniature: every wait failed, lost and cancelled in turn leaves no thing behind. */
static void torture(enum op_torture what)
{
    uint32_t waits;

    op_torture_arm(OP_TORTURE_NONE, 0);
    {
        struct outcome o = {0};
        int things = 0;
        start_maker(&things, &o);
        loop_advance_ms(loop, 1000);
        cr_assert(eq(int, things, 1));
        waits = op_torture_waits();
    }
    cr_assert(eq(u32, waits, 3));
    for (uint32_t k = 1; k <= waits; k++) {
        struct outcome o = {0};
        int things = 0;
        op_torture_arm(what, k);
        start_maker(&things, &o);
        loop_advance_ms(loop, 3000);
        cr_assert(eq(int, o.calls, 1), "wait %u", k);
        cr_assert(ne(int, o.error.code, ERR_NONE), "wait %u", k);
        cr_assert(eq(int, things, 0), "wait %u left a thing", k);
    }
    op_torture_arm(OP_TORTURE_NONE, 0);
}

Test(op, torture_fail)
{
    torture(OP_TORTURE_FAIL);
}

Test(op, torture_lose)
{
    torture(OP_TORTURE_LOSE);
}

Test(op, torture_cancel)
{
    torture(OP_TORTURE_CANCEL);
}

/* ---- wait lists ----------------------------------------------------------------------------- */

struct waiter {
    struct op op;
    struct op_waitlist *list;
};

enum waiter_state { WAITER_START, WAITER_WAITING };
static const char *const waiter_states[] = {"start", "waiting"};

static enum op_poll waiter_step(struct op *op)
{
    struct waiter *w = container_of(op, struct waiter, op);

    switch ((enum waiter_state)op->state) {
    case WAITER_START:
        AWAIT(op, WAITER_WAITING, op_waitlist_wait(w->list, op));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type waiter_type = {"waiter", waiter_states, 2, waiter_step, NULL};

Test(op, waitlist_wakes_in_order_and_forgets_the_cancelled)
{
    struct op_waitlist list;
    struct outcome o[3] = {{0}};
    struct waiter *w[3];

    op_waitlist_init(&list);
    for (int i = 0; i < 3; i++) {
        w[i] = OP_ROOT(loop, &waiter_type, waiter, NULL);
        w[i]->list = &list;
        op_start(&w[i]->op, note_outcome, &o[i]);
    }
    loop_turn(loop, false);
    op_cancel(&w[1]->op, "bored");
    cr_assert(eq(int, op_waitlist_wake_one(&list, NULL), 1));
    loop_turn(loop, false);
    cr_assert(eq(int, o[0].calls, 1));
    cr_assert(eq(int, o[1].error.code, ERR_CANCELLED));
    cr_assert(eq(int, o[2].calls, 0));
    cr_assert(eq(int, op_waitlist_wake_all(&list, NULL), 1));
    loop_turn(loop, false);
    cr_assert(eq(int, o[2].calls, 1));
    cr_assert(op_waitlist_empty(&list));
}
