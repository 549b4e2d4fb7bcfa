#include "http/handlers_lease.h"

#include "http/codec.h"
#include "http/handler.h"
#include "http/lease_door.h"

#include <stdlib.h>

/* ---- acquire and renew ----------------------------------------------------------------------- */

struct lease_call {
    struct handler_call call;
    const char *binding_ref;
    struct lease_caller caller;
    int64_t ttl_ms;
    struct lease_grant grant;
    int status;
};

static void lease_write(struct json_writer *w, const void *ctx)
{
    const struct lease_call *t = ctx;

    codec_write_lease(w, &t->grant, lease_base_url(t->call.x, t->grant.id));
}

static void lease_reply(struct handler_call *call)
{
    struct lease_call *t = container_of(call, struct lease_call, call);

    handler_reply_object(call->x, t->status, lease_write, t);
}

static void acquire_start(struct handler_call *call)
{
    struct lease_call *t = container_of(call, struct lease_call, call);

    if (call->lifecycle != NULL)
        lifecycle_acquire(call->lifecycle, &call->op, t->binding_ref, t->ttl_ms, &t->grant);
    else
        broker_acquire(call->broker, &call->op, t->binding_ref, t->ttl_ms, &t->grant);
}

static void handle_acquire(struct exchange *x)
{
    struct lease_call *t = HANDLER_CALL(x, lease_call);
    struct json_reader r;

    if (!handler_read(x, &r) || !handler_need_backend(x))
        return;
    t->binding_ref = json_read_string(&r, "binding_ref", 1);
    t->ttl_ms = codec_read_ttl_ms(&r);
    if (!handler_accept(x, &r))
        return;
    t->status = 201;
    t->call.start = acquire_start;
    t->call.reply = lease_reply;
    handler_run(&t->call);
}

static void renew_start(struct handler_call *call)
{
    struct lease_call *t = container_of(call, struct lease_call, call);

    broker_renew(call->broker, &call->op, &t->caller, t->ttl_ms, &t->grant);
}

static void renew_reply(struct handler_call *call)
{
    struct lease_call *t = container_of(call, struct lease_call, call);

    t->grant.layout = (struct layout){NULL, NULL}; /* not known where a token alone is renewed */
    lease_reply(call);
}

static void handle_renew(struct exchange *x)
{
    struct lease_call *t = HANDLER_CALL(x, lease_call);
    struct json_reader r;

    if (x->body_len > 0) { /* the body may be left out */
        if (!handler_read(x, &r))
            return;
        t->ttl_ms = codec_read_ttl_ms(&r);
        if (!handler_accept(x, &r))
            return;
    }
    t->caller = lease_caller_of(x);
    t->status = 200;
    t->call.start = renew_start;
    t->call.reply = renew_reply;
    handler_run(&t->call);
}

/* ---- release --------------------------------------------------------------------------------- */

static void handle_release(struct exchange *x)
{
    struct lease_caller caller = lease_caller_of(x);
    struct error err = {0};

    if (broker_release(exchange_app(x)->broker, x->arena, &caller, &err))
        exchange_reply_empty(x, 204);
    else
        lease_door_refuse(x, &err);
}

/* ---- read ------------------------------------------------------------------------------------ */

struct lease_view {
    struct exchange *x;
    struct lease_grant grant;
};

static void view_write(struct json_writer *w, const void *ctx)
{
    const struct lease_view *view = ctx;

    codec_write_lease(w, &view->grant, lease_base_url(view->x, view->grant.id));
}

static void view_of(struct exchange *x, const struct lease *lease, struct lease_view *ret)
{
    ret->x = x;
    broker_describe_lease(exchange_app(x)->broker, x->arena, lease, &ret->grant);
    ret->grant.token = NULL; /* given once, to who acquired or renewed */
}

static void handle_get(struct exchange *x)
{
    struct lease_caller caller = {exchange_param(x, "id"), NULL, true};
    struct lease_claims claims;
    struct lease *lease;
    struct lease_view view;
    struct error err = {0};

    if (broker_lease_door(exchange_app(x)->broker, x->arena, &caller, &lease, &claims, &err) !=
        DOOR_OPEN) {
        exchange_reply_error(x, &err);
        return;
    }
    view_of(x, lease, &view);
    handler_reply_object(x, 200, view_write, &view);
}

enum { PAGE_DEFAULT = 100, PAGE_MAX = 1000 };

static bool query_number(struct exchange *x, const char *name, int64_t fallback, int64_t min,
                         int64_t max, int64_t *ret)
{
    const char *text = exchange_query(x, name);
    char *end;
    struct error err;

    *ret = fallback;
    if (text == NULL)
        return true;
    *ret = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && *ret >= min && *ret <= max)
        return true;
    error_set(&err, ERR_BAD_REQUEST, "%s must be a number from %lld to %lld", name, (long long)min,
              (long long)max);
    exchange_reply_error(x, &err);
    return false;
}

static void handle_list(struct exchange *x)
{
    struct lease_table *table = broker_leases(exchange_app(x)->broker);
    struct buf out = {0};
    struct json_writer w = {.out = &out};
    struct lease_view view;
    struct lease *lease;
    int64_t limit, after, last = 0;

    if (!query_number(x, "limit", PAGE_DEFAULT, 1, PAGE_MAX, &limit) ||
        !query_number(x, "after", 0, 0, INT64_MAX, &after))
        return;
    json_object_begin(&w);
    json_key(&w, "leases");
    json_array_begin(&w);
    for (lease = lease_first(table, after); lease != NULL && limit > 0;
         lease = lease_following(lease), limit--) {
        view_of(x, lease, &view);
        json_object_begin(&w);
        view_write(&w, &view);
        json_object_finish(&w);
        last = lease->fence;
    }
    json_array_finish(&w);
    if (lease != NULL)
        json_member_string(&w, "next", arena_printf(x->arena, "%lld", (long long)last));
    else
        json_member_null(&w, "next");
    json_object_finish(&w);
    exchange_reply_json(x, 200, &out);
    buf_fini(&out);
}

/* ---- routes ---------------------------------------------------------------------------------- */

enum { BODY_MAX = 64 * 1024 };

static const char acquire_request[] =
    "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"binding_ref\"],"
    "\"properties\":{\"binding_ref\":{\"type\":\"string\",\"minLength\":1},"
    "\"ttl_seconds\":{\"type\":\"number\",\"exclusiveMinimum\":0}}}";
static const char renew_request[] =
    "{\"type\":\"object\",\"additionalProperties\":false,"
    "\"properties\":{\"ttl_seconds\":{\"type\":\"number\",\"exclusiveMinimum\":0}}}";
static const char lease_response[] =
    "{\"type\":\"object\",\"required\":[\"lease_id\",\"binding_ref\",\"backend\",\"acquired_at\","
    "\"expires_at\",\"shellctl\"],\"properties\":{\"lease_id\":{\"type\":\"string\"},"
    "\"binding_ref\":{\"type\":\"string\"},\"backend\":{\"type\":\"string\"},"
    "\"layout\":{\"type\":\"object\",\"properties\":{\"home_dir\":{\"type\":\"string\"},"
    "\"workspace_dir\":{\"type\":\"string\"}}},"
    "\"acquired_at\":{\"type\":\"string\",\"format\":\"date-time\"},"
    "\"expires_at\":{\"type\":\"string\",\"format\":\"date-time\"},"
    "\"shellctl\":{\"type\":\"object\",\"properties\":{\"base_url\":{\"type\":\"string\"},"
    "\"token\":{\"type\":\"string\"}}}}}";
static const char list_response[] =
    "{\"type\":\"object\",\"required\":[\"leases\",\"next\"],\"properties\":{"
    "\"leases\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}},"
    "\"next\":{\"type\":[\"string\",\"null\"]}}}";

const struct route lease_routes[] = {
    {"POST", "/v1/leases", AUTH_API, ERRORS_V1, 0, BODY_MAX, handle_acquire,
     "Acquire a lease on a binding", acquire_request, lease_response},
    {"GET", "/v1/leases", AUTH_API, ERRORS_V1, 0, 0, handle_list, "List this replica's leases",
     NULL, list_response},
    {"GET", "/v1/leases/{id}", AUTH_API, ERRORS_V1, 0, 0, handle_get, "Read a lease", NULL,
     lease_response},
    {"POST", "/v1/leases/{id}/renew", AUTH_LEASE, ERRORS_V1, 0, BODY_MAX, handle_renew,
     "Extend a lease", renew_request, lease_response},
    {"DELETE", "/v1/leases/{id}", AUTH_LEASE, ERRORS_V1, 0, 0, handle_release, "Release a lease",
     NULL, NULL},
    {0},
};
