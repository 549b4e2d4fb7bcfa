/* What the files of the Local backend share. */
#pragma once

#include "backends/local/local_backend.h"
#include "backends/local/local_scripts.h"
#include "backends/shellctl/control_command.h"

enum {
    LOCAL_SCRIPT_MS = 30000, /* one maintenance script */
    LOCAL_UNDO_MS = 45000,
};

struct local_backend {
    struct backend backend;   /* first */
    struct endpoint endpoint; /* without scope headers: maintenance */
    bool embedded;
    char *base_url, *unix_socket, *token;
    char *home_root, *workspace_root, *snapshot_root, *instance_id;
    char *control_root;         /* HOME and cwd of maintenance: parent of the three roots */
    const char *control_env[3]; /* HOME */
    int64_t acquire_timeout_ms;
    struct error not_ready;
};

static inline struct local_backend *local_of(struct backend *b)
{
    return container_of(b, struct local_backend, backend);
}

/** A parsed ref, in an arena. */
struct local_ref {
    const char *binding_id, *workspace_id;
    struct layout layout;
};

/* ---- local_refs.c ------------------------------------------------------------------------------ */

/** ERR_INVALID_REF for what we cannot have issued. */
bool local_parse_ref(const struct local_backend *l, struct arena *arena, const char *ref,
                     struct local_ref *ret, struct error *err) MUST_CHECK;
/** From the ids of a create; also checks that the refs keep within REF_MAX. */
bool local_make_ref(const struct local_backend *l, struct arena *arena, const char *binding_id,
                    const char *workspace_id, struct local_ref *ret, struct error *err) MUST_CHECK;
bool local_check_binding_ref(struct backend *b, const char *ref, struct error *err);
bool local_check_snapshot_ref(struct backend *b, const char *ref, struct error *err);
/** `<snapshot_root>/<ref>` of a checked ref. */
const char *local_snapshot_path(const struct local_backend *l, struct arena *arena,
                                const char *ref);
/** Sets control_root; ERR_BAD_REQUEST when the roots cannot work together. */
bool local_check_roots(struct local_backend *l, struct error *err) MUST_CHECK;

/* ---- local_backend.c ---------------------------------------------------------------------------- */

/** A maintenance script: unconfined, bounded, its job deleted before it ends. */
void local_run_script(struct local_backend *l, struct op *op, const char *script, const char *phase,
                      struct control_result *ret);

/** The endpoint of one binding; with the embedded daemon it carries the scope headers. Strings are
 * those of `layout` and the backend. */
struct endpoint local_endpoint(const struct local_backend *l, const struct layout *layout);

/* ---- operations --------------------------------------------------------------------------------- */

void local_acquire(struct backend *b, struct op *op, const char *ref, struct plane **ret);
void local_reopen(struct backend *b, struct op *op, const char *ref, struct plane **ret);
void local_create(struct backend *b, struct op *op, const struct binding_spec *spec,
                  struct binding *ret);
void local_destroy(struct backend *b, struct op *op, const struct destroy_spec *spec);
void local_snapshot_create(struct backend *b, struct op *op, const struct snapshot_spec *spec,
                           struct plane *plane, const char **ret_ref);
const char *local_snapshot_ref_of(struct backend *b, struct arena *arena,
                                  const struct snapshot_spec *spec);
void local_snapshot_delete(struct backend *b, struct op *op, const char *ref);
void local_list(struct backend *b, struct op *op, const char **cursor, struct backend_item **ret,
                size_t *ret_n);
void local_find(struct backend *b, struct op *op, const struct binding_spec *spec,
                struct binding *ret);

/** Make a folder under a root by local_script_make, so that nothing is left of a failed, lost or
 * cancelled attempt: one wait of `op`. What could not be removed is reported as an orphan. Errors:
 * ERR_CONFLICT (exists), ERR_BINDING_LOST (the Home to copy from is gone), else `code`. */
struct local_making {
    const struct op_type *type;
    struct local_make make; /* token and instance are filled in */
    enum err_code code;
    const char *what; /* "binding", for messages */
    enum orphan_kind orphan;
    const char *ref;                 /* that it has once it is made, and as an orphan */
    const struct binding_spec *spec; /* of the orphan; may be NULL */
    struct binding *ret_binding;     /* written on success; either may be NULL */
    const char **ret_ref;
};
void local_make_folder(struct local_backend *l, struct op *op, const struct local_making *making);
enum op_poll local_make_step(struct op *op);
extern const char *const local_make_states[];
enum { LOCAL_MAKE_STATES = 3 };
