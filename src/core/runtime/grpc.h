/* gRPC over HTTP/2: unary calls as waits of an op, streams with events.
 *
 * A channel is one peer; it keeps as many connections as its streams need (the peer allows a
 * number of streams on each). Messages are bytes here; protobuf is the caller's. Deadlines are our
 * own: when one passes the stream is reset. Wire: gRPC over HTTP2 specification; the peer's limits
 * and codes: protocols "OpenShell gateway" sections 2 and 10.
 *
 * Errors of a call:
 *   ERR_UPSTREAM_STATUS    the peer answered with a status other than OK: upstream_status holds the
 *                          gRPC code, upstream_code its name (`NOT_FOUND`)
 *   ERR_UPSTREAM_CONNECT   no connection; nothing was sent (admitted no)
 *   ERR_UPSTREAM_LOST      the connection broke or the stream was reset (admitted unknown), or the
 *                          peer refused the stream before processing it (admitted no)
 *   ERR_UPSTREAM_PROTOCOL  not a gRPC answer, or a message that cannot be read
 *   ERR_DEADLINE           the call's own timeout (admitted unknown once it was sent) */
#pragma once

#include "core/runtime/op.h"

/** gRPC status codes (gRPC core concepts, "Status codes"). */
enum grpc_code {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_ALREADY_EXISTS = 6,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_ABORTED = 10,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_DATA_LOSS = 15,
    GRPC_UNAUTHENTICATED = 16,
};

/** "NOT_FOUND"; "UNKNOWN" for a number that is no code. */
const char *grpc_code_name(int code);

struct grpc_channel;

/** A peer. Texts are copied. */
struct grpc_options {
    const char *host_port;                      /* "gateway:17670", "[::1]:17670" */
    bool insecure;                              /* plaintext HTTP/2 with prior knowledge */
    const char *ca_path, *cert_path, *key_path; /* NULL = system trust, no client certificate */
    const char *bearer;         /* token of the `authorization` metadata; NULL or "" sends none */
    int64_t connect_timeout_ms; /* 0 = 10,000 */
    int64_t ping_interval_ms;   /* 0 = 20,000 */
    size_t max_message;         /* largest message accepted; 0 = 16 MiB */
    int max_connections;        /* 0 = 64 */
};

/** No traffic yet. NULL with `err` when the endpoint or a file is unusable. */
struct grpc_channel *grpc_channel_new(struct loop *loop, const struct grpc_options *options,
                                      struct error *err);
/** Every call must be over. */
void grpc_channel_free(struct grpc_channel *channel);

/** Connections open now, and streams on them; for metrics and tests. */
int grpc_channel_connections(const struct grpc_channel *channel);
int grpc_channel_streams(const struct grpc_channel *channel);

/** Let running streams go on, but put new calls on a new connection: the replica that was reached
 * is not the right one (case A61), or the connection is suspect. */
void grpc_channel_renew(struct grpc_channel *channel);

/* ---- unary ------------------------------------------------------------------------------------ */

/** The answer's message; memory of the op's arena. */
struct grpc_reply {
    const uint8_t *message;
    size_t len;
};

/** Leaf wait: one request message, one reply message. `method` is "/package.Service/Method".
 * A stream that the peer refused unprocessed is repeated, at most twice, within the timeout. */
void grpc_unary(struct grpc_channel *channel, struct op *op, const char *method,
                const void *request, size_t len, int64_t timeout_ms, struct grpc_reply *ret);

/* ---- streams ---------------------------------------------------------------------------------- */

struct grpc_call;

/** Events of a streaming call. None follows on_end or grpc_call_cancel. */
struct grpc_call_events {
    /** One whole message, valid during the call. */
    void (*on_message)(void *ctx, const uint8_t *message, size_t len);
    /** The outgoing queue is short again; NULL when not wanted. */
    void (*on_writable)(void *ctx);
    /** Over: `err` NULL for status OK. The call is gone afterwards. */
    void (*on_end)(void *ctx, const struct error *err);
};

/** Open a call; messages may be sent at once, they wait for the connection. `timeout_ms` 0 = none;
 * otherwise the call ends with ERR_DEADLINE. */
struct grpc_call *grpc_call_open(struct grpc_channel *channel, const char *method,
                                 int64_t timeout_ms, const struct grpc_call_events *events,
                                 void *ctx);

/** Queue one message (copied). Returns bytes queued: above 64 KiB wait for on_writable. */
size_t grpc_call_send(struct grpc_call *call, const void *message, size_t len);
/** The same for a message that comes in two parts, which saves joining them. */
size_t grpc_call_send_parts(struct grpc_call *call, const void *head, size_t head_len,
                            const void *rest, size_t rest_len);
/** Half-close the request side. */
void grpc_call_send_end(struct grpc_call *call);

/** Hold messages back at the peer; bounded memory here, other calls go on. */
void grpc_call_pause(struct grpc_call *call);
void grpc_call_resume(struct grpc_call *call);

/** Reset the stream; the call is gone. */
void grpc_call_cancel(struct grpc_call *call);
