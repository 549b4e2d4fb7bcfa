/* From a checked head to the handler: route, authenticate, apply limits, collect the body.
 *
 * The order of failures is that of Dify Agent's control plane (its document, section 1.3): unknown
 * path or method, a body that is not JSON, authentication, then what the handler checks. Only when
 * the client waits for 100 Continue does authentication come before the body. */
#include "core/runtime/log.h"
#include "core/runtime/metrics.h"
#include "core/runtime/quote.h"
#include "http/access_log.h"
#include "http/auth.h"
#include "http/exchange_impl.h"
#include "http/gate.h"
#include "http/reply.h"
#include "http/server_impl.h"

#include <event2/buffer.h>
#include <string.h>

enum { BODY_TOLERATED = 65536 }; /* for routes that expect none */

/* ---- making ----------------------------------------------------------------------------------- */

/* A C string of a slice in the copied head: what follows each slice there is a delimiter. */
static const char *terminate(char *copy, const char *original, struct slice s)
{
    char *at;

    if (s.at == NULL)
        return NULL;
    at = copy + (s.at - original);
    at[s.len] = '\0';
    return at;
}

/* Only plain identifiers are taken over: the id goes to logs, replies and peers. */
static bool is_request_id(const char *id)
{
    size_t len = id != NULL ? strlen(id) : 0;

    if (len == 0 || len > 128)
        return false;
    return strspn(id, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_.:+/=@") ==
           len;
}

/* W3C Trace Context section 3.2: version, trace id, parent id, flags. */
static bool is_traceparent(const char *text)
{
    static const char shape[] = "hh-hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh-hhhhhhhhhhhhhhhh-hh";

    if (text == NULL || strlen(text) != sizeof(shape) - 1 || strncmp(text, "ff", 2) == 0)
        return false;
    for (size_t i = 0; i < sizeof(shape) - 1; i++) {
        bool hex = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
        if (shape[i] == 'h' ? !hex : text[i] != '-')
            return false;
    }
    return strspn(text + 3, "0") < 32 && strspn(text + 36, "0") < 16;
}

struct exchange_impl *exchange_new(struct gate *gate, const struct request_head *head)
{
    struct arena *arena = arena_new();
    struct exchange_impl *x = arena_alloc(arena, sizeof(*x));
    const char *original = head->method.at;
    const char *end = head->fields.at + head->fields.len;
    char *copy = arena_memdup(arena, original, (size_t)(end - original));
    char *made_id;

    x->gate = gate;
    x->peer = gate->peer;
    x->x.server = gate->server;
    x->x.app = gate->server->app;
    x->x.loop = gate->loop;
    x->x.arena = arena;
    x->x.body = "";
    x->x.method = terminate(copy, original, head->method);
    x->x.path = terminate(copy, original, head->path);
    x->x.query = head->query.at != NULL ? terminate(copy, original, head->query) : "";
    x->x.traceparent = terminate(copy, original, head->traceparent);
    x->x.request_id = terminate(copy, original, head->request_id);
    x->authorization = terminate(copy, original, head->authorization);
    if (!is_traceparent(x->x.traceparent))
        x->x.traceparent = NULL;
    if (!is_request_id(x->x.request_id)) {
        made_id = arena_alloc(arena, 17);
        stamps_request_id(&gate->server->stamps, made_id);
        x->x.request_id = made_id;
    }
    x->head_only = strcmp(x->x.method, "HEAD") == 0;
    x->http_1_0 = head->http_1_0;
    x->content_length = head->content_length;
    x->started_us = access_log_clock_us();
    list_push(&gate->server->exchanges, &x->link);
    return x;
}

/* ---- refusing --------------------------------------------------------------------------------- */

/* Text bodies of FastAPI on the control plane, codes elsewhere. */
static void reply_plain(struct exchange_impl *x, int status, enum err_code code, const char *text)
{
    struct buf *body = server_reply_buf(x->x.server);

    metric_add(METRIC_ERRORS, LABELS(err_wire(code)), 1);
    error_body_plain(body, exchange_error_style(x), code, text);
    exchange_reply(&x->x, status, "application/json", body->data, body->len);
}

static void reply_unauthorized(struct exchange_impl *x, const char *why)
{
    exchange_add_header(&x->x, "WWW-Authenticate", "Bearer");
    reply_plain(x, 401, ERR_UNAUTHORIZED, why);
}

static void reply_redirect(struct exchange_impl *x)
{
    size_t len = strlen(x->x.path) - 1;
    char *target = arena_printf(x->x.arena, "%.*s%s%s", (int)len, x->x.path,
                                x->x.query[0] != '\0' ? "?" : "", x->x.query);

    exchange_add_header(&x->x, "Location", target);
    exchange_reply_empty(&x->x, 307);
}

static void reply_wrong_method(struct exchange_impl *x)
{
    struct buf allow = {0};

    router_allow(x->x.server->router, x->x.path, &allow);
    exchange_add_header(&x->x, "Allow", buf_text(&allow));
    buf_fini(&allow);
    reply_plain(x, 405, ERR_METHOD_NOT_ALLOWED, "Method Not Allowed");
}

static void reply_too_large(struct exchange_impl *x, size_t limit)
{
    struct error err;

    error_set(&err, ERR_PAYLOAD_TOO_LARGE, "the body is larger than the %zu bytes of this route",
              limit);
    exchange_reply_error(&x->x, &err);
}

/* ---- routing ---------------------------------------------------------------------------------- */

static bool take_params(struct exchange_impl *x, const struct route_match *match)
{
    struct error err;

    for (int i = 0; i < match->n_params; i++) {
        char *value = NULL;
        if (!quote_url_decode(x->x.arena, match->values[i], match->lengths[i], &value) ||
            !quote_is_header_safe(value) || !quote_is_utf8(value, strlen(value))) {
            error_set(&err, ERR_INVALID_REF,
                      "the %s in the path has a malformed escape or a control character",
                      match->names[i]);
            exchange_reply_error(&x->x, &err);
            return false;
        }
        x->x.params[i] = (struct path_param){match->names[i], value};
    }
    x->x.n_params = match->n_params;
    x->x.rest = match->rest;
    return true;
}

static bool find_route(struct exchange_impl *x)
{
    struct route_match match;
    struct error err;

    switch (router_find(x->x.server->router, x->x.method, x->x.path, &match)) {
    case ROUTE_FOUND:
        x->x.route = match.route;
        x->route_index = match.index;
        return take_params(x, &match);
    case ROUTE_WRONG_METHOD:
        x->x.route = match.route;
        x->route_index = match.index;
        reply_wrong_method(x);
        return false;
    case ROUTE_SLASH:
        reply_redirect(x);
        return false;
    case ROUTE_BAD_PATH:
        error_set(&err, ERR_BAD_REQUEST, "the path has a . or .. segment");
        exchange_reply_error(&x->x, &err);
        return false;
    case ROUTE_UNKNOWN:
        reply_plain(x, 404, ERR_NOT_FOUND, "Not Found");
        return false;
    }
    return false;
}

/* ---- authentication and limits ---------------------------------------------------------------- */

/* NULL when the caller may pass. A lease route lets any bearer token through to its handler. */
static const char *check_auth(struct exchange_impl *x)
{
    const struct http_auth *auth = &x->x.server->options.auth;
    unsigned long len = 0;
    const char *token, *failure;

    if (x->x.route->auth == AUTH_NONE)
        return NULL;
    token = auth_bearer_token(x->authorization, &len);
    if (token != NULL)
        x->x.bearer = arena_memdup(x->x.arena, token, len);
    failure = auth->check != NULL ? auth->check(auth->ctx, x->authorization) : NULL;
    x->x.authorized = failure == NULL;
    if (x->x.route->auth == AUTH_OWN || (x->x.route->auth == AUTH_LEASE && x->x.bearer != NULL))
        return NULL;
    return failure;
}

static bool admit(struct exchange_impl *x)
{
    struct http_server *server = x->x.server;
    struct error err;

    if (server_refuses(server) && (x->x.route->flags & ROUTE_WHILE_DRAINING) == 0) {
        error_set(&err, ERR_DRAINING, "the service is shutting down");
        exchange_reply_error(&x->x, &err);
        return false;
    }
    if (!server_enter(server)) {
        error_set(&err, ERR_OVERLOADED, "too many requests are being worked on");
        metric_add(METRIC_HTTP_REJECTED, LABELS("in_flight"), 1);
        exchange_reply_error(&x->x, &err);
        return false;
    }
    x->entered = true;
    return true;
}

static size_t body_limit(const struct exchange_impl *x)
{
    return x->x.route->max_body > 0 ? x->x.route->max_body : BODY_TOLERATED;
}

/* Before the body: the length it announces. A streamed body may be of any length. */
static bool check_length(struct exchange_impl *x)
{
    bool streamed = (x->x.route->flags & ROUTE_STREAM) != 0 && x->x.route->max_body == 0;

    if (streamed || x->content_length <= (int64_t)body_limit(x))
        return true;
    reply_too_large(x, body_limit(x));
    return false;
}

void exchange_watch_request(struct exchange_impl *x)
{
    int64_t used_ms = (access_log_clock_us() - x->started_us) / 1000;

    if ((x->x.route->flags & ROUTE_LONG) != 0)
        gate_set_deadline(x->gate, DEADLINE_NONE, 0);
    else
        gate_set_deadline(x->gate, DEADLINE_REQUEST,
                          x->x.server->options.request_timeout_ms - used_ms);
}

void exchange_watch_body(struct exchange_impl *x)
{
    if (x->content_length == 0)
        return;
    gate_set_deadline(x->gate, DEADLINE_BODY, x->x.server->options.body_timeout_ms);
    gate_send_continue(x->gate);
}

void exchange_dispatch(struct exchange_impl *x)
{
    const char *failure;
    bool has_body = x->content_length != 0;

    if (!find_route(x) || !admit(x) || !check_length(x))
        return;
    failure = check_auth(x);
    if (failure != NULL) {
        if (!has_body || x->gate->expects || x->x.route->errors != ERRORS_DETAIL ||
            (x->x.route->flags & ROUTE_STREAM) != 0) {
            reply_unauthorized(x, failure);
            return;
        }
        x->auth_failure = failure;
    }
    if ((x->x.route->flags & ROUTE_STREAM) != 0)
        x->x.route->handle(&x->x);
    if (x->reply != REPLY_DONE && !x->gate->paused)
        exchange_watch_body(x);
}

/* ---- the body --------------------------------------------------------------------------------- */

void exchange_body_bytes(struct exchange_impl *x, const void *bytes, size_t len)
{
    size_t have = x->body.len + x->streamed;

    if (x->reply == REPLY_DONE)
        return;
    if (x->stream != NULL) {
        gate_set_deadline(x->gate, DEADLINE_BODY, x->x.server->options.body_timeout_ms);
        x->streamed += len;
        if (x->x.route->max_body > 0 && have + len > x->x.route->max_body) {
            struct error err;
            error_set(&err, ERR_PAYLOAD_TOO_LARGE, "the body is too large");
            exchange_body_failed(x, &err);
            return;
        }
        if (x->stream->on_body != NULL)
            x->stream->on_body(&x->x, x->stream_ctx, bytes, len);
        return;
    }
    if (have + len > body_limit(x)) { /* chunked: only now known */
        reply_too_large(x, body_limit(x));
        return;
    }
    if (x->content_length > 0 && x->body.len == 0)
        buf_reserve(&x->body, (size_t)x->content_length);
    buf_add(&x->body, bytes, len);
}

void exchange_body_over(struct exchange_impl *x)
{
    struct json_object *value;
    struct error err;
    size_t position = 0;

    x->body_over = true;
    if (x->reply == REPLY_DONE)
        return;
    exchange_watch_request(x);
    x->x.body = buf_text(&x->body);
    x->x.body_len = x->body.len;
    if (x->auth_failure != NULL) {
        if (x->body.len == 0 ||
            json_parse(x->x.arena, x->x.body, x->x.body_len, &value, &position, &err))
            reply_unauthorized(x, x->auth_failure);
        else
            exchange_reply_not_json(x, position, &err);
        return;
    }
    if (x->stream != NULL) {
        if (x->stream->on_body_end != NULL)
            x->stream->on_body_end(&x->x, x->stream_ctx);
    } else if ((x->x.route->flags & ROUTE_STREAM) == 0) {
        x->x.route->handle(&x->x);
    }
}

/* The handler hears that the client is gone; if no reply has begun the client hears why. */
static void fail_request(struct exchange_impl *x, const struct error *err)
{
    const struct exchange_stream_events *stream = x->stream;
    bool begun = x->reply == REPLY_STREAMING;

    x->stream = NULL;
    if (x->reply == REPLY_NONE) {
        exchange_reply_error(&x->x, err);
    } else if (begun) {
        x->reply = REPLY_DONE;
        gate_reply_done(x->gate, true);
    }
    x->x.gone = true;
    if (stream != NULL && stream->on_gone != NULL)
        stream->on_gone(&x->x, x->stream_ctx);
    if (x->x.op != NULL)
        op_cancel(x->x.op, err->message);
}

void exchange_body_failed(struct exchange_impl *x, const struct error *err)
{
    if (x->reply != REPLY_DONE)
        fail_request(x, err);
}

bool exchange_body_late(struct exchange_impl *x)
{
    struct error err;

    if (x->reply != REPLY_NONE)
        return false;
    error_set(&err, ERR_REQUEST_TIMEOUT, "the request body did not arrive in time");
    metric_add(METRIC_HTTP_REJECTED, LABELS(err_wire(err.code)), 1);
    x->gate->client_keeps = false;
    fail_request(x, &err);
    return true;
}

bool exchange_request_late(struct exchange_impl *x)
{
    struct error err;

    if (x->reply != REPLY_NONE)
        return false;
    if (x->x.op != NULL) {
        op_abort(x->x.op, ERR_DEADLINE, "the request was not over in the time of the server");
        return true;
    }
    error_set(&err, ERR_DEADLINE, "the request was not over in the time of the server");
    fail_request(x, &err);
    return true;
}
