#include "http/gateway_leases.h"

#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS = 1024,
    IDLE_MS = 60 * 1000, /* without a request: released */
    SWEEP_MS = 15 * 1000,
    KEEP_MS = 15 * 60 * 1000, /* each use extends the lease by this: above the longest long poll */
};

/* Holds the lease's id, not its pointer: it may end at any time. */
struct kept {
    struct list link;
    char *sandbox_id;
    char lease_id[LEASE_ID_CHARS + 1];
    int64_t used_ms;
};

struct gateway_leases {
    struct loop *loop;
    struct broker *broker;
    struct timer sweep;
    struct list buckets[BUCKETS];
};

static struct list *bucket_of(struct gateway_leases *leases, const char *id)
{
    uint32_t hash = 2166136261u; /* FNV-1a */

    for (; *id != '\0'; id++)
        hash = (hash ^ (unsigned char)*id) * 16777619u;
    return &leases->buckets[hash % BUCKETS];
}

static void kept_free(struct kept *k)
{
    list_remove(&k->link);
    free(k->sandbox_id);
    free(k);
}

static void sweep_bucket(struct gateway_leases *leases, struct list *bucket)
{
    int64_t now_ms = loop_now_ms(leases->loop);

    LIST_FOREACH_SAFE (node, tmp, bucket) {
        struct kept *k = container_of(node, struct kept, link);
        struct lease *lease = lease_find(broker_leases(leases->broker), k->lease_id);

        if (lease != NULL && lease->n_users > 0) {
            k->used_ms = now_ms;
            lease_extend(lease, loop_wall_ms(leases->loop) + KEEP_MS);
        } else if (lease != NULL && now_ms - k->used_ms >= IDLE_MS) {
            lease_end(lease, LEASE_RELEASED);
            lease = NULL;
        }
        if (lease == NULL)
            kept_free(k);
    }
}

static void on_sweep(void *ctx)
{
    struct gateway_leases *leases = ctx;

    for (int i = 0; i < BUCKETS; i++)
        sweep_bucket(leases, &leases->buckets[i]);
    timer_set_ms(leases->loop, &leases->sweep, SWEEP_MS);
}

struct gateway_leases *gateway_leases_new(struct loop *loop, struct broker *broker)
{
    struct gateway_leases *leases = xcalloc(1, sizeof(*leases));

    leases->loop = loop;
    leases->broker = broker;
    for (int i = 0; i < BUCKETS; i++)
        list_init(&leases->buckets[i]);
    timer_init(&leases->sweep, on_sweep, leases);
    timer_set_ms(loop, &leases->sweep, SWEEP_MS);
    return leases;
}

void gateway_leases_free(struct gateway_leases *leases)
{
    if (leases == NULL)
        return;
    timer_cancel(leases->loop, &leases->sweep);
    for (int i = 0; i < BUCKETS; i++) {
        while (!list_empty(&leases->buckets[i]))
            kept_free(container_of(leases->buckets[i].next, struct kept, link));
    }
    free(leases);
}

struct lease *gateway_leases_find(struct gateway_leases *leases, const char *sandbox_id)
{
    struct list *bucket = bucket_of(leases, sandbox_id);

    LIST_FOREACH_SAFE (node, tmp, bucket) {
        struct kept *k = container_of(node, struct kept, link);
        struct lease *lease;

        if (strcmp(k->sandbox_id, sandbox_id) != 0)
            continue;
        lease = lease_find(broker_leases(leases->broker), k->lease_id);
        if (lease == NULL) {
            kept_free(k);
            return NULL;
        }
        k->used_ms = loop_now_ms(leases->loop);
        lease_extend(lease, loop_wall_ms(leases->loop) + KEEP_MS);
        return lease;
    }
    return NULL;
}

struct lease *gateway_leases_keep(struct gateway_leases *leases, const char *sandbox_id,
                                  struct lease *lease)
{
    struct lease *other = gateway_leases_find(leases, sandbox_id);
    struct kept *k;

    if (other != NULL) {
        lease_end(lease, LEASE_RELEASED);
        return other;
    }
    k = xcalloc(1, sizeof(*k));
    k->sandbox_id = xstrdup(sandbox_id);
    memcpy(k->lease_id, lease->id, sizeof(k->lease_id));
    k->used_ms = loop_now_ms(leases->loop);
    list_push(bucket_of(leases, sandbox_id), &k->link);
    return lease;
}
