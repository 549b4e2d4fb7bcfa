/* One HTTP/2 client connection: libnghttp2 on a libevent bufferevent (RFC 9113).
 *
 * Plaintext by prior knowledge, or TLS with ALPN `h2`. Many streams; flow control both ways with
 * bounded buffers: a paused stream keeps its bytes at the peer while its siblings flow, and PINGs
 * are answered whatever is paused. A stream ends in exactly one place, on_close, with an honest
 * reason. Writing is deferred to the turn's ready queue, so callbacks may call any function here
 * except h2_session_free: leave that to loop_defer_free. */
#pragma once

#include "core/runtime/error.h"
#include "core/runtime/http_client.h"
#include "core/runtime/loop.h"

#include <stddef.h>

struct h2_session;
struct h2_stream;
struct evdns_base;

/** TLS of a connection; prepared once by the channel that makes connections. */
struct h2_tls;

/** Load trust and client certificate. NULL paths: the system's trust, no client certificate. NULL
 * with `err` when a file is missing, unreadable or does not fit. Free with h2_tls_free. */
struct h2_tls *h2_tls_new(const char *ca_path, const char *cert_path, const char *key_path,
                          struct error *err);
void h2_tls_free(struct h2_tls *tls);

struct h2_options {
    const char *host; /* name or address */
    int port;
    const char *authority;      /* host:port for :authority */
    struct h2_tls *tls;         /* NULL = plaintext */
    struct evdns_base *dns;     /* non-blocking resolver */
    int64_t connect_timeout_ms; /* lookup, TCP, TLS and the peer's SETTINGS */
    int64_t ping_interval_ms;   /* own PING when nothing was heard for this long; 0 = none */
};

/** Why a stream or a connection is over. */
enum h2_close {
    H2_CLOSE_CLEAN,     /* both sides ended */
    H2_CLOSE_RESET,     /* RST_STREAM by the peer; `code` says why */
    H2_CLOSE_REFUSED,   /* the peer certainly did not process it: safe to repeat */
    H2_CLOSE_LOST,      /* the connection broke */
    H2_CLOSE_CONNECT,   /* the connection never came up: nothing was sent */
    H2_CLOSE_CANCELLED, /* h2_stream_cancel; no callback follows */
};

/** Events of a connection. After on_closed the session must be freed at the end of the turn. */
struct h2_session_events {
    void (*on_ready)(void *ctx);      /* connected, SETTINGS exchanged */
    void (*on_draining)(void *ctx);   /* GOAWAY: no new streams; the old ones go on */
    void (*on_stream_end)(void *ctx); /* a stream is over: capacity */
    void (*on_closed)(void *ctx, const struct error *why); /* every stream has been closed */
};

/** Start connecting. `options` is copied except `tls` and `dns`. */
struct h2_session *h2_session_new(struct loop *loop, const struct h2_options *options,
                                  const struct h2_session_events *events, void *ctx);

/** Close the connection; open streams end without callbacks. */
void h2_session_free(struct h2_session *session);

/** Whether a new stream would start now: ready, not draining, below the peer's stream limit. */
bool h2_session_has_room(const struct h2_session *session);
bool h2_session_is_ready(const struct h2_session *session);
bool h2_session_is_draining(const struct h2_session *session);
int h2_session_streams(const struct h2_session *session);

/** Events of a stream. */
struct h2_stream_events {
    /** One header field, response or trailer (`trailer`); :status comes as ":status". */
    void (*on_header)(void *ctx, const char *name, const char *value, bool trailer);
    /** Body bytes, all consumed by the call. To hold the peer back call h2_stream_pause. */
    void (*on_data)(void *ctx, const void *bytes, size_t len);
    /** The outgoing queue has fallen below 64 KiB. */
    void (*on_writable)(void *ctx);
    /** Over. The stream is gone after the call. `code` is the HTTP/2 error code. */
    void (*on_close)(void *ctx, enum h2_close reason, uint32_t code);
};

/** Open a stream; `headers` hold the pseudo headers and are copied. The session must have room. */
struct h2_stream *h2_stream_open(struct h2_session *session, const struct http_header *headers,
                                 size_t n_headers, const struct h2_stream_events *events,
                                 void *ctx);

/** Queue bytes (copied); returns the length of the queue. */
size_t h2_stream_send(struct h2_stream *stream, const void *bytes, size_t len);
/** Half-close once the queue is sent. */
void h2_stream_send_end(struct h2_stream *stream);

void h2_stream_pause(struct h2_stream *stream);
void h2_stream_resume(struct h2_stream *stream);

/** RST_STREAM CANCEL at once; no callback follows and the stream is gone. */
void h2_stream_cancel(struct h2_stream *stream);
