#include "gc/ref_set.h"

#include "core/runtime/check.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS_MIN = 64 };

struct entry {
    struct entry *next;
    int64_t value;
    char ref[];
};

struct ref_set {
    struct entry **buckets;
    size_t n_buckets, count;
};

static size_t hash(const char *ref)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */

    for (const char *p = ref; *p != '\0'; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    return (size_t)h;
}

struct ref_set *ref_set_new(void)
{
    struct ref_set *set = xcalloc(1, sizeof(*set));

    set->n_buckets = BUCKETS_MIN;
    set->buckets = xcalloc(set->n_buckets, sizeof(*set->buckets));
    return set;
}

void ref_set_free(struct ref_set *set)
{
    if (set == NULL)
        return;
    ref_set_forget_before(set, INT64_MAX);
    free(set->buckets);
    free(set);
}

static void grow(struct ref_set *set)
{
    size_t n = set->n_buckets * 4;
    struct entry **buckets = xcalloc(n, sizeof(*buckets));

    for (size_t i = 0; i < set->n_buckets; i++) {
        for (struct entry *e = set->buckets[i], *next; e != NULL; e = next) {
            struct entry **at = &buckets[hash(e->ref) % n];
            next = e->next;
            e->next = *at;
            *at = e;
        }
    }
    free(set->buckets);
    set->buckets = buckets;
    set->n_buckets = n;
}

static struct entry *find(const struct ref_set *set, const char *ref)
{
    struct entry *e = set->buckets[hash(ref) % set->n_buckets];

    while (e != NULL && strcmp(e->ref, ref) != 0)
        e = e->next;
    return e;
}

void ref_set_put(struct ref_set *set, const char *ref, int64_t value)
{
    struct entry *e = find(set, ref), **at;
    size_t len = strlen(ref);

    if (e != NULL) {
        e->value = value;
        return;
    }
    if (set->count++ >= set->n_buckets)
        grow(set);
    POST(set->n_buckets > 0);
    e = xmalloc(sizeof(*e) + len + 1);
    memcpy(e->ref, ref, len + 1);
    e->value = value;
    at = &set->buckets[hash(ref) % set->n_buckets];
    e->next = *at;
    *at = e;
}

bool ref_set_get(const struct ref_set *set, const char *ref, int64_t *ret_value)
{
    const struct entry *e = find(set, ref);

    if (e != NULL)
        *ret_value = e->value;
    return e != NULL;
}

void ref_set_forget_before(struct ref_set *set, int64_t limit)
{
    for (size_t i = 0; i < set->n_buckets; i++) {
        for (struct entry **at = &set->buckets[i]; *at != NULL;) {
            struct entry *e = *at;
            if (e->value >= limit) {
                at = &e->next;
                continue;
            }
            *at = e->next;
            free(e);
            set->count--;
        }
    }
}
