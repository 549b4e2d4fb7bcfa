/* A caller's command in a lease, run to its end or to a bound: what backends put into
 * backend_ops.run_command (protocol "shellctl" sections 14 and 16). */
#pragma once

#include "backends/shellctl/client.h"

/** Run `spec` in `layout`: HOME is always the Home; cwd is inside Home or Workspace, else
 * ERR_BAD_REQUEST. Time over or too much output stops the job (grace 10 s) and is a result with
 * `stop_reason`, not an error. The job is always deleted. */
void shellctl_run_command(struct backend *b, struct op *op, const struct endpoint *endpoint,
                          const struct layout *layout, const struct command_spec *spec,
                          struct command_result *ret);

/** The folder that `cwd` means in `layout`, dots resolved by text; NULL with ERR_BAD_REQUEST when
 * it is outside both Home and Workspace. */
const char *shellctl_resolve_cwd(struct arena *arena, const struct layout *layout, const char *cwd,
                                 struct error *err);
