/* Owners of bindings: load-or-create, read, end (docs/protocol.md). */
#pragma once

#include "http/router.h"

extern const struct route owner_routes[];
