/* The edge's own view of an exchange. Internal to http/. */
#pragma once

#include "core/runtime/buf.h"
#include "http/exchange.h"
#include "http/request_head.h"
#include "http/router.h"

struct gate;

enum reply_state { REPLY_NONE, REPLY_STREAMING, REPLY_DONE };

struct exchange_impl {
    struct exchange x;  /* first: what handlers see */
    struct list link;   /* in the server's list of exchanges */
    size_t route_index; /* of x.route */
    struct gate *gate;  /* NULL once the reply is out or the client has gone */
    enum reply_state reply;
    int status;
    bool head_only; /* HEAD */
    bool http_1_0;
    bool entered; /* counted as in flight */
    bool reply_chunked, reply_bodyless;
    bool body_over;
    bool blocked;             /* the handler was told to wait for on_writable */
    bool closed;              /* nothing of the edge refers to it any more */
    const char *auth_failure; /* 401 to give once the body has proved to be JSON */
    int64_t content_length;
    int64_t started_us;
    int64_t reply_left; /* bytes of a streamed reply of known length still to come; -1 */
    size_t bytes_sent;
    const char *authorization; /* header value, or NULL */
    const char *peer;          /* the gate's text; for the access log, while there is a gate */
    size_t streamed;           /* body bytes given to a streaming handler */
    struct buf body;
    struct buf headers; /* added response header lines */
    void (*on_done)(struct exchange *x, struct op *root);
    const struct exchange_stream_events *stream;
    void *stream_ctx;
};

static inline struct exchange_impl *exchange_impl(const struct exchange *x)
{
    return (struct exchange_impl *)x;
}

/* ---- from the gate ---------------------------------------------------------------------------- */

/** A checked head has arrived. Copies what it needs of it. */
struct exchange_impl *exchange_new(struct gate *gate, const struct request_head *head);
/** libevhtp has read it: route, authenticate, apply limits; may reply at once. */
void exchange_dispatch(struct exchange_impl *x);
void exchange_body_bytes(struct exchange_impl *x, const void *bytes, size_t len);
void exchange_body_over(struct exchange_impl *x);
/** The body is not what its framing promised: answer, or cut an answer that has begun. */
void exchange_body_failed(struct exchange_impl *x, const struct error *err);
/** The body's deadline has passed. False: close the connection. */
bool exchange_body_late(struct exchange_impl *x);
/** The request's deadline has passed. False: close the connection. */
bool exchange_request_late(struct exchange_impl *x);
/** Everything queued was written. True when the handler added something. */
bool exchange_output_empty(struct exchange_impl *x);
/** The whole reply was handed to the socket. */
void exchange_written(struct exchange_impl *x);
/** The connection is gone before that. */
void exchange_client_gone(struct exchange_impl *x);

/* ---- within the exchange ----------------------------------------------------------------------- */

/** Put the request's own deadline, or the body's, on the connection. The latter answers `Expect:
 * 100-continue`, too. */
void exchange_watch_request(struct exchange_impl *x);
void exchange_watch_body(struct exchange_impl *x);
enum route_errors exchange_error_style(const struct exchange_impl *x);
void exchange_reply_not_json(struct exchange_impl *x, size_t position, const struct error *err);
/** Queue the head of the reply with x->status. `length` -1: none. */
void exchange_write_head(struct exchange_impl *x, const char *content_type, int64_t length,
                         bool chunked, bool may_keep);
/** Abort with ERR_DRAINING what still runs. */
void exchange_abort(struct exchange_impl *x);
/** Release the exchange once its reply is settled and its op has ended. */
void exchange_maybe_release(struct exchange_impl *x);
