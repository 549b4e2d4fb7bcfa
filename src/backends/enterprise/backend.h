/* What the driver's operations share. */
#pragma once

#include "backends/enterprise/gateway.h"

/** The driver's state; process-wide, on the heap. */
struct enterprise_backend {
    struct backend base; /* first */
    struct arena *arena; /* texts of the settings */
    struct gateway gateway;
    struct layout layout;
    const char *proxy_url; /* {gateway}/proxy */
    const char *probe_script;
    const char *token; /* "" = none */
    int64_t proxy_timeout_ms, validation_timeout_ms;
};

/** Access to one sandbox; no traffic. */
struct plane *enterprise_plane_new(struct enterprise_backend *b, const char *binding_ref);
void enterprise_plane_free(struct plane *plane);

/** Does an error of the proxy prove that the sandbox is gone (protocols "runtime backends" 2.3)?
 * HTTP 404 or a code that says so, in any case; never shellctl's own `job_not_found`, nor a 404
 * that no gateway wrote. */
bool enterprise_says_gone(int status, const char *code);

/* The operations; contracts in core/domain/backend.h. */
void enterprise_create_binding(struct backend *b, struct op *op, const struct binding_spec *spec,
                               struct binding *ret);
void enterprise_acquire(struct backend *b, struct op *op, const char *binding_ref,
                        struct plane **ret);
void enterprise_destroy_binding(struct backend *b, struct op *op, const struct destroy_spec *spec);
