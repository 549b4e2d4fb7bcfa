/* The lease table: who may use which binding until when.
 *
 * A lease is a time-limited right to one binding's data plane. It never keeps the sandbox from
 * others, and ending it stops nothing. Leases live in this process; the lease token carries what
 * another replica (or this one after a restart) needs to go on with it: docs/adr/0004. */
#pragma once

#include "core/domain/backend.h"

enum { LEASE_ID_CHARS = 32 }; /* 128 random bits in hex */

/** Why a lease ended; label of bindery_leases_ended_total. */
enum lease_end {
    LEASE_RELEASED,
    LEASE_EXPIRED,
    LEASE_LOST,
    LEASE_RETIRED,
    LEASE_DRAINED,
};

/** One lease. Owned by its table; hold the id across waits and look it up again. */
struct lease {
    char id[LEASE_ID_CHARS + 1];
    struct plane *plane; /* owned */
    int64_t acquired_wall_ms, expires_wall_ms;
    int64_t hard_end_wall_ms; /* renewals never go beyond */
    int64_t fence;            /* grows with every acquisition in this process */
    int in_flight;            /* exchanges on the data plane now */
    struct timer expiry;
    struct list streams; /* data-plane exchanges to cut when it ends */
    struct lease_table *table;
    struct list link; /* in order of acquisition */
    struct lease *hash_next;
};

struct lease_table;
struct lease_options {
    int64_t default_ttl_ms, max_ttl_ms, max_total_ms;
    const char *secret; /* HMAC key of tokens; NULL = random, then tokens end with the process */
};

struct lease_table *lease_table_new(struct loop *loop, const struct lease_options *options);
void lease_table_free(struct lease_table *table);
