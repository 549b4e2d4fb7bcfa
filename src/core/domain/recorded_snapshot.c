/* Home snapshots with their rows: an intent row stands before the copy is made, and goes after the
 * copy has gone. */
#include "core/domain/lifecycle_internal.h"

#include <string.h>

/* ---- create ------------------------------------------------------------------------------------------ */

struct snapshot_record {
    struct op op;
    struct lifecycle *lc;
    const struct snapshot_spec *spec;
    const char *binding_ref;
    const char **ret;
    const char *ref;
    struct ledger_snapshot row, *found;
    bool claimed, recorded, done;
};

enum record_state {
    RECORD_START,
    RECORD_CLAIMING,
    RECORD_READING,
    RECORD_COPYING,
    RECORD_ACTIVATING,
    RECORD_DELETING,
    RECORD_ABANDONING
};
static const char *const record_states[] = {"start",      "claiming", "reading",   "copying",
                                            "activating", "deleting", "abandoning"};

/* The id was used before: the same snapshot, if it is there. */
static enum op_poll record_found(struct snapshot_record *t, struct op *op)
{
    const struct ledger_snapshot *row = t->found;

    if (row != NULL && row_state_of(row->status) == ROW_ACTIVE &&
        strcmp(row->tenant_id, t->spec->tenant_id) == 0 &&
        strcmp(row->agent_id, t->spec->agent_id) == 0)
        *t->ret = row->snapshot_ref;
    else
        op_fail(op, ERR_CONFLICT, "home_snapshot_id %s is in use: it is %s",
                t->spec->home_snapshot_id,
                row == NULL                               ? "being removed"
                : row_state_of(row->status) == ROW_ACTIVE ? "another agent's"
                                                          : row->status);
    return OP_DONE;
}

static enum op_poll record_step(struct op *op)
{
    struct snapshot_record *t = container_of(op, struct snapshot_record, op);
    struct ledger *ledger = t->lc->ledger;
    struct broker *broker = t->lc->broker;

    switch ((enum record_state)op->state) {
    case RECORD_START:
        t->row = (struct ledger_snapshot){.id = t->spec->home_snapshot_id,
                                          .tenant_id = t->spec->tenant_id,
                                          .agent_id = t->spec->agent_id,
                                          .backend = broker_backend(broker)->ops->name};
        AWAIT_HELD(op, RECORD_CLAIMING,
                   ledger->ops->claim_snapshot(ledger, op, &t->row, t->lc->options.claim_ms * 10,
                                               &t->claimed));
        if (!t->claimed) {
            AWAIT(op, RECORD_READING,
                  ledger->ops->get(ledger, op, LEDGER_SNAPSHOTS, t->row.id, (void **)&t->found));
            return record_found(t, op);
        }
        AWAIT(op, RECORD_COPYING,
              broker_snapshot_create(broker, op, t->spec, t->binding_ref, &t->ref));
        AWAIT_HELD(op, RECORD_ACTIVATING,
                   ledger->ops->activate_snapshot(ledger, op, t->row.id, t->ref, &t->recorded));
        if (!t->recorded)
            op_fail(op, ERR_CONFLICT, "home snapshot %s was retired while it was made", t->row.id);
        else
            *t->ret = t->ref;
        if (!op_failed(op))
            return OP_DONE;

    undo:
        op_begin_undo(op, LIFECYCLE_UNDO_MS);
        if (t->recorded || !t->claimed)
            return OP_DONE;
        if (t->ref != NULL) {
            AWAIT_ANY(op, RECORD_DELETING, broker_snapshot_delete(broker, op, t->ref));
            if (op_last_failed(op))
                return OP_DONE; /* the row stays and tells of it */
        }
        AWAIT_ANY(op, RECORD_ABANDONING,
                  ledger->ops->abandon_snapshot(ledger, op, t->row.id, &t->done));
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type record_type = {"recorded_snapshot", record_states, 7, record_step,
                                           NULL};

void lifecycle_create_snapshot(struct lifecycle *lc, struct op *op,
                               const struct snapshot_spec *spec, const char *binding_ref,
                               const char **ret_ref)
{
    struct error err = {0};
    struct snapshot_record *t;

    if (!broker_check_snapshot(lc->broker, spec, binding_ref, &err)) {
        op_complete(op, &err);
        return;
    }
    t = OP_CHILD(op, &record_type, snapshot_record);
    t->lc = lc;
    t->spec = spec;
    t->binding_ref = binding_ref;
    t->ret = ret_ref;
    op_await_child(op, &t->op);
}

/* ---- delete --------------------------------------------------------------------------------------------- */

struct snapshot_removal {
    struct op op;
    struct lifecycle *lc;
    const char *ref;
    struct ledger_filter filter;
    struct ledger_page page;
    struct ledger_retire retire;
    struct ledger_retired retired;
    struct ledger_work work;
    struct ledger_cause cause;
    bool done;
};

enum removal_state {
    REMOVAL_START,
    REMOVAL_FINDING,
    REMOVAL_RETIRING,
    REMOVAL_DELETING,
    REMOVAL_FINISHING,
    REMOVAL_PUTTING_OFF
};
static const char *const removal_states[] = {"start",    "finding",   "retiring",
                                             "deleting", "finishing", "putting_off"};

static void removal_retire(struct snapshot_removal *t, struct op *op)
{
    struct ledger *ledger = t->lc->ledger;
    struct ledger_snapshot *row = t->page.rows[0];

    t->cause = (struct ledger_cause){"api", "deleted by its ref"};
    t->work = (struct ledger_work){.kind = WORK_SNAPSHOT, .id = row->id, .snapshot = row};
    t->retire = (struct ledger_retire){
        .snapshot_id = row->id, .claim_ms = t->lc->options.claim_ms, .cause = t->cause};
    ledger->ops->retire(ledger, op, &t->retire, &t->retired);
}

static enum op_poll removal_step(struct op *op)
{
    struct snapshot_removal *t = container_of(op, struct snapshot_removal, op);
    struct ledger *ledger = t->lc->ledger;

    switch ((enum removal_state)op->state) {
    case REMOVAL_START:
        t->filter = (struct ledger_filter){.snapshot_ref = t->ref, .limit = 1};
        AWAIT(op, REMOVAL_FINDING,
              ledger->ops->list(ledger, op, LEDGER_SNAPSHOTS, &t->filter, &t->page));
        if (t->page.n > 0)
            AWAIT(op, REMOVAL_RETIRING, removal_retire(t, op));
        AWAIT(op, REMOVAL_DELETING, broker_snapshot_delete(t->lc->broker, op, t->ref));
        if (t->page.n > 0)
            AWAIT_ANY(op, REMOVAL_FINISHING,
                      ledger->ops->finish_work(ledger, op, &t->work, &t->cause, &t->done));
        return OP_DONE;

    undo:
        if (t->retired.n_snapshots > 0) {
            op_begin_undo(op, LIFECYCLE_UNDO_MS);
            AWAIT_ANY(op, REMOVAL_PUTTING_OFF,
                      ledger->ops->retry_work(ledger, op, &t->work, op_error(op),
                                              work_retry_delay_ms(1)));
        }
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type removal_type = {"snapshot_removal", removal_states, 6, removal_step,
                                            NULL};

void lifecycle_delete_snapshot(struct lifecycle *lc, struct op *op, const char *snapshot_ref)
{
    struct error err = {0};
    struct snapshot_removal *t;

    if (!broker_check_snapshot_delete(lc->broker, snapshot_ref, &err)) {
        op_complete(op, &err);
        return;
    }
    t = OP_CHILD(op, &removal_type, snapshot_removal);
    t->lc = lc;
    t->ref = snapshot_ref;
    op_await_child(op, &t->op);
}
