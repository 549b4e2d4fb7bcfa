/* One HTTP request and its one reply. Handlers see this and nothing of libevhtp.
 *
 * An exchange has an arena and, usually, one root op. It is replied to exactly once. When the
 * client goes away first, the root op is cancelled and the reply is dropped; the exchange lives
 * until the op has ended. The exchange may be used from its creation until its reply. */
#pragma once

#include "core/runtime/http_client.h"
#include "core/runtime/json.h"
#include "core/runtime/op.h"

struct route;
struct http_server;

/** One path parameter, percent-decoded and checked for control characters. */
struct path_param {
    const char *name, *value;
};

/** Read-only for handlers, except `op`. */
struct exchange {
    struct http_server *server;
    void *app; /* the application context given to http_server_new */
    const struct route *route;
    struct loop *loop;
    struct arena *arena;
    const char *method;
    const char *path;  /* raw path without query */
    const char *query; /* raw query or "" */
    const char *body;  /* NUL-terminated; "" when none (and for streamed routes) */
    size_t body_len;
    struct path_param params[4];
    int n_params;
    const char *rest;        /* raw, undecoded tail behind a route that ends in `*`; else NULL */
    const char *request_id;  /* X-Request-Id given or made */
    const char *traceparent; /* W3C trace context to pass on, or NULL */
    const char *bearer;      /* token of the Authorization header, or NULL */
    bool authorized;         /* the header passed the server's own check, or none is configured */
    bool replied, gone;
    struct op *op; /* root op, cancelled when the client goes away */
};

/** First request header called `name` (any case), or NULL; NULL for those about framing
 * (Content-Length, Transfer-Encoding, Expect) and once the client has gone. */
const char *exchange_header(const struct exchange *x, const char *name);
/** Iterate over request headers; for the proxy. */
void exchange_each_header(const struct exchange *x,
                          void (*each)(void *ctx, const char *name, const char *value), void *ctx);
/** Path parameter (never NULL for a name in the route's template). */
const char *exchange_param(const struct exchange *x, const char *name);
/** Query parameter, decoded, or NULL. */
const char *exchange_query(const struct exchange *x, const char *name);

/** Add a response header before the reply. Values must be header-safe. */
void exchange_add_header(struct exchange *x, const char *name, const char *value);

/** Run a root op of this exchange's arena; `on_done` is called with it unless the client left. It
 * must reply. Sets x->op. */
void exchange_run(struct exchange *x, struct op *root,
                  void (*on_done)(struct exchange *x, struct op *root));

/** Reply. Exactly one of these, once. The body is copied; HEAD is handled by the server. */
void exchange_reply(struct exchange *x, int status, const char *content_type, const void *body,
                    size_t len);
void exchange_reply_json(struct exchange *x, int status, const struct buf *json);
void exchange_reply_empty(struct exchange *x, int status); /* 204 and alike */
/** In the shape of the route's error style (`enum route_errors`), with Retry-After where due. */
void exchange_reply_error(struct exchange *x, const struct error *err);
/** Parse the body as JSON (a JSON null gives NULL). Replies in the route's shape and returns false
 * when it is absent or no JSON. */
bool exchange_json(struct exchange *x, struct json_object **ret) MUST_CHECK;
/** 422 (or the route's own status) listing all of a reader's problems. */
void exchange_reply_problems(struct exchange *x, const struct json_reader *r);

/* ---- streaming ------------------------------------------------------------------------------ */

/** Events of a streamed exchange; any may be NULL. `ctx` is the handler's own. */
struct exchange_stream_events {
    void (*on_body)(struct exchange *x, void *ctx, const void *bytes, size_t len);
    void (*on_body_end)(struct exchange *x, void *ctx);
    void (*on_writable)(struct exchange *x, void *ctx); /* the client reads again */
    void (*on_gone)(struct exchange *x, void *ctx);     /* the client left; reply no more */
};

/** For routes flagged ROUTE_STREAM: take the request body as it arrives. */
void exchange_stream(struct exchange *x, const struct exchange_stream_events *events, void *ctx);
/** Stop and restart reading the request body from the client. */
void exchange_body_pause(struct exchange *x);
void exchange_body_resume(struct exchange *x);
/** Content-Length of the request, -1 when chunked, 0 when there is no body. */
int64_t exchange_body_length(const struct exchange *x);

/** Start a streamed reply: `length` -1 means chunked (or close-delimited for HTTP/1.0). Headers may
 * come from a peer: unsafe ones and those about framing are left out. */
void exchange_reply_begin(struct exchange *x, int status, const struct http_header *headers,
                          size_t n_headers, int64_t length);
/** Queue reply bytes (copied). Returns bytes queued now: above 64 KiB wait for on_writable. */
size_t exchange_reply_data(struct exchange *x, const void *bytes, size_t len);
/** Finish; `complete` false breaks the connection so that the client sees the cut. */
void exchange_reply_end(struct exchange *x, bool complete);
