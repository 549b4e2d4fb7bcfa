/* Load the binding of an owner, or create it.
 *
 * Happy path: the owner has an active binding: check its generation. Otherwise check the base home
 *   snapshot, claim the owner with a `creating` row, create, activate.
 * Others who ask meanwhile find the row claimed and wait for it; the watch stands before the row is
 *   read, so that no news is missed. They get the binding, or the creator's error; when only the
 *   creator's caller went away, or its process, one of them takes its place.
 * Failures: another generation, a binding that was lost (unless a replacement is asked for), a
 *   limit of the tenant, and whatever the creation says. */
#include "core/domain/lifecycle_internal.h"

#include "core/domain/uuid7.h"

#include <string.h>

struct owner_load {
    struct op op;
    struct lifecycle *lc;
    const struct owner_request *request;
    struct owner_binding *ret;
    struct ledger_watch watch;
    struct ledger_binding *row;
    struct ledger_snapshot *snapshot;
    struct ledger_claim claim;
    struct ledger_claimed claimed;
    struct claimed_create_spec create;
    struct ledger_retire retire;
    struct ledger_retired retired;
    int64_t generation;
    bool claiming, done;
};

enum load_state {
    LOAD_START,
    LOAD_FINDING,
    LOAD_REPLACING,
    LOAD_SNAPSHOT,
    LOAD_CLAIMING,
    LOAD_CREATING,
    LOAD_WAITING,
    LOAD_GIVING_UP
};
static const char *const load_states[] = {"start",    "finding",  "replacing", "snapshot",
                                          "claiming", "creating", "waiting",   "giving_up"};

static bool snapshot_good(struct owner_load *t, struct op *op)
{
    const struct ledger_snapshot *s = t->snapshot;

    if (s != NULL && row_state_of(s->status) == ROW_ACTIVE &&
        strcmp(s->tenant_id, t->request->owner.tenant_id) == 0 &&
        strcmp(s->agent_id, t->request->generation.agent_id) == 0)
        return true;
    op_fail(op, ERR_NOT_FOUND,
            "the base home snapshot %s is unavailable: it must be active and belong to this tenant "
            "and agent",
            t->request->generation.base_home_snapshot_id);
    return false;
}

static void claim_start(struct owner_load *t, struct op *op)
{
    const struct owner_request *r = t->request;
    struct lifecycle *lc = t->lc;
    int64_t now = loop_wall_ms(lc->loop);

    t->claim = (struct ledger_claim){
        .row = {.id = uuid7_new(op->arena, now),
                .tenant_id = r->owner.tenant_id,
                .app_id = r->app_id,
                .agent_id = r->generation.agent_id,
                .workspace_id = uuid7_new(op->arena, now),
                .backend = broker_backend(lc->broker)->ops->name,
                .owner_type = r->owner.type,
                .owner_id = r->owner.id,
                .owner_scope_key = r->owner.scope_key,
                .base_home_snapshot_id = r->generation.base_home_snapshot_id,
                .home_snapshot_ref = t->snapshot != NULL ? t->snapshot->snapshot_ref : NULL,
                .agent_config_version_id = r->generation.config_version_id,
                .agent_config_version_kind = r->generation.config_version_kind,
                .generation = t->generation},
        .claim_ms = lc->options.claim_ms,
        .tenant_max = lc->options.tenant_max_bindings,
        .tenant_max_creating = lc->options.tenant_max_creates,
        .cause = {"api", "first use by its owner"},
    };
    lc->ledger->ops->claim_binding(lc->ledger, op, &t->claim, &t->claimed);
}

static void create_start(struct owner_load *t, struct op *op)
{
    const struct ledger_binding *row = t->claimed.row;

    t->create = (struct claimed_create_spec){
        .claimed = &t->claimed,
        .binding = {.tenant_id = row->tenant_id,
                    .agent_id = row->agent_id,
                    .binding_id = row->id,
                    .workspace_id = row->workspace_id,
                    .existing_workspace_ref = row->workspace_ref,
                    .home_snapshot_ref = row->home_snapshot_ref},
        .cause = {"api", NULL},
    };
    claimed_create(t->lc, op, &t->create, &t->row);
}

static void replace_start(struct owner_load *t, struct op *op)
{
    t->generation = t->row->generation + 1;
    t->retire = (struct ledger_retire){
        .binding_id = t->row->id, .cause = {"api", "lost, and its owner asked for a replacement"}};
    lifecycle_retire(t->lc, op, &t->retire, &t->retired);
}

static bool is_active(const struct ledger_binding *row)
{
    return row != NULL && row_state_of(row->status) == ROW_ACTIVE;
}

/* An active row: is it what was asked for? */
static enum op_poll load_found(struct owner_load *t, struct op *op)
{
    struct error err;

    if (!generation_check(t->row, &t->request->generation, &err))
        op_fail_with(op, &err);
    else if (t->row->lost_at > 0)
        op_fail(op, ERR_OWNER_BINDING_LOST,
                "the sandbox of binding %s is gone (%s): ask with "
                "\"replace_lost\": true for a new one",
                t->row->id, t->row->lost_reason != NULL ? t->row->lost_reason : "no reason kept");
    else
        t->ret->row = t->row;
    return OP_DONE;
}

static int64_t wait_ms(const struct owner_load *t)
{
    int64_t left = t->row->claimed_until - loop_wall_ms(t->lc->loop);

    return left < 1 ? 1 : left > LIFECYCLE_WAIT_MS ? LIFECYCLE_WAIT_MS : left;
}

/* Somebody creates, and the claim has not run out. */
static bool is_busy(const struct owner_load *t)
{
    return t->row != NULL && row_state_of(t->row->status) == ROW_CREATING &&
           t->row->claimed_until > loop_wall_ms(t->lc->loop);
}

static void watch_start(struct owner_load *t, struct op *op)
{
    watch_begin(&t->lc->ledger->watches, &t->watch, owner_watch_key(op->arena, &t->request->owner));
}

static enum op_poll load_step(struct op *op)
{
    struct owner_load *t = container_of(op, struct owner_load, op);
    struct ledger *ledger = t->lc->ledger;
    const struct owner_request *r = t->request;
    struct error err;

    switch ((enum load_state)op->state) {
    case LOAD_START:
        for (;;) {
            AWAIT(op, LOAD_FINDING, ledger->ops->find_owner(ledger, op, &r->owner, &t->row));
            if (is_active(t->row) && t->row->lost_at > 0 && r->replace_lost)
                AWAIT_HELD(op, LOAD_REPLACING, replace_start(t, op));
            else if (is_active(t->row))
                return load_found(t, op);
            if (t->watch.watches == NULL) {
                watch_start(t, op); /* and look again, with the watch in place */
                continue;
            }
            if (is_busy(t)) {
                AWAIT(op, LOAD_WAITING, watch_wait(&t->watch, op, wait_ms(t)));
                if (error_is(&t->watch.error)) {
                    op_fail_with(op, &t->watch.error);
                    return OP_DONE;
                }
                continue;
            }
            if (r->generation.base_home_snapshot_id != NULL) {
                AWAIT(op, LOAD_SNAPSHOT,
                      ledger->ops->get(ledger, op, LEDGER_SNAPSHOTS,
                                       r->generation.base_home_snapshot_id, (void **)&t->snapshot));
                if (!snapshot_good(t, op))
                    return OP_DONE;
            }
            t->claiming = true;
            AWAIT_HELD(op, LOAD_CLAIMING, claim_start(t, op));
            if (t->claimed.outcome == CLAIM_NEW || t->claimed.outcome == CLAIM_TAKEN_OVER) {
                AWAIT(op, LOAD_CREATING, create_start(t, op));
                t->ret->created = true;
                return load_found(t, op);
            }
            if (t->claimed.outcome != CLAIM_BUSY && t->claimed.outcome != CLAIM_FOUND) {
                claim_refusal(t->lc, t->claimed.outcome, &t->claim.row, &err);
                op_fail_with(op, &err);
                return OP_DONE;
            }
        }
    undo:
        /* A claim without a creator would hold everybody up until it runs out. */
        if (t->claiming && !t->create.started) {
            op_begin_undo(op, LIFECYCLE_UNDO_MS);
            AWAIT_ANY(op, LOAD_GIVING_UP,
                      ledger->ops->abandon_binding(
                          ledger, op, t->claimed.row != NULL ? t->claimed.row : &t->claim.row,
                          op_error(op), t->claimed.outcome == CLAIM_TAKEN_OVER, &t->done));
        }
        return OP_DONE;
    }
    unreachable_state(op);
}

static void load_fini(struct op *op)
{
    watch_end(&container_of(op, struct owner_load, op)->watch);
}

static const struct op_type load_type = {"owner_binding", load_states, 8, load_step, load_fini};

void lifecycle_load_or_create(struct lifecycle *lc, struct op *op,
                              const struct owner_request *request, struct owner_binding *ret)
{
    struct error err = {0};
    struct owner_load *t;

    if (broker_backend(lc->broker) == NULL) {
        error_set(&err, ERR_BACKEND_UNAVAILABLE, "runtime backend is not configured");
        op_complete(op, &err);
        return;
    }
    t = OP_CHILD(op, &load_type, owner_load);
    t->lc = lc;
    t->request = request;
    t->ret = ret;
    *ret = (struct owner_binding){0};
    op_await_child(op, &t->op);
}
