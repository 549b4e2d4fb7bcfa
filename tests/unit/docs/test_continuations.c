/* The operation that docs/continuations.md writes step by step. The document's code is cut from this
 * file: tests/lint/snippets.py fails when they differ. */
#include "core/runtime/op.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

/* ---- a gateway that the example talks to ---------------------------------------------------- */

struct gateway {
    int sandboxes;    /* that exist now */
    int polls_needed; /* until a new one is ready */
};

static void gateway_create(struct gateway *gateway, struct op *op, bool *ret_exists)
{
    gateway->sandboxes++;
    *ret_exists = true;
    op_sleep(op, 20);
}

static void gateway_poll(struct gateway *gateway, struct op *op, bool *ret_ready)
{
    *ret_ready = --gateway->polls_needed <= 0;
    op_sleep(op, 5);
}

static void gateway_delete(struct gateway *gateway, struct op *op)
{
    gateway->sandboxes--;
    op_sleep(op, 5);
}

/* ---- the operation -------------------------------------------------------------------------- */

/* Warm up: make a sandbox and wait until it is ready.
 *
 *   create → (pause → poll)* → done
 *
 * Whatever fails after the create, a deadline and a cancellation included, deletes the sandbox. */
struct warm_up {
    struct op op;
    struct gateway *gateway;
    bool exists;
    bool ready;
};

enum warm_up_state {
    WARM_UP_START,
    WARM_UP_CREATING,
    WARM_UP_PAUSING,
    WARM_UP_POLLING,
    WARM_UP_UNDOING,
};

static const char *const warm_up_states[] = {"start", "creating", "pausing", "polling", "undoing"};

enum { POLL_PAUSE_MS = 100, UNDO_BUDGET_MS = 10000 };

static enum op_poll warm_up_step(struct op *op)
{
    struct warm_up *w = container_of(op, struct warm_up, op);

    switch ((enum warm_up_state)op->state) {
    case WARM_UP_START:
        AWAIT_HELD(op, WARM_UP_CREATING, gateway_create(w->gateway, op, &w->exists));
        while (!w->ready) {
            AWAIT(op, WARM_UP_PAUSING, op_sleep(op, POLL_PAUSE_MS));
            AWAIT(op, WARM_UP_POLLING, gateway_poll(w->gateway, op, &w->ready));
        }
        return OP_DONE;

    undo:
        op_begin_undo(op, UNDO_BUDGET_MS);
        if (w->exists)
            AWAIT_ANY(op, WARM_UP_UNDOING, gateway_delete(w->gateway, op));
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type warm_up_type = {
    .name = "warm_up",
    .states = warm_up_states,
    .state_count = 5,
    .step = warm_up_step,
};

static struct warm_up *warm_up_new(struct loop *loop, struct gateway *gateway)
{
    struct warm_up *w = OP_ROOT(loop, &warm_up_type, warm_up, NULL);

    w->gateway = gateway;
    op_set_deadline_ms(&w->op, 60000, "warming up a sandbox");
    return w;
}

/* ---- its tests ------------------------------------------------------------------------------ */

static struct loop *loop;

static void set_up(void)
{
    loop = loop_new(&(struct loop_options){.virtual_clock = true});
}

static void tear_down(void)
{
    op_torture_arm(OP_TORTURE_NONE, 0);
    loop_free(loop);
}

TestSuite(continuations, .init = set_up, .fini = tear_down, .timeout = 20);

static void keep_error(struct op *op, void *ctx)
{
    *(struct error *)ctx = *op_error(op);
}

static struct error run(struct gateway *gateway)
{
    struct error error = {.code = ERR_COUNT};
    struct warm_up *w = warm_up_new(loop, gateway);

    op_start(&w->op, keep_error, &error);
    loop_advance_ms(loop, 100000);
    return error;
}

Test(continuations, a_sandbox_becomes_ready)
{
    struct gateway gateway = {.polls_needed = 3};

    cr_assert(eq(int, run(&gateway).code, ERR_NONE));
    cr_assert(eq(int, gateway.sandboxes, 1));
}

Test(continuations, one_that_never_becomes_ready_is_deleted)
{
    struct gateway gateway = {.polls_needed = 1000000};

    cr_assert(eq(int, run(&gateway).code, ERR_DEADLINE));
    cr_assert(eq(int, gateway.sandboxes, 0));
}

Test(continuations, trouble_at_any_wait_leaves_nothing)
{
    for (enum op_torture what = OP_TORTURE_FAIL; what <= OP_TORTURE_CANCEL; what++) {
        for (uint32_t k = 1;; k++) {
            struct gateway gateway = {.polls_needed = 2};

            op_torture_arm(what, k);
            struct error error = run(&gateway);
            if (op_torture_waits() < k)
                break; /* it has no k-th wait: all have had their turn */
            cr_assert(ne(int, error.code, ERR_NONE), "wait %u", k);
            cr_assert(eq(int, gateway.sandboxes, 0), "trouble at wait %u left a sandbox", k);
        }
    }
}
