/* An HTTP/2 server on the test's own loop, for a client that must survive any peer: nghttp2's server side,
 * plaintext. The test gives a function that is called when a request is complete; what goes out, when, and
 * how it ends is up to it. */
#pragma once

#include "core/runtime/buf.h"
#include "core/runtime/loop.h"

struct h2_server;
struct h2_peer; /* one connection */

/** A request that has arrived whole. Lives until its stream closes. */
struct h2_request {
    struct h2_peer *peer;
    int stream_id;
    char path[128];
    struct buf body, out;
    bool out_ended, waiting;      /* of the answer's DATA */
    const char *status, *message; /* trailers behind it; NULL = none */
    int nth;                      /* of the server, from 1 */
};

typedef void (*h2_script_fn)(void *ctx, struct h2_request *request);

/** Listens on 127.0.0.1. `streams` is what a connection may have at once.. */
struct h2_server *h2_server_new(struct loop *loop, uint32_t streams, h2_script_fn script,
                                void *ctx);
void h2_server_free(struct h2_server *server);
const char *h2_server_host_port(const struct h2_server *server);

int h2_server_connections(const struct h2_server *server); /* accepted so far */
int h2_server_requests(const struct h2_server *server);
int h2_server_pongs(const struct h2_server *server); /* answers to our pings */
/** Bytes of DATA that connections still hold because the client opens no window. */
size_t h2_server_held(const struct h2_server *server);

/* ---- what a script does ------------------------------------------------------------------------- */

/** Response headers; with `ends`, nothing follows. `grpc_status` NULL = not among them (else a
 * trailers-only answer). */
void h2_reply_head(struct h2_request *r, const char *status, const char *content_type,
                   const char *grpc_status, const char *grpc_message, bool ends);
/** Queue bytes of DATA, in frames as they are queued where the window allows. */
void h2_reply_data(struct h2_request *r, const void *bytes, size_t len);
/** End with trailers. */
void h2_reply_end(struct h2_request *r, const char *grpc_status, const char *grpc_message);
/** A gRPC message: prefix and bytes. */
void h2_reply_message(struct h2_request *r, const void *bytes, size_t len);
/** RST_STREAM. */
void h2_reset(struct h2_request *r, uint32_t code);
/** GOAWAY that leaves this request unprocessed when `refuse`, else processed; the connection stays. */
void h2_goaway(struct h2_request *r, bool refuse);
/** Cut the connection without a word. */
void h2_cut(struct h2_request *r);
void h2_ping(struct h2_request *r);
