/* Backend over an Enterprise sandbox gateway: HTTP control plane for sandboxes, and a routed proxy
 * to the shellctl inside each (protocols "runtime backends" section 2).
 *
 * One sandbox is one binding and one workspace: both refs are the gateway's sandbox id. */
#pragma once

#include "core/domain/backend.h"

/** Settings of the driver; texts are copied. */
struct enterprise_options {
    const char *endpoint;      /* http(s) base URL of the gateway; a path in it is kept */
    const char *auth_token;    /* NULL or "" = none */
    const char *workspace_dir; /* inside the sandbox */
    int64_t gateway_timeout_ms, proxy_timeout_ms, snapshot_timeout_ms;
    int64_t validation_timeout_ms; /* deadline of acquire's probe */
    int64_t retry_budget_ms;       /* how long a call may wait out the gateway's Retry-After */
    bool snapshots;                /* the gateway has the home-snapshot endpoints */
};

/** The backend, or NULL with `err`. `http` is borrowed for its life; free with ops->free once
 * every operation on it is over. */
struct backend *enterprise_backend_new(struct loop *loop, struct http_client *http,
                                       const struct enterprise_options *options, struct error *err);
