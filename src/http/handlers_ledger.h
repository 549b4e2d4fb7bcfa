/* The ledger's rows: read, list, retire; sessions; the timeline (docs/protocol.md). */
#pragma once

#include "http/router.h"

extern const struct route ledger_routes[];
