/* Names that the gateway accepts, derived from ids by digest (protocols "runtime backends" 3.1).
 * Lower-case hex of the first seven bytes of SHA-256: 14 characters. */
#pragma once

#include "core/runtime/arena.h"
#include "core/runtime/error.h"

#include <stdbool.h>

enum { NAME_DIGEST_CHARS = 14, NAME_SANDBOX_MAX = 19 };

/** digest(x). */
void name_digest(const char *id, char ret[NAME_DIGEST_CHARS + 1]);

/** `dify-` + digest(binding_id): 19 characters, a DNS-1123 label. */
const char *name_sandbox(struct arena *arena, const char *binding_id);

/** `gc-` + 16 random hex characters: the maintenance sandbox of a snapshot deletion. */
const char *name_maintenance(struct arena *arena);

/** May an id be used in names and paths? `^[A-Za-z0-9._-]+$`, not a dot segment. Otherwise false
 * with `code` and a message naming `what`. */
bool name_check_id(const char *id, const char *what, enum err_code code,
                   struct error *err) MUST_CHECK;

/** Can it be the name of a binding's sandbox, as name_sandbox makes them? Any other sandbox of the
 * gateway is somebody else's: ERR_INVALID_REF. */
bool name_check_sandbox(const char *name, struct error *err) MUST_CHECK;

/** Is it a name that name_maintenance makes? */
bool name_is_maintenance(const char *name);

/** `<digest(tenant)>--home-<home_snapshot_id>`. */
const char *name_snapshot_ref(struct arena *arena, const char *tenant_id,
                              const char *home_snapshot_id);

/** The directory of a snapshot ref, `<mount>/home-snapshots/<tenant digest>/home-<id>`; NULL with
 * ERR_INVALID_REF when the ref has another form. `*ret_root` is the tenant's root. */
const char *name_snapshot_dir(struct arena *arena, const char *mount, const char *snapshot_ref,
                              const char **ret_root, struct error *err);

/** `<mount>/home-snapshots/<digest(tenant)>`. */
const char *name_tenant_root(struct arena *arena, const char *mount, const char *tenant_id);
