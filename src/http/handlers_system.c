#include "http/handlers_system.h"

#include "core/runtime/json.h"
#include "core/runtime/metrics.h"
#include "http/exchange.h"
#include "http/openapi.h"
#include "http/server_impl.h"

#include <string.h>

static void handle_healthz(struct exchange *x)
{
    static const char body[] = "{\"status\":\"ok\"}";

    exchange_reply(x, 200, "application/json", body, sizeof(body) - 1);
}

static bool write_check(struct json_writer *w, const struct readiness *check)
{
    struct error err = {0};
    bool ready = check->ready(check->ctx, &err);

    json_object_begin(w);
    json_member_string(w, "name", check->name);
    json_member_bool(w, "ready", ready);
    if (!ready)
        json_member_string(w, "reason", err.message);
    if (check->describe != NULL) {
        json_key(w, "facts");
        check->describe(check->ctx, w);
    }
    json_object_finish(w);
    return ready;
}

static bool serving_ready(void *ctx, struct error *err)
{
    if (!http_server_draining(ctx))
        return true;
    error_set(err, ERR_DRAINING, "the service is shutting down");
    return false;
}

static void handle_readyz(struct exchange *x)
{
    const struct http_server_options *options = &x->server->options;
    const struct readiness serving = {"serving", serving_ready, NULL, x->server};
    struct buf checks = {0}, body = {0};
    struct json_writer w = {.out = &checks};
    bool ready;

    json_array_begin(&w);
    ready = write_check(&w, &serving);
    for (size_t i = 0; i < options->n_readiness; i++)
        ready = write_check(&w, &options->readiness[i]) && ready;
    json_array_finish(&w);
    w = (struct json_writer){.out = &body};
    json_object_begin(&w);
    json_member_bool(&w, "ready", ready);
    json_key(&w, "checks");
    json_raw(&w, checks.data, checks.len);
    json_object_finish(&w);
    if (!ready)
        exchange_add_header(x, "Retry-After", "1");
    exchange_reply_json(x, ready ? 200 : 503, &body);
    buf_fini(&checks);
    buf_fini(&body);
}

static void handle_metrics(struct exchange *x)
{
    struct buf out = {0};

    metrics_render(&out);
    exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len);
    buf_fini(&out);
}

static void handle_openapi(struct exchange *x)
{
    struct buf *document = &x->server->openapi;

    if (document->len == 0) /* the tables never change: written once */
        openapi_write(document, x->server->routes, x->server->options.title, BINDERY_VERSION);
    exchange_reply_json(x, 200, document);
}

static const char readiness_schema[] =
    "{\"type\":\"object\",\"required\":[\"ready\",\"checks\"],\"properties\":{\"ready\":{\"type\":"
    "\"boolean\"},\"checks\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":"
    "[\"name\",\"ready\"],\"properties\":{\"name\":{\"type\":\"string\"},\"ready\":{\"type\":"
    "\"boolean\"},\"reason\":{\"type\":\"string\"}}}}}}";

const struct route system_routes[] = {
    {"GET", "/healthz", AUTH_NONE, ERRORS_DETAIL, ROUTE_WHILE_DRAINING, 0, handle_healthz,
     "Whether the process lives", NULL,
     "{\"type\":\"object\",\"properties\":{\"status\":{\"const\":\"ok\"}}}"},
    {"GET", "/readyz", AUTH_NONE, ERRORS_DETAIL, ROUTE_WHILE_DRAINING, 0, handle_readyz,
     "Whether the service can take requests; 503 with the reasons otherwise", NULL,
     readiness_schema},
    {"GET", "/metrics", AUTH_NONE, ERRORS_DETAIL, ROUTE_WHILE_DRAINING, 0, handle_metrics,
     "Prometheus metrics", NULL, NULL},
    {"GET", "/openapi.json", AUTH_NONE, ERRORS_DETAIL, ROUTE_WHILE_DRAINING, 0, handle_openapi,
     "This document", NULL, "{\"type\":\"object\"}"},
    {0},
};
