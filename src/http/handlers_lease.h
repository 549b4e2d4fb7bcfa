/* /v1/leases: acquire, read, renew, release. The data plane is in proxy.h. */
#pragma once

#include "http/router.h"

extern const struct route lease_routes[];
