/* Things in flight that others may wait for in place of doing the same: "single flight" by key. */
#pragma once

#include "core/runtime/op.h"

enum { FLIGHT_BUCKETS = 256 };

/** All flights of one kind. Embedded; nothing to free. */
struct flights {
    struct list buckets[FLIGHT_BUCKETS];
};

/** One of them, embedded in the op that does it; all-zero before flight_begin. */
struct flight {
    struct list link;
    const char *key; /* borrowed; NULL when not in flight */
    struct op_waitlist waiters;
};

void flights_init(struct flights *flights);

/** Announce. `key` is unique among the flights and valid until flight_end. */
void flight_begin(struct flights *flights, struct flight *flight, const char *key);

/** The one that can be joined, or NULL. Wait with op_waitlist_wait(&flight->waiters, op). */
struct flight *flight_find(struct flights *flights, const char *key);

/** Nobody joins any more; those who did go on waiting. */
void flight_detach(struct flight *flight);

/** It is over: the waiters wake with this error. Safe on one that never began. */
void flight_end(struct flight *flight, const struct error *error);
