/* The vtable, planes, and what all operations run their scripts through. */
#include "backends/local/local_backend.h"

#include "backends/local/local_internal.h"
#include "backends/shellctl/run_command.h"
#include "backends/shellctl/scripts.h"
#include "core/runtime/json.h"

#include <stdlib.h>
#include <string.h>

/* ---- scripts and planes --------------------------------------------------------------------- */

void local_run_script(struct local_backend *l, struct op *op, const char *script, const char *phase,
                      struct control_result *ret)
{
    struct control_command command = {
        .script = script,
        .cwd = l->control_root,
        .env = l->control_env,
        .mode = l->embedded ? SHELLCTL_MODE_STDIO : SHELLCTL_MODE_UNSAID,
        .deadline_ms = LOCAL_SCRIPT_MS,
        .phase = phase,
        .await_delete = true,
    };

    control_command_run(&l->backend, op, &l->endpoint, &command, ret);
}

struct endpoint local_endpoint(const struct local_backend *l, const struct layout *layout)
{
    struct endpoint endpoint = l->endpoint;

    if (l->embedded) {
        endpoint.headers[0] = (struct http_header){"X-Bindery-Home", layout->home_dir};
        endpoint.headers[1] = (struct http_header){"X-Bindery-Workspace", layout->workspace_dir};
        endpoint.n_headers = 2;
    }
    return endpoint;
}

struct local_plane {
    struct plane plane; /* first */
    char *home_dir, *workspace_dir;
};

static struct plane *plane_new(struct local_backend *l, const char *ref,
                               const struct layout *layout)
{
    struct local_plane *p = xcalloc(1, sizeof(*p));

    p->home_dir = xstrdup(layout->home_dir);
    p->workspace_dir = xstrdup(layout->workspace_dir);
    p->plane.backend = &l->backend;
    p->plane.binding_ref = xstrdup(ref);
    p->plane.layout = (struct layout){p->home_dir, p->workspace_dir};
    p->plane.endpoint = local_endpoint(l, &p->plane.layout);
    return &p->plane;
}

static void local_release(struct backend *b, struct op *op, struct plane *plane)
{
    struct local_plane *p = container_of(plane, struct local_plane, plane);

    (void)b;
    free(p->home_dir);
    free(p->workspace_dir);
    free(p->plane.binding_ref);
    free(p);
    op_complete(op, NULL);
}

static void local_run_command(struct backend *b, struct op *op, struct plane *plane,
                              const struct command_spec *spec, struct command_result *ret)
{
    shellctl_run_command(b, op, &plane->endpoint, &plane->layout, spec, ret);
}

/* ---- acquire --------------------------------------------------------------------------------
 *
 * Happy path: one probe says that Home and Workspace are there. With the embedded daemon it runs
 *   as a job of the binding does; otherwise as maintenance, where neither the missing folder's
 *   becoming the cwd nor the runner's making $HOME can hide what is missing.
 * Failures: the probe's own "no", or the daemon's sandbox_not_found, is a lost binding; nothing
 *   else is. */

struct acquire {
    struct op op;
    struct local_backend *l;
    const char *ref;
    struct local_ref parsed;
    struct plane **ret;
    struct endpoint endpoint;
    struct control_command probe;
    struct control_result result;
};

enum acquire_state { ACQUIRE_START, ACQUIRE_PROBING };
static const char *const acquire_states[] = {"start", "probing"};

static enum op_poll acquire_step(struct op *op)
{
    struct acquire *a = container_of(op, struct acquire, op);

    switch ((enum acquire_state)op->state) {
    case ACQUIRE_START:
        AWAIT(op, ACQUIRE_PROBING,
              control_command_run(&a->l->backend, op, &a->endpoint, &a->probe, &a->result));
        if (a->result.exit_code != 0) {
            op_fail(op, ERR_BINDING_LOST, "the binding's Home or Workspace no longer exists");
            goto undo;
        }
        *a->ret = plane_new(a->l, a->ref, &a->parsed.layout);
        return OP_DONE;

    undo:
        if (shellctl_says_gone(op_error(op)))
            error_wrap(op_error_edit(op), ERR_BINDING_LOST,
                       "the binding's Home or Workspace is gone");
        shellctl_wrap_error(op_error_edit(op), ERR_BINDING_ACQUIRE);
        op_error_edit(op)->admitted = ADMITTED_NO; /* a probe changes nothing */
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type acquire_type = {"local_acquire", acquire_states, 2, acquire_step, NULL};

void local_acquire(struct backend *b, struct op *op, const char *ref, struct plane **ret)
{
    struct acquire *a = OP_CHILD(op, &acquire_type, acquire);
    struct local_backend *l = local_of(b);
    struct error error;

    a->l = l;
    a->ret = ret;
    a->ref = ref;
    if (!local_parse_ref(l, op->arena, ref, &a->parsed, &error)) {
        op_complete(op, &error);
        return;
    }
    a->endpoint = local_endpoint(l, &a->parsed.layout);
    a->probe = (struct control_command){
        .script = script_probe(op->arena, &a->parsed.layout),
        .mode = l->embedded ? SHELLCTL_MODE_STDIO : SHELLCTL_MODE_UNSAID,
        .deadline_ms = l->acquire_timeout_ms,
        .phase = "the validation of the binding",
        .repeatable = true,
    };
    if (!l->embedded) {
        a->probe.cwd = l->control_root;
        a->probe.env = l->control_env;
    }
    op_await_child(op, &a->op);
}

void local_reopen(struct backend *b, struct op *op, const char *ref, struct plane **ret)
{
    struct local_backend *l = local_of(b);
    struct local_ref parsed;
    struct error error;

    if (!l->embedded) { /* nothing on its data plane would tell that the folders are gone */
        local_acquire(b, op, ref, ret);
        return;
    }
    if (!local_parse_ref(l, op->arena, ref, &parsed, &error)) {
        op_complete(op, &error);
        return;
    }
    *ret = plane_new(l, ref, &parsed.layout);
    op_complete(op, NULL);
}

/* ---- the backend ---------------------------------------------------------------------------- */

static bool local_answer_means_lost(struct backend *b, int status, const char *body, size_t len)
{
    struct arena *arena = arena_new();
    bool lost = shellctl_code_says_gone(shellctl_error_code(arena, body, len));

    (void)b;
    (void)status;
    arena_free(arena);
    return lost;
}

static bool local_ready(struct backend *b, struct error *err)
{
    struct local_backend *l = local_of(b);

    if (!error_is(&l->not_ready))
        return true;
    *err = l->not_ready;
    return false;
}

void local_backend_set_ready(struct backend *b, const struct error *why_not)
{
    local_of(b)->not_ready = why_not != NULL ? *why_not : (struct error){0};
}

static void local_describe(struct backend *b, struct json_writer *w)
{
    struct local_backend *l = local_of(b);

    json_object_begin(w);
    json_member_string(w, "shellctl", l->embedded ? "embedded" : l->base_url);
    json_member_string(w, "home_root", l->home_root);
    json_member_string(w, "workspace_root", l->workspace_root);
    json_member_string(w, "home_snapshot_root", l->snapshot_root);
    json_object_finish(w);
}

static void local_free(struct backend *b)
{
    struct local_backend *l = local_of(b);

    free(l->base_url);
    free(l->unix_socket);
    free(l->token);
    free(l->home_root);
    free(l->workspace_root);
    free(l->snapshot_root);
    free(l->instance_id);
    free(l->control_root);
    free(l);
}

static const struct backend_ops local_ops = {
    .name = "local",
    .create_binding = local_create,
    .acquire = local_acquire,
    .reopen = local_reopen,
    .release = local_release,
    .destroy_binding = local_destroy,
    .snapshot_create = local_snapshot_create,
    .snapshot_delete = local_snapshot_delete,
    .run_command = local_run_command,
    .list = local_list,
    .find = local_find,
    .answer_means_lost = local_answer_means_lost,
    .check_binding_ref = local_check_binding_ref,
    .snapshot_ref_of = local_snapshot_ref_of,
    .check_snapshot_ref = local_check_snapshot_ref,
    .ready = local_ready,
    .describe = local_describe,
    .free = local_free,
};

struct backend *local_backend_new(struct loop *loop, struct http_client *http,
                                  const struct local_options *options, struct error *err)
{
    struct local_backend *l = xcalloc(1, sizeof(*l));

    l->backend = (struct backend){
        .ops = &local_ops,
        .caps = BACKEND_SHARED_WORKSPACE | BACKEND_KEEPS_WORKSPACE | BACKEND_SNAPSHOTS |
                BACKEND_LISTS | BACKEND_FINDS,
        .loop = loop,
        .http = http,
    };
    l->embedded = options->embedded;
    l->base_url = xstrdup(options->base_url);
    l->unix_socket = options->unix_socket != NULL ? xstrdup(options->unix_socket) : NULL;
    l->token = xstrdup(options->token != NULL ? options->token : "");
    l->home_root = xstrdup(options->home_root);
    l->workspace_root = xstrdup(options->workspace_root);
    l->snapshot_root = xstrdup(options->snapshot_root);
    l->instance_id = xstrdup(options->instance_id != NULL ? options->instance_id : "bindery");
    l->acquire_timeout_ms = options->acquire_timeout_ms > 0 ? options->acquire_timeout_ms : 5000;
    l->endpoint = (struct endpoint){
        .base_url = l->base_url,
        .unix_socket = l->unix_socket,
        .token = l->token,
        .peer = "shellctl",
    };
    if (!local_check_roots(l, err)) {
        local_free(&l->backend);
        return NULL;
    }
    l->control_env[0] = "HOME";
    l->control_env[1] = l->control_root;
    return &l->backend;
}
