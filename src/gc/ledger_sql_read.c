/* Reading: single rows, pages, counts; and writing rows as they are. */
#include "gc/ledger_sql.h"

#include "core/domain/ledger_rules.h"
#include "core/runtime/buf.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE_ROWS = 100, PAGE_ROWS_MAX = 1000, COUNT_SLICE = 5000 };

/* ---- one row ---------------------------------------------------------------------------------- */

static void decode_row(struct db_call *call)
{
    const struct db_result *result = &call->steps[0].result;

    *(void **)call->ret =
        result->n_rows > 0 ? ledger_decode(call->arena, (enum ledger_kind)call->number, result, 0)
                           : NULL;
}

void ledger_sql_get(struct ledger *l, struct op *op, enum ledger_kind kind, const char *id,
                    void **ret)
{
    static const enum sql statements[] = {
        [LEDGER_BINDINGS] = SQL_GET_BINDING,
        [LEDGER_WORKSPACES] = SQL_GET_WORKSPACE,
        [LEDGER_SNAPSHOTS] = SQL_GET_SNAPSHOT,
        [LEDGER_ORPHANS] = SQL_GET_ORPHAN,
    };
    struct db_call *call = db_call_new(ledger_sql_of(l)->db, op, "get", decode_row, ret);

    PRE(kind < LEDGER_EVENTS);
    call->number = kind;
    db_add(call, statements[kind], "t", id);
    db_call_submit(call);
}

void ledger_sql_find_owner(struct ledger *l, struct op *op, const struct owner_key *owner,
                           struct ledger_binding **ret)
{
    struct db_call *call =
        db_call_new(ledger_sql_of(l)->db, op, "find_owner", ledger_decode_binding, ret);

    db_add(call, SQL_FIND_OWNER, "tttt", owner->tenant_id, owner->type, owner->id,
           owner->scope_key);
    db_call_submit(call);
}

void ledger_sql_find_ref(struct ledger *l, struct op *op, const char *backend,
                         const char *binding_ref, struct ledger_binding **ret)
{
    struct db_call *call =
        db_call_new(ledger_sql_of(l)->db, op, "find_ref", ledger_decode_binding, ret);

    db_add(call, SQL_FIND_REF, "tt", backend, binding_ref);
    db_call_submit(call);
}

/* ---- the guard of every lease --------------------------------------------------------------------- */

static void decode_guard(struct db_call *call)
{
    const struct db_result *result = &call->steps[0].result;
    struct ledger_guard *guard = call->ret;

    *guard = (struct ledger_guard){0};
    if (result->n_rows > 0 && row_state_of(db_text(&result->cells[1])) == ROW_RETIRED) {
        *guard =
            (struct ledger_guard){true, db_text(&result->cells[0]), db_text(&result->cells[2])};
        return;
    }
    free_refs_note(ledger_sql_of_db(call->db)->free_refs, call->steps[0].params[0].text,
                   call->steps[0].params[1].text, call->db->generation);
}

/* Where this program alone changes the rows, a ref that was free at this generation is free still. */
void ledger_sql_guard_ref(struct ledger *l, struct op *op, const char *backend,
                          const char *binding_ref, struct ledger_guard *ret)
{
    struct ledger_sql *s = ledger_sql_of(l);
    struct db_call *call;

    if (free_refs_has(s->free_refs, backend, binding_ref, s->db->generation)) {
        *ret = (struct ledger_guard){0};
        op_complete(op, NULL);
        return;
    }
    call = db_call_new(s->db, op, "guard_ref", decode_guard, ret);
    db_add(call, SQL_GUARD_REF, "tt", backend, binding_ref);
    db_call_submit(call);
}

/* ---- pages ------------------------------------------------------------------------------------- */

static const char *row_id(struct arena *arena, enum ledger_kind kind, const void *row)
{
    const struct ledger_column *id = &ledger_table(kind)->columns[0];
    int64_t number;
    const char *text = ledger_row_get(row, id, &number);

    return id->type == COLUMN_TEXT ? text : arena_printf(arena, "%lld", (long long)number);
}

struct page_call {
    struct ledger_page *page;
    enum ledger_kind kind;
    size_t limit;
};

static void decode_page(struct db_call *call)
{
    const struct page_call *want = call->ret;
    const struct db_result *result = &call->steps[0].result;
    struct ledger_page *page = want->page;

    page->n = result->n_rows > want->limit ? want->limit : result->n_rows;
    page->rows = arena_alloc(call->arena, (page->n + 1) * sizeof(*page->rows));
    for (size_t i = 0; i < page->n; i++)
        page->rows[i] = ledger_decode(call->arena, want->kind, result, i);
    page->next = result->n_rows > want->limit
                     ? row_id(call->arena, want->kind, page->rows[page->n - 1])
                     : NULL;
}

/* A WHERE clause put together from the filter's set fields. */
struct where {
    struct buf text;
    struct db_value params[12];
    int n;
};

static void where_add(struct where *w, const char *column, const char *relation,
                      struct db_value value)
{
    if (value.type == DB_NULL)
        return;
    w->params[w->n++] = value;
    buf_addf(&w->text, "%s%s%s$%d", w->n > 1 ? " AND " : " WHERE ", column, relation, w->n);
}

static struct db_value text_value(const char *text)
{
    return (struct db_value){.type = text != NULL ? DB_TEXT : DB_NULL, .text = text};
}

static struct db_value cursor_value(enum ledger_kind kind, const char *cursor)
{
    struct db_value value = text_value(cursor);

    if (value.type == DB_TEXT && ledger_table(kind)->columns[0].type == COLUMN_INT)
        value = (struct db_value){.type = DB_INT, .number = db_int(&value)};
    return value;
}

void ledger_sql_list(struct ledger *l, struct op *op, enum ledger_kind kind,
                     const struct ledger_filter *filter, struct ledger_page *ret)
{
    struct ledger_sql *s = ledger_sql_of(l);
    struct db_call *call = db_call_new(s->db, op, "list", decode_page, NULL);
    struct page_call *want = ARENA_NEW(call->arena, struct page_call);
    int limit = filter->limit == 0 ? PAGE_ROWS : filter->limit;
    struct where w = {.n = 0};
    char *text, *sql;

    PRE(limit > 0 && limit <= PAGE_ROWS_MAX);
    *want = (struct page_call){.page = ret, .kind = kind, .limit = (size_t)limit};
    call->ret = want;
    where_add(&w, "tenant_id", "=", text_value(filter->tenant_id));
    where_add(&w, "app_id", "=", text_value(filter->app_id));
    where_add(&w, "agent_id", "=", text_value(filter->agent_id));
    where_add(&w, "owner_type", "=", text_value(filter->owner_type));
    where_add(&w, "owner_id", "=", text_value(filter->owner_id));
    where_add(&w, "workspace_id", "=", text_value(filter->workspace_id));
    where_add(&w, "status", "=", text_value(filter->status));
    where_add(&w, "snapshot_ref", "=", text_value(filter->snapshot_ref));
    where_add(&w, "binding_id", "=", text_value(filter->binding_id));
    where_add(&w, "id", ">", cursor_value(kind, filter->cursor));
    w.params[w.n++] = (struct db_value){.type = DB_INT, .number = limit + 1};
    text = arena_printf(call->arena, "SELECT {%s} FROM %s%s ORDER BY id LIMIT $%d",
                        ledger_table(kind)->name, ledger_table(kind)->name, buf_text(&w.text), w.n);
    sql = sql_render(s->db->dialect, text);
    db_add_text(call, sql, w.params, w.n);
    free(sql);
    buf_fini(&w.text);
    db_call_submit(call);
}

/* ---- counts -------------------------------------------------------------------------------------- */

static void decode_count(struct db_call *call)
{
    const struct db_value *cells = call->steps[0].result.cells;
    struct ledger_count *ret = call->ret;

    ret->rows = db_int(&cells[0]);
    ret->oldest_at = db_int(&cells[1]);
    ret->max_attempts = db_int(&cells[2]);
    ret->cursor = ret->rows == COUNT_SLICE ? db_text(&cells[3]) : NULL;
}

void ledger_sql_count(struct ledger *l, struct op *op, enum ledger_kind kind, const char *status,
                      const char *cursor, struct ledger_count *ret)
{
    static const enum sql statements[] = {
        [LEDGER_BINDINGS] = SQL_COUNT_BINDINGS,
        [LEDGER_WORKSPACES] = SQL_COUNT_WORKSPACES,
        [LEDGER_SNAPSHOTS] = SQL_COUNT_SNAPSHOTS,
        [LEDGER_ORPHANS] = SQL_COUNT_ORPHANS,
    };
    struct db_call *call = db_call_new(ledger_sql_of(l)->db, op, "count", decode_count, ret);
    bool plain = kind == LEDGER_BINDINGS && strcmp(status, "active") == 0;

    PRE(kind < LEDGER_EVENTS);
    db_add(call, plain ? SQL_COUNT_ACTIVE : statements[kind], "tti", status,
           cursor != NULL ? cursor : "", (int64_t)COUNT_SLICE);
    db_call_submit(call);
}

/* ---- rows as they are -------------------------------------------------------------------------------- */

void ledger_sql_import(struct ledger *l, struct op *op, enum ledger_kind kind, const void *row)
{
    const struct ledger_table *table = ledger_table(kind);
    struct ledger_sql *s = ledger_sql_of(l);
    struct db_call *call = db_call_new(s->db, op, "import", NULL, NULL);
    struct db_value params[64];
    struct buf text = {0};
    char *sql;

    if (row == NULL) { /* the last one */
        if (s->db->dialect == &sql_postgres)
            db_add(call, SQL_EVENTS_SEQUENCE, "");
        db_call_submit(call);
        return;
    }
    PRE(table->n_columns <= sizeof(params) / sizeof(params[0]));
    buf_addf(&text, "INSERT INTO %s ({%s}) VALUES (", table->name, table->name);
    for (size_t i = 0; i < table->n_columns; i++) {
        const struct ledger_column *column = &table->columns[i];
        struct db_value *p = &params[i];
        *p = (struct db_value){.type = DB_INT};
        p->text = ledger_row_get(row, column, &p->number);
        if (column->type == COLUMN_TEXT)
            p->type = p->text != NULL ? DB_TEXT : DB_NULL;
        else if (column->type == COLUMN_GUARD && p->number == 0)
            p->type = DB_NULL;
        buf_addf(&text, "%s$%d", i > 0 ? "," : "", (int)i + 1);
    }
    buf_addc(&text, ')');
    sql = sql_render(s->db->dialect, buf_text(&text));
    db_add_text(call, sql, params, (int)table->n_columns);
    call->writes = true;
    free(sql);
    buf_fini(&text);
    db_call_submit(call);
}
