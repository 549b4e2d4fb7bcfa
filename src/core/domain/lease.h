/* The lease table: who may use which binding until when.
 *
 * A lease is a time-limited right to one binding's data plane. It never keeps the sandbox from
 * others, and ending it stops nothing. Leases live in this process; the lease token carries what
 * another replica (or this one after a restart) needs to go on with it: docs/adr/0004.
 *
 * Time: the table counts by the monotonic clock; wall times are for answers and tokens only, so a
 * jump of the wall clock neither ends nor prolongs a lease that is in the table. */
#pragma once

#include "core/domain/backend.h"

enum { LEASE_ID_CHARS = 32 }; /* in hex: the millisecond of its making (48 bits), 80 random bits */

/** Why a lease ended; label of bindery_leases_ended_total. */
enum lease_end {
    LEASE_ALIVE, /* it has not */
    LEASE_RELEASED,
    LEASE_EXPIRED,
    LEASE_LOST,    /* the backend proved that the sandbox is gone */
    LEASE_RETIRED, /* the binding was destroyed or retired */
    LEASE_DRAINED, /* this process stops; the lease may go on elsewhere by its token */
};

/** `released`, … for metrics and logs. */
const char *lease_end_name(enum lease_end end);

struct lease_table;

/** One lease. Owned by its table: hold the id across waits and look it up again, or be a user of
 * it (lease_use_begin): its plane lives until the last user has gone. */
struct lease {
    char id[LEASE_ID_CHARS + 1];
    enum lease_end end;
    bool adopted;        /* opened from a token: dropped when idle, its end elsewhere unknown */
    struct plane *plane; /* owned */
    int64_t acquired_wall_ms, expires_wall_ms, hard_end_wall_ms;
    int64_t expires_ms, hard_end_ms; /* monotonic; renewals never go beyond hard_end */
    int64_t fence;                   /* grows with every acquisition in this process */
    struct list users;               /* lease_use.link, of those that were not cut yet */
    int n_users;                     /* cut ones included until they have ended */
    bool cutting;
    struct timer expiry; /* also the idle timer of an adopted one */
    struct lease_table *table;
    struct list link;                 /* in order of acquisition; of the ending ones when ended */
    struct lease *id_next, *ref_next; /* hash chains */
};

/** A user of a lease's plane, embedded in a data-plane exchange or a command. */
struct lease_use {
    struct list link;
    struct lease *lease; /* NULL when idle */
    /** The lease has ended (lease->end says why): stop, and call lease_use_end now or later. */
    void (*cut)(struct lease_use *use);
};

void lease_use_begin(struct lease *lease, struct lease_use *use,
                     void (*cut)(struct lease_use *use));
/** No effect on an idle one. */
void lease_use_end(struct lease_use *use);

struct lease_options {
    int64_t default_ttl_ms, max_ttl_ms, max_total_ms;
    int64_t adopted_idle_ms; /* an adopted lease without users is dropped after this; 0 = 60,000 */
    int max_leases;          /* 0 = no limit */
};

struct lease_table *lease_table_new(struct loop *loop, const struct lease_options *options);
/** Every lease must have ended and been released: lease_table_idle. */
void lease_table_free(struct lease_table *table);

/** Room for one more? ERR_OVERLOADED otherwise. */
bool lease_table_check_room(const struct lease_table *table, struct error *err) MUST_CHECK;

/** A new lease over `plane`, which the table owns from here. `ttl_ms` 0 = the default; longer
 * than the maximum is cut. */
struct lease *lease_add(struct lease_table *table, struct plane *plane, int64_t ttl_ms);

struct lease_claims;
/** Take in a lease that a token describes. The claims must not have expired. */
struct lease *lease_adopt(struct lease_table *table, struct plane *plane,
                          const struct lease_claims *claims);

/** The live lease, or NULL. Expiry is judged here, whatever the timers did. */
struct lease *lease_find(struct lease_table *table, const char *id);

/** How a lease that is no longer live ended; LEASE_ALIVE when nothing is remembered of it. */
enum lease_end lease_ended_how(const struct lease_table *table, const char *id);

/** Expiry for a renewal asked now: `ttl_ms` 0 = default, at most the maximum, at most `hard_end`.
 * False with ERR_LEASE_GONE when the ceiling leaves no time. */
bool lease_renewed_expiry(const struct lease_table *table, int64_t ttl_ms, int64_t hard_end_wall_ms,
                          int64_t *ret_expires_wall_ms, struct error *err) MUST_CHECK;

/** Move a live lease's expiry to this wall time, never backwards and never beyond its ceiling. */
void lease_extend(struct lease *lease, int64_t expires_wall_ms);

/** End it: its users are cut, its plane is released by its backend when the last has gone, and
 * its id is remembered (LEASE_DRAINED excepted). The pointer is invalid afterwards. */
void lease_end(struct lease *lease, enum lease_end why);

/** End every live lease of one binding; how many. */
int lease_end_binding(struct lease_table *table, const char *binding_ref, enum lease_end why);

/** End all of them. */
void lease_end_all(struct lease_table *table, enum lease_end why);

/** Remember an id that this table never had, or no longer has, as ended until a wall time. */
void lease_bury(struct lease_table *table, const char *id, enum lease_end why,
                int64_t until_wall_ms);

/** Release a plane that no lease holds (any more), in the background: whoever needed it is not kept
 * waiting, cannot cancel it, and does not fail by it. A failure is logged and counted. */
void lease_give_back(struct lease_table *table, struct plane *plane);

/** Live leases. */
int lease_count(const struct lease_table *table);
/** Live leases of one binding: a driver must not stop a sandbox under them. */
int lease_count_binding(const struct lease_table *table, const char *binding_ref);

/** Nothing live and no release in flight; `task` (may be NULL) is posted once when that becomes
 * true. */
bool lease_table_idle(struct lease_table *table, struct task *task);

/** Live leases in order of acquisition: the first one with a fence above `after_fence`, and the
 * one after a given one; NULL at the end. Do not end leases while walking. */
struct lease *lease_first(struct lease_table *table, int64_t after_fence);
struct lease *lease_following(const struct lease *lease);
