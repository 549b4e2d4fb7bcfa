#include "gc/ledger_sql.h"

#include "core/runtime/quote.h"

#include <openssl/rand.h>
#include <stdlib.h>
#include <unistd.h>

static const char *ledger_sql_driver(const struct ledger *l)
{
    return container_of(l, const struct ledger_sql, ledger)->db->ops->name;
}

static bool ledger_sql_ready(struct ledger *l, struct error *err)
{
    struct db *db = ledger_sql_of(l)->db;

    return db->ops->ready(db, err);
}

static void ledger_sql_close(struct ledger *l)
{
    struct ledger_sql *s = ledger_sql_of(l);

    s->db->ops->close(s->db);
    ledger_watches_fini(&l->watches);
    free_refs_free(s->free_refs);
    free(s->self);
    free(s);
}

static const struct ledger_ops ops = {
    .driver = ledger_sql_driver,
    .get = ledger_sql_get,
    .list = ledger_sql_list,
    .find_owner = ledger_sql_find_owner,
    .find_ref = ledger_sql_find_ref,
    .guard_ref = ledger_sql_guard_ref,
    .claim_binding = ledger_sql_claim,
    .activate_binding = ledger_sql_activate,
    .abandon_binding = ledger_sql_abandon,
    .mark_lost = ledger_sql_mark_lost,
    .store_session = ledger_sql_store_session,
    .touch = ledger_sql_touch,
    .retire = ledger_sql_retire,
    .claim_snapshot = ledger_sql_claim_snapshot,
    .activate_snapshot = ledger_sql_activate_snapshot,
    .abandon_snapshot = ledger_sql_abandon_snapshot,
    .claim_work = ledger_sql_claim_work,
    .finish_work = ledger_sql_finish_work,
    .retry_work = ledger_sql_retry_work,
    .renew_claims = ledger_sql_renew,
    .report_orphan = ledger_sql_report_orphan,
    .settle_orphan = ledger_sql_settle_orphan,
    .revoke = ledger_sql_revoke,
    .is_revoked = ledger_sql_is_revoked,
    .add_event = ledger_sql_add_event,
    .prune_events = ledger_sql_prune_events,
    .count = ledger_sql_count,
    .import_row = ledger_sql_import,
    .ready = ledger_sql_ready,
    .close = ledger_sql_close,
};

/* Unique for every life of every process: pids and hosts come again, the random part does not. */
static char *process_name(void)
{
    unsigned char random[8];
    struct arena *arena = arena_new();
    char host[64] = "";
    char *name;

    PRE(RAND_bytes(random, sizeof(random)) == 1);
    gethostname(host, sizeof(host) - 1);
    name = xstrdup(arena_printf(arena, "%s-%d-%s", host, (int)getpid(),
                                quote_hex(arena, random, sizeof(random))));
    arena_free(arena);
    return name;
}

struct ledger *ledger_sql_new(struct db *db)
{
    struct ledger_sql *s = xcalloc(1, sizeof(*s));

    s->db = db;
    s->self = process_name();
    s->free_refs = free_refs_new();
    s->ledger = (struct ledger){.ops = &ops, .loop = db->loop, .self = s->self};
    ledger_watches_init(&s->ledger.watches);
    db->watches = &s->ledger.watches;
    return &s->ledger;
}

char *ledger_change_id(struct ledger_sql *s, struct arena *arena)
{
    return arena_printf(arena, "%s:%llu", s->self, (unsigned long long)++s->changes);
}

void *ledger_decode(struct arena *arena, enum ledger_kind kind, const struct db_result *result,
                    size_t n)
{
    const struct ledger_table *table = ledger_table(kind);
    const struct db_value *cells = &result->cells[n * result->n_columns];
    void *row = arena_alloc(arena, table->row_size);

    PRE(n < result->n_rows && result->n_columns == table->n_columns);
    for (size_t i = 0; i < table->n_columns; i++)
        ledger_row_set(row, &table->columns[i], db_text(&cells[i]), db_int(&cells[i]));
    return row;
}

void ledger_decode_done(struct db_call *call)
{
    *(bool *)call->ret = call->steps[call->number].result.n_rows > 0;
}

void ledger_decode_binding(struct db_call *call)
{
    const struct db_result *result = &call->steps[call->number].result;

    *(struct ledger_binding **)call->ret =
        result->n_rows > 0 ? ledger_decode(call->arena, LEDGER_BINDINGS, result, 0) : NULL;
}
