/* Routes: one table from which routing, auth, limits and /openapi.json all come. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
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
    ERRORS_GATEWAY,  /* {"reason","message"}: the Enterprise gateway's control plane */
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

/* ---- finding ---------------------------------------------------------------------------------- */

enum { ROUTE_PARAMS_MAX = 4, ROUTE_SEGMENTS_MAX = 12 };

/** Compiled tables. */
struct router;

/** Compile; aborts on a malformed template, which is a mistake in a table of ours. */
struct router *router_new(const struct route_set *routes);
void router_free(struct router *router);
/** Rows in all tables: `route_match.index` is below. */
size_t router_count(const struct router *router);
const struct route *router_at(const struct router *router, size_t index);

enum route_outcome {
    ROUTE_FOUND,
    ROUTE_UNKNOWN,
    ROUTE_WRONG_METHOD, /* `route` is one that has the path */
    ROUTE_SLASH,        /* would match without the slash at its end */
    ROUTE_BAD_PATH,     /* a `.` or `..` segment, plain or percent-encoded */
};

/** Still encoded; slices of the path given to router_find. */
struct route_match {
    const struct route *route;
    size_t index;
    int n_params;
    const char *names[ROUTE_PARAMS_MAX];
    const char *values[ROUTE_PARAMS_MAX];
    size_t lengths[ROUTE_PARAMS_MAX];
    const char *rest; /* of a route that ends in `*`, from behind its slash */
};

/** Find the row for a raw path. HEAD finds the GET row when it has none of its own. */
enum route_outcome router_find(const struct router *router, const char *method, const char *path,
                               struct route_match *ret);

/** The methods that `path` has, as the value of an Allow header. */
void router_allow(const struct router *router, const char *path, struct buf *out);
