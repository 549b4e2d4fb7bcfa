#include "core/domain/flight.h"

#include <string.h>

void flights_init(struct flights *flights)
{
    for (int i = 0; i < FLIGHT_BUCKETS; i++)
        list_init(&flights->buckets[i]);
}

static struct list *bucket_of(struct flights *flights, const char *key)
{
    uint32_t h = 2166136261U; /* FNV-1a */

    for (; *key != '\0'; key++)
        h = (h ^ (unsigned char)*key) * 16777619U;
    return &flights->buckets[(h ^ h >> 16) % FLIGHT_BUCKETS];
}

void flight_begin(struct flights *flights, struct flight *flight, const char *key)
{
    PRE(flight->key == NULL && flight_find(flights, key) == NULL);
    flight->key = key;
    op_waitlist_init(&flight->waiters);
    list_push(bucket_of(flights, key), &flight->link);
}

struct flight *flight_find(struct flights *flights, const char *key)
{
    struct list *bucket = bucket_of(flights, key);

    for (struct list *it = bucket->next; it != bucket; it = it->next) {
        struct flight *flight = container_of(it, struct flight, link);

        if (strcmp(flight->key, key) == 0)
            return flight;
    }
    return NULL;
}

void flight_detach(struct flight *flight)
{
    list_remove(&flight->link);
}

void flight_end(struct flight *flight, const struct error *error)
{
    if (flight->key == NULL)
        return;
    flight->key = NULL;
    list_remove(&flight->link);
    op_waitlist_wake_all(&flight->waiters, error);
}
