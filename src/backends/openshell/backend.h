/* What the driver's operations share. */
#pragma once

#include "backends/openshell/openshell.h"
#include "backends/openshell/policy.h"
#include "backends/openshell/rpc.h"
#include "backends/openshell/tunnel.h"

/** One sandbox that leases of this process use. Lives while it is leased, and on until its idle
 * stop is decided. */
struct sandbox_use {
    struct list link;
    struct openshell_backend *backend;
    char *name;
    struct tunnel *tunnel; /* NULL until the first acquire got that far */
    int planes;            /* leases on it */
    int acquiring;         /* acquires in progress */
    struct timer idle;
    struct op *stopping; /* its idle stop in progress, or NULL */
    struct op_waitlist stop_waiters;
};

/** The driver's state; process-wide, on the heap. */
struct openshell_backend {
    struct backend base; /* first */
    struct arena *arena; /* texts of the settings */
    struct rpc rpc;
    const char *image, *shared_mount_path, *shellctl_token;
    Google__Protobuf__Struct *driver_config;
    struct egress_endpoint *egress;
    size_t n_egress;
    char instance_digest[16];
    int shellctl_port, exec_timeout_s;
    int64_t ready_timeout_ms, validation_timeout_ms, idle_stop_ms;
    struct layout layout;
    struct list uses;
    struct op *version_check; /* in progress, or NULL */
    bool version_known;
    struct error version_error; /* unsupported gateway */
};

/** A lease's plane. */
struct openshell_plane {
    struct plane plane; /* first */
    struct sandbox_use *use;
    struct tunnel *tunnel; /* held */
};

static inline struct openshell_backend *openshell_of(struct backend *b)
{
    return container_of(b, struct openshell_backend, base);
}

/* ---- shared steps: each one wait -------------------------------------------------------------- */

/** Wait until the sandbox is READY, within the ready timeout and the op's deadlines; over, too, when it
 * is STOPPED: look at ret->phase. A READY that falls back to PROVISIONING later is the caller's to wait
 * for again. ERROR and a record that vanishes fail with `code`, with the Ready condition's words. */
void openshell_wait_ready(struct openshell_backend *b, struct op *op, const char *name,
                          enum err_code code, struct sandbox_view *ret);

/** How a sandbox came to be READY. */
struct wake {
    struct sandbox_view view;
    bool waited;  /* it was not READY at once */
    bool started; /* by this attempt, or it may have been */
};

/** Start the sandbox if it is down and wait until it is READY, however often it is stopped meanwhile,
 * within the ready timeout; fails as openshell_wait_ready does, NOT_FOUND of the first look comes as it
 * is. `*ret` is added to, so that an attempt can wake again. */
void openshell_wake(struct openshell_backend *b, struct op *op, const char *name,
                    enum err_code code, struct wake *ret);

/** Wait until the name is free again (NOT_FOUND). */
void openshell_wait_gone(struct openshell_backend *b, struct op *op, const char *name);

/** The scripts that run in sandboxes; the arena's. */
const char *openshell_script_init(struct arena *arena, const struct layout *layout,
                                  const char *snapshot_dir, bool adopt);
const char *openshell_script_bootstrap(struct arena *arena, const struct layout *layout,
                                       const char *token, int port);
const char *openshell_script_snapshot(struct arena *arena, const struct layout *layout,
                                      const char *snapshot_dir);
const char *openshell_script_snapshot_delete(struct arena *arena, const char *snapshot_dir);

enum { OPENSHELL_EXIT_NO_LAYOUT = 66 }; /* of the bootstrap script */

/* ---- uses ------------------------------------------------------------------------------------- */

/** The use of a sandbox, made when there is none. */
struct sandbox_use *openshell_use_of(struct openshell_backend *b, const char *name);
/** Look at a use after a count has changed: free it, or arm its idle stop. */
void openshell_use_settle(struct sandbox_use *use);

/** End a plane: its hold on the tunnel and its share in the use. */
void openshell_plane_close(struct openshell_plane *plane);
/** A sandbox that should have been stopped runs on: logged and counted. */
void openshell_note_left_running(struct openshell_backend *b, const char *name,
                                 const struct error *why);

/* ---- operations; contracts in core/domain/backend.h -------------------------------------------- */

void openshell_create_binding(struct backend *b, struct op *op, const struct binding_spec *spec,
                              struct binding *ret);
void openshell_acquire(struct backend *b, struct op *op, const char *binding_ref,
                       struct plane **ret);
void openshell_release(struct backend *b, struct op *op, struct plane *plane);
void openshell_destroy_binding(struct backend *b, struct op *op, const struct destroy_spec *spec);
void openshell_snapshot_create(struct backend *b, struct op *op, const struct snapshot_spec *spec,
                               struct plane *plane, const char **ret_ref);
const char *openshell_snapshot_ref_of(struct backend *b, struct arena *arena,
                                      const struct snapshot_spec *spec);
void openshell_snapshot_delete(struct backend *b, struct op *op, const char *snapshot_ref);
void openshell_list(struct backend *b, struct op *op, const char **cursor,
                    struct backend_item **ret, size_t *ret_n);
const char *openshell_binding_ref_of(struct backend *b, struct arena *arena,
                                     const struct binding_spec *spec);
void openshell_find(struct backend *b, struct op *op, const struct binding_spec *spec,
                    struct binding *ret);

/** Fill a create request: labels, marker, template, policy; everything is the arena's. */
const Openshell__CreateSandboxRequest *
openshell_create_request(struct openshell_backend *b, struct arena *arena, const char *name,
                         const char *const *labels, const char *marker, const char *writable_root);
