/* One proxied exchange.
 *
 * Happy path: find the lease (or open it by its token), become a user of it, open a stream to its
 *   shellctl; the request body goes up as it comes, the answer goes down as it comes. Whoever is
 *   slower slows the other: above a mark the reading side is paused until the queue has drained.
 * Failures: the shellctl cannot be reached or breaks before its head: an error in shellctl's own
 *   envelope; after the head: the reply is cut. The client leaves: the upstream exchange is
 *   cancelled. The lease ends: both sides are cut. The answer proves the sandbox gone: all leases
 *   of the binding are lost, the caller gets `binding_lost`. */
#include "http/proxy.h"

#include "core/domain/broker.h"
#include "core/runtime/buf.h"
#include "core/runtime/metrics.h"
#include "http/app.h"
#include "http/lease_door.h"
#include "http/proxy_head.h"

#include <string.h>

enum {
    UPLOAD_HIGH = 64 * 1024,
    REPLY_HIGH = 64 * 1024,
    JUDGED_MAX = 4096,               /* of an error answer, to see whether the sandbox is gone */
    SILENCE_MAX_MS = 15 * 60 * 1000, /* above the longest long poll */
};

struct relay {
    struct exchange *x;
    const char *rest;       /* path behind the data plane's base */
    struct http_stream *up; /* NULL: not open yet, or over */
    struct lease_use use;
    bool body_over; /* the client's body has ended before the stream was open */
    bool up_paused, body_paused;
    bool judging; /* the head is held back until `judged` has said what it means */
    int status;
    const struct http_header *headers;
    size_t n_headers;
    int64_t length;
    struct buf judged;
    void (*map_error)(struct error *err);
};

static struct metric_series *bytes_up, *bytes_down;

static void count_bytes(struct metric_series **series, const char *direction, size_t len)
{
    if (*series == NULL)
        *series = metric_series(METRIC_PROXY_BYTES, LABELS(direction));
    metric_series_add(*series, (double)len);
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void relay_finish(struct relay *r)
{
    lease_use_end(&r->use);
    buf_fini(&r->judged);
}

static void relay_cancel_up(struct relay *r)
{
    struct http_stream *up = r->up;

    r->up = NULL;
    if (up != NULL)
        http_stream_cancel(up);
}

/* Tell the client, as far as that is still possible. */
static void relay_fail(struct relay *r, const struct error *err)
{
    struct error mapped;

    if (r->x->gone)
        return;
    if (r->x->replied) {
        exchange_reply_end(r->x, false);
        return;
    }
    mapped = *err;
    if (r->map_error != NULL)
        r->map_error(&mapped);
    exchange_reply_error(r->x, &mapped);
}

static void on_cut(struct lease_use *use)
{
    struct relay *r = container_of(use, struct relay, use);
    struct error err;

    if (use->lease->end == LEASE_LOST)
        error_set(&err, ERR_BINDING_LOST, "the binding of this lease is gone");
    else if (use->lease->end == LEASE_DRAINED)
        error_set(&err, ERR_DRAINING, "this replica stops: repeat, another one takes it");
    else
        error_set(&err, ERR_LEASE_GONE, "the lease has ended: acquire a new one");
    relay_cancel_up(r);
    relay_fail(r, &err);
    relay_finish(r);
}

/* ---- the client's side ----------------------------------------------------------------------- */

static void on_body(struct exchange *x, void *ctx, const void *bytes, size_t len)
{
    struct relay *r = ctx;

    (void)x;
    if (r->up == NULL)
        return;
    count_bytes(&bytes_up, "up", len);
    if (http_stream_send(r->up, bytes, len) > UPLOAD_HIGH && !r->body_paused) {
        r->body_paused = true;
        exchange_body_pause(r->x);
    }
}

static void on_body_end(struct exchange *x, void *ctx)
{
    struct relay *r = ctx;

    (void)x;
    r->body_over = true;
    if (r->up != NULL)
        http_stream_send_end(r->up);
}

static void on_client_reads(struct exchange *x, void *ctx)
{
    struct relay *r = ctx;

    (void)x;
    if (r->up != NULL && r->up_paused) {
        r->up_paused = false;
        http_stream_resume(r->up);
    }
}

static void on_gone(struct exchange *x, void *ctx)
{
    struct relay *r = ctx;

    (void)x;
    relay_cancel_up(r);
    relay_finish(r);
}

static const struct exchange_stream_events client_events = {
    .on_body = on_body,
    .on_body_end = on_body_end,
    .on_writable = on_client_reads,
    .on_gone = on_gone,
};

/* ---- the shellctl's side --------------------------------------------------------------------- */

static void reply_begin(struct relay *r)
{
    exchange_reply_begin(r->x, r->status, r->headers, r->n_headers, r->length);
}

static void reply_data(struct relay *r, const void *bytes, size_t len)
{
    count_bytes(&bytes_down, "down", len);
    if (exchange_reply_data(r->x, bytes, len) > REPLY_HIGH && r->up != NULL && !r->up_paused) {
        r->up_paused = true;
        http_stream_pause(r->up);
    }
}

static void on_head(void *ctx, const struct http_response *head)
{
    struct relay *r = ctx;
    const struct backend *backend = r->use.lease->plane->backend;

    r->status = head->status;
    proxy_reply_headers(r->x->arena, head, &r->headers, &r->n_headers, &r->length);
    r->judging = head->status >= 400 && backend->ops->answer_means_lost != NULL;
    if (!r->judging)
        reply_begin(r);
}

/* The held back head and beginning of an error answer: pass on, or found the binding lost? */
static bool judge(struct relay *r)
{
    struct plane *plane = r->use.lease->plane;
    struct broker *broker = exchange_app(r->x)->broker;
    struct error why;
    char *ref;

    r->judging = false;
    if (!plane->backend->ops->answer_means_lost(plane->backend, r->status, buf_text(&r->judged),
                                                r->judged.len)) {
        reply_begin(r);
        if (r->judged.len > 0)
            reply_data(r, r->judged.data, r->judged.len);
        return true;
    }
    error_set(&why, ERR_BINDING_LOST, "the data plane answered %d: the sandbox is gone", r->status);
    ref = arena_strdup(r->x->arena, plane->binding_ref);
    broker_binding_lost(broker, ref, &why); /* cuts this exchange as well */
    return false;
}

static void on_data(void *ctx, const void *bytes, size_t len)
{
    struct relay *r = ctx;

    if (!r->judging) {
        reply_data(r, bytes, len);
        return;
    }
    buf_add(&r->judged, bytes, len);
    if (r->judged.len >= JUDGED_MAX)
        (void)judge(r);
}

static void on_up_writable(void *ctx)
{
    struct relay *r = ctx;

    if (r->body_paused) {
        r->body_paused = false;
        exchange_body_resume(r->x);
    }
}

/* An exchange that failed, in words of the data plane. */
static void wrap_error(struct error *err)
{
    switch ((int)err->code) {
    case ERR_UPSTREAM_CONNECT:
    case ERR_UPSTREAM_LOST:
    case ERR_UPSTREAM_PROTOCOL:
    case ERR_UPSTREAM_STATUS:
        error_wrap(err, ERR_BINDING_UNAVAILABLE, "the binding's shellctl: ");
        break;
    default:
        break;
    }
}

static void on_end(void *ctx, const struct error *err)
{
    struct relay *r = ctx;
    struct error why;

    r->up = NULL;
    if (err == NULL && r->judging && !judge(r))
        return; /* cut, and all is over */
    if (err == NULL) {
        exchange_reply_end(r->x, true);
    } else {
        why = *err;
        wrap_error(&why);
        relay_fail(r, &why);
    }
    relay_finish(r);
}

static const struct http_stream_events up_events = {
    .on_head = on_head,
    .on_data = on_data,
    .on_writable = on_up_writable,
    .on_end = on_end,
};

/* ---- beginning ------------------------------------------------------------------------------- */

static void relay_open(struct exchange *x, struct lease *lease, void *ctx)
{
    struct relay *r = ctx;
    const struct endpoint *endpoint = &lease->plane->endpoint;
    int64_t body_len = exchange_body_length(x);
    struct http_request request = {
        .peer = endpoint->peer,
        .method = x->method,
        .url = proxy_url(x->arena, endpoint, r->rest, x->query),
        .unix_socket = endpoint->unix_socket,
        .dialer = endpoint_dialer(endpoint, proxy_may_wait(r->rest)),
        .idle_timeout_ms = SILENCE_MAX_MS,
        .idempotent = strcmp(x->method, "GET") == 0,
    };

    proxy_request_headers(x, endpoint, &request.headers, &request.n_headers);
    lease_use_begin(lease, &r->use, on_cut);
    r->up =
        http_stream_open(exchange_app(x)->http, &request, body_len != 0, body_len, &up_events, r);
    if (r->body_over && body_len != 0)
        http_stream_send_end(r->up);
    exchange_body_resume(x);
}

void proxy_begin(struct exchange *x, const char *rest, const struct proxy_door *door)
{
    struct relay *r = ARENA_NEW(x->arena, struct relay);
    struct error err;

    if (!proxy_check_path(rest, &err)) {
        exchange_reply_error(x, &err);
        return;
    }
    r->x = x;
    r->rest = rest;
    r->map_error = door->map_error;
    exchange_stream(x, &client_events, r);
    exchange_body_pause(x); /* until there is somebody to take it */
    door->enter(x, door, relay_open, r);
}

/* ---- by a lease's id -------------------------------------------------------------------------- */

struct caller_door {
    struct proxy_door door;
    struct lease_caller caller;
};

static void enter_by_lease(struct exchange *x, const struct proxy_door *door, proxy_entered then,
                           void *ctx)
{
    lease_door_enter(x, &container_of(door, struct caller_door, door)->caller, then, ctx);
}

static void lease_proxy_begin(struct exchange *x, const char *rest, bool trusted)
{
    struct caller_door *d = ARENA_NEW(x->arena, struct caller_door);

    d->door.enter = enter_by_lease;
    d->caller = lease_caller_of(x);
    d->caller.trusted |= trusted;
    proxy_begin(x, rest, &d->door);
}

static void handle_proxy(struct exchange *x)
{
    lease_proxy_begin(x, x->rest, false);
}

/* shellctl's health is open, and its clients send no token to it (shellctl.md 13.1). Who knows the
 * id of a lease may know that its sandbox answers. */
static void handle_health(struct exchange *x)
{
    lease_proxy_begin(x, "healthz", true);
}

enum { PROXY_FLAGS = ROUTE_STREAM | ROUTE_LONG };

const struct route proxy_routes[] = {
    {"GET", "/v1/leases/{id}/shellctl/healthz", AUTH_OWN, ERRORS_SHELLCTL, PROXY_FLAGS, 0,
     handle_health, "Whether the lease's shellctl answers", NULL, NULL},
    {NULL, "/v1/leases/{id}/shellctl/*", AUTH_LEASE, ERRORS_SHELLCTL,
     PROXY_FLAGS | ROUTE_ANY_METHOD, 0, handle_proxy,
     "The lease's data plane: the shellctl protocol, streamed", NULL, NULL},
    {0},
};
