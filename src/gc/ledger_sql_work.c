/* The collector's side: claiming what is due, finishing it, putting it off. */
#include "gc/ledger_sql.h"

static const struct work_table {
    enum ledger_kind kind;
    enum sql claim, finish, retry;
} work_tables[WORK_KINDS] = {
    [WORK_WORKSPACE] = {LEDGER_WORKSPACES, SQL_WORK_WORKSPACES, SQL_FINISH_WORKSPACE,
                        SQL_RETRY_WORKSPACE},
    [WORK_BINDING] = {LEDGER_BINDINGS, SQL_WORK_BINDINGS, SQL_FINISH_BINDING, SQL_RETRY_BINDING},
    [WORK_SNAPSHOT] = {LEDGER_SNAPSHOTS, SQL_WORK_SNAPSHOTS, SQL_FINISH_SNAPSHOT,
                       SQL_RETRY_SNAPSHOT},
    [WORK_ORPHAN] = {LEDGER_ORPHANS, SQL_WORK_ORPHANS, SQL_FINISH_ORPHAN, SQL_RETRY_ORPHAN},
    [WORK_CREATING] = {LEDGER_BINDINGS, SQL_WORK_CREATING, SQL_FINISH_BINDING, SQL_RETRY_BINDING},
};

/* ---- claim -------------------------------------------------------------------------------------- */

struct work_call {
    struct ledger_works *ret;
    enum work_kind kind;
};

static void work_set_row(struct ledger_work *work, void *row)
{
    switch (work->kind) {
    case WORK_WORKSPACE:
        work->workspace = row;
        work->id = work->workspace->id;
        work->attempts = work->workspace->attempts;
        return;
    case WORK_BINDING:
    case WORK_CREATING:
        work->binding = row;
        work->id = work->binding->id;
        work->attempts = work->binding->attempts;
        return;
    case WORK_SNAPSHOT:
        work->snapshot = row;
        work->id = work->snapshot->id;
        work->attempts = work->snapshot->attempts;
        return;
    case WORK_ORPHAN:
        work->orphan = row;
        work->id = work->orphan->id;
        work->attempts = work->orphan->attempts;
        return;
    case WORK_KINDS:
        break;
    }
    UNREACHABLE("kind of work");
}

static void decode_works(struct db_call *call)
{
    const struct work_call *want = call->ret;
    const struct db_result *result = &call->steps[call->number].result;

    want->ret->n = result->n_rows;
    want->ret->items = arena_alloc(call->arena, (result->n_rows + 1) * sizeof(*want->ret->items));
    for (size_t i = 0; i < result->n_rows; i++) {
        struct ledger_work *work = &want->ret->items[i];
        work->kind = want->kind;
        work_set_row(work, ledger_decode(call->arena, work_tables[want->kind].kind, result, i));
    }
}

void ledger_sql_claim_work(struct ledger *l, struct op *op, enum work_kind kind, int limit,
                           int64_t claim_ms, int64_t settle_ms, struct ledger_works *ret)
{
    struct ledger_sql *s = ledger_sql_of(l);
    struct db_call *call = db_call_new(s->db, op, "claim_work", decode_works, NULL);
    struct work_call *want = ARENA_NEW(call->arena, struct work_call);
    int64_t now = loop_wall_ms(l->loop);

    PRE(kind < WORK_KINDS && limit > 0);
    *want = (struct work_call){ret, kind};
    call->ret = want;
    if (kind == WORK_SNAPSHOT)
        db_add(call, SQL_RETIRE_CUT_SNAPSHOTS, "i", now);
    call->number = call->n_steps;
    if (kind == WORK_CREATING)
        db_add(call, SQL_WORK_CREATING, "tiiii", s->self, now + claim_ms, now, (int64_t)limit,
               now - settle_ms);
    else
        db_add(call, work_tables[kind].claim, "tiii", s->self, now + claim_ms, now, (int64_t)limit);
    db_call_submit(call);
}

/* ---- finish ----------------------------------------------------------------------------------------- */

void ledger_sql_finish_work(struct ledger *l, struct op *op, const struct ledger_work *work,
                            const struct ledger_cause *cause, bool *ret_done)
{
    struct ledger_sql *s = ledger_sql_of(l);
    struct db_call *call = db_call_new(s->db, op, "finish_work", ledger_decode_done, ret_done);
    int64_t now = loop_wall_ms(l->loop);

    if (work->kind == WORK_WORKSPACE) {
        db_add(call, SQL_LOCK_WORKSPACE, "tt", work->id, s->self);
        db_add(call, SQL_FINISH_WORKSPACE_EVENTS, "ttittt", work->id, s->self, now, "gone",
               cause->actor, cause->reason);
        db_add(call, SQL_FINISH_WORKSPACE_BINDINGS, "tt", work->id, s->self);
    } else if (work->binding != NULL) {
        db_add(call, SQL_FINISH_BINDING_EVENTS, "ttittt", work->id, s->self, now, "gone",
               cause->actor, cause->reason);
    }
    call->number = call->n_steps;
    db_add(call, work_tables[work->kind].finish, "tt", work->id, s->self);
    db_call_submit(call);
}

/* ---- put off ------------------------------------------------------------------------------------------ */

void ledger_sql_retry_work(struct ledger *l, struct op *op, const struct ledger_work *work,
                           const struct error *why, int64_t delay_ms)
{
    struct ledger_sql *s = ledger_sql_of(l);
    struct db_call *call = db_call_new(s->db, op, "retry_work", NULL, NULL);
    int64_t now = loop_wall_ms(l->loop);
    char *reason = arena_printf(call->arena, "%s: %s", err_wire(why->code), why->message);

    db_add(call, work_tables[work->kind].retry, "ttiti", work->id, s->self, now, reason,
           now + delay_ms);
    if (work->kind == WORK_WORKSPACE)
        db_add(call, SQL_RETRY_WORKSPACE_EVENTS, "tittt", work->id, now, "collect_failed",
               "collector", reason);
    else if (work->binding != NULL)
        db_add(call, SQL_EVENT, "tittt", work->id, now,
               work->kind == WORK_BINDING ? "collect_failed" : "settle_failed", "collector",
               reason);
    db_call_submit(call);
}
