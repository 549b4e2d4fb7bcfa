/* One connection in pipeline mode. Results come in the order of sending: every statement gives one,
 * then the group's end (sync) one more, at which its transaction is committed or rolled back. */
#include "gc/db_postgres.h"

#include "core/runtime/log.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OID_TEXT = 25, OID_INT8 = 20, BACKOFF_BASE_MS = 100, BACKOFF_CAP_MS = 5000 };

static void conn_read(struct pg_conn *conn);

void pg_conn_error(const struct pg_conn *conn, const PGresult *result, const char *what,
                   struct error *ret)
{
    const char *words = result != NULL ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    const char *state = result != NULL ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;

    if (words == NULL)
        words = conn->pg != NULL ? PQerrorMessage(conn->pg) : "no connection";
    error_set(ret, ERR_LEDGER, "could not %s: %.*s", what, (int)strcspn(words, "\n"), words);
    snprintf(ret->upstream_code, sizeof(ret->upstream_code), "%s", state != NULL ? state : "");
    ret->retry_after_ms = DB_RETRY_AFTER_MS;
}

/* ---- events ---------------------------------------------------------------------------------------- */

static void events_free(struct pg_conn *conn)
{
    if (conn->read != NULL)
        event_free(conn->read);
    if (conn->write != NULL)
        event_free(conn->write);
    conn->read = conn->write = NULL;
}

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
    struct pg_conn *conn = ctx;
    struct error err;

    (void)fd;
    (void)what;
    loop_touch(conn->pool->db.loop);
    if (PQconsumeInput(conn->pg) != 1) {
        pg_conn_error(conn, NULL, "read from the ledger", &err);
        pg_conn_drop(conn, &err);
        return;
    }
    pg_conn_flush(conn);
    if (conn->state >= PG_CHECKING)
        conn_read(conn);
}

static void on_writable(evutil_socket_t fd, short what, void *ctx)
{
    struct pg_conn *conn = ctx;

    (void)fd;
    (void)what;
    loop_touch(conn->pool->db.loop);
    pg_conn_flush(conn);
}

void pg_conn_flush(struct pg_conn *conn)
{
    struct error err;
    int left = PQflush(conn->pg);

    if (left < 0) {
        pg_conn_error(conn, NULL, "write to the ledger", &err);
        pg_conn_drop(conn, &err);
    } else if (left > 0) {
        event_add(conn->write, NULL);
    } else {
        event_del(conn->write);
    }
}

/* ---- connecting --------------------------------------------------------------------------------------- */

static void on_connecting(evutil_socket_t fd, short what, void *ctx);

/* The socket may change while connecting: an event for each step. */
static void connect_watch(struct pg_conn *conn, short what)
{
    events_free(conn);
    conn->read =
        event_new(loop_base(conn->pool->db.loop), PQsocket(conn->pg), what, on_connecting, conn);
    PRE(conn->read != NULL);
    event_add(conn->read, NULL);
}

/* What fails is an error; the rest ("already exists, skipping") is of no interest. */
static void ignore_notice(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
}

static void connected(struct pg_conn *conn)
{
    struct event_base *base = loop_base(conn->pool->db.loop);

    events_free(conn);
    PQsetnonblocking(conn->pg, 1);
    PQsetNoticeProcessor(conn->pg, ignore_notice, NULL);
    conn->read = event_new(base, PQsocket(conn->pg), EV_READ | EV_PERSIST, on_readable, conn);
    conn->write = event_new(base, PQsocket(conn->pg), EV_WRITE | EV_PERSIST, on_writable, conn);
    PRE(conn->read != NULL && conn->write != NULL);
    event_add(conn->read, NULL);
    pg_setup_begin(conn);
}

static void on_connecting(evutil_socket_t fd, short what, void *ctx)
{
    struct pg_conn *conn = ctx;
    struct error err;

    (void)fd;
    (void)what;
    loop_touch(conn->pool->db.loop);
    switch (PQconnectPoll(conn->pg)) {
    case PGRES_POLLING_READING:
        connect_watch(conn, EV_READ);
        return;
    case PGRES_POLLING_WRITING:
        connect_watch(conn, EV_WRITE);
        return;
    case PGRES_POLLING_OK:
        connected(conn);
        return;
    case PGRES_POLLING_FAILED:
    case PGRES_POLLING_ACTIVE:
        pg_conn_error(conn, NULL, "connect to the ledger", &err);
        pg_conn_drop(conn, &err);
    }
}

static void on_resolved(void *ctx, const struct error *why)
{
    struct pg_conn *conn = ctx;
    const char *keywords[50], *values[50];
    int n = conn->target.n;
    struct error err;

    if (why != NULL) {
        pg_conn_drop(conn, why);
        return;
    }
    memcpy(keywords, conn->target.keywords, (size_t)(n + 1) * sizeof(*keywords));
    memcpy(values, conn->target.values, (size_t)(n + 1) * sizeof(*values));
    if (conn->target.hostaddr != NULL) {
        keywords[n] = "hostaddr";
        values[n++] = conn->target.hostaddr;
        keywords[n] = values[n] = NULL;
    }
    conn->state = PG_CONNECTING;
    conn->pg = PQconnectStartParams(keywords, values, 0);
    if (conn->pg == NULL || PQstatus(conn->pg) == CONNECTION_BAD) {
        pg_conn_error(conn, NULL, "connect to the ledger", &err);
        pg_conn_drop(conn, &err);
        return;
    }
    connect_watch(conn, EV_WRITE);
}

static void on_timer(void *ctx)
{
    struct pg_conn *conn = ctx;
    struct error err;

    if (conn->state == PG_DOWN) {
        pg_conn_start(conn);
        return;
    }
    error_set(&err, ERR_LEDGER, "the ledger did not accept a connection within %d ms",
              PG_CONNECT_MS);
    pg_conn_drop(conn, &err);
}

void pg_conn_init(struct pg_conn *conn, struct db_postgres *pool, int index)
{
    conn->pool = pool;
    conn->index = index;
    conn->backoff = (struct backoff){.base_ms = BACKOFF_BASE_MS, .cap_ms = BACKOFF_CAP_MS};
    timer_init(&conn->timer, on_timer, conn);
    list_init(&conn->flights);
}

void pg_conn_start(struct pg_conn *conn)
{
    PRE(conn->state == PG_DOWN);
    conn->state = PG_RESOLVING;
    timer_set_ms(conn->pool->db.loop, &conn->timer, PG_CONNECT_MS);
    pg_target_resolve(&conn->target, on_resolved, conn);
}

static void conn_disconnect(struct pg_conn *conn)
{
    pg_target_cancel(&conn->target);
    events_free(conn);
    PQfinish(conn->pg);
    conn->pg = NULL;
    conn->state = PG_DOWN;
    timer_cancel(conn->pool->db.loop, &conn->timer);
}

static void flights_back(struct pg_conn *conn, const struct error *why)
{
    for (struct list *node; (node = list_pop(&conn->flights)) != NULL;) {
        struct pg_flight *flight = container_of(node, struct pg_flight, link);
        pg_pool_calls_back(conn->pool, &flight->calls, why);
        free(flight);
    }
    conn->n_flights = 0;
}

void pg_conn_drop(struct pg_conn *conn, const struct error *why)
{
    struct error copy = *why;

    conn_disconnect(conn);
    timer_set_ms(conn->pool->db.loop, &conn->timer, backoff_next_ms(&conn->backoff));
    pg_pool_conn_failed(conn->pool, conn, &copy);
    flights_back(conn, &copy);
}

void pg_conn_fini(struct pg_conn *conn)
{
    struct error err;

    error_set(&err, ERR_LEDGER, "the ledger is closed");
    conn_disconnect(conn);
    flights_back(conn, &err);
    pg_target_fini(&conn->target);
}

/* ---- sending -------------------------------------------------------------------------------------------- */

static int step_send(struct pg_conn *conn, struct db_call *call, const struct db_step *step)
{
    const char *values[PG_PARAMS_MAX];
    Oid types[PG_PARAMS_MAX];
    char name[16];

    PRE(step->n_params <= PG_PARAMS_MAX);
    for (int i = 0; i < step->n_params; i++) {
        const struct db_value *p = &step->params[i];
        /* of NULL the server finds the type by itself */
        types[i] = p->type == DB_INT ? OID_INT8 : p->type == DB_TEXT ? OID_TEXT : 0;
        values[i] =
            p->type == DB_INT ? arena_printf(call->arena, "%lld", (long long)p->number) : p->text;
    }
    if (step->text != NULL)
        return PQsendQueryParams(conn->pg, step->text, step->n_params, types, values, NULL, NULL,
                                 0);
    snprintf(name, sizeof(name), "s%d", (int)step->sql);
    return PQsendQueryPrepared(conn->pg, name, step->n_params, values, NULL, NULL, 0);
}

void pg_conn_send(struct pg_conn *conn, struct list *calls)
{
    struct pg_flight *flight = xcalloc(1, sizeof(*flight));
    struct error err;
    int sent = 1;

    PRE(conn->state == PG_READY && !list_empty(calls));
    list_init(&flight->calls);
    LIST_FOREACH_SAFE (it, next, calls) {
        struct db_call *call = container_of(it, struct db_call, link);
        call->flight = flight;
        call->tries++;
        flight->n_calls++;
        for (int i = 0; i < call->n_steps && sent == 1; i++)
            sent = step_send(conn, call, &call->steps[i]);
    }
    list_splice(&flight->calls, calls);
    flight->at = container_of(flight->calls.next, struct db_call, link);
    list_push(&conn->flights, &flight->link);
    conn->n_flights++;
    if (sent == 1 && PQpipelineSync(conn->pg) == 1) {
        pg_conn_flush(conn);
        return;
    }
    pg_conn_error(conn, NULL, "send to the ledger", &err);
    pg_conn_drop(conn, &err);
}

/* ---- results --------------------------------------------------------------------------------------------- */

static void result_clear(void *result)
{
    PQclear(result);
}

/* Cells point into the libpq result, which lives as long as the call's arena. */
static void step_take(struct db_call *call, struct db_step *step, PGresult *result)
{
    int rows = PQntuples(result), columns = PQnfields(result);
    struct db_value *cell;

    step->result = (struct db_result){.n_rows = (size_t)rows, .n_columns = (size_t)columns};
    arena_on_free(call->arena, result_clear, result);
    if (rows == 0)
        return;
    step->result.cells = cell =
        arena_alloc(call->arena, (size_t)rows * (size_t)columns * sizeof(*cell));
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < columns; c++, cell++) {
            if (PQgetisnull(result, r, c))
                continue;
            cell->type = DB_TEXT;
            cell->text = PQgetvalue(result, r, c);
        }
    }
}

static void flight_advance(struct pg_flight *flight)
{
    struct list *next;

    if (++flight->step < flight->at->n_steps)
        return;
    flight->step = 0;
    next = flight->at->link.next;
    flight->at = next == &flight->calls ? NULL : container_of(next, struct db_call, link);
}

static bool worth_another_try(const char *sqlstate)
{
    return strcmp(sqlstate, "40001") == 0 || strcmp(sqlstate, "40P01") == 0;
}

static void flight_result(struct pg_conn *conn, struct pg_flight *flight, PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);

    if (status == PGRES_PIPELINE_SYNC) {
        PQclear(result);
        list_remove(&flight->link);
        conn->n_flights--;
        pg_pool_flight_over(conn->pool, flight);
        return;
    }
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) {
        if (flight->at == NULL) {
            PQclear(result);
            return;
        }
        step_take(flight->at, &flight->at->steps[flight->step], result);
        flight_advance(flight);
        return;
    }
    if (!flight->failed && status != PGRES_PIPELINE_ABORTED) {
        flight->failed = true;
        pg_conn_error(conn, result, flight->at != NULL ? flight->at->name : "commit",
                      &flight->error);
        flight->deadlock = worth_another_try(flight->error.upstream_code);
        flight->locked = strcmp(flight->error.upstream_code, "55P03") == 0;
    }
    PQclear(result);
}

static void conn_read(struct pg_conn *conn)
{
    PGnotify *notice;
    int pauses = 0;

    while (conn->pg != NULL && pauses < 2 && !PQisBusy(conn->pg)) {
        PGresult *result;

        if (conn->state == PG_READY && list_empty(&conn->flights))
            break;
        result = PQgetResult(conn->pg);
        pauses = result == NULL ? pauses + 1 : 0;
        if (conn->state != PG_READY)
            pg_setup_result(conn, result);
        else if (result != NULL)
            flight_result(conn, container_of(conn->flights.next, struct pg_flight, link), result);
    }
    while (conn->pg != NULL && (notice = PQnotifies(conn->pg)) != NULL) {
        pg_pool_notified(conn->pool, notice->extra);
        PQfreemem(notice);
    }
    if (conn->pg != NULL && PQstatus(conn->pg) == CONNECTION_BAD) {
        struct error err;
        pg_conn_error(conn, NULL, "keep the connection to the ledger", &err);
        pg_conn_drop(conn, &err);
    }
}
