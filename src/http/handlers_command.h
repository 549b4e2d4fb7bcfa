/* POST /v1/leases/{id}/commands: run one script to its end. */
#pragma once

#include "http/router.h"

extern const struct route command_routes[];
