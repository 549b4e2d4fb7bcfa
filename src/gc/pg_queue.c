/* The queue: which calls go together, and on which connection.
 *
 * Calls of one turn that only read share a group, and so do calls that write: one round trip, and
 * for writes one transaction and one commit. Groups of reads follow each other on a connection
 * without waiting. A group that writes has its connection alone: it may have to wait for a lock, and
 * nobody waits behind it. No lane gets all connections while another has calls, so none starves. As
 * long as calls find no room, another connection is opened. */
#include "gc/db_postgres.h"

static enum pg_lane other_lane(enum pg_lane lane)
{
    return (enum pg_lane)((lane + 1) % PG_LANES);
}

static bool others_wait(const struct db_postgres *pool, enum pg_lane lane)
{
    for (enum pg_lane other = PG_READS; other < PG_LANES; other++) {
        if (other != lane && !list_empty(&pool->queues[other]))
            return true;
    }
    return false;
}

static int at_least_one(int n)
{
    return n > 0 ? n : 1;
}

/* Whether a lane may have one more connection of `n_ready`: half of them read, one is left by what
 * may wait for locks, and half of that is for what has met one already. */
static bool has_room(enum pg_lane lane, int n_ready, const int n_busy[PG_LANES])
{
    if (lane == PG_READS)
        return n_busy[PG_READS] < at_least_one(n_ready / 2);
    if (n_busy[PG_WRITES] + n_busy[PG_BLOCKED] >= at_least_one(n_ready - 1))
        return false;
    return lane == PG_WRITES || n_busy[PG_BLOCKED] < at_least_one((n_ready - 1) / 2);
}

/* A connection for a group of the lane, or NULL. Reads join reads where no new one is left. */
static struct pg_conn *conn_for(struct db_postgres *pool, enum pg_lane lane)
{
    struct pg_conn *idle = NULL, *joined = NULL;
    int n_ready = 0, n_busy[PG_LANES] = {0};

    for (int i = 0; i < pool->n_conns; i++) {
        struct pg_conn *conn = &pool->conns[i];

        if (conn->state != PG_READY)
            continue;
        n_ready++;
        if (conn->n_flights == 0) {
            idle = idle != NULL ? idle : conn;
            continue;
        }
        n_busy[conn->lane]++;
        if (lane == PG_READS && conn->lane == PG_READS && conn->n_flights < PG_FLIGHTS_MAX &&
            (joined == NULL || conn->n_flights < joined->n_flights))
            joined = conn;
    }
    if (idle != NULL && has_room(lane, n_ready, n_busy))
        return idle;
    /* The only one there is must come free for the others now and then. */
    return n_ready == 1 && others_wait(pool, lane) ? NULL : joined;
}

/* Take the first call of a lane and those behind it that may share its group. */
static void take_group(struct db_postgres *pool, enum pg_lane lane, struct list *group)
{
    int n = 0;

    LIST_FOREACH_SAFE (it, next, &pool->queues[lane]) {
        struct db_call *call = container_of(it, struct db_call, link);

        if (call->op != NULL && call->alone && n > 0)
            continue;
        pool->n_queued--;
        if (call->op == NULL) { /* cancelled before it was sent */
            db_call_drop(call);
            continue;
        }
        list_remove(&call->link);
        list_push(group, &call->link);
        if (call->alone || ++n == PG_CALLS_MAX)
            return;
    }
}

/* Send one group of the lane; false when it has none, or no room. */
static bool lane_send(struct db_postgres *pool, enum pg_lane lane)
{
    struct list group = LIST_INIT(group);
    struct pg_conn *conn = list_empty(&pool->queues[lane]) ? NULL : conn_for(pool, lane);

    if (conn == NULL)
        return false;
    take_group(pool, lane, &group);
    if (!list_empty(&group)) {
        conn->lane = lane;
        pg_conn_send(conn, &group);
    }
    return true;
}

/* One at a time, and not while the server refuses them. */
static void open_another(struct db_postgres *pool)
{
    struct pg_conn *next = NULL;

    if (pool->conns[0].state != PG_READY)
        return;
    for (int i = 0; i < pool->n_conns; i++) {
        struct pg_conn *conn = &pool->conns[i];

        if (conn->state == PG_READY)
            continue;
        if (conn->state != PG_DOWN || timer_armed(&conn->timer))
            return;
        next = next != NULL ? next : conn;
    }
    if (next != NULL)
        pg_conn_start(next);
}

static void on_dispatch(void *ctx)
{
    struct db_postgres *pool = ctx;
    int idle_lanes = 0;

    while (idle_lanes < PG_LANES) {
        idle_lanes = lane_send(pool, pool->turn) ? 0 : idle_lanes + 1;
        pool->turn = other_lane(pool->turn);
    }
    if (pool->n_queued > 0)
        open_another(pool);
}

void pg_queue_init(struct db_postgres *pool)
{
    for (enum pg_lane lane = PG_READS; lane < PG_LANES; lane++)
        list_init(&pool->queues[lane]);
    turn_hook_init(&pool->dispatch, on_dispatch, pool);
}

void pg_queue_add(struct db_postgres *pool, struct db_call *call, enum pg_lane lane)
{
    list_push(&pool->queues[lane], &call->link);
    pool->n_queued++;
    pg_queue_poke(pool);
}

void pg_queue_poke(struct db_postgres *pool)
{
    if (pool->n_queued > 0)
        loop_at_turn_end(pool->db.loop, &pool->dispatch);
}

void pg_queue_fini(struct db_postgres *pool)
{
    for (enum pg_lane lane = PG_READS; lane < PG_LANES; lane++) {
        for (struct list *node; (node = list_pop(&pool->queues[lane])) != NULL;) {
            struct db_call *call = container_of(node, struct db_call, link);
            PRE(call->op == NULL);
            db_call_drop(call);
        }
    }
    turn_hook_cancel(&pool->dispatch);
}
