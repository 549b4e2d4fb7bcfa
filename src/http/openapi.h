/* The OpenAPI 3.1 document of a set of route tables. */
#pragma once

#include "core/runtime/buf.h"
#include "http/router.h"

/** Append the document as JSON. `title` and `version` of the service. */
void openapi_write(struct buf *out, const struct route_set *routes, const char *title,
                   const char *version);
