/* The collector: whatever is retired is destroyed, by whichever replica claims it first, for as long
 * as it takes. It starts when it is poked (something was retired), and sweeps periodically. */
#pragma once

#include "core/domain/lifecycle.h"

struct collector;

struct collector_options {
    int64_t interval_ms;  /* between sweeps */
    int64_t claim_ms;     /* how long a dead replica's claims hold */
    int64_t retention_ms; /* of events */
    int concurrency;      /* destroys in flight */
};

/** Sweeps soon after the start: what an earlier process left is found then. */
struct collector *collector_new(struct loop *loop, struct lifecycle *lc,
                                const struct collector_options *options);
/** Claim nothing more and put off what runs; `task` is posted when it has ended. */
void collector_stop(struct collector *collector, struct task *task);
/** Must have stopped. */
void collector_free(struct collector *collector);

/** Sweep now (or again, if one is under way). Cheap. */
void collector_poke(struct collector *collector);

/** For GET /v1/gc. */
struct collector_status {
    int running;
    bool sweeping;
    int64_t sweeps, done, failed;              /* since the start */
    int64_t last_sweep_wall_ms, last_sweep_ms; /* its end and duration */
    const char *last_error; /* of a sweep, not of a row; NULL; valid until the next turn */
};
void collector_status(const struct collector *collector, struct collector_status *ret);
