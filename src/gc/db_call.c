#include "gc/db.h"

#include "core/runtime/fault.h"

#include <stdlib.h>
#include <string.h>

int64_t db_int(const struct db_value *v)
{
    if (v->type == DB_TEXT)
        return strtoll(v->text, NULL, 10);
    return v->type == DB_INT ? v->number : 0;
}

void db_init(struct db *db, const struct db_ops *ops, struct loop *loop,
             const struct sql_dialect *dialect)
{
    db->ops = ops;
    db->loop = loop;
    db->dialect = dialect;
    db->sql = xcalloc(SQL_COUNT, sizeof(*db->sql));
    for (int i = 0; i < SQL_COUNT; i++)
        db->sql[i] = sql_render(dialect, sql_info((enum sql)i)->text);
}

void db_fini(struct db *db)
{
    for (int i = 0; i < SQL_COUNT; i++)
        free(db->sql[i]);
    free(db->sql);
}

struct db_call *db_call_new(struct db *db, struct op *op, const char *name,
                            void (*decode)(struct db_call *call), void *ret)
{
    struct arena *arena = arena_new();
    struct db_call *call = ARENA_NEW(arena, struct db_call);

    *call = (struct db_call){
        .name = name, .db = db, .arena = arena, .op = op, .decode = decode, .ret = ret};
    list_init(&call->link);
    return call;
}

static struct db_step *step_new(struct db_call *call)
{
    if (call->n_steps == call->cap_steps) {
        int cap = call->cap_steps == 0 ? 8 : call->cap_steps * 2;
        struct db_step *steps = arena_alloc(call->arena, (size_t)cap * sizeof(*steps));

        if (call->n_steps > 0)
            memcpy(steps, call->steps, (size_t)call->n_steps * sizeof(*steps));
        call->steps = steps;
        call->cap_steps = cap;
    }
    return &call->steps[call->n_steps++];
}

void db_add(struct db_call *call, enum sql sql, const char *types, ...)
{
    struct db_step *step = step_new(call);
    size_t n = strlen(types);
    va_list args;

    PRE(strcmp(types, sql_info(sql)->types) == 0);
    step->sql = sql;
    step->n_params = (int)n;
    step->params = arena_alloc(call->arena, (n + 1) * sizeof(*step->params));
    call->writes |= sql_info(sql)->writes;
    call->changes |= sql_info(sql)->changes;
    va_start(args, types);
    for (size_t i = 0; i < n; i++) {
        struct db_value *p = &step->params[i];
        if (types[i] == 'i') {
            *p = (struct db_value){.type = DB_INT, .number = va_arg(args, int64_t)};
            continue;
        }
        p->text = arena_strdup(call->arena, va_arg(args, const char *));
        p->type = p->text != NULL ? DB_TEXT : DB_NULL;
    }
    va_end(args);
}

void db_add_text(struct db_call *call, const char *text, const struct db_value *params,
                 int n_params)
{
    struct db_step *step = step_new(call);

    call->changes = true; /* nobody says otherwise */
    step->text = arena_strdup(call->arena, text);
    step->n_params = n_params;
    step->params = arena_alloc(call->arena, (size_t)(n_params + 1) * sizeof(*step->params));
    for (int i = 0; i < n_params; i++) {
        step->params[i] = params[i];
        step->params[i].text = arena_strdup(call->arena, params[i].text);
    }
}

static void call_abandon(void *ctx)
{
    struct db_call *call = ctx;

    call->op = NULL;
}

void db_call_submit(struct db_call *call)
{
    fault_point(call->name, "before");
    op_wait_begin(call->op, call_abandon, call);
    call->db->ops->submit(call->db, call);
}

void db_call_drop(struct db_call *call)
{
    timer_cancel(call->db->loop, &call->deadline);
    list_remove(&call->link);
    arena_free(call->arena);
}

static void arena_release(void *arena)
{
    arena_free(arena);
}

/* What decode hands out points into the results: the call's arena becomes part of the op's. */
void db_call_finish(struct db_call *call, const struct error *error)
{
    struct op *op = call->op;
    bool failed = error != NULL && error_is(error);

    if (!failed)
        fault_point(call->name, "after");
    if (op == NULL) {
        db_call_drop(call);
        return;
    }
    timer_cancel(call->db->loop, &call->deadline);
    list_remove(&call->link);
    if (!failed && call->decode != NULL)
        call->decode(call);
    arena_on_free(op->arena, arena_release, call->arena);
    op_wake(op, error);
}
