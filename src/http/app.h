/* What the handlers of the service have to work with: `exchange.app`. */
#pragma once

#include "http/exchange.h"

struct broker;
struct config;
struct http_client;

/** Everything is borrowed and outlives the server. */
struct app {
    const struct config *config;
    struct broker *broker;
    struct http_client *http;
};

static inline struct app *exchange_app(const struct exchange *x)
{
    return x->app;
}
