/* What grpc_channel.c, grpc_call.c and grpc_unary.c share. */
#pragma once

#include "core/runtime/buf.h"
#include "core/runtime/grpc.h"
#include "core/runtime/h2_session.h"

enum {
    GRPC_PREFIX_BYTES = 5
}; /* compressed flag, length: gRPC over HTTP2, "Length-Prefixed-Message" */

/** One connection of a channel. */
struct grpc_connection {
    struct grpc_channel *channel;
    struct h2_session *session;
    bool came_up; /* has spoken HTTP/2 once */
    bool retired; /* no new streams */
    bool dropped; /* to be freed at the end of the turn; may still be called back until then */
    struct list link;
};

struct grpc_channel {
    struct loop *loop;
    struct evdns_base *dns;
    struct h2_tls *tls;
    char *host, *authority, *authorization;
    int port;
    int64_t connect_timeout_ms, ping_interval_ms;
    size_t max_message;
    int max_connections;
    struct list connections;
    int n_connections;
    struct list waiting; /* calls without a stream yet */
    struct task dispatch;
    struct timer reconnect; /* armed: the latest attempt failed, no new one until it fires */
};

/** A call; `stream` is NULL until it has a connection, and after its end. */
struct grpc_call {
    struct grpc_channel *channel;
    struct h2_stream *stream;
    char *method;
    struct grpc_call_events events;
    void *ctx;
    struct timer deadline;
    struct list link;  /* in channel->waiting */
    struct buf unsent; /* frames queued before there was a stream */
    bool unsent_end, paused, over;
    struct buf partial;           /* the head of an incomplete message */
    int http_status, grpc_status; /* -1 = not seen */
    bool is_grpc;                 /* content-type fits */
    char message[ERROR_MESSAGE_MAX];
};

/** Give the call a stream on a session that has room. */
void grpc_call_start(struct grpc_call *call, struct h2_session *session);

/** End a call that has no stream. */
void grpc_call_fail(struct grpc_call *call, const struct error *err);

/** Queue the call for a connection. */
void grpc_channel_enqueue(struct grpc_channel *channel, struct grpc_call *call);
