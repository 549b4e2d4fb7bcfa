/* Shell scripts that several backends run in their sandboxes. POSIX sh; results by exit code. */
#pragma once

#include "core/domain/binding.h"
#include "core/runtime/arena.h"

/** Exit 0 when Home and Workspace are both folders. */
const char *script_probe(struct arena *arena, const struct layout *layout);

/** A Home that exists and an empty Workspace, both 0700; the Workspace may be inside Home. With
 * `keep_workspace_dir` the folder itself stays and only its content goes (a mount point). */
const char *script_layout(struct arena *arena, const struct layout *layout,
                          bool keep_workspace_dir);
