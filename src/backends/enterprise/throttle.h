/* A gate in front of one peer: closed while the peer has asked for less (429 or 503 with
 * Retry-After) or has refused our credentials, so that no request storm follows.
 *
 * While it is closed, calls whose budget covers the rest wait and leave spread over half a second
 * after it opens; the others fail at once with the reason that closed it. */
#pragma once

#include "core/runtime/op.h"

/** Embedded in its owner; ended by throttle_fini when nothing waits any more. */
struct throttle {
    struct loop *loop;
    int64_t closed_until_ms; /* loop time; 0 = open */
    bool waitable;           /* closed by Retry-After: waiting makes sense */
    struct error why;
    struct op_waitlist waiters;
    int waiting;
    int64_t spacing_ms; /* between two waiters let go */
    struct timer opening;
};

void throttle_init(struct throttle *throttle, struct loop *loop);
void throttle_fini(struct throttle *throttle);

/** Leaf wait: completes when the peer may be asked. `budget_ms` is how long the call can wait. */
void throttle_enter(struct throttle *throttle, struct op *op, int64_t budget_ms);

/** Close for `for_ms`; a longer closure in force stays. `why` becomes the error of those who
 * cannot wait, with the remaining time as its retry_after_ms. */
void throttle_close(struct throttle *throttle, int64_t for_ms, bool waitable,
                    const struct error *why);

/** Milliseconds until it opens; 0 when open. */
int64_t throttle_closed_ms(const struct throttle *throttle);
