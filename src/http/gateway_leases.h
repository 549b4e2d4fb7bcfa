/* Inside of the facade: which lease serves which sandbox id. */
#pragma once

#include "core/domain/broker.h"
#include "http/handlers_gateway.h"

/** The live lease kept for this id, marked as used now; NULL when there is none. */
struct lease *gateway_leases_find(struct gateway_leases *leases, const char *sandbox_id);

/** Keep this lease for the id. When another one is kept already, that one stays, the new one is
 * released, and the kept one is returned. */
struct lease *gateway_leases_keep(struct gateway_leases *leases, const char *sandbox_id,
                                  struct lease *lease);
