/* Identifiers that sort by the time they were made (RFC 9562, section 5.7). */
#pragma once

#include "core/runtime/arena.h"

#include <stdint.h>

/** A new UUID, version 7, in lower-case text form; `wall_ms` is UTC milliseconds since the epoch.
 */
char *uuid7_new(struct arena *arena, int64_t wall_ms);
