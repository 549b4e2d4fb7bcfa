/* Collection as the operator sees and drives it (docs/protocol.md). */
#pragma once

#include "http/router.h"

extern const struct route gc_routes[];
