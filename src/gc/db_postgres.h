/* The PostgreSQL engine's insides.
 *
 * pg_resolve   host names → addresses, without blocking
 * pg_conn      one connection: connect, set up, send groups of statements, read their results
 * pg_setup     what a fresh connection does: check and migrate the schema, prepare, listen
 * pg_queue     calls that wait: which go together, and on which connection
 * ledger_postgres  the pool: its state, deadlines, and again after a loss */
#pragma once

#include "core/runtime/backoff.h"
#include "gc/db.h"

#include <libpq-fe.h>

enum {
    PG_CONNECTIONS_MIN = 2, /* opened at once; the others when calls wait */
    PG_CONNECTIONS = 8,
    PG_CONNECTIONS_MAX = 32,
    PG_FLIGHTS_MAX = 4,     /* groups of reads under way on one connection */
    PG_CALLS_MAX = 64,      /* calls of one group */
    PG_QUEUED_MAX = 16384,  /* calls that wait; what comes then is refused at once */
    PG_TRIES_MAX = 5,       /* of one call, after lost connections and deadlocks */
    PG_CONNECT_MS = 5000,   /* a connection attempt, set-up included */
    PG_LOCK_MS = 250,       /* a statement waits this long for a lock, then its group ends */
    PG_STATEMENT_MS = 4000, /* … runs this long; below DB_CALL_DEADLINE_MS */
    PG_PARAMS_MAX = 64,
};

/* Calls of a lane share connections with their like only: nothing that reads waits behind something
 * that may wait for a lock, and what met a locked row waits behind its like. */
enum pg_lane { PG_READS, PG_WRITES, PG_BLOCKED, PG_LANES };

struct db_postgres;
struct pg_conn;

/* ---- where to connect --------------------------------------------------------------------------- */

/** Parameters of a connection, from the URL plus our own; and the lookup under way. */
struct pg_target {
    struct loop *loop;
    const char *keywords[48], *values[48]; /* end with NULL */
    int n;
    char *hosts, *ports;      /* as given; NULL = none */
    char *hostaddr;           /* addresses of `hosts`, comma separated; NULL until resolved */
    struct pg_lookup *lookup; /* of one name, under way */
    char **names;             /* of `hosts` */
    int n_names, at;
    unsigned rotation; /* which of a name's addresses to take: another one at each attempt */
    char *resolved;    /* so far */
    PQconninfoOption *options;
    void (*done)(void *ctx, const struct error *err);
    void *ctx;
};

/** false with the reason when the URL is bad. */
bool pg_target_init(struct pg_target *target, struct loop *loop, const char *url,
                    struct error *err);
void pg_target_fini(struct pg_target *target);
/** Calls `done`, perhaps at once; afterwards keywords and values are complete. */
void pg_target_resolve(struct pg_target *target, void (*done)(void *ctx, const struct error *err),
                       void *ctx);
void pg_target_cancel(struct pg_target *target);

/* ---- one connection ------------------------------------------------------------------------------ */

/** A group of calls that share one transaction and one round trip. */
struct pg_flight {
    struct list link; /* in the connection's flights */
    struct list calls;
    struct db_call *at; /* whose result comes next; NULL when all have come */
    int step;
    int n_calls;
    bool failed;
    bool deadlock; /* … in a way that is worth another try */
    bool locked;   /* … because somebody else holds a lock */
    struct error error;
};

enum pg_state {
    PG_DOWN, /* waits for `timer` or for the pool */
    PG_RESOLVING,
    PG_CONNECTING,
    PG_CHECKING, /* reading the schema's version */
    PG_MIGRATING,
    PG_PREPARING,
    PG_READY,
};

struct pg_conn {
    struct db_postgres *pool;
    int index; /* the first one migrates and listens */
    enum pg_state state;
    struct pg_target target;
    PGconn *pg;
    struct event *read, *write;
    struct timer timer; /* deadline of connecting, or the pause before the next attempt */
    struct backoff backoff;
    struct list flights; /* in order of sending */
    int n_flights;
    enum pg_lane lane; /* of the flights */
    int results_due;   /* of set-up statements */
    int version;
};

void pg_conn_init(struct pg_conn *conn, struct db_postgres *pool, int index);
void pg_conn_fini(struct pg_conn *conn);
void pg_conn_start(struct pg_conn *conn);
/** Send the calls as one group; they move to the connection. */
void pg_conn_send(struct pg_conn *conn, struct list *calls);
/** The connection is of no use: give its calls back to the pool, try anew after a pause. */
void pg_conn_drop(struct pg_conn *conn, const struct error *why);
/** Flush output and watch for room as needed; drops the connection on failure. */
void pg_conn_flush(struct pg_conn *conn);
/** ERR_LEDGER with the server's or libpq's words. */
void pg_conn_error(const struct pg_conn *conn, const PGresult *result, const char *what,
                   struct error *ret);

/* pg_setup.c */
void pg_setup_begin(struct pg_conn *conn);
/** One result of the set-up (NULL: a query is over). */
void pg_setup_result(struct pg_conn *conn, PGresult *result);

/* ---- the pool -------------------------------------------------------------------------------------- */

struct db_postgres {
    struct db db;
    struct pg_conn *conns;
    int n_conns;
    struct list queues[PG_LANES]; /* calls waiting for a connection */
    int n_queued;
    enum pg_lane turn; /* whose turn it is when several lanes wait */
    struct turn_hook dispatch;
    struct ledger_postgres_options *options;
    bool refused;
    bool silent; /* a call got no answer in time, and nobody has had one since */
    struct error trouble;
    int64_t trouble_since_ms;
};

/* pg_queue.c */
void pg_queue_init(struct db_postgres *pool);
/** Let a call wait for a connection of its lane, and look at the end of the turn. */
void pg_queue_add(struct db_postgres *pool, struct db_call *call, enum pg_lane lane);
/** A connection came free. */
void pg_queue_poke(struct db_postgres *pool);
/** Drop what waits; no op may still wait for it. */
void pg_queue_fini(struct db_postgres *pool);

/* What a connection tells the pool. */
void pg_pool_conn_ready(struct db_postgres *pool, struct pg_conn *conn);
void pg_pool_conn_failed(struct db_postgres *pool, struct pg_conn *conn, const struct error *why);
void pg_pool_flight_over(struct db_postgres *pool, struct pg_flight *flight);
/** The connection broke under these calls. */
void pg_pool_calls_back(struct db_postgres *pool, struct list *calls, const struct error *why);
void pg_pool_refuse(struct db_postgres *pool, const struct error *why);
void pg_pool_notified(struct db_postgres *pool, const char *payload);
