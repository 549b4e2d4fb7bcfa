/* Create the binding of a row that this process has claimed, and make the row active.
 *
 * Happy path: create; activate the row. After a take-over, first look for what the dead creator may
 *   have made: if it is there, activate the row with it.
 * Failures: a failed create left nothing (the broker undoes its own), so the row goes and those who
 *   wait get the error. When its outcome is unknown and the backend can look things up, the row
 *   stays and the next caller, or the collector, looks. When the row was not made active, it is read
 *   again: only if that says that the sandbox is nobody's it is destroyed. If the ledger does not
 *   answer nothing is touched: row and sandbox are both there, and whoever takes the claim over
 *   finds the sandbox by its binding id. An orphan is on record before its row goes.
 * A row that was retired while we created keeps the refs: the collector destroys it. */
#include "core/domain/lifecycle_internal.h"

#include <string.h>

struct claimed_create {
    struct op op;
    struct lifecycle *lc;
    struct claimed_create_spec *spec;
    struct ledger_binding **ret;
    struct live_claim live;
    struct binding refs;
    struct ledger_binding *active; /* the row after activation; NULL: the claim was lost */
    struct ledger_binding *seen;   /* in undo: the row as it is */
    bool activating;               /* tried: the row may have the refs */
    bool unknown;                  /* something may exist of which nobody knows the ref */
    bool done;
    struct destroy_spec destroy;
    struct ledger_retire retire;
    struct ledger_retired retired;
};

enum claimed_state {
    CLAIMED_START,
    CLAIMED_LOOKING,
    CLAIMED_CREATING,
    CLAIMED_ACTIVATING,
    CLAIMED_RETIRING,
    CLAIMED_READING,
    CLAIMED_DESTROYING,
    CLAIMED_RECORDING,
    CLAIMED_ABANDONING
};
static const char *const claimed_states[] = {"start",      "looking",   "creating",
                                             "activating", "retiring",  "reading",
                                             "destroying", "recording", "abandoning"};

static struct backend *backend_of(const struct claimed_create *t)
{
    return broker_backend(t->lc->broker);
}

static bool can_find(const struct claimed_create *t)
{
    struct backend *backend = backend_of(t);

    return backend != NULL && (backend->caps & BACKEND_FINDS) && backend->ops->find != NULL;
}

static bool must_look(const struct claimed_create *t)
{
    if (t->spec->claimed->outcome != CLAIM_TAKEN_OVER)
        return false;
    if (!can_find(t) && backend_of(t) != NULL) {
        struct error why;
        error_set(&why, ERR_BACKEND_OUTCOME_UNKNOWN, "a create of binding %s was cut short: %s",
                  t->spec->binding.binding_id,
                  t->spec->claimed->row->last_error != NULL ? t->spec->claimed->row->last_error
                                                            : "its process ended");
        backend_report_orphan(backend_of(t), ORPHAN_UNKNOWN, NULL, &t->spec->binding, &why);
    }
    return can_find(t);
}

/* Is the sandbox nobody's? Once activation was tried, the row (read as far as it could be) tells. */
static bool must_destroy(const struct claimed_create *t, struct op *op)
{
    if (t->refs.binding_ref == NULL)
        return false;
    if (!t->activating)
        return true;
    if (op_last_failed(op))
        return false;
    if (t->seen == NULL)
        return true;
    if (t->seen->binding_ref != NULL)
        return strcmp(t->seen->binding_ref, t->refs.binding_ref) != 0;
    /* Still being created: by us, or by another who finds the sandbox if it can. */
    return strcmp(t->seen->claimed_by != NULL ? t->seen->claimed_by : "", t->lc->ledger->self) ==
               0 ||
           !can_find(t);
}

static void destroy_made(struct claimed_create *t, struct op *op)
{
    t->destroy = (struct destroy_spec){
        .binding_ref = t->refs.binding_ref,
        .workspace_ref = t->refs.workspace_ref,
        .destroy_workspace = t->spec->binding.existing_workspace_ref == NULL,
    };
    broker_destroy_binding(t->lc->broker, op, &t->destroy);
}

static void retire_made(struct claimed_create *t, struct op *op)
{
    t->retire = (struct ledger_retire){
        .binding_id = t->spec->claimed->row->id,
        .cause = {"create", "its caller went away in the moment of its creation"},
    };
    lifecycle_retire(t->lc, op, &t->retire, &t->retired);
}

static bool activated(struct claimed_create *t, struct op *op)
{
    const struct ledger_binding *row = t->spec->claimed->row;

    if (t->active == NULL) {
        op_fail(op, ERR_CONFLICT, "the claim on binding %s was lost to another replica", row->id);
        return false;
    }
    if (row_state_of(t->active->status) == ROW_ACTIVE)
        return true;
    t->refs.binding_ref = NULL; /* the row has it, and the collector destroys it */
    op_fail(op, ERR_CONFLICT, "binding %s was retired while it was created", row->id);
    return false;
}

static enum op_poll claimed_step(struct op *op)
{
    struct claimed_create *t = container_of(op, struct claimed_create, op);
    struct ledger *ledger = t->lc->ledger;
    const struct ledger_binding *row = t->spec->claimed->row;
    struct backend *backend;

    switch ((enum claimed_state)op->state) {
    case CLAIMED_START:
        t->spec->started = true;
        live_claim_begin(t->lc, &t->live, row->id);
        if (must_look(t)) {
            backend = backend_of(t);
            t->unknown = true; /* as long as nobody has seen, the row must stay */
            AWAIT(op, CLAIMED_LOOKING,
                  backend->ops->find(backend, op, &t->spec->binding, &t->refs));
            t->unknown = false;
        }
        if (t->refs.binding_ref == NULL)
            AWAIT(op, CLAIMED_CREATING,
                  broker_create_binding(t->lc->broker, op, &t->spec->binding, &t->refs));
        t->activating = true;
        AWAIT_HELD(
            op, CLAIMED_ACTIVATING,
            ledger->ops->activate_binding(ledger, op, row, &t->refs, &t->spec->cause, &t->active));
        if (!activated(t, op))
            goto undo;
        *t->ret = t->active;
        return OP_DONE;

    undo:
        op_begin_undo(op, LIFECYCLE_UNDO_MS);
        if (op_error(op)->admitted == ADMITTED_UNKNOWN && !t->activating)
            t->unknown = true;
        if (t->active != NULL) {
            /* An owner's binding stays for its next call; without an owner nobody would call. */
            if (row_state_of(t->active->status) == ROW_ACTIVE && row->owner_type == NULL)
                AWAIT_ANY(op, CLAIMED_RETIRING, retire_made(t, op));
            return OP_DONE;
        }
        if (t->activating)
            AWAIT_ANY(op, CLAIMED_READING,
                      ledger->ops->get(ledger, op, LEDGER_BINDINGS, row->id, (void **)&t->seen));
        if (must_destroy(t, op)) {
            AWAIT_ANY(op, CLAIMED_DESTROYING, destroy_made(t, op));
            if (op_last_failed(op))
                backend_report_orphan(backend_of(t), ORPHAN_BINDING, t->refs.binding_ref,
                                      &t->spec->binding, op_last(op));
        } else if (t->activating) {
            return OP_DONE;
        }
        AWAIT_ANY(op, CLAIMED_RECORDING, write_behind_await_orphans(t->lc->behind, op));
        if (op_last_failed(op))
            return OP_DONE; /* the row is all that tells of the orphan: it stays */
        AWAIT_ANY(op, CLAIMED_ABANDONING,
                  ledger->ops->abandon_binding(ledger, op, row, op_error(op),
                                               t->unknown && can_find(t), &t->done));
        return OP_DONE;
    }
    unreachable_state(op);
}

static void claimed_fini(struct op *op)
{
    live_claim_end(&container_of(op, struct claimed_create, op)->live);
}

static const struct op_type claimed_type = {"claimed_create", claimed_states, 9, claimed_step,
                                            claimed_fini};

void claimed_create(struct lifecycle *lc, struct op *op, struct claimed_create_spec *spec,
                    struct ledger_binding **ret)
{
    struct claimed_create *t = OP_CHILD(op, &claimed_type, claimed_create);

    t->lc = lc;
    t->spec = spec;
    t->ret = ret;
    op_await_child(op, &t->op);
}
