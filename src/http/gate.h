/* One client connection: the strict read gate in front of libevhtp, and the way out.
 *
 * libevhtp's parser misreads a target that is split over two reads, takes several smuggling
 * shapes, loses pipelined requests and answers malformed input with a bare close. So the gate owns
 * the bufferevent's callbacks: it collects a whole head within a size and a deadline, checks it
 * (request_head.h), and hands libevhtp one canonical head at a time. Bodies never pass through
 * libevhtp: the gate takes the framing off and gives the bytes to the exchange. The next request
 * waits in the input until this one is over. No handler ever runs below a libevhtp frame, so none
 * can have its connection freed under it.
 *
 * Internal to http/. A gate lives from accept until the end of the turn in which it closed. */
#pragma once

#include "core/runtime/error.h"
#include "core/runtime/loop.h"
#include "http/chunked.h"
#include "http/request_head.h"

#include <event2/bufferevent.h>

struct evhtp_connection;
struct evhtp_request;
struct exchange_impl;
struct http_server;

enum gate_state {
    GATE_HEAD,   /* waiting for a request, or for the rest of its head */
    GATE_BODY,   /* taking the body */
    GATE_WAIT,   /* the request is complete; its reply is not */
    GATE_LINGER, /* refused or closing: writing the rest, ignoring input until the client closes */
    GATE_CLOSED,
};

enum gate_deadline {
    DEADLINE_NONE,
    DEADLINE_IDLE,    /* for a next request: close quietly */
    DEADLINE_HEAD,    /* for the rest of a head: 408 */
    DEADLINE_BODY,    /* for the body: 408 */
    DEADLINE_REQUEST, /* for the whole request: abort its operation */
    DEADLINE_LINGER,
};

struct gate {
    struct list link; /* in the server's registry */
    struct http_server *server;
    struct loop *loop;
    struct bufferevent *bev;       /* libevhtp's; not to be used once GATE_CLOSED */
    struct evhtp_connection *htp;  /* likewise */
    struct evhtp_request *request; /* libevhtp's, from its head until its reply is written */
    bufferevent_data_cb htp_read, htp_write; /* what libevhtp had installed */
    void *htp_ctx;
    struct evbuffer *hold;   /* input behind a head given to libevhtp; NULL until needed */
    struct exchange_impl *x; /* the exchange of the current request, or NULL */
    char peer[64];           /* address for the log: without a port for unix sockets */
    struct head_search search;
    struct chunked chunks;
    int64_t body_left; /* -1: chunked */
    size_t ignored;    /* bytes thrown away while lingering */
    int64_t deadline_ms;
    struct timer timer;
    struct task pump;
    enum gate_state state;
    enum gate_deadline deadline;
    uint64_t requests;
    bool pumping, discard, paused, client_keeps, keep, expects, reply_done, eof, broken,
        half_closed, read_off, extended;
};

/** Take over a connection that libevhtp has just set up. */
void gate_open(struct gate *gate, struct http_server *server, struct loop *loop,
               struct bufferevent *bev, struct evhtp_connection *htp);

/** libevhtp is about to free the connection. */
void gate_closed(struct gate *gate);

/** Answer with an error, before or without an exchange, and close. */
void gate_refuse(struct gate *gate, const struct error *err);

/** The connection waits for a request and has received nothing of it. */
bool gate_is_idle(const struct gate *gate);

/** Close now; the exchange, if any, learns that the client is gone. Not from within a pump. */
void gate_drop(struct gate *gate);

/* ---- for the exchange -------------------------------------------------------------------------- */

/** Where reply bytes go. Call gate_wake after adding some. */
struct evbuffer *gate_output(struct gate *gate);
/** Write what is queued and go on, in this turn. */
void gate_wake(struct gate *gate);
/** Whether the connection can be kept after the reply that is about to be written. Fixes it. */
bool gate_fix_keep(struct gate *gate, bool may_keep);
/** The reply is complete in the output; `broken` cuts the connection so that it looks cut. */
void gate_reply_done(struct gate *gate, bool broken);
/** Throw the rest of the request's body away. */
void gate_discard_body(struct gate *gate);
/** Answer `Expect: 100-continue` if the client waits for it. */
void gate_send_continue(struct gate *gate);
void gate_pause_body(struct gate *gate, bool pause);
void gate_set_deadline(struct gate *gate, enum gate_deadline which, int64_t after_ms);

/* ---- between the gate's own files --------------------------------------------------------------- */

/** Where the next bytes are: what was held back comes before what was read later. */
struct evbuffer *gate_source(struct gate *gate);
/** Go on with the head, or the body; true when something changed. */
bool gate_head_step(struct gate *gate);
bool gate_body_step(struct gate *gate);
/** Write what is queued, ignore what comes, then close. */
void gate_linger(struct gate *gate);
