#include "http/exchange.h"

#include "core/runtime/log.h"
#include "core/runtime/metrics.h"
#include "core/runtime/quote.h"
#include "http/access_log.h"
#include "http/exchange_impl.h"
#include "http/gate.h"
#include "http/reply.h"
#include "http/server_impl.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

/* ---- life ------------------------------------------------------------------------------------- */

static void exchange_release(void *ptr)
{
    struct exchange_impl *x = ptr;

    buf_fini(&x->body);
    buf_fini(&x->headers);
    arena_free(x->x.arena);
}

void exchange_maybe_release(struct exchange_impl *x)
{
    if (x->gate != NULL || x->x.op != NULL || x->closed)
        return;
    x->closed = true;
    list_remove(&x->link);
    server_leave(x->x.server, x->entered);
    /* Behind the release of an op that ended in this turn: the op lives in this arena. */
    loop_defer_free(x->x.loop, exchange_release, x);
}

void exchange_written(struct exchange_impl *x)
{
    x->gate = NULL;
    access_log_write(x, false);
    exchange_maybe_release(x);
}

void exchange_client_gone(struct exchange_impl *x)
{
    bool was_done = x->reply == REPLY_DONE;

    x->gate = NULL;
    x->x.gone = true;
    if (!was_done)
        metric_add(METRIC_HTTP_DISCONNECTS, NULL, 1);
    access_log_write(x, !was_done);
    if (!was_done && x->stream != NULL && x->stream->on_gone != NULL)
        x->stream->on_gone(&x->x, x->stream_ctx);
    if (x->x.op != NULL)
        op_cancel(x->x.op, "the client closed the connection");
    exchange_maybe_release(x);
}

static void on_op_done(struct op *op, void *ctx)
{
    struct exchange_impl *x = ctx;

    x->x.op = NULL;
    if (!x->x.gone && !x->x.replied)
        x->on_done(&x->x, op);
    exchange_maybe_release(x);
}

void exchange_run(struct exchange *x, struct op *root,
                  void (*on_done)(struct exchange *x, struct op *root))
{
    struct exchange_impl *impl = exchange_impl(x);

    PRE(x->op == NULL && !x->replied);
    x->op = root;
    impl->on_done = on_done;
    op_start(root, on_op_done, impl);
}

void exchange_abort(struct exchange_impl *x)
{
    struct error err;

    if (x->x.op != NULL) {
        op_abort(x->x.op, ERR_DRAINING, "the service is shutting down");
        return;
    }
    if (x->gate == NULL || x->reply == REPLY_DONE)
        return;
    if (x->reply == REPLY_NONE && x->stream == NULL) {
        error_set(&err, ERR_DRAINING, "the service is shutting down");
        exchange_reply_error(&x->x, &err);
        return;
    }
    gate_drop(x->gate);
}

/* ---- reading the request ---------------------------------------------------------------------- */

const char *exchange_header(const struct exchange *x, const char *name)
{
    const struct exchange_impl *impl = exchange_impl(x);

    return impl->gate != NULL ? server_request_header(impl->gate->request, name) : NULL;
}

void exchange_each_header(const struct exchange *x,
                          void (*each)(void *ctx, const char *name, const char *value), void *ctx)
{
    const struct exchange_impl *impl = exchange_impl(x);

    if (impl->gate != NULL)
        server_each_header(impl->gate->request, each, ctx);
}

const char *exchange_param(const struct exchange *x, const char *name)
{
    for (int i = 0; i < x->n_params; i++) {
        if (strcmp(x->params[i].name, name) == 0)
            return x->params[i].value;
    }
    UNREACHABLE(name);
}

/* `+` is a blank in a query (HTML forms, and what HTTP libraries send). */
static const char *decode_query_part(const struct exchange *x, const char *at, size_t len)
{
    char *copy = arena_memdup(x->arena, at, len);
    char *value = NULL;

    for (size_t i = 0; i < len; i++) {
        if (copy[i] == '+')
            copy[i] = ' ';
    }
    return quote_url_decode(x->arena, copy, len, &value) ? value : NULL;
}

const char *exchange_query(const struct exchange *x, const char *name)
{
    size_t name_len = strlen(name);
    const char *at = x->query;

    while (*at != '\0') {
        size_t len = strcspn(at, "&");
        if (len >= name_len && memcmp(at, name, name_len) == 0 &&
            (len == name_len || at[name_len] == '=')) {
            size_t skip = len == name_len ? len : name_len + 1;
            return decode_query_part(x, at + skip, len - skip);
        }
        at += len;
        at += *at == '&' ? 1 : 0;
    }
    return NULL;
}

int64_t exchange_body_length(const struct exchange *x)
{
    return exchange_impl(x)->content_length;
}

bool exchange_json(struct exchange *x, struct json_object **ret)
{
    struct json_problem absent = {.type = "missing", .message = "Field required"};
    struct json_reader missing = {.arena = x->arena, .first = &absent};
    struct error err;
    size_t position = 0;

    *ret = NULL;
    if (x->body_len == 0 && x->route->errors == ERRORS_DETAIL) {
        exchange_reply_problems(x, &missing);
        return false;
    }
    if (json_parse(x->arena, x->body, x->body_len, ret, &position, &err))
        return true;
    exchange_reply_not_json(exchange_impl(x), position, &err);
    return false;
}

void exchange_reply_not_json(struct exchange_impl *x, size_t position, const struct error *err)
{
    enum route_errors style = x->x.route->errors;
    struct buf *body = server_reply_buf(x->x.server);
    struct error invalid_path;

    if ((x->x.route->flags & ROUTE_VALIDATION_400) != 0) {
        error_set(&invalid_path, ERR_INVALID_BINDING_PATH,
                  "Binding file path or payload is invalid");
        exchange_reply_error(&x->x, &invalid_path);
        return;
    }
    error_body_not_json(body, style, position, err);
    exchange_reply(&x->x, style == ERRORS_DETAIL ? 422 : 400, "application/json", body->data,
                   body->len);
}

/* ---- replying --------------------------------------------------------------------------------- */

void exchange_add_header(struct exchange *x, const char *name, const char *value)
{
    struct buf *headers = &exchange_impl(x)->headers;

    PRE(quote_is_header_safe(value));
    buf_adds(headers, name);
    buf_adds(headers, ": ");
    buf_adds(headers, value);
    buf_adds(headers, "\r\n");
}

/* The head of the reply, straight into the connection's output. */
void exchange_write_head(struct exchange_impl *x, const char *content_type, int64_t length,
                         bool chunked, bool may_keep)
{
    struct http_server *server = x->x.server;
    struct reply_head head = {
        .status = x->status,
        .date = stamps_date(&server->stamps),
        .content_type = content_type,
        .content_length = length,
        .chunked = chunked,
        .keep_alive = gate_fix_keep(x->gate, may_keep && !server_refuses(server)),
        .http_1_0 = x->http_1_0,
        .request_id = x->x.request_id,
        .headers = &x->headers,
    };
    struct buf *out = server_head_buf(server);

    reply_head_write(out, &head);
    evbuffer_add(gate_output(x->gate), out->data, out->len);
}

void exchange_reply(struct exchange *x, int status, const char *content_type, const void *body,
                    size_t len)
{
    struct exchange_impl *impl = exchange_impl(x);

    PRE(!x->replied);
    x->replied = true;
    impl->status = status;
    impl->reply = REPLY_DONE;
    if (impl->gate == NULL) /* the client has gone: dropped */
        return;
    if (reply_is_bodyless(status)) {
        exchange_write_head(impl, NULL, -1, false, true);
    } else {
        exchange_write_head(impl, len > 0 ? content_type : NULL, (int64_t)len, false, true);
        if (!impl->head_only && len > 0) {
            evbuffer_add(gate_output(impl->gate), body, len);
            impl->bytes_sent = len;
        }
    }
    gate_reply_done(impl->gate, false);
}

void exchange_reply_json(struct exchange *x, int status, const struct buf *json)
{
    exchange_reply(x, status, "application/json", json->data, json->len);
}

void exchange_reply_empty(struct exchange *x, int status)
{
    exchange_reply(x, status, NULL, NULL, 0);
}

enum route_errors exchange_error_style(const struct exchange_impl *x)
{
    if (x->x.route != NULL)
        return x->x.route->errors;
    if (strncmp(x->x.path, "/v1/", 4) == 0 && x->x.server->options.errors == ERRORS_DETAIL)
        return ERRORS_V1;
    return x->x.server->options.errors;
}

void exchange_reply_error(struct exchange *x, const struct error *cause)
{
    struct buf *body = server_reply_buf(x->server);
    struct error copy = *cause, *err = &copy;
    int status, retry_after_s;
    char seconds[16];

    if (err->code == ERR_CANCELLED) /* not by the client, who is still there */
        err->code = ERR_OVERLOADED;
    log_scrub(err->message);
    status = err_info(err->code)->http_status;
    retry_after_s = error_retry_after_s(err, status);
    metric_add(METRIC_ERRORS, LABELS(err_wire(err->code)), 1);
    if (retry_after_s > 0) {
        snprintf(seconds, sizeof(seconds), "%d", retry_after_s);
        exchange_add_header(x, "Retry-After", seconds);
    }
    error_body_write(body, exchange_error_style(exchange_impl(x)), err);
    exchange_reply(x, status, "application/json", body->data, body->len);
}

void exchange_reply_problems(struct exchange *x, const struct json_reader *r)
{
    struct buf *body = server_reply_buf(x->server);
    struct error err;

    if ((x->route->flags & ROUTE_VALIDATION_400) != 0) {
        error_set(&err, ERR_INVALID_BINDING_PATH, "Binding file path or payload is invalid");
        exchange_reply_error(x, &err);
        return;
    }
    metric_add(METRIC_ERRORS, LABELS(err_wire(ERR_VALIDATION)), 1);
    error_body_problems(body, x->route->errors, r);
    exchange_reply(x, 422, "application/json", body->data, body->len);
}
