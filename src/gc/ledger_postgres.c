/* The pool. Calls of one turn that only read, and calls that write, each share a group: one round
 * trip, and for writes one transaction and one commit. When one call of a group fails, nothing of
 * the group has happened, and each of its calls runs again by itself.
 *
 * A call whose connection broke runs again on another one, until its own deadline. That is safe:
 * what it changes carries its change_id, by which the second run finds what the first has done. */
#include "gc/ledger_postgres.h"

#include "gc/db_postgres.h"
#include "gc/ledger_sql.h"

#include "core/runtime/log.h"

#include <stdlib.h>

static struct db_postgres *pool_of(struct db *db)
{
    return container_of(db, struct db_postgres, db);
}

static void pool_dispatch_soon(struct db_postgres *pool)
{
    loop_at_turn_end(pool->db.loop, &pool->dispatch);
}

/* ---- which call goes where --------------------------------------------------------------------------- */

/* Writes may wait for a lock of somebody else, and whatever is pipelined behind them waits as well. So a
 * group of writes has its connection to itself, and never the first one while there is another: reads
 * always find a way. */
static bool may_take(const struct db_postgres *pool, const struct pg_conn *conn, bool writes)
{
    if (conn->state != PG_READY || conn->writing)
        return false;
    if (!writes)
        return conn->n_flights < PG_FLIGHTS_MAX;
    if (conn->n_flights > 0)
        return false;
    for (int i = 1; conn->index == 0 && i < pool->n_conns; i++) {
        if (pool->conns[i].state == PG_READY)
            return false;
    }
    return true;
}

static struct pg_conn *least_busy(const struct db_postgres *pool, bool writes)
{
    struct pg_conn *best = NULL;

    for (int i = 0; i < pool->n_conns; i++) {
        struct pg_conn *conn = &pool->conns[i];
        if (may_take(pool, conn, writes) && (best == NULL || conn->n_flights < best->n_flights))
            best = conn;
    }
    return best;
}

/* Take the first call of the kind and those behind it that may share its group. */
static void take_group(struct db_postgres *pool, bool writes, struct list *group)
{
    int n = 0;

    LIST_FOREACH_SAFE (it, next, &pool->queue) {
        struct db_call *call = container_of(it, struct db_call, link);

        if (call->op == NULL) { /* cancelled before it was sent */
            db_call_drop(call);
            continue;
        }
        if (call->writes != writes || (n > 0 && call->alone))
            continue;
        list_remove(&call->link);
        list_push(group, &call->link);
        if (call->alone || ++n == PG_CALLS_MAX)
            return;
    }
}

static void dispatch(struct db_postgres *pool, bool writes)
{
    struct pg_conn *conn;

    while (!list_empty(&pool->queue) && (conn = least_busy(pool, writes)) != NULL) {
        struct list group = LIST_INIT(group);
        take_group(pool, writes, &group);
        if (list_empty(&group))
            return;
        pg_conn_send(conn, &group, writes);
    }
}

static void on_dispatch(void *ctx)
{
    dispatch(ctx, false);
    dispatch(ctx, true);
}

/* ---- ends ------------------------------------------------------------------------------------------------ */

void pg_pool_flight_over(struct db_postgres *pool, struct pg_flight *flight)
{
    for (struct list *node; (node = list_pop(&flight->calls)) != NULL;) {
        struct db_call *call = container_of(node, struct db_call, link);
        bool again = flight->failed && call->op != NULL && call->tries < PG_TRIES_MAX &&
                     (flight->n_calls > 1 || flight->again);

        call->flight = NULL;
        if (again) {
            call->alone = true;
            list_push(&pool->queue, &call->link);
        } else {
            db_call_finish(call, flight->failed ? &flight->error : NULL);
        }
    }
    free(flight);
    if (!list_empty(&pool->queue))
        pool_dispatch_soon(pool);
}

void pg_pool_calls_back(struct db_postgres *pool, struct list *calls, const struct error *why)
{
    for (struct list *node; (node = list_pop(calls)) != NULL;) {
        struct db_call *call = container_of(node, struct db_call, link);

        call->flight = NULL;
        if (call->op != NULL && call->tries < PG_TRIES_MAX) {
            list_push(&pool->queue, &call->link);
        } else {
            struct error err = *why;
            err.admitted = call->writes ? ADMITTED_UNKNOWN : ADMITTED_NO;
            db_call_finish(call, &err);
        }
    }
    if (!list_empty(&pool->queue))
        pool_dispatch_soon(pool);
}

static void on_call_deadline(void *ctx)
{
    struct db_call *call = ctx;
    struct db_postgres *pool = pool_of(call->db);
    bool sent = call->tries > 0;
    struct error err;

    if (error_is(&pool->trouble))
        err = pool->trouble;
    else
        error_set(&err, ERR_LEDGER, "the ledger did not answer within %d ms", DB_CALL_DEADLINE_MS);
    err.retry_after_ms = DB_RETRY_AFTER_MS;
    err.admitted = sent && call->writes ? ADMITTED_UNKNOWN : ADMITTED_NO;
    if (call->flight != NULL) { /* the connection is stuck behind it: the others go elsewhere */
        call->tries = PG_TRIES_MAX;
        for (int i = 0; i < pool->n_conns; i++) {
            struct pg_conn *conn = &pool->conns[i];
            LIST_FOREACH_SAFE (it, next, &conn->flights) {
                if (container_of(it, struct pg_flight, link) == call->flight) {
                    pg_conn_drop(conn, &err);
                    return;
                }
            }
        }
    }
    db_call_finish(call, &err);
}

/* ---- state of the pool ------------------------------------------------------------------------------- */

static bool any_ready(const struct db_postgres *pool)
{
    for (int i = 0; i < pool->n_conns; i++) {
        if (pool->conns[i].state == PG_READY)
            return true;
    }
    return false;
}

void pg_pool_conn_ready(struct db_postgres *pool, struct pg_conn *conn)
{
    if (error_is(&pool->trouble))
        log_info("the ledger is available");
    error_clear(&pool->trouble);
    if (conn->index == 0) {
        /* Notices of the time without a listener are lost: everybody looks again. */
        if (pool->db.watches != NULL)
            watches_tell_all(pool->db.watches);
        for (int i = 1; i < pool->n_conns; i++) {
            if (pool->conns[i].state == PG_DOWN && !timer_armed(&pool->conns[i].timer))
                pg_conn_start(&pool->conns[i]);
        }
    }
    pool_dispatch_soon(pool);
}

void pg_pool_conn_failed(struct db_postgres *pool, struct pg_conn *conn, const struct error *why)
{
    (void)conn;
    if (any_ready(pool))
        return;
    if (!error_is(&pool->trouble)) {
        pool->trouble_since_ms = loop_now_ms(pool->db.loop);
        LOG_WITH(LOG_ERROR, "the ledger is not available", {"error", why->message});
    }
    pool->trouble = *why;
}

void pg_pool_refuse(struct db_postgres *pool, const struct error *why)
{
    pool->refused = true;
    if (pool->options->on_refused != NULL)
        pool->options->on_refused(pool->options->ctx, why);
}

void pg_pool_notified(struct db_postgres *pool, const char *payload)
{
    struct arena *arena = arena_new();
    struct error error;
    const char *key = notice_decode(arena, payload, &error);

    if (key != NULL && pool->db.watches != NULL)
        watches_tell(pool->db.watches, key, error_is(&error) ? &error : NULL);
    arena_free(arena);
}

/* ---- the engine ---------------------------------------------------------------------------------------- */

static bool postgres_ready(struct db *db, struct error *err)
{
    struct db_postgres *pool = pool_of(db);

    if (any_ready(pool))
        return true;
    *err = pool->trouble;
    if (!error_is(err))
        error_set(err, ERR_LEDGER, "the ledger is not connected yet");
    err->retry_after_ms = DB_RETRY_AFTER_MS;
    return false;
}

static void postgres_submit(struct db *db, struct db_call *call)
{
    struct db_postgres *pool = pool_of(db);
    bool down_for_long = error_is(&pool->trouble) && !any_ready(pool) &&
                         loop_now_ms(db->loop) - pool->trouble_since_ms > DB_CALL_DEADLINE_MS;

    if (down_for_long || pool->refused) {
        struct error err = pool->trouble;
        err.retry_after_ms = DB_RETRY_AFTER_MS;
        db_call_finish(call, &err);
        return;
    }
    if (call->notice != NULL)
        db_add(call, SQL_NOTIFY, "t", call->notice);
    timer_init(&call->deadline, on_call_deadline, call);
    timer_set_ms(db->loop, &call->deadline, DB_CALL_DEADLINE_MS);
    list_push(&pool->queue, &call->link);
    pool_dispatch_soon(pool);
}

static void postgres_close(struct db *db)
{
    struct db_postgres *pool = pool_of(db);

    for (int i = 0; i < pool->n_conns; i++)
        pg_conn_fini(&pool->conns[i]);
    for (struct list *node; (node = list_pop(&pool->queue)) != NULL;) {
        struct db_call *call = container_of(node, struct db_call, link);
        PRE(call->op == NULL);
        db_call_drop(call);
    }
    turn_hook_cancel(&pool->dispatch);
    free(pool->conns);
    free(pool->options);
    db_fini(db);
    free(pool);
}

static const struct db_ops postgres_ops = {"postgres", postgres_submit, postgres_ready,
                                           postgres_close};

struct ledger *ledger_postgres_open(struct loop *loop,
                                    const struct ledger_postgres_options *options,
                                    struct error *err)
{
    struct db_postgres *pool = xcalloc(1, sizeof(*pool));
    bool good = true;

    db_init(&pool->db, &postgres_ops, loop, &sql_postgres);
    pool->options = xmalloc(sizeof(*pool->options));
    *pool->options = *options;
    list_init(&pool->queue);
    turn_hook_init(&pool->dispatch, on_dispatch, pool);
    pool->n_conns = options->connections > 0 ? options->connections : PG_CONNECTIONS;
    PRE(pool->n_conns <= PG_CONNECTIONS_MAX);
    pool->conns = xcalloc((size_t)pool->n_conns, sizeof(*pool->conns));
    for (int i = 0; i < pool->n_conns; i++) {
        pg_conn_init(&pool->conns[i], pool, i);
        good = good && pg_target_init(&pool->conns[i].target, loop, options->url, err);
    }
    if (!good) {
        postgres_close(&pool->db);
        return NULL;
    }
    pg_conn_start(&pool->conns[0]); /* the others follow when the schema stands */
    return ledger_sql_new(&pool->db);
}
