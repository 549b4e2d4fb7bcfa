/* The backend over one shellctl that serves all bindings: the embedded daemon or an external one
 * (protocols "runtime backends" section 4). Homes, Workspaces and Snapshots are folders on its
 * machine; everything is done by scripts that it runs, nothing by file access of our own.
 *
 * Refs: binding `<binding_id>:<workspace_id>`, workspace `<workspace_id>`, snapshot
 * `home-<home_snapshot_id>`. Ids follow quote_is_safe_part and do not begin with a dot: under the
 * Home root `.bindery` holds a record for each binding, by which ours are told from others'. */
#pragma once

#include "core/domain/backend.h"

struct local_options {
    const char *base_url;    /* of the shellctl, without trailing slash */
    const char *unix_socket; /* or NULL */
    const char *token;       /* bearer; NULL or "" = none */
    bool embedded; /* the shellctl is our daemon: requests of a lease carry the scope headers */
    const char *home_root, *workspace_root, *snapshot_root; /* absolute */
    const char *instance_id; /* marks what is ours among several installations; NULL = "bindery" */
    int64_t acquire_timeout_ms; /* of the validation probe; 0 = 5,000 */
};

/** Copies the options. NULL with ERR_BAD_REQUEST when the roots cannot work together. Ready until
 * said otherwise. Free through ops->free. */
struct backend *local_backend_new(struct loop *loop, struct http_client *http,
                                  const struct local_options *options, struct error *err);

/** What ops->ready says from now on: NULL = ready. For the supervisor of the embedded daemon. */
void local_backend_set_ready(struct backend *backend, const struct error *why_not);
