#include "core/domain/lease.h"

#include "core/domain/lease_index.h"
#include "core/domain/lease_token.h"
#include "core/domain/tombs.h"
#include "core/runtime/log.h"
#include "core/runtime/metrics.h"

#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

enum {
    TOMB_MIN_MS = 10 * 60 * 1000, /* an ended lease is known as such for at least this long */
    RELEASE_TIMEOUT_MS = 60 * 1000,
    ADOPTED_IDLE_DEFAULT_MS = 60 * 1000,
};

struct lease_table {
    struct loop *loop;
    struct lease_options options;
    struct list live;         /* lease.link */
    struct list ending;       /* ended, users still there */
    struct lease_index index; /* of the live ones */
    size_t count;
    int releasing; /* release operations in flight */
    int64_t fence;
    struct tombs *tombs;
    unsigned char pool[64 * LEASE_ID_CHARS / 2]; /* random bytes for ids */
    size_t pool_left;
    struct task *when_idle;
};

const char *lease_end_name(enum lease_end end)
{
    static const char *const names[] = {"alive", "released", "expired",
                                        "lost",  "retired",  "drained"};

    return names[end];
}

/* ---- table ----------------------------------------------------------------------------------- */

struct lease_table *lease_table_new(struct loop *loop, const struct lease_options *options)
{
    struct lease_table *t = xcalloc(1, sizeof(*t));

    t->loop = loop;
    t->options = *options;
    if (t->options.adopted_idle_ms == 0)
        t->options.adopted_idle_ms = ADOPTED_IDLE_DEFAULT_MS;
    list_init(&t->live);
    list_init(&t->ending);
    lease_index_init(&t->index);
    t->tombs = tombs_new();
    return t;
}

void lease_table_free(struct lease_table *t)
{
    if (t == NULL)
        return;
    PRE(lease_table_idle(t, NULL));
    tombs_free(t->tombs);
    lease_index_fini(&t->index);
    free(t);
}

bool lease_table_check_room(const struct lease_table *t, struct error *err)
{
    if (t->options.max_leases == 0 || t->count < (size_t)t->options.max_leases)
        return true;
    error_set(err, ERR_OVERLOADED, "this replica holds %zu leases, its limit (BINDERY_MAX_LEASES)",
              t->count);
    err->retry_after_ms = 1000;
    return false;
}

/* ---- making ---------------------------------------------------------------------------------- */

static void on_expiry(void *ctx);

static void arm(struct lease *lease)
{
    struct lease_table *t = lease->table;
    int64_t left_ms = lease->expires_ms - loop_now_ms(t->loop);

    if (lease->adopted && lease->n_users == 0 && left_ms > t->options.adopted_idle_ms)
        left_ms = t->options.adopted_idle_ms;
    timer_set_ms(t->loop, &lease->expiry, left_ms > 0 ? left_ms : 0);
}

static struct lease *lease_insert(struct lease_table *t, struct plane *plane)
{
    struct lease *lease = xcalloc(1, sizeof(*lease));

    lease->table = t;
    lease->plane = plane;
    lease->fence = ++t->fence;
    list_init(&lease->users);
    timer_init(&lease->expiry, on_expiry, lease);
    list_push(&t->live, &lease->link);
    t->count++;
    metric_add(METRIC_LEASES, LABELS(plane->backend->ops->name), 1);
    return lease;
}

static void lease_publish(struct lease *lease)
{
    lease_index_add(&lease->table->index, lease);
    arm(lease);
}

/* The millisecond in which it was made, so that ids that end together lie together in the ledger's index, and
 * 80 random bits. Those come from a pool that is filled for many at once: the system's generator is slow
 * to start. */
static void make_id(struct lease_table *t, char ret_id[LEASE_ID_CHARS + 1])
{
    static const char hex[] = "0123456789abcdef";
    uint64_t made_ms = (uint64_t)loop_wall_ms(t->loop);
    unsigned char *bytes;

    if (t->pool_left == 0) {
        int ok = RAND_bytes(t->pool, sizeof(t->pool));

        POST(ok == 1); /* no randomness, no secrets: nothing can go on */
        t->pool_left = sizeof(t->pool);
    }
    t->pool_left -= LEASE_ID_CHARS / 2;
    bytes = t->pool + t->pool_left;
    for (int i = 0; i < 6; i++)
        bytes[i] = (unsigned char)(made_ms >> (40 - 8 * i));
    for (size_t i = 0; i < LEASE_ID_CHARS / 2; i++) {
        ret_id[2 * i] = hex[bytes[i] >> 4];
        ret_id[2 * i + 1] = hex[bytes[i] & 15];
    }
    ret_id[LEASE_ID_CHARS] = '\0';
}

static int64_t bounded_ttl(const struct lease_table *t, int64_t ttl_ms)
{
    if (ttl_ms <= 0)
        ttl_ms = t->options.default_ttl_ms;
    if (ttl_ms > t->options.max_ttl_ms)
        ttl_ms = t->options.max_ttl_ms;
    return ttl_ms < t->options.max_total_ms ? ttl_ms : t->options.max_total_ms;
}

struct lease *lease_add(struct lease_table *t, struct plane *plane, int64_t ttl_ms)
{
    struct lease *lease = lease_insert(t, plane);
    int64_t now_ms = loop_now_ms(t->loop);

    ttl_ms = bounded_ttl(t, ttl_ms);
    make_id(t, lease->id);
    lease->acquired_wall_ms = loop_wall_ms(t->loop);
    lease->expires_wall_ms = lease->acquired_wall_ms + ttl_ms;
    lease->hard_end_wall_ms = lease->acquired_wall_ms + t->options.max_total_ms;
    lease->expires_ms = now_ms + ttl_ms;
    lease->hard_end_ms = now_ms + t->options.max_total_ms;
    lease_publish(lease);
    return lease;
}

struct lease *lease_adopt(struct lease_table *t, struct plane *plane,
                          const struct lease_claims *claims)
{
    struct lease *lease = lease_insert(t, plane);
    int64_t now_ms = loop_now_ms(t->loop);
    int64_t wall_ms = loop_wall_ms(t->loop);

    memcpy(lease->id, claims->id, sizeof(lease->id));
    lease->adopted = true;
    lease->acquired_wall_ms = claims->acquired_wall_ms;
    lease->expires_wall_ms = claims->expires_wall_ms;
    lease->hard_end_wall_ms = claims->hard_end_wall_ms;
    lease->expires_ms = now_ms + (claims->expires_wall_ms - wall_ms);
    lease->hard_end_ms = now_ms + (claims->hard_end_wall_ms - wall_ms);
    lease_publish(lease);
    return lease;
}

/* ---- finding and renewing -------------------------------------------------------------------- */

struct lease *lease_find(struct lease_table *t, const char *id)
{
    struct lease *lease = lease_index_find(&t->index, id);

    if (lease != NULL && lease->expires_ms <= loop_now_ms(t->loop)) {
        lease_end(lease, LEASE_EXPIRED);
        return NULL;
    }
    return lease;
}

enum lease_end lease_ended_how(const struct lease_table *t, const char *id)
{
    return (enum lease_end)tombs_find(t->tombs, id, loop_now_ms(t->loop));
}

bool lease_renewed_expiry(const struct lease_table *t, int64_t ttl_ms, int64_t hard_end_wall_ms,
                          int64_t *ret_expires_wall_ms, struct error *err)
{
    int64_t wall_ms = loop_wall_ms(t->loop);
    int64_t expires = wall_ms + bounded_ttl(t, ttl_ms);

    if (hard_end_wall_ms <= wall_ms) {
        error_set(err, ERR_LEASE_GONE,
                  "the lease has reached the ceiling over all its renewals "
                  "(BINDERY_LEASE_MAX_TOTAL_SECONDS): acquire a new one");
        return false;
    }
    *ret_expires_wall_ms = expires < hard_end_wall_ms ? expires : hard_end_wall_ms;
    return true;
}

void lease_extend(struct lease *lease, int64_t expires_wall_ms)
{
    struct loop *loop = lease->table->loop;
    int64_t expires_ms = loop_now_ms(loop) + (expires_wall_ms - loop_wall_ms(loop));

    if (expires_ms > lease->hard_end_ms)
        expires_ms = lease->hard_end_ms;
    if (expires_ms <= lease->expires_ms)
        return;
    lease->expires_ms = expires_ms;
    lease->expires_wall_ms = expires_wall_ms;
    arm(lease);
}

/* ---- using ----------------------------------------------------------------------------------- */

void lease_use_begin(struct lease *lease, struct lease_use *use, void (*cut)(struct lease_use *use))
{
    PRE(use->lease == NULL && lease->end == LEASE_ALIVE);
    use->lease = lease;
    use->cut = cut;
    list_push(&lease->users, &use->link);
    lease->n_users++;
    if (lease->adopted)
        arm(lease);
}

/* An ended lease whose last user has gone. */
static void lease_finish(struct lease *lease)
{
    struct lease_table *t = lease->table;

    list_remove(&lease->link);
    lease_give_back(t, lease->plane);
    free(lease);
}

void lease_use_end(struct lease_use *use)
{
    struct lease *lease = use->lease;

    if (lease == NULL)
        return;
    use->lease = NULL;
    list_remove(&use->link);
    if (--lease->n_users > 0 || lease->cutting)
        return;
    if (lease->end != LEASE_ALIVE)
        lease_finish(lease);
    else if (lease->adopted)
        arm(lease);
}

/* ---- ending ---------------------------------------------------------------------------------- */

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Out of the table; its users are told to stop. */
static void lease_take_out(struct lease *lease, enum lease_end why)
{
    struct lease_table *t = lease->table;

    PRE(lease->end == LEASE_ALIVE && why != LEASE_ALIVE);
    timer_cancel(t->loop, &lease->expiry);
    lease_index_remove(&t->index, lease);
    list_remove(&lease->link);
    list_push(&t->ending, &lease->link);
    t->count--;
    lease->end = why;
    metric_add(METRIC_LEASES, LABELS(lease->plane->backend->ops->name), -1);
    lease->cutting = true;
    while (!list_empty(&lease->users)) {
        struct lease_use *use = container_of(list_pop(&lease->users), struct lease_use, link);

        use->cut(use);
    }
    lease->cutting = false;
    if (lease->n_users == 0)
        lease_finish(lease);
}

void lease_end(struct lease *lease, enum lease_end why)
{
    struct lease_table *t = lease->table; /* NOLINT(clang-analyzer-unix.Malloc) */
    int64_t now_ms = loop_now_ms(t->loop);

    metric_add(METRIC_LEASES_ENDED, LABELS(lease_end_name(why)), 1);
    if (why != LEASE_DRAINED)
        tombs_put(t->tombs, lease->id, (uint8_t)why, later(lease->expires_ms, now_ms + TOMB_MIN_MS),
                  now_ms);
    lease_take_out(lease, why);
}

static void on_expiry(void *ctx)
{
    struct lease *lease = ctx;

    if (lease->expires_ms <= loop_now_ms(lease->table->loop))
        lease_end(lease, LEASE_EXPIRED);
    else /* adopted and idle: given back without a word, its token opens it again */
        lease_take_out(lease, LEASE_DRAINED);
}

int lease_end_binding(struct lease_table *t, const char *binding_ref, enum lease_end why)
{
    int ended = 0;
    struct lease *lease;

    while ((lease = lease_index_first(&t->index, binding_ref)) != NULL) {
        lease_end(lease, why); /* takes it out of the index, which the analyzer cannot see */
        ended++;
    }
    return ended;
}

void lease_end_all(struct lease_table *t, enum lease_end why)
{
    while (!list_empty(&t->live))
        lease_end(container_of(t->live.next, struct lease, link), why);
}

void lease_bury(struct lease_table *t, const char *id, enum lease_end why, int64_t until_wall_ms)
{
    int64_t now_ms = loop_now_ms(t->loop);
    int64_t until_ms = now_ms + (until_wall_ms - loop_wall_ms(t->loop));

    tombs_put(t->tombs, id, (uint8_t)why, later(until_ms, now_ms + TOMB_MIN_MS), now_ms);
}

/* ---- giving planes back: one small operation each --------------------------------------------- */

struct plane_release {
    struct op op;
    struct plane *plane;
};

enum release_state { RELEASE_START, RELEASE_RELEASING };
static const char *const release_states[] = {"start", "releasing"};

static enum op_poll release_step(struct op *op)
{
    struct plane_release *r = container_of(op, struct plane_release, op);

    switch ((enum release_state)op->state) {
    case RELEASE_START:
        op_set_deadline_ms(op, RELEASE_TIMEOUT_MS, "releasing the lease's access");
        AWAIT(op, RELEASE_RELEASING,
              r->plane->backend->ops->release(r->plane->backend, op, r->plane));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type release_type = {"lease_release", release_states, 2, release_step, NULL};

static void check_idle(struct lease_table *t)
{
    if (t->when_idle != NULL && lease_table_idle(t, NULL)) {
        loop_post(t->loop, t->when_idle);
        t->when_idle = NULL;
    }
}

static void on_released(struct op *op, void *ctx)
{
    struct lease_table *t = ctx;

    if (op_failed(op)) {
        metric_add(METRIC_CLEANUP_FAILURES, LABELS("lease_release"), 1);
        LOG_WITH(LOG_WARN, op_error(op)->message, {"op", op->type->name},
                 {"code", err_wire(op_error(op)->code)});
    }
    t->releasing--;
    check_idle(t);
}

void lease_give_back(struct lease_table *t, struct plane *plane)
{
    struct plane_release *r = OP_ROOT(t->loop, &release_type, plane_release, NULL);

    r->plane = plane;
    t->releasing++;
    op_start(&r->op, on_released, t);
}

/* ---- reading --------------------------------------------------------------------------------- */

int lease_count(const struct lease_table *t)
{
    return (int)t->count;
}

int lease_count_binding(const struct lease_table *t, const char *binding_ref)
{
    int count = 0;

    for (const struct lease *l = lease_index_first(&t->index, binding_ref); l != NULL;
         l = lease_index_next(l))
        count++;
    return count;
}

bool lease_table_idle(struct lease_table *t, struct task *task)
{
    bool idle = t->count == 0 && list_empty(&t->ending) && t->releasing == 0;

    if (task != NULL && idle)
        loop_post(t->loop, task);
    else if (task != NULL)
        t->when_idle = task;
    return idle;
}

static struct lease *live_from(struct lease_table *t, struct list *it)
{
    for (; it != &t->live; it = it->next) {
        struct lease *lease = container_of(it, struct lease, link);

        if (lease->expires_ms > loop_now_ms(t->loop))
            return lease;
    }
    return NULL;
}

struct lease *lease_first(struct lease_table *t, int64_t after_fence)
{
    struct list *it = t->live.next;

    while (it != &t->live && container_of(it, struct lease, link)->fence <= after_fence)
        it = it->next;
    return live_from(t, it);
}

struct lease *lease_following(const struct lease *lease)
{
    return live_from(lease->table, lease->link.next);
}
