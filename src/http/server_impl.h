/* What the parts of the edge share about the server. Internal to http/. */
#pragma once

#include "http/gate.h"
#include "http/server.h"

struct access_log;
struct buf;
struct evbuffer;
struct router;

const struct http_server_options *server_options(const struct http_server *server);
size_t server_max_header_bytes(const struct http_server *server);
const struct router *server_router(const struct http_server *server);
void *server_app(const struct http_server *server);

/** An empty buffer to build one canonical head in. */
struct evbuffer *server_scratch(struct http_server *server);
/** Empty buffers to build one reply's body and head in; valid until the next call. */
struct buf *server_reply_buf(struct http_server *server);
struct buf *server_head_buf(struct http_server *server);
/** `Sun, 06 Nov 1994 08:49:37 GMT`, renewed once a second. */
const char *server_date(struct http_server *server);
/** Sixteen hex digits, unique in this process and unlikely to meet another's. Writes a NUL. */
void server_make_request_id(struct http_server *server, char ret_id[17]);

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
/** The list of all exchanges, by exchange_impl.link. */
struct list *server_exchanges(struct http_server *server);
const struct route_set *server_routes(const struct http_server *server);
/** Where the OpenAPI document is kept once it has been written. */
struct buf *server_openapi_buf(struct http_server *server);
struct access_log *server_access_log(struct http_server *server);
/** New requests are refused: the grace of a drain is over. */
bool server_refuses(const struct http_server *server);

/** libevhtp's header list of the request that a gate works on. */
const char *server_request_header(const struct evhtp_request *request, const char *name);
void server_each_header(const struct evhtp_request *request,
                        void (*each)(void *ctx, const char *name, const char *value), void *ctx);
