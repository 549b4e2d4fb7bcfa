/* The gateway facade: the Enterprise gateway's protocol northbound, over whatever backend is
 * configured (protocols "runtime backends" section 2.1). Answers 404 unless
 * BINDERY_GATEWAY_API_KEY is set. */
#pragma once

#include "http/router.h"

extern const struct route gateway_routes[];

struct broker;
struct gateway_leases;
struct loop;

/** The leases that the facade keeps for its clients between their requests: a busy client pays one
 * validation. Idle ones are released after a minute. Opaque. */
struct gateway_leases *gateway_leases_new(struct loop *loop, struct broker *broker);
/** Forgets them; the leases themselves are the broker's to end. */
void gateway_leases_free(struct gateway_leases *leases);
