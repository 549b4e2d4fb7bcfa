/* Small changes: losses, sessions, last use, home snapshots, orphans, events. */
#include "gc/ledger_sql.h"

#include "core/domain/uuid7.h"

void ledger_sql_mark_lost(struct ledger *l, struct op *op, const char *binding_id,
                          const struct ledger_cause *cause, bool *ret_done)
{
    struct ledger_sql *s = ledger_sql_of(l);
    struct db_call *call = db_call_new(s->db, op, "mark_lost", ledger_decode_done, ret_done);
    int64_t now = loop_wall_ms(l->loop);
    char *change = ledger_change_id(s, call->arena);

    db_add(call, SQL_MARK_LOST, "titt", binding_id, now, cause->reason, change);
    db_add(call, SQL_EVENT_IF_CHANGED, "ttittt", binding_id, change, now, "lost", cause->actor,
           cause->reason);
    db_call_submit(call);
}

void ledger_sql_store_session(struct ledger *l, struct op *op, const char *binding_id,
                              const struct ledger_session *session, bool *ret_done)
{
    struct db_call *call =
        db_call_new(ledger_sql_of(l)->db, op, "store_session", ledger_decode_done, ret_done);

    db_add(call, SQL_STORE_SESSION, "tttti", binding_id, session->snapshot,
           session->pending_form_id, session->pending_tool_call_id, loop_wall_ms(l->loop));
    db_call_submit(call);
}

void ledger_sql_touch(struct ledger *l, struct op *op, const struct ledger_use *uses, size_t n)
{
    struct db_call *call = db_call_new(ledger_sql_of(l)->db, op, "touch", NULL, NULL);

    for (size_t i = 0; i < n; i++)
        db_add(call, SQL_TOUCH, "ttii", uses[i].backend, uses[i].binding_ref, uses[i].last_used_at,
               uses[i].leased_until);
    db_call_submit(call);
}

/* ---- home snapshots ----------------------------------------------------------------------------- */

void ledger_sql_claim_snapshot(struct ledger *l, struct op *op, const struct ledger_snapshot *row,
                               int64_t claim_ms, bool *ret_done)
{
    struct ledger_sql *s = ledger_sql_of(l);
    struct db_call *call = db_call_new(s->db, op, "claim_snapshot", ledger_decode_done, ret_done);
    int64_t now = loop_wall_ms(l->loop);

    db_add(call, SQL_SNAPSHOT_CLAIM, "tttttii", row->id, row->tenant_id, row->agent_id,
           row->backend, s->self, now + claim_ms, now);
    db_call_submit(call);
}

void ledger_sql_activate_snapshot(struct ledger *l, struct op *op, const char *id, const char *ref,
                                  bool *ret_done)
{
    struct ledger_sql *s = ledger_sql_of(l);
    struct db_call *call =
        db_call_new(s->db, op, "activate_snapshot", ledger_decode_done, ret_done);

    db_add(call, SQL_SNAPSHOT_ACTIVATE, "ttti", id, s->self, ref, loop_wall_ms(l->loop));
    db_call_submit(call);
}

void ledger_sql_abandon_snapshot(struct ledger *l, struct op *op, const char *id, bool *ret_done)
{
    struct ledger_sql *s = ledger_sql_of(l);
    struct db_call *call = db_call_new(s->db, op, "abandon_snapshot", ledger_decode_done, ret_done);

    db_add(call, SQL_SNAPSHOT_ABANDON, "tt", id, s->self);
    db_call_submit(call);
}

/* ---- orphans -------------------------------------------------------------------------------------- */

void ledger_sql_report_orphan(struct ledger *l, struct op *op, const struct ledger_orphan *o)
{
    struct db_call *call = db_call_new(ledger_sql_of(l)->db, op, "report_orphan", NULL, NULL);
    int64_t now = loop_wall_ms(l->loop);

    db_add(call, SQL_ORPHAN_REPORT, "tttttttttti",
           o->id != NULL ? o->id : uuid7_new(call->arena, now), o->kind, o->backend, o->ref,
           o->workspace_ref, o->tenant_id, o->agent_id, o->binding_id, o->reason,
           o->status != NULL ? o->status : "reported", now);
    db_call_submit(call);
}

void ledger_sql_settle_orphan(struct ledger *l, struct op *op, const char *id, bool forget,
                              bool *ret_done)
{
    struct db_call *call =
        db_call_new(ledger_sql_of(l)->db, op, "settle_orphan", ledger_decode_done, ret_done);

    if (forget)
        db_add(call, SQL_ORPHAN_FORGET, "t", id);
    else
        db_add(call, SQL_ORPHAN_RETIRE, "ti", id, loop_wall_ms(l->loop));
    db_call_submit(call);
}

/* ---- ended leases ----------------------------------------------------------------------------------- */

void ledger_sql_revoke(struct ledger *l, struct op *op, const char *const *lease_ids,
                       const int64_t *until_ms, size_t n)
{
    struct db_call *call = db_call_new(ledger_sql_of(l)->db, op, "revoke", NULL, NULL);

    for (size_t i = 0; i < n; i++)
        db_add(call, SQL_REVOKE, "ti", lease_ids[i], until_ms[i]);
    db_call_submit(call);
}

void ledger_sql_is_revoked(struct ledger *l, struct op *op, const char *lease_id, bool *ret_revoked)
{
    struct db_call *call =
        db_call_new(ledger_sql_of(l)->db, op, "is_revoked", ledger_decode_done, ret_revoked);

    db_add(call, SQL_REVOKED, "t", lease_id);
    db_call_submit(call);
}

/* ---- events ----------------------------------------------------------------------------------------- */

void ledger_sql_add_event(struct ledger *l, struct op *op, const char *binding_id,
                          const char *event, const struct ledger_cause *cause)
{
    struct db_call *call = db_call_new(ledger_sql_of(l)->db, op, "add_event", NULL, NULL);

    db_add(call, SQL_EVENT, "tittt", binding_id, loop_wall_ms(l->loop), event, cause->actor,
           cause->reason);
    db_call_submit(call);
}

static void decode_pruned(struct db_call *call)
{
    *(int64_t *)call->ret = (int64_t)call->steps[0].result.n_rows;
}

void ledger_sql_prune_events(struct ledger *l, struct op *op, int64_t before_ms, int limit,
                             int64_t *ret_n)
{
    struct db_call *call =
        db_call_new(ledger_sql_of(l)->db, op, "prune_events", decode_pruned, ret_n);

    db_add(call, SQL_PRUNE_EVENTS, "ii", before_ms, (int64_t)limit);
    db_add(call, SQL_PRUNE_REVOCATIONS, "ii", loop_wall_ms(l->loop), (int64_t)limit);
    db_call_submit(call);
}
