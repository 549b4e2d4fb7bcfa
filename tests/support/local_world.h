/* Worlds of the Local backend for the conformance suite: folders in a temporary directory, a
 * shellctl over them. */
#pragma once

#include "backends/local/local_backend.h"
#include "support/conformance.h"

struct fake_shellctl;

struct local_world {
    char dir[64];
    char home_root[96], workspace_root[96], snapshot_root[96], socket[96];
    struct fake_shellctl *fake; /* NULL when the shellctl is real */
    pid_t daemon;               /* 0 when it is a fake */
};

/** Make the folders; sets ctx. */
struct local_world *local_world_new(struct conformance_world *world);
/** Backend over them: `base_url` or the socket in the world. */
void local_world_backend(struct conformance_world *world, const char *base_url, bool embedded);
void local_world_remove(struct conformance_world *world);

/* Slots of a conformance_target. */
int local_world_live(struct conformance_world *world);
void local_world_lose(struct conformance_world *world, const char *binding_ref);
void local_world_check_clean(struct conformance_world *world);
extern const char *const local_world_bad_refs[];

/** Visible entries of a folder; 0 when it does not exist. */
int local_world_count(const char *format, ...) __attribute__((format(printf, 1, 2)));
