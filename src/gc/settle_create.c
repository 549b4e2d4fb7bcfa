/* Settle a create whose process died and whose owner did not ask again.
 *
 * Happy path: look for what it made by the binding id. Found: retire the row, then write the refs
 *   into it, and it is collected like any other. Not found: the row goes. Where nobody can look,
 *   the unknown is recorded as an orphan before the row goes.
 * Failures: put off; the row stays claimable by its owner's next call. */
#include "gc/collect.h"

struct create_settle {
    struct collect c;
    struct binding found;
    struct ledger_retire retire;
    struct ledger_retired retired;
    struct ledger_binding *row;
    struct error why;
};

enum settle_state {
    SETTLE_START,
    SETTLE_LOOKING,
    SETTLE_RETIRING,
    SETTLE_WRITING,
    SETTLE_RECORDING,
    SETTLE_ABANDONING,
    SETTLE_PUTTING_OFF
};
static const char *const settle_states[] = {"start",     "looking",    "retiring",   "writing",
                                            "recording", "abandoning", "putting_off"};

static void settle_retire(struct create_settle *t, struct op *op)
{
    struct ledger *ledger = lifecycle_ledger(t->c.lc);

    t->retire = (struct ledger_retire){.binding_id = t->c.work.id,
                                       .cause = {"collector", "its create was cut short"}};
    ledger->ops->retire(ledger, op, &t->retire, &t->retired);
}

static void settle_write(struct create_settle *t, struct op *op)
{
    struct ledger *ledger = lifecycle_ledger(t->c.lc);

    t->c.cause = (struct ledger_cause){"collector", "found by its binding id"};
    ledger->ops->activate_binding(ledger, op, t->c.work.binding, &t->found, &t->c.cause, &t->row);
}

static enum op_poll settle_step(struct op *op)
{
    struct create_settle *t = container_of(op, struct create_settle, c.op);
    struct ledger *ledger = lifecycle_ledger(t->c.lc);

    switch ((enum settle_state)op->state) {
    case SETTLE_START:
        if (collect_can_find(&t->c))
            AWAIT(op, SETTLE_LOOKING, collect_find(&t->c, op, t->c.work.binding, &t->found));
        if (t->found.binding_ref != NULL) {
            AWAIT(op, SETTLE_RETIRING, settle_retire(t, op));
            AWAIT_HELD(op, SETTLE_WRITING, settle_write(t, op));
            t->c.more = t->c.done = t->row != NULL;
            return OP_DONE;
        }
        if (!collect_can_find(&t->c))
            AWAIT(op, SETTLE_RECORDING, collect_record_unknown(&t->c, op, t->c.work.binding));
        error_set(&t->why, ERR_CANCELLED, "its create was cut short");
        AWAIT_HELD(op, SETTLE_ABANDONING,
                   ledger->ops->abandon_binding(ledger, op, t->c.work.binding, &t->why, false,
                                                &t->c.done));
        return OP_DONE;

    undo:
        op_begin_undo(op, COLLECT_UNDO_MS);
        AWAIT_ANY(op, SETTLE_PUTTING_OFF, collect_put_off(&t->c, op));
        return OP_DONE;
    }
    unreachable_state(op);
}

const struct op_type settle_create_type = {"settle_create", settle_states, 7, settle_step, NULL};
const size_t settle_create_size = sizeof(struct create_settle);
