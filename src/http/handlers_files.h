/* POST /execution-bindings/files/{list,read,download}: Dify Agent's control plane. */
#pragma once

#include "http/router.h"

extern const struct route files_routes[];
