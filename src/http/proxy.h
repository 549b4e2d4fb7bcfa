/* ANY /v1/leases/{id}/shellctl/…: a lease's data plane, streamed both ways with back-pressure. The
 * gateway facade relays through the same code. */
#pragma once

#include "http/router.h"

struct error;
struct lease;

extern const struct route proxy_routes[];

/** Who lets a request in: called once with the live lease it may use, in this turn or later. */
typedef void (*proxy_entered)(struct exchange *x, struct lease *lease, void *ctx);

/** How requests of a kind get in; static, or of the exchange's arena. */
struct proxy_door {
    /** Find the lease and call `then`, or reply. */
    void (*enter)(struct exchange *x, const struct proxy_door *door, proxy_entered then, void *ctx);
    /** Give errors the codes that this route's callers know; NULL: as they are. */
    void (*map_error)(struct error *err);
};

/** Relay this exchange to `/rest` of the shellctl of the lease behind `door`. */
void proxy_begin(struct exchange *x, const char *rest, const struct proxy_door *door);
