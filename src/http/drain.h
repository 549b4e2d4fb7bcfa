/* Stopping without losing a request: not ready, then refusing, then aborting. Internal to http/. */
#pragma once

#include "core/runtime/loop.h"

struct http_server;

enum drain_phase {
    DRAIN_NOT,
    DRAIN_GRACE,    /* serving as always, but not ready */
    DRAIN_REFUSING, /* listeners closed, new requests refused */
    DRAIN_ABORTING, /* what runs was aborted and undoes */
    DRAIN_OVER,
};

/** Embedded in the server. The times and the callback are those of http_server_drain. */
struct drain {
    struct http_server *server;
    enum drain_phase phase;
    struct timer timer;
    struct task task;
    int64_t timeout_ms, settle_ms;
    void (*on_drained)(void *ctx, int left);
    void *on_drained_ctx;
};

void drain_init(struct drain *d, struct http_server *server);
void drain_begin(struct drain *d, int64_t grace_ms);
/** On to aborting, whatever the clock says. */
void drain_hurry(struct drain *d);
/** No request is being worked on right now. */
void drain_requests_over(struct drain *d);
/** For the server's end: nothing is called any more. */
void drain_stop(struct drain *d);

bool drain_begun(const struct drain *d);
/** Are new requests to be refused? */
bool drain_refuses(const struct drain *d);
