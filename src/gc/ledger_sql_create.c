/* Claiming, activating and giving up a binding's row. */
#include "gc/ledger_sql.h"

#include <string.h>

/* ---- claim --------------------------------------------------------------------------------------- */

struct claim_call {
    struct ledger_claimed *ret;
    const char *change;
    int64_t tenant_max, tenant_max_creating;
    int row_step, count_step; /* count_step -1: no limits */
};

/* No row: the limits say whether one of them is why; otherwise the workspace is being destroyed. */
static enum claim_outcome refusal(const struct db_call *call, const struct claim_call *want)
{
    const struct db_value *count;

    if (want->count_step < 0)
        return CLAIM_RETIRED;
    count = call->steps[want->count_step].result.cells;
    if (want->tenant_max > 0 && db_int(&count[0]) >= want->tenant_max)
        return CLAIM_OVER_QUOTA;
    if (want->tenant_max_creating > 0 && db_int(&count[1]) >= want->tenant_max_creating)
        return CLAIM_OVER_CREATING;
    return CLAIM_RETIRED;
}

static void decode_claim(struct db_call *call)
{
    const struct claim_call *want = call->ret;
    const struct db_result *result = &call->steps[want->row_step].result;
    struct ledger_binding *row;

    if (result->n_rows == 0) {
        *want->ret = (struct ledger_claimed){.outcome = refusal(call, want)};
        return;
    }
    row = ledger_decode(call->arena, LEDGER_BINDINGS, result, 0);
    want->ret->row = row;
    if (row->change_id != NULL && strcmp(row->change_id, want->change) == 0)
        want->ret->outcome = row->attempts > 1 ? CLAIM_TAKEN_OVER : CLAIM_NEW;
    else if (row_state_of(row->status) == ROW_CREATING)
        want->ret->outcome = CLAIM_BUSY;
    else
        want->ret->outcome = row_state_of(row->status) == ROW_ACTIVE ? CLAIM_FOUND : CLAIM_RETIRED;
}

static void add_insert(struct db_call *call, const struct ledger_sql *s,
                       const struct ledger_claim *claim, const char *change, int64_t now)
{
    const struct ledger_binding *r = &claim->row;

    if (s->db->dialect == &sql_postgres &&
        (claim->tenant_max > 0 || claim->tenant_max_creating > 0))
        db_add(call, SQL_LOCK_TENANT, "t", r->tenant_id);
    db_add(call, SQL_CLAIM_INSERT, "tttttttttttttttitiitii", r->id, r->tenant_id, r->app_id,
           r->agent_id, r->workspace_id, r->backend, r->owner_type, r->owner_id, r->owner_scope_key,
           r->base_home_snapshot_id, r->home_snapshot_ref, r->agent_config_version_id,
           r->agent_config_version_kind, r->spec_digest, claim->workspace_ref,
           r->generation > 0 ? r->generation : INT64_C(1), s->self, now + claim->claim_ms, now,
           change, claim->tenant_max, claim->tenant_max_creating);
    db_add(call, SQL_CLAIM_WORKSPACE, "ttti", r->id, change, claim->workspace_ref, now);
}

void ledger_sql_claim(struct ledger *l, struct op *op, const struct ledger_claim *claim,
                      struct ledger_claimed *ret)
{
    struct ledger_sql *s = ledger_sql_of(l);
    struct db_call *call = db_call_new(s->db, op, "claim_binding", decode_claim, NULL);
    struct claim_call *want = ARENA_NEW(call->arena, struct claim_call);
    const struct ledger_binding *r = &claim->row;
    int64_t now = loop_wall_ms(l->loop);
    char *change = ledger_change_id(s, call->arena);

    *want = (struct claim_call){ret, change, claim->tenant_max, claim->tenant_max_creating, 0, -1};
    call->ret = want;
    add_insert(call, s, claim, change, now);
    if (r->owner_type != NULL) {
        db_add(call, SQL_TAKE_OVER_OWNER, "tttttiit", r->tenant_id, r->owner_type, r->owner_id,
               r->owner_scope_key, s->self, now + claim->claim_ms, now, change);
        db_add(call, SQL_CLAIM_EVENT_OWNER, "tttttitt", r->tenant_id, r->owner_type, r->owner_id,
               r->owner_scope_key, change, now, claim->cause.actor, claim->cause.reason);
        want->row_step = call->n_steps;
        db_add(call, SQL_FIND_OWNER, "tttt", r->tenant_id, r->owner_type, r->owner_id,
               r->owner_scope_key);
    } else {
        db_add(call, SQL_TAKE_OVER_ID, "ttiit", r->id, s->self, now + claim->claim_ms, now, change);
        db_add(call, SQL_CLAIM_EVENT_ID, "ttitt", r->id, change, now, claim->cause.actor,
               claim->cause.reason);
        want->row_step = call->n_steps;
        db_add(call, SQL_GET_BINDING, "t", r->id);
    }
    if (claim->tenant_max > 0 || claim->tenant_max_creating > 0) {
        want->count_step = call->n_steps;
        db_add(call, SQL_CLAIM_COUNT, "t", r->tenant_id);
    }
    db_call_submit(call);
}

/* ---- activate ------------------------------------------------------------------------------------- */

void ledger_sql_activate(struct ledger *l, struct op *op, const struct ledger_binding *row,
                         const struct binding *refs, const struct ledger_cause *cause,
                         struct ledger_binding **ret)
{
    struct ledger_sql *s = ledger_sql_of(l);
    struct db_call *call = db_call_new(s->db, op, "activate_binding", ledger_decode_binding, ret);
    int64_t now = loop_wall_ms(l->loop);
    char *change = ledger_change_id(s, call->arena);

    db_add(call, SQL_ACTIVATE, "ttttit", row->id, s->self, refs->binding_ref, refs->workspace_ref,
           now, change);
    db_add(call, SQL_ACTIVATE_WORKSPACE, "ttti", row->id, change, refs->workspace_ref, now);
    db_add(call, SQL_ACTIVATE_EVENT, "ttitt", row->id, change, now, cause->actor, cause->reason);
    call->number = call->n_steps;
    db_add(call, SQL_GET_CHANGED, "tt", row->id, change);
    call->notice = notice_encode(call->arena, row_watch_key(call->arena, row), NULL);
    db_call_submit(call);
}

/* ---- give up --------------------------------------------------------------------------------------- */

void ledger_sql_abandon(struct ledger *l, struct op *op, const struct ledger_binding *row,
                        const struct error *why, bool keep, bool *ret_done)
{
    struct ledger_sql *s = ledger_sql_of(l);
    struct db_call *call = db_call_new(s->db, op, "abandon_binding", ledger_decode_done, ret_done);
    int64_t now = loop_wall_ms(l->loop);
    char *reason = arena_printf(call->arena, "%s: %s", err_wire(why->code), why->message);

    db_add(call, SQL_ABANDON_EVENT, "ttittt", row->id, s->self, now,
           keep ? "create_unsettled" : "create_failed", "create", reason);
    if (!keep)
        db_add(call, SQL_ABANDON_WORKSPACE, "tt", row->id, s->self);
    call->number = call->n_steps;
    if (keep)
        db_add(call, SQL_KEEP, "ttit", row->id, s->self, now, reason);
    else
        db_add(call, SQL_ABANDON, "tt", row->id, s->self);
    call->notice = notice_encode(call->arena, row_watch_key(call->arena, row),
                                 failure_is_shared(why) ? why : NULL);
    db_call_submit(call);
}

void ledger_sql_renew(struct ledger *l, struct op *op, const char *const *binding_ids, size_t n,
                      int64_t claim_ms)
{
    struct ledger_sql *s = ledger_sql_of(l);
    struct db_call *call = db_call_new(s->db, op, "renew_claims", NULL, NULL);
    int64_t until = loop_wall_ms(l->loop) + claim_ms;

    for (size_t i = 0; i < n; i++)
        db_add(call, SQL_RENEW, "tti", binding_ids[i], s->self, until);
    db_call_submit(call);
}
