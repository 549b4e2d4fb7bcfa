/* The gateway's control plane: one wait per REST call (protocols "runtime backends" 2.1).
 *
 * What an answer means is decided here, once: 401 and 403 are ERR_BACKEND_AUTH; 429 is waited out
 * within the retry budget when the gateway says for how long, then ERR_RATE_LIMITED; 503 likewise,
 * then ERR_OVERLOADED; a redirect is refused; everything else becomes the code of the operation.
 * An error's `admitted` says whether the call may have taken effect. */
#pragma once

#include "backends/enterprise/enterprise.h"
#include "backends/enterprise/throttle.h"

/** Embedded in the backend. */
struct gateway {
    struct loop *loop;
    struct http_client *http;
    const char *base_url;   /* no trailing slash */
    struct http_header key; /* X-Inner-Api-Key; value NULL when there is no token */
    int64_t timeout_ms, snapshot_timeout_ms, retry_budget_ms;
    struct throttle throttle;
    bool auth_failed; /* the last answer refused our key */
};

/** POST /v1/sandboxes → id, header-safe and at most REF_MAX bytes. Not idempotent: never sent
 * twice. `snapshot_ref` NULL = the gateway's default Home. */
void gateway_create_sandbox(struct gateway *gw, struct op *op, const char *tenant_id,
                            const char *snapshot_ref, const char **ret_id);

/** DELETE /v1/sandboxes/{id}; absent is success. */
void gateway_delete_sandbox(struct gateway *gw, struct op *op, const char *id);

/** POST /v1/sandboxes/{id}/home-snapshots → ref. */
void gateway_create_snapshot(struct gateway *gw, struct op *op, const char *sandbox_id,
                             const struct snapshot_spec *spec, const char **ret_ref);

/** DELETE /v1/home-snapshots/{ref}; absent is success. */
void gateway_delete_snapshot(struct gateway *gw, struct op *op, const char *ref);
