/* The facade's sandbox ids: both refs of a binding in one opaque text. A backend that couples them
 * has one ref, which is the id; otherwise `binding_ref~workspace_ref`, with `~` and `%` in them
 * percent-encoded. */
#pragma once

#include "core/domain/binding.h"
#include "core/runtime/arena.h"

/** The id of a binding. */
const char *sandbox_id_of(struct arena *arena, const struct binding *binding);

/** The refs in an id; false when no facade can have issued it. */
bool sandbox_id_split(struct arena *arena, const char *id, struct binding *ret);
