/* The way of a request to a lease: who asks, is it here, and if not, can its token open it? */
#pragma once

#include "core/domain/broker.h"
#include "http/exchange.h"

/** The caller of this exchange; the route has a parameter `id`. Valid as long as the exchange. */
struct lease_caller lease_caller_of(const struct exchange *x);

/** Find the lease, opening it from its token when it must be; then call `then` with it, in the same
 * turn or a later one. Replies when there is no way in; no call when the client left. */
void lease_door_enter(struct exchange *x, const struct lease_caller *caller,
                      void (*then)(struct exchange *x, struct lease *lease, void *ctx), void *ctx);

/** Reply with why there was no way in; a 401 says how to authenticate. */
void lease_door_refuse(struct exchange *x, const struct error *err);

/** Where the caller reaches a lease's data plane: BINDERY_PUBLIC_URL or the request's Host. */
const char *lease_base_url(const struct exchange *x, const char *lease_id);
