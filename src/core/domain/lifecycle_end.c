/* Retiring, and who may still come in: an acquire looks at the row first. Adopting an orphan. */
#include "core/domain/lifecycle_internal.h"

#include "core/domain/uuid7.h"

#include <string.h>

/* ---- retire --------------------------------------------------------------------------------------------- */

struct retirement {
    struct op op;
    struct lifecycle *lc;
    struct ledger_retire what;
    struct ledger_retired *ret;
};

enum retirement_state { RETIREMENT_START, RETIREMENT_FLUSHING, RETIREMENT_MARKING };
static const char *const retirement_states[] = {"start", "flushing", "marking"};

static enum op_poll retirement_step(struct op *op)
{
    struct retirement *t = container_of(op, struct retirement, op);
    struct lifecycle *lc = t->lc;

    switch ((enum retirement_state)op->state) {
    case RETIREMENT_START:
        /* Whether a binding is leased decides its grace: let the ledger know the latest. */
        AWAIT_ANY(op, RETIREMENT_FLUSHING, write_behind_await_uses(lc->behind, op));
        t->what.grace_ms = lc->options.retire_grace_ms;
        AWAIT(op, RETIREMENT_MARKING, lc->ledger->ops->retire(lc->ledger, op, &t->what, t->ret));
        if (lc->options.retired != NULL)
            lc->options.retired(lc->options.ctx);
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type retirement_type = {"retirement", retirement_states, 3, retirement_step,
                                               NULL};

void lifecycle_retire(struct lifecycle *lc, struct op *op, const struct ledger_retire *what,
                      struct ledger_retired *ret)
{
    struct retirement *t = OP_CHILD(op, &retirement_type, retirement);

    t->lc = lc;
    t->what = *what;
    t->ret = ret;
    op_await_child(op, &t->op);
}

/* ---- acquire ---------------------------------------------------------------------------------------------- */

struct guarded_acquire {
    struct op op;
    struct lifecycle *lc;
    const char *binding_ref;
    int64_t ttl_ms;
    struct lease_grant *ret;
    struct ledger_guard guard;
};

enum guarded_state { GUARDED_START, GUARDED_FINDING, GUARDED_ACQUIRING };
static const char *const guarded_states[] = {"start", "finding", "acquiring"};

static enum op_poll guarded_step(struct op *op)
{
    struct guarded_acquire *t = container_of(op, struct guarded_acquire, op);
    struct lifecycle *lc = t->lc;

    switch ((enum guarded_state)op->state) {
    case GUARDED_START:
        AWAIT(op, GUARDED_FINDING,
              lc->ledger->ops->guard_ref(lc->ledger, op, broker_backend(lc->broker)->ops->name,
                                         t->binding_ref, &t->guard));
        if (t->guard.retired) {
            op_fail(op, ERR_BINDING_LOST, "binding %s is retired: %s", t->guard.binding_id,
                    t->guard.reason != NULL ? t->guard.reason : "its owner ended");
            return OP_DONE;
        }
        AWAIT(op, GUARDED_ACQUIRING,
              broker_acquire(lc->broker, op, t->binding_ref, t->ttl_ms, t->ret));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type guarded_type = {"guarded_acquire", guarded_states, 3, guarded_step,
                                            NULL};

void lifecycle_acquire(struct lifecycle *lc, struct op *op, const char *binding_ref, int64_t ttl_ms,
                       struct lease_grant *ret)
{
    struct guarded_acquire *t;

    if (broker_backend(lc->broker) == NULL) {
        broker_acquire(lc->broker, op, binding_ref, ttl_ms, ret); /* says what is wrong */
        return;
    }
    t = OP_CHILD(op, &guarded_type, guarded_acquire);
    t->lc = lc;
    t->binding_ref = binding_ref;
    t->ttl_ms = ttl_ms;
    t->ret = ret;
    op_await_child(op, &t->op);
}

/* ---- adopt -------------------------------------------------------------------------------------------------- */

struct adoption {
    struct op op;
    struct lifecycle *lc;
    const struct orphan_adoption *what;
    struct owner_binding *ret;
    struct ledger_orphan *orphan;
    struct ledger_claim claim;
    struct ledger_claimed claimed;
    struct binding refs;
    struct ledger_cause cause;
    struct ledger_binding *row;
    bool done;
};

enum adoption_state {
    ADOPTION_START,
    ADOPTION_READING,
    ADOPTION_CLAIMING,
    ADOPTION_ACTIVATING,
    ADOPTION_FORGETTING,
    ADOPTION_GIVING_UP
};
static const char *const adoption_states[] = {"start",      "reading",    "claiming",
                                              "activating", "forgetting", "giving_up"};

static bool adoptable(struct adoption *t, struct op *op)
{
    const struct ledger_orphan *o = t->orphan;

    if (o == NULL)
        op_fail(op, ERR_NOT_FOUND, "there is no orphan %s", t->what->orphan_id);
    else if (strcmp(o->kind, "binding") != 0 || o->ref == NULL || o->workspace_ref == NULL)
        op_fail(op, ERR_CONFLICT,
                "orphan %s cannot be adopted: a binding with both refs known is needed", o->id);
    else if (strcmp(o->status, "reported") != 0)
        op_fail(op, ERR_CONFLICT, "orphan %s is being destroyed", o->id);
    return !op_failed(op);
}

static void adoption_claim(struct adoption *t, struct op *op)
{
    const struct owner_request *r = &t->what->request;
    struct lifecycle *lc = t->lc;
    int64_t now = loop_wall_ms(lc->loop);

    t->claim = (struct ledger_claim){
        .row = {.id = t->orphan->binding_id != NULL ? t->orphan->binding_id
                                                    : uuid7_new(op->arena, now),
                .tenant_id = r->owner.tenant_id,
                .app_id = r->app_id,
                .agent_id = r->generation.agent_id,
                .workspace_id = uuid7_new(op->arena, now),
                .backend = t->orphan->backend,
                .owner_type = r->owner.type,
                .owner_id = r->owner.id,
                .owner_scope_key = r->owner.scope_key,
                .base_home_snapshot_id = r->generation.base_home_snapshot_id,
                .agent_config_version_id = r->generation.config_version_id,
                .agent_config_version_kind = r->generation.config_version_kind},
        .claim_ms = lc->options.claim_ms,
        .cause = {"api", "adopted orphan"},
    };
    lc->ledger->ops->claim_binding(lc->ledger, op, &t->claim, &t->claimed);
}

static enum op_poll adoption_step(struct op *op)
{
    struct adoption *t = container_of(op, struct adoption, op);
    struct ledger *ledger = t->lc->ledger;

    switch ((enum adoption_state)op->state) {
    case ADOPTION_START:
        AWAIT(
            op, ADOPTION_READING,
            ledger->ops->get(ledger, op, LEDGER_ORPHANS, t->what->orphan_id, (void **)&t->orphan));
        if (!adoptable(t, op))
            return OP_DONE;
        AWAIT_HELD(op, ADOPTION_CLAIMING, adoption_claim(t, op));
        if (t->claimed.outcome != CLAIM_NEW) {
            op_fail(op, ERR_CONFLICT, "the owner has a binding already, or its id is in use");
            return OP_DONE;
        }
        t->refs = (struct binding){t->orphan->ref, t->orphan->workspace_ref};
        t->cause = (struct ledger_cause){"api", "adopted orphan"};
        AWAIT_HELD(op, ADOPTION_ACTIVATING,
                   ledger->ops->activate_binding(ledger, op, t->claimed.row, &t->refs, &t->cause,
                                                 &t->row));
        AWAIT_ANY(op, ADOPTION_FORGETTING,
                  ledger->ops->settle_orphan(ledger, op, t->what->orphan_id, true, &t->done));
        if (t->row == NULL)
            op_fail(op, ERR_CONFLICT, "the claim on the owner was lost");
        *t->ret = (struct owner_binding){t->row, true};
        return OP_DONE;

    undo:
        if (t->claimed.outcome == CLAIM_NEW && t->claimed.row != NULL && t->row == NULL) {
            op_begin_undo(op, LIFECYCLE_UNDO_MS);
            AWAIT_ANY(op, ADOPTION_GIVING_UP,
                      ledger->ops->abandon_binding(ledger, op, t->claimed.row, op_error(op), false,
                                                   &t->done));
        }
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type adoption_type = {"orphan_adoption", adoption_states, 6, adoption_step,
                                             NULL};

void lifecycle_adopt_orphan(struct lifecycle *lc, struct op *op,
                            const struct orphan_adoption *adoption, struct owner_binding *ret)
{
    struct adoption *t = OP_CHILD(op, &adoption_type, adoption);

    t->lc = lc;
    t->what = adoption;
    t->ret = ret;
    op_await_child(op, &t->op);
}
