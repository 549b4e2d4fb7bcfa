/* POST /home-snapshots/from-binding and /home-snapshots/delete: Dify Agent's control plane. */
#pragma once

#include "http/router.h"

extern const struct route snapshot_routes[];
