/* POST /execution-bindings and /execution-bindings/destroy: Dify Agent's control plane. */
#pragma once

#include "http/router.h"

extern const struct route binding_routes[];
