/* What the parts of the edge share about the server. Internal to http/. */
#pragma once

#include "core/runtime/buf.h"
#include "http/drain.h"
#include "http/gate.h"
#include "http/listener.h"
#include "http/server.h"
#include "http/stamps.h"

struct access_log;
struct evbuffer;
struct evhtp;
struct router;

enum { LISTENERS_MAX = 8 };

/** One listening socket. */
struct bound {
    struct http_server *server;
    struct evhtp *htp;
    struct timer resume;
    char address[LISTENER_ADDRESS_MAX];
};

struct http_server {
    struct loop *loop;
    struct http_server_options options;
    struct router *router;
    const struct route_set *routes;
    struct access_log *access_log;
    void *app;
    char *title;
    struct bound listeners[LISTENERS_MAX];
    size_t n_listeners;
    struct list gates;
    struct list exchanges;
    int connections, max_connections, in_flight;
    int reserve_fd; /* given up to accept and refuse a connection when descriptors are out */
    int64_t accept_logged_ms;
    struct gate *feeding;
    struct evbuffer *scratch;
    struct buf reply_buf, head_buf, openapi;
    struct metric_series *connections_gauge, *in_flight_gauge;
    struct stamps stamps;
    bool dying;
    struct drain drain;
};

/** An empty buffer to build one canonical head in. */
struct evbuffer *server_scratch(struct http_server *server);
/** Empty buffers to build one reply's body and head in; valid until the next call. */
struct buf *server_reply_buf(struct http_server *server);
struct buf *server_head_buf(struct http_server *server);

/** Which gate is giving its head to libevhtp right now. */
void server_feeding(struct http_server *server, struct gate *gate);
/** Let libevhtp end the request whose reply has been written: frees it, or the connection. */
void server_finish_request(struct gate *gate);
void server_close_connection(struct evhtp_connection *htp);
/** A connection has gone. */
void server_gate_closed(struct http_server *server);
void server_write_refusal(struct gate *gate, const struct error *err);

/** Requests come and go; false when there is no room for another. */
bool server_enter(struct http_server *server);
void server_leave(struct http_server *server, bool entered);
void server_stop_listening(struct http_server *server);
/** New requests are refused: the grace of a drain is over. */
bool server_refuses(const struct http_server *server);

/** libevhtp's header list of the request that a gate works on. */
const char *server_request_header(const struct evhtp_request *request, const char *name);
void server_each_header(const struct evhtp_request *request,
                        void (*each)(void *ctx, const char *name, const char *value), void *ctx);
