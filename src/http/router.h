/* Routes: one table from which routing, auth, limits and /openapi.json all come. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct exchange;

enum route_auth {
    AUTH_NONE,  /* /healthz, /metrics, /openapi.json */
    AUTH_API,   /* bearer DIFY_AGENT_API_TOKEN when one is set */
    AUTH_LEASE, /* API token, or the lease's own token: the handler checks the latter */
    AUTH_OWN,   /* the handler does it all (gateway facade) */
};

/** Which error body a route's callers understand. */
enum route_errors {
    ERRORS_DETAIL,   /* {"detail":{"code","message"}}: Dify's control plane */
    ERRORS_V1,       /* the same plus retryable and admitted */
    ERRORS_SHELLCTL, /* {"error":{"code","message"}} */
};

enum route_flags {
    ROUTE_STREAM = 1 << 0, /* body not collected; handler calls exchange_stream */
    ROUTE_ANY_METHOD = 1 << 1,
    ROUTE_WHILE_DRAINING = 1 << 2, /* answered while draining */
    ROUTE_VALIDATION_400 = 1 << 3, /* field problems are 400 invalid_binding_path, not 422 */
    ROUTE_LONG = 1 << 4,           /* may take minutes: no total request deadline */
};

/** One row. `path` has `{name}` segments; a trailing `/` + `*` takes the raw rest. */
struct route {
    const char *method;
    const char *path;
    enum route_auth auth;
    enum route_errors errors;
    unsigned flags;
    size_t max_body; /* bytes; 0 = no body expected, 64 KiB tolerated */
    void (*handle)(struct exchange *x);
    const char *summary;                          /* for /openapi.json */
    const char *request_schema, *response_schema; /* JSON Schema text for /openapi.json, or NULL */
};

/** A set of route tables. Borrowed for the server's life. */
struct route_set {
    const struct route *const *tables; /* each ends with a row whose path is NULL */
    size_t n_tables;
};
