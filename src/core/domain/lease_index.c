#include "core/domain/lease_index.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS_MIN = 64 }; /* a power of two, as every later number */

static size_t hash_text(const char *text)
{
    uint64_t h = 14695981039346656037ULL; /* FNV-1a */

    for (; *text != '\0'; text++)
        h = (h ^ (unsigned char)*text) * 1099511628211ULL;
    return (size_t)(h ^ h >> 32);
}

static struct lease **id_chain(const struct lease_index *index, const char *id)
{
    return &index->by_id[hash_text(id) & (index->buckets - 1)];
}

static struct lease **ref_chain(const struct lease_index *index, const char *ref)
{
    return &index->by_ref[hash_text(ref) & (index->buckets - 1)];
}

static void index_resize(struct lease_index *index, size_t buckets)
{
    index->buckets = buckets;
    index->by_id = xcalloc(buckets, sizeof(struct lease *));
    index->by_ref = xcalloc(buckets, sizeof(struct lease *));
}

void lease_index_init(struct lease_index *index)
{
    index->count = 0;
    index_resize(index, BUCKETS_MIN);
}

void lease_index_fini(struct lease_index *index)
{
    free(index->by_id);
    free(index->by_ref);
    *index = (struct lease_index){0};
}

static void chain_in(struct lease_index *index, struct lease *lease)
{
    struct lease **ids = id_chain(index, lease->id);
    struct lease **refs = ref_chain(index, lease->plane->binding_ref);

    lease->id_next = *ids;
    *ids = lease;
    lease->ref_next = *refs;
    *refs = lease;
}

static void grow(struct lease_index *index)
{
    struct lease_index old = *index;

    index_resize(index, old.buckets * 4);
    for (size_t i = 0; i < old.buckets; i++) {
        for (struct lease *lease = old.by_id[i], *next; lease != NULL; lease = next) {
            next = lease->id_next;
            chain_in(index, lease);
        }
    }
    lease_index_fini(&old);
}

void lease_index_add(struct lease_index *index, struct lease *lease)
{
    if (index->count == index->buckets)
        grow(index);
    chain_in(index, lease);
    index->count++;
}

void lease_index_remove(struct lease_index *index, const struct lease *lease)
{
    struct lease **at = id_chain(index, lease->id);

    while (*at != lease)
        at = &(*at)->id_next;
    *at = lease->id_next;
    at = ref_chain(index, lease->plane->binding_ref);
    while (*at != lease)
        at = &(*at)->ref_next;
    *at = lease->ref_next;
    index->count--;
}

struct lease *lease_index_find(const struct lease_index *index, const char *id)
{
    struct lease *lease = *id_chain(index, id);

    while (lease != NULL && strcmp(lease->id, id) != 0)
        lease = lease->id_next;
    return lease;
}

static struct lease *of_binding(struct lease *lease, const char *binding_ref)
{
    while (lease != NULL && strcmp(lease->plane->binding_ref, binding_ref) != 0)
        lease = lease->ref_next;
    return lease;
}

struct lease *lease_index_first(const struct lease_index *index, const char *binding_ref)
{
    return of_binding(*ref_chain(index, binding_ref), binding_ref);
}

struct lease *lease_index_next(const struct lease *lease)
{
    return of_binding(lease->ref_next, lease->plane->binding_ref);
}
