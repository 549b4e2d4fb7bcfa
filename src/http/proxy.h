/* ANY /v1/leases/{id}/shellctl/…: a lease's data plane, streamed both ways with back-pressure. */
#pragma once

#include "http/router.h"

extern const struct route proxy_routes[];
