#include "core/domain/use_table.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 4096 };

struct use {
    struct list link; /* in order of the last look */
    struct use *hash_next;
    bool used; /* since it was told */
    int64_t last_used_ms;
    int64_t leased_until_ms; /* as told; 0 = not leased */
    char ref[];
};

struct use_table {
    struct lease_table *leases;
    struct list all;
    size_t count;
    struct use *buckets[BUCKETS];
};

static struct use **slot(struct use_table *table, const char *ref)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    struct use **at;

    for (const char *p = ref; *p != '\0'; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    at = &table->buckets[hash % BUCKETS];
    while (*at != NULL && strcmp((*at)->ref, ref) != 0)
        at = &(*at)->hash_next;
    return at;
}

struct use_table *use_table_new(struct lease_table *leases)
{
    struct use_table *table = xcalloc(1, sizeof(*table));

    table->leases = leases;
    list_init(&table->all);
    return table;
}

static void use_drop(struct use_table *table, struct use *use)
{
    struct use **at = slot(table, use->ref);

    *at = use->hash_next;
    list_remove(&use->link);
    table->count--;
    free(use);
}

void use_table_free(struct use_table *table)
{
    LIST_FOREACH_SAFE (it, next, &table->all)
        use_drop(table, container_of(it, struct use, link));
    free(table);
}

void use_table_note(struct use_table *table, const char *binding_ref, int64_t now_ms)
{
    struct use **at = slot(table, binding_ref);

    if (*at == NULL) {
        size_t len = strlen(binding_ref);
        struct use *use = xcalloc(1, sizeof(*use) + len + 1);
        memcpy(use->ref, binding_ref, len);
        list_init(&use->link);
        list_push(&table->all, &use->link);
        table->count++;
        *at = use;
    }
    (*at)->used = true;
    (*at)->last_used_ms = now_ms;
}

size_t use_table_take(struct use_table *table, struct arena *arena, const char *backend,
                      int64_t now_ms, struct ledger_use *ret, size_t max)
{
    size_t looks = table->count < max ? table->count : max, n = 0;

    while (looks-- > 0) {
        struct use *use = container_of(list_pop(&table->all), struct use, link);
        bool leased = lease_count_binding(table->leases, use->ref) > 0;
        bool stale =
            leased ? use->leased_until_ms < now_ms + LEASED_AHEAD_MS / 2 : use->leased_until_ms > 0;

        list_push(&table->all, &use->link);
        if (use->used || stale) {
            use->used = false;
            use->leased_until_ms = leased ? now_ms + LEASED_AHEAD_MS : 0;
            ret[n++] = (struct ledger_use){backend, arena_strdup(arena, use->ref),
                                           use->last_used_ms, use->leased_until_ms};
        }
        if (!leased)
            use_drop(table, use);
    }
    return n;
}

size_t use_table_count(const struct use_table *table)
{
    return table->count;
}
