/* Routes about the process itself: /healthz, /readyz, /metrics, /openapi.json. */
#pragma once

#include "http/router.h"

/** To be listed in the server's route set. */
extern const struct route system_routes[];
