/* The sandbox policy that replaces the gateway's default (protocols "runtime backends" 3.2). */
#pragma once

#include "core/runtime/arena.h"
#include "core/runtime/error.h"

#include <openshell.pb-c.h>

/** One endpoint of the egress allow list. */
struct egress_endpoint {
    const char *host;
    uint32_t port;
};

/** Parse `host:port,…`; empty items are skipped, the last colon splits. False with `err`. */
bool egress_parse(struct arena *arena, const char *text, struct egress_endpoint **ret,
                  size_t *ret_n, struct error *err);

/** Policy with `writable_root` (the tenant's snapshot root) writable besides the usual paths; network rules only
 * for the given endpoints, none when there are none. */
Openshell__SandboxPolicy *policy_build(struct arena *arena, const char *writable_root,
                                       const struct egress_endpoint *egress, size_t n_egress);
