/* Retiring: one transaction that marks everything of a selection, whatever it selects by. The
 * statements are the same for every selection; only its condition differs, so they are put together
 * here and not kept prepared. */
#include "gc/ledger_sql.h"

#include "core/runtime/buf.h"

#include <stdlib.h>
#include <string.h>

/* A selection as SQL: the condition on each table, with %1 … %4 for its parameters. */
struct selection {
    const char *bindings, *workspaces, *snapshots; /* NULL: the table is not concerned */
    const char *lock; /* condition of the workspace to lock first, or NULL */
    struct db_value params[4];
    int n_params;
};

static struct db_value text_value(const char *text)
{
    return (struct db_value){.type = text != NULL ? DB_TEXT : DB_NULL, .text = text};
}

static struct db_value int_value(int64_t number)
{
    return (struct db_value){.type = DB_INT, .number = number};
}

static struct selection select_for(const struct ledger_retire *what)
{
    if (what->owner_id != NULL) {
        static const char of_owner[] =
            "tenant_id=%1 AND app_id=%2 AND owner_type=%3 AND owner_id=%4";
        return (struct selection){of_owner,
                                  of_owner,
                                  NULL,
                                  NULL,
                                  {text_value(what->tenant_id), text_value(what->app_id),
                                   text_value(what->owner_type), text_value(what->owner_id)},
                                  4};
    }
    if (what->binding_id != NULL && what->keep_workspace)
        return (struct selection){"id=%1", NULL, NULL, NULL, {text_value(what->binding_id)}, 1};
    if (what->binding_id != NULL) /* its workspace follows when nobody else lives in it */
        return (struct selection){
            "id=%1",
            "id=(SELECT workspace_id FROM bindings WHERE id=%1 AND status='retired') AND NOT "
            "EXISTS "
            "(SELECT 1 FROM bindings l WHERE l.workspace_id=workspaces.id AND l.active_guard=1)",
            NULL,
            "id=(SELECT workspace_id FROM bindings WHERE id=%1)",
            {text_value(what->binding_id)},
            1};
    if (what->workspace_id != NULL)
        return (struct selection){
            "workspace_id=%1", "id=%1", NULL, "id=%1", {text_value(what->workspace_id)}, 1};
    if (what->app_id != NULL)
        return (struct selection){"tenant_id=%1 AND app_id=%2",
                                  "tenant_id=%1 AND app_id=%2",
                                  NULL,
                                  NULL,
                                  {text_value(what->tenant_id), text_value(what->app_id)},
                                  2};
    if (what->agent_id != NULL)
        return (struct selection){NULL,
                                  NULL,
                                  "tenant_id=%1 AND agent_id=%2",
                                  NULL,
                                  {text_value(what->tenant_id), text_value(what->agent_id)},
                                  2};
    PRE(what->snapshot_id != NULL);
    return (struct selection){NULL, NULL, "id=%1", NULL, {text_value(what->snapshot_id)}, 1};
}

/* `format` has %s for the condition; its own parameters come first. */
static void add_statement(struct db_call *call, const struct selection *selection,
                          const char *before, const char *condition, const char *after,
                          const struct db_value *own, int n_own)
{
    struct db_value params[12];
    struct buf text = {0};
    char *sql;

    PRE(n_own + selection->n_params <= 12);
    if (n_own > 0)
        memcpy(params, own, (size_t)n_own * sizeof(*own));
    memcpy(params + n_own, selection->params, (size_t)selection->n_params * sizeof(*params));
    buf_adds(&text, before);
    for (const char *p = condition; *p != '\0'; p++) {
        if (*p == '%')
            buf_addf(&text, "$%d", n_own + (*++p - '0'));
        else
            buf_addc(&text, *p);
    }
    buf_adds(&text, after);
    sql = sql_render(call->db->dialect, buf_text(&text));
    db_add_text(call, sql, params, n_own + selection->n_params);
    free(sql);
    buf_fini(&text);
}

/* ---- results ---------------------------------------------------------------------------------------- */

struct retire_call {
    struct ledger_retired *ret;
    int bindings_step, workspaces_step, snapshots_step; /* -1: not concerned */
};

static size_t decode_column(struct db_call *call, int step, size_t column, const char ***ret)
{
    const struct db_result *result;

    if (step < 0)
        return 0;
    result = &call->steps[step].result;
    *ret = arena_alloc(call->arena, (result->n_rows + 1) * sizeof(**ret));
    for (size_t i = 0; i < result->n_rows; i++)
        (*ret)[i] = db_text(&result->cells[i * result->n_columns + column]);
    return result->n_rows;
}

static void decode_retired(struct db_call *call)
{
    const struct retire_call *want = call->ret;
    struct ledger_retired *ret = want->ret;

    *ret = (struct ledger_retired){0};
    ret->n_bindings = decode_column(call, want->bindings_step, 0, &ret->binding_ids);
    decode_column(call, want->bindings_step, 1, &ret->binding_refs);
    ret->n_workspaces = decode_column(call, want->workspaces_step, 0, &ret->workspace_ids);
    ret->n_snapshots = decode_column(call, want->snapshots_step, 0, &ret->snapshot_ids);
}

/* ---- the transaction ---------------------------------------------------------------------------------- */

static void add_binding_moves(struct db_call *call, const struct selection *sel,
                              const struct ledger_retire *what, const struct db_value *mark,
                              const struct db_value *claim)
{
    const struct db_value move[] = {
        mark[0],  mark[1], int_value(what->grace_ms), text_value(what->cause.reason),
        claim[0], claim[1]};

    add_statement(call, sel,
                  "UPDATE bindings SET status='retired',active_guard=NULL,retired_at=$1,"
                  "retired_reason=$4,attempts=0,last_error=NULL,"
                  "next_attempt_at=CASE WHEN leased_until>$1 THEN $1+$3 ELSE 0 END,"
                  "claimed_by=COALESCE($5,claimed_by),"
                  "claimed_until=CASE WHEN $6>0 THEN $6 ELSE claimed_until END,"
                  "updated_at=$1,change_id=$2 WHERE active_guard=1 AND ",
                  sel->bindings, "", move, 6);
}

static void add_workspace_moves(struct db_call *call, const struct selection *sel,
                                const struct db_value *mark, const struct db_value *claim)
{
    const struct db_value move[] = {mark[0], mark[1], claim[0], claim[1]};
    const struct db_value never[] = {mark[0], mark[1], int_value(LEDGER_NEVER)};

    add_statement(call, sel,
                  "UPDATE workspaces SET status='retired',active_guard=NULL,retired_at=$1,"
                  "attempts=0,last_error=NULL,next_attempt_at=COALESCE((SELECT "
                  "max(b.next_attempt_at) FROM bindings b WHERE b.workspace_id=workspaces.id AND "
                  "b.change_id=$2),0),claimed_by=$3,claimed_until=$4,"
                  "updated_at=$1,change_id=$2 WHERE active_guard=1 AND ",
                  sel->workspaces, "", move, 4);
    /* What goes with its workspace is not due by itself. */
    add_statement(call, sel,
                  "UPDATE bindings SET next_attempt_at=$3 WHERE status='retired' AND EXISTS "
                  "(SELECT 1 FROM workspaces w WHERE w.id=bindings.workspace_id AND "
                  "w.change_id=$2 AND w.updated_at=$1) AND ",
                  sel->bindings, "", never, 3);
}

static void add_moves(struct db_call *call, const struct selection *sel,
                      const struct ledger_retire *what, const struct db_value *mark,
                      const char *self)
{
    const struct db_value claim[] = {
        text_value(what->claim_ms > 0 ? self : NULL),
        int_value(what->claim_ms > 0 ? mark[0].number + what->claim_ms : 0)};
    const struct db_value cause[] = {mark[0], mark[1], text_value(what->cause.actor),
                                     text_value(what->cause.reason)};

    if (sel->lock != NULL)
        add_statement(call, sel, "SELECT id FROM workspaces WHERE ", sel->lock, " {for_update}",
                      NULL, 0);
    add_binding_moves(call, sel, what, mark, claim);
    if (sel->workspaces != NULL)
        add_workspace_moves(call, sel, mark, claim);
    add_statement(call, sel,
                  "INSERT INTO events (binding_id,at,event,actor,reason) SELECT id,$1,'retired',"
                  "CAST($3 AS TEXT),CAST($4 AS TEXT) FROM bindings WHERE change_id=$2 AND ",
                  sel->bindings, "", cause, 4);
}

static void add_snapshot_moves(struct db_call *call, const struct selection *sel,
                               const struct ledger_retire *what, const struct db_value *mark,
                               const char *self)
{
    const struct db_value move[] = {
        mark[0], mark[1], text_value(what->claim_ms > 0 ? self : NULL),
        int_value(what->claim_ms > 0 ? mark[0].number + what->claim_ms : 0)};

    add_statement(call, sel,
                  "UPDATE home_snapshots SET status='retired',retired_at=$1,attempts=0,"
                  "last_error=NULL,next_attempt_at=0,claimed_by=COALESCE($3,claimed_by),"
                  "claimed_until=CASE WHEN $4>0 THEN $4 ELSE claimed_until END,"
                  "updated_at=$1,change_id=$2 WHERE status IN ('creating','active') AND ",
                  sel->snapshots, "", move, 4);
}

void ledger_sql_retire(struct ledger *l, struct op *op, const struct ledger_retire *what,
                       struct ledger_retired *ret)
{
    struct ledger_sql *s = ledger_sql_of(l);
    struct db_call *call = db_call_new(s->db, op, "retire", decode_retired, NULL);
    struct retire_call *want = ARENA_NEW(call->arena, struct retire_call);
    struct selection sel = select_for(what);
    const struct db_value mark[] = {int_value(loop_wall_ms(l->loop)),
                                    text_value(ledger_change_id(s, call->arena))};

    *want = (struct retire_call){ret, -1, -1, -1};
    call->ret = want;
    call->writes = true;
    if (sel.bindings != NULL) {
        add_moves(call, &sel, what, mark, s->self);
        want->bindings_step = call->n_steps;
        add_statement(call, &sel, "SELECT id,binding_ref FROM bindings WHERE status='retired' AND ",
                      sel.bindings, "", NULL, 0);
    } else {
        add_snapshot_moves(call, &sel, what, mark, s->self);
        want->snapshots_step = call->n_steps;
        add_statement(call, &sel, "SELECT id FROM home_snapshots WHERE status='retired' AND ",
                      sel.snapshots, "", NULL, 0);
    }
    if (sel.workspaces != NULL) {
        want->workspaces_step = call->n_steps;
        add_statement(call, &sel, "SELECT id FROM workspaces WHERE status='retired' AND ",
                      sel.workspaces, "", NULL, 0);
    }
    db_call_submit(call);
}
