/* HTTP/1.1 client: one exchange is one wait of an op. Plain http goes over our own sockets on the
 * loop, https and proxies over libcurl (docs/adr/0010): to the caller they are the same.
 *
 * Connections are pooled per origin and kept alive. Redirects are never followed. Environment
 * proxies are ignored; a proxy is used only when the client was made with one. A request that is
 * not idempotent is never sent twice: it fails with an honest `admitted`. A connection whose
 * exchange did not end cleanly is closed, never pooled.
 *
 * Errors of an exchange (an HTTP status of any value is a success of the exchange):
 *   ERR_UPSTREAM_CONNECT   no connection; nothing was sent (admitted no)
 *   ERR_UPSTREAM_LOST      connection broke; admitted no when no byte had been sent, else unknown
 *   ERR_DEADLINE           a timeout passed; admitted likewise
 *   ERR_UPSTREAM_PROTOCOL  garbage, or a body beyond max_body (admitted unknown)
 *   ERR_OVERLOADED         our own limits: no descriptor, too many queued (admitted no) */
#pragma once

#include "core/runtime/op.h"

/** The connection pool of the process; opaque. */
struct http_client;

struct http_client_options {
    int max_connections_per_host; /* 0 = 512; further exchanges queue, their timeouts running */
    int max_idle_connections;     /* 0 = as many as to one host, at least 1024 */
    int64_t max_idle_ms;          /* 0 = 30,000: below any server's keep-alive */
    const char *proxy;            /* http proxy URL, or NULL for none */
    bool curl_only;               /* plain http over libcurl too: for tests of that transport */
};

struct http_client *http_client_new(struct loop *loop, const struct http_client_options *options);

/** Cancels nothing: every exchange must be over. */
void http_client_free(struct http_client *client);

/** Name and value, both header-safe (quote_is_header_safe); others fail with ERR_BAD_REQUEST.
 * Framing and the connection are the client's own: Content-Length, Transfer-Encoding, Connection,
 * Keep-Alive, Upgrade, Expect, TE, Trailer and Proxy-Connection are left out when given. */
struct http_header {
    const char *name, *value;
};

/** TLS towards an https origin. NULL paths: system trust, no client certificate. */
struct http_tls {
    const char *ca_path, *cert_path, *key_path;
};

/** Opens a connected stream socket in place of a TCP connection (a tunnel that stays inside the
 * process). `open` returns a non-blocking descriptor that the client then owns, or -1 with `err`.
 * Connections of one dialer are pooled under its `key`, which must be unique. Plain http only. `why`
 * may be NULL: the reason behind a connection that ended early, all-zero when there is none to tell. */
struct http_dialer {
    const char *key;
    int (*open)(void *ctx, struct error *err);
    const struct error *(*why)(void *ctx);
    void *ctx;
    bool one_exchange; /* never kept idle: for connections of which the peer allows only a few */
};

/** A connected pair for a dialer: [0] for `open` to return, [1] the tunnel's end, both non-blocking
 * and the caller's. False with ERR_OVERLOADED. */
bool http_dialer_pair(int ret_pair[2], struct error *err) MUST_CHECK;

/** One request. Everything is borrowed until the wait ends. */
struct http_request {
    const char *peer;        /* metric label from a closed set: "gateway", "shellctl", "e2b" */
    const char *method;      /* "GET", … */
    const char *url;         /* absolute http or https URL */
    const char *unix_socket; /* connect here instead of to the URL's host; NULL = no */
    const struct http_dialer *dialer; /* or through this; NULL = no */
    const struct http_tls *tls;
    const struct http_header *headers;
    size_t n_headers;
    const void *body;
    size_t body_len;
    int64_t connect_timeout_ms; /* 0 = 10,000: name lookup, TCP and TLS */
    int64_t total_timeout_ms;   /* 0 = 30,000; also cut by the op's own deadlines */
    int64_t idle_timeout_ms;    /* no byte in either direction for this long; 0 = none */
    size_t max_body;            /* 0 = 1 MiB */
    int connect_retries;        /* further attempts (after 0, 0.5, 1 s) while nothing was sent */
    bool idempotent;            /* may be repeated on a stale pooled connection; GET, HEAD and
                                   OPTIONS always may */
    bool fresh;                 /* on a new connection: a broken pooled one cannot make the outcome
                                   unknown */
};

/** The answer; memory of the op's arena. Header names are lower-case. */
struct http_response {
    int status;
    const struct http_header *headers;
    size_t n_headers;
    const char *body; /* NUL-terminated, never NULL */
    size_t body_len;
    int64_t retry_after_ms; /* Retry-After (RFC 9110 §10.2.3), capped at 1 h; 0 = none */
};

/** The value of the first header called `name` (lower-case), or NULL. */
const char *http_response_header(const struct http_response *response, const char *name);

/** Leaf wait: run one exchange, body collected. */
void http_fetch(struct http_client *client, struct op *op, const struct http_request *request,
                struct http_response *ret);

/* ---- streaming: for the data plane ----------------------------------------------------------- */

/** An exchange whose bodies stream both ways. Callbacks run on the loop, never re-entrantly from
 * a call into this module; none follows on_end, nor http_stream_cancel. */
struct http_stream;

struct http_stream_events {
    /** Status and headers have arrived; valid during the call. Interim 1xx are skipped. */
    void (*on_head)(void *ctx, const struct http_response *head);
    /** Body bytes, all consumed by the call. To slow the peer down call http_stream_pause. */
    void (*on_data)(void *ctx, const void *bytes, size_t len);
    /** The peer takes more of the request body: call http_stream_send. Only with `upload`. */
    void (*on_writable)(void *ctx);
    /** Over: `err` NULL for a complete answer. The stream is gone after the call. */
    void (*on_end)(void *ctx, const struct error *err);
};

/** Start. `request->body` is ignored when `upload`: the body is what http_stream_send gives, of
 * `upload_len` bytes, or chunked when that is -1. max_body 0 means no limit here. The request is
 * copied. total_timeout_ms 0 means none here. */
struct http_stream *http_stream_open(struct http_client *client, const struct http_request *request,
                                     bool upload, int64_t upload_len,
                                     const struct http_stream_events *events, void *ctx);

/** Queue request body bytes (copied). Returns bytes queued now: wait for on_writable when above
 * 64 KiB. */
size_t http_stream_send(struct http_stream *stream, const void *bytes, size_t len);
void http_stream_send_end(struct http_stream *stream);

/** Stop and restart on_data; the peer feels it by TCP back-pressure. Bounded memory meanwhile. */
void http_stream_pause(struct http_stream *stream);
void http_stream_resume(struct http_stream *stream);

/** Close the connection and free the stream; no callback follows. */
void http_stream_cancel(struct http_stream *stream);
