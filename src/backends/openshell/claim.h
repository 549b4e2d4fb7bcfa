/* First step of a create: become the holder of a sandbox name. */
#pragma once

#include "backends/openshell/backend.h"

/** How the name came to be ours. */
struct claim {
    const char *name, *marker;  /* in: the name; a random text that no other attempt has */
    const char *binding_digest; /* in */
    const struct binding_spec *spec;
    const Openshell__CreateSandboxRequest *request; /* in */
    struct sandbox_view view;                       /* out */
    bool won;     /* out: the name is held for this binding, also when op was cancelled then */
    bool adopted; /* out: it existed, healthy, of this binding: do not clear it */
};

/** Create the sandbox, or settle who holds the name; see claim.c. `claim` lives in op->arena. */
void openshell_claim(struct openshell_backend *b, struct op *op, struct claim *claim);
