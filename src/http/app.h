/* What the handlers of the service have to work with: `exchange.app`. */
#pragma once

#include "http/exchange.h"

struct broker;
struct config;
struct gc_control;
struct gateway_leases;
struct http_client;
struct lifecycle;

/** Everything is borrowed and outlives the server. */
struct app {
    const struct config *config;
    struct broker *broker;
    struct lifecycle *lifecycle; /* NULL: nothing is recorded; only the routes without a ledger */
    const struct gc_control *gc; /* with lifecycle */
    struct http_client *http;
    struct gateway_leases *gateway_leases; /* of the gateway facade */
};

static inline struct app *exchange_app(const struct exchange *x)
{
    return x->app;
}
