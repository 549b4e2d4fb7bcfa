/* Collect one thing that stands alone: a retired binding whose workspace stays, a retired home
 * snapshot, or an orphan that is to be destroyed.
 *
 * Happy path: destroy or delete; let the row go. The copy of a snapshot that was cut short has no
 *   ref in its row: it is deleted by the name that it would have got, or recorded as unknown where
 *   only the backend knows that. An orphan without a ref has nothing to destroy. An orphan that a
 *   live row has taken in by now is none: only its own row goes.
 * Failures: put off. */
#include "gc/collect.h"

#include <string.h>

struct single_collect {
    struct collect c;
    struct ledger_binding *owner; /* live row with the orphan's ref */
    struct ledger_filter filter;
    struct ledger_page page;
    const char *snapshot_ref;
    struct destroy_spec destroy;
};

enum single_state {
    SINGLE_START,
    SINGLE_CHECKING,
    SINGLE_CHECKING_SNAPSHOT,
    SINGLE_RECORDING,
    SINGLE_DELETING,
    SINGLE_FINISHING,
    SINGLE_PUTTING_OFF
};
static const char *const single_states[] = {
    "start", "checking", "checking_snapshot", "recording", "deleting", "finishing", "putting_off"};

static bool is_orphan(const struct single_collect *t, const char *kind)
{
    const struct ledger_orphan *o = t->c.work.orphan;

    return o != NULL && o->ref != NULL && strcmp(o->kind, kind) == 0;
}

static const char *snapshot_ref(struct single_collect *t)
{
    if (is_orphan(t, "snapshot"))
        return t->c.work.orphan->ref;
    return t->c.work.snapshot != NULL ? collect_snapshot_ref(&t->c, t->c.work.snapshot) : NULL;
}

static void check_snapshot(struct single_collect *t, struct op *op)
{
    struct ledger *ledger = lifecycle_ledger(t->c.lc);

    t->filter = (struct ledger_filter){
        .snapshot_ref = t->c.work.orphan->ref, .status = "active", .limit = 1};
    ledger->ops->list(ledger, op, LEDGER_SNAPSHOTS, &t->filter, &t->page);
}

static bool is_taken(const struct single_collect *t)
{
    return t->page.n > 0 || (t->owner != NULL && row_state_of(t->owner->status) == ROW_ACTIVE);
}

/* false when there is nothing to destroy. */
static bool set_destroy(struct single_collect *t)
{
    const struct ledger_orphan *o = t->c.work.orphan;
    bool keeps = collect_backend(&t->c)->caps & BACKEND_KEEPS_WORKSPACE;

    if (t->c.work.binding != NULL) {
        t->destroy = (struct destroy_spec){.binding_ref = t->c.work.binding->binding_ref};
    } else if (is_orphan(t, "binding")) {
        t->destroy =
            (struct destroy_spec){.binding_ref = o->ref, .workspace_ref = o->workspace_ref};
        if (o->workspace_ref == NULL && !keeps)
            t->destroy.workspace_ref = o->ref; /* one thing under two names */
        t->destroy.destroy_workspace = t->destroy.workspace_ref != NULL;
    }
    return t->destroy.binding_ref != NULL;
}

static void delete_start(struct single_collect *t, struct op *op)
{
    struct broker *broker = lifecycle_broker(t->c.lc);

    if (t->snapshot_ref != NULL)
        broker_snapshot_delete(broker, op, t->snapshot_ref);
    else
        broker_destroy_binding(broker, op, &t->destroy);
}

static enum op_poll single_step(struct op *op)
{
    struct single_collect *t = container_of(op, struct single_collect, c.op);
    struct ledger *ledger = lifecycle_ledger(t->c.lc);

    switch ((enum single_state)op->state) {
    case SINGLE_START:
        if (is_orphan(t, "binding"))
            AWAIT(op, SINGLE_CHECKING,
                  ledger->ops->find_ref(ledger, op, t->c.work.orphan->backend,
                                        t->c.work.orphan->ref, &t->owner));
        if (is_orphan(t, "snapshot"))
            AWAIT(op, SINGLE_CHECKING_SNAPSHOT, check_snapshot(t, op));
        t->snapshot_ref = snapshot_ref(t);
        if (t->c.work.snapshot != NULL && t->snapshot_ref == NULL)
            AWAIT_HELD(op, SINGLE_RECORDING, collect_record_copy(&t->c, op, t->c.work.snapshot));
        if (!is_taken(t) && (t->snapshot_ref != NULL || set_destroy(t)))
            AWAIT(op, SINGLE_DELETING, delete_start(t, op));
        AWAIT_HELD(op, SINGLE_FINISHING, collect_finish(&t->c, op));
        return OP_DONE;

    undo:
        op_begin_undo(op, COLLECT_UNDO_MS);
        AWAIT_ANY(op, SINGLE_PUTTING_OFF, collect_put_off(&t->c, op));
        return OP_DONE;
    }
    unreachable_state(op);
}

const struct op_type collect_single_type = {"collect_single", single_states, 7, single_step, NULL};
const size_t collect_single_size = sizeof(struct single_collect);
