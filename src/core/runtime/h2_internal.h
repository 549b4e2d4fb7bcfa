/* What h2_session.c and h2_stream.c share; nobody else includes it. */
#pragma once

#include "core/runtime/h2_session.h"

#include <nghttp2/nghttp2.h>
#include <openssl/ssl.h>

struct bufferevent;
struct evbuffer;

enum {
    H2_STREAM_WINDOW = 1 << 20, /* bytes that a paused stream can hold */
    H2_CONNECTION_WINDOW =
        16 << 20,               /* given back at once: a paused stream never blocks its siblings */
    H2_OUTPUT_HIGH = 256 << 10, /* frames are made while the socket's queue is below */
    H2_OUTPUT_LOW = 64 << 10,
    H2_STREAM_OUT_LOW = 64 << 10, /* on_writable below this */
};

struct h2_session {
    struct loop *loop;
    struct bufferevent *bev;
    nghttp2_session *ng;
    SSL *ssl; /* owned by bev */
    char *host, *authority;
    int64_t ping_interval_ms;
    struct h2_session_events events;
    void *ctx;
    bool ready, draining, closed;
    bool heard, ping_pending;
    struct list streams;
    struct list dead; /* cancelled; nghttp2 still knows them */
    int n_streams;
    struct list writable; /* streams whose queue fell below the mark during this flush */
    struct task flush;
    struct timer connecting, ping;
};

struct h2_stream {
    struct h2_session *session;
    int32_t id;
    struct h2_stream_events events;
    void *ctx;
    struct evbuffer *out;
    struct evbuffer *held; /* arrived while paused */
    bool out_end, deferred, paused, was_full;
    bool dead;        /* cancelled by its user */
    bool wire_closed; /* over at the peer, but bytes are still held for a paused user */
    enum h2_close wire_reason;
    uint32_t wire_code;
    struct list link, writable_link;
};

/** Install the callbacks for incoming frames and make session->ng. */
void h2_session_attach(struct h2_session *session);

/** End one stream towards its user; used when the connection is over. */
void h2_stream_end_lost(struct h2_stream *stream);

/** Drop a stream without a word to its user. */
void h2_stream_forget(struct h2_stream *stream);
