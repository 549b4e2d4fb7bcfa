/* The pool: its state, the ends of calls, and another try for those that may have one.
 *
 * When one call of a group fails, nothing of the group has happened, and each of its calls runs
 * again by itself. One that then still finds a row locked tries again among its like until its
 * deadline: each try is short, so a locked row holds up nobody else.
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

/* ---- ends ------------------------------------------------------------------------------------------------ */

static int64_t time_left_ms(const struct db_call *call)
{
    return (call->deadline.due_us - loop_now_us(call->db->loop)) / 1000;
}

/* Whether and where a call of a failed group runs again. */
static bool try_again(struct db_postgres *pool, const struct pg_flight *flight,
                      struct db_call *call)
{
    enum pg_lane lane = call->writes ? PG_WRITES : PG_READS;

    if (!flight->failed || call->op == NULL)
        return false;
    if (flight->n_calls == 1 && flight->locked) {
        if (time_left_ms(call) <= 2 * PG_LOCK_MS)
            return false;
        lane = PG_BLOCKED;
    } else if (call->tries >= PG_TRIES_MAX || (flight->n_calls == 1 && !flight->deadlock)) {
        return false;
    }
    call->alone = true;
    pg_queue_add(pool, call, lane);
    return true;
}

void pg_pool_flight_over(struct db_postgres *pool, struct pg_flight *flight)
{
    pool->silent = false;
    for (struct list *node; (node = list_pop(&flight->calls)) != NULL;) {
        struct db_call *call = container_of(node, struct db_call, link);

        call->flight = NULL;
        if (!try_again(pool, flight, call))
            db_call_finish(call, flight->failed ? &flight->error : NULL);
    }
    free(flight);
    pg_queue_poke(pool);
}

void pg_pool_calls_back(struct db_postgres *pool, struct list *calls, const struct error *why)
{
    for (struct list *node; (node = list_pop(calls)) != NULL;) {
        struct db_call *call = container_of(node, struct db_call, link);

        call->flight = NULL;
        call->maybe = call->writes;
        if (call->op != NULL && call->tries < PG_TRIES_MAX) {
            pg_queue_add(pool, call, call->writes ? PG_WRITES : PG_READS);
        } else {
            struct error err = *why;
            err.admitted = call->writes ? ADMITTED_UNKNOWN : ADMITTED_NO;
            db_call_finish(call, &err);
        }
    }
}

/* The connection that carries it is stuck: the others of its group go elsewhere. */
static bool drop_carrier(struct db_postgres *pool, struct db_call *call, const struct error *why)
{
    for (int i = 0; i < pool->n_conns; i++) {
        struct pg_conn *conn = &pool->conns[i];
        LIST_FOREACH_SAFE (it, next, &conn->flights) {
            if (container_of(it, struct pg_flight, link) == call->flight) {
                call->tries = PG_TRIES_MAX;
                pg_conn_drop(conn, why);
                return true;
            }
        }
    }
    return false;
}

static void on_call_deadline(void *ctx)
{
    struct db_call *call = ctx;
    struct db_postgres *pool = pool_of(call->db);
    struct error err;

    if (error_is(&pool->trouble))
        err = pool->trouble;
    else
        error_set(&err, ERR_LEDGER, "the ledger did not answer within %d ms", DB_CALL_DEADLINE_MS);
    err.retry_after_ms = DB_RETRY_AFTER_MS;
    err.admitted =
        call->maybe || (call->flight != NULL && call->writes) ? ADMITTED_UNKNOWN : ADMITTED_NO;
    pool->silent = pool->silent || call->flight != NULL;
    if (call->flight != NULL && drop_carrier(pool, call, &err))
        return;
    pool->n_queued--;
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
    pool->silent = false;
    if (conn->index == 0) {
        /* Notices of the time without a listener are lost: everybody looks again. */
        if (pool->db.watches != NULL)
            watches_tell_all(pool->db.watches);
        for (int i = 1; i < pool->n_conns && i < PG_CONNECTIONS_MIN; i++) {
            if (pool->conns[i].state == PG_DOWN && !timer_armed(&pool->conns[i].timer))
                pg_conn_start(&pool->conns[i]);
        }
    }
    pg_queue_poke(pool);
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
    pool->trouble = *why;
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

    if (any_ready(pool) && !pool->silent)
        return true;
    *err = pool->trouble;
    if (!error_is(err))
        error_set(err, ERR_LEDGER,
                  pool->silent ? "the ledger does not answer" : "the ledger is not connected yet");
    err->retry_after_ms = DB_RETRY_AFTER_MS;
    return false;
}

static void postgres_submit(struct db *db, struct db_call *call)
{
    struct db_postgres *pool = pool_of(db);
    bool down_for_long = error_is(&pool->trouble) && !any_ready(pool) &&
                         loop_now_ms(db->loop) - pool->trouble_since_ms > DB_CALL_DEADLINE_MS;
    bool full = pool->n_queued >= PG_QUEUED_MAX;

    if (down_for_long || pool->refused || full) {
        struct error err = pool->trouble;
        if (full)
            error_set(&err, ERR_LEDGER, "%d calls wait for the ledger already", PG_QUEUED_MAX);
        err.retry_after_ms = DB_RETRY_AFTER_MS;
        db_call_finish(call, &err);
        return;
    }
    if (call->notice != NULL)
        db_add(call, SQL_NOTIFY, "t", call->notice);
    timer_init(&call->deadline, on_call_deadline, call);
    timer_set_ms(db->loop, &call->deadline, DB_CALL_DEADLINE_MS);
    pg_queue_add(pool, call, call->writes ? PG_WRITES : PG_READS);
}

static void postgres_close(struct db *db)
{
    struct db_postgres *pool = pool_of(db);

    for (int i = 0; i < pool->n_conns; i++)
        pg_conn_fini(&pool->conns[i]);
    pg_queue_fini(pool);
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
    pg_queue_init(pool);
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
    pg_conn_start(&pool->conns[0]); /* a second one follows when the schema stands */
    return ledger_sql_new(&pool->db);
}
