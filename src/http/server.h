/* The HTTP edge: listeners, connections, and the loop's requests for a set of routes.
 *
 * Used by the service and by the embedded sandbox daemon, hence everything that differs is in the
 * options. Everything runs on the loop's thread. */
#pragma once

#include "core/runtime/error.h"
#include "core/runtime/loop.h"
#include "http/router.h"

struct http_server;
struct json_writer;

/** The check of the Authorization header for routes with AUTH_API and AUTH_LEASE. */
struct http_auth {
    /** `authorization` is the header's value or NULL. Returns NULL when the caller may pass, else
     * a static text that says what is wrong: the 401 carries it. Must take the same time for any
     * wrong token of the same length. */
    const char *(*check)(void *ctx, const char *authorization);
    void *ctx;
};

/** One thing that must be well for /readyz (handlers_system.h). */
struct readiness {
    const char *name;
    bool (*ready)(void *ctx, struct error *err);        /* false with the reason */
    void (*describe)(void *ctx, struct json_writer *w); /* writes one JSON object; NULL: no facts */
    void *ctx;
};

/** Zero means the default in brackets. Texts are copied. */
struct http_server_options {
    const char *listen;         /* `host:port`, `[v6]:port`, `unix:/path`; several with commas.
                                   Port 0 takes a free one. No name lookup but `localhost`. */
    const char *title;          /* of the OpenAPI document ["Bindery"] */
    int max_connections;        /* [8192], also kept below RLIMIT_NOFILE */
    int max_connections_per_ip; /* [no limit] */
    int max_in_flight;          /* [4096] requests being worked on */
    size_t max_header_bytes;    /* [32768] */
    int64_t header_timeout_ms;  /* [10,000] for a whole request head */
    int64_t body_timeout_ms;    /* [30,000] for a whole collected body */
    int64_t idle_timeout_ms;    /* [90,000] between requests */
    int64_t write_timeout_ms;   /* [60,000] without progress on a reply */
    int64_t request_timeout_ms; /* [600,000] for a request as a whole, except ROUTE_LONG */
    enum route_errors errors;   /* shape of errors where no route is known */
    bool no_access_log;
    struct http_auth auth;             /* check NULL: everyone passes */
    const struct readiness *readiness; /* borrowed for the server's life */
    size_t n_readiness;
};

/** Raise RLIMIT_NOFILE to its hard limit, log it, then listen. NULL with `err` when an address is
 * bad or taken. `routes` and `app` (exchange.app) are borrowed. */
struct http_server *http_server_new(struct loop *loop, const struct http_server_options *options,
                                    const struct route_set *routes, void *app,
                                    struct error *err) MUST_CHECK;

/** Where listener `index` really listens, e.g. `127.0.0.1:43210`; NULL beyond the last. */
const char *http_server_address(const struct http_server *server, size_t index);

/** Stop, once: `/readyz` fails from now; after `grace_ms` the listeners close and new requests get
 * 503 with Connection: close (except ROUTE_WHILE_DRAINING); `timeout_ms` later what still runs is
 * aborted with ERR_DRAINING and gets `settle_ms` to undo. `on_drained` is called from the ready
 * queue when nothing runs any more or that time is over, with the number of requests left. */
void http_server_drain(struct http_server *server, int64_t grace_ms, int64_t timeout_ms,
                       int64_t settle_ms, void (*on_drained)(void *ctx, int left), void *ctx);

/** Skip what is left of the grace and the timeout of a drain in progress. */
void http_server_hurry(struct http_server *server);

bool http_server_draining(const struct http_server *server);

/** Requests being worked on, those of clients that left included. */
int http_server_in_flight(const struct http_server *server);

/** Closes all connections; operations of their requests are cancelled and must have ended before
 * the loop is freed. No request may be in flight; call after a drain. NULL is allowed. */
void http_server_free(struct http_server *server);
