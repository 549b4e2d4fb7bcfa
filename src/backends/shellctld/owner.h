/* A uid of its own for every Workspace, when the daemon is root.
 *
 * The mapping is kept where it cannot get out of step with the files: the owner of the Workspace
 * folder *is* the uid. A Workspace whose owner lies outside the range has none yet; it gets the next
 * free one, and its files and the Home's are handed over. Bindings that share a Workspace share the
 * uid, since each must be able to work on the other's files there; their Homes, processes and
 * temporary folders are kept apart by the other layers. */
#pragma once

#include "core/runtime/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct owner_range {
    uid_t first;
    uint32_t count;
};

/** The uid of this Workspace, given to it now if need be, with Home and Workspace handed over to
 * it. `state_dir` keeps the counter and the lock (`owner.next`). Walks both trees the first time
 * only. For the runner, not for the loop. ERR_INTERNAL, also when another file system or a link
 * stands where a folder must be. */
bool owner_assign(const char *state_dir, const struct owner_range *range, const char *home,
                  const char *workspace, uid_t *ret, struct error *err) MUST_CHECK;

/** Become uid and gid `uid` for good, without supplementary groups, and make sure of it. False with
 * errno. */
bool owner_become(uid_t uid) MUST_CHECK;

/** Give everything under `dir_fd` to uid and gid `uid`, the folder itself last: so that an
 * interrupted walk is repeated. Follows no links, crosses no mounts. */
bool owner_hand_over(int dir_fd, uid_t uid, struct error *err) MUST_CHECK;
