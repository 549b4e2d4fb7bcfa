#include "backends/openshell/backend.h"

#include "backends/openshell/names.h"
#include "backends/shellctl/run_command.h"
#include "core/runtime/json.h"
#include "core/runtime/log.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION_RETRY_MS = 5000 };

/* ---- the gateway's version ------------------------------------------------------------------- */

/* Read once at start, again until it answers: an unsupported gateway is refused with words, since
 * later releases are announced to reuse field numbers (protocols "OpenShell gateway" 14.4). */
struct version_check {
    struct op op;
    struct openshell_backend *backend;
    const char *version;
};

enum version_state { VERSION_START, VERSION_ASKING, VERSION_PAUSING };
static const char *const version_states[] = {"start", "asking", "pausing"};

/* Supported: 0.0.106 to below 0.1.0; 0.0.0 is built without a version and taken as new. */
static void version_judge(struct openshell_backend *b, const char *version)
{
    int major = -1, minor = -1, patch = -1;

    b->version_known = true;
    if (sscanf(version, "%d.%d.%d", &major, &minor, &patch) == 3 && major == 0 && minor == 0 &&
        (patch == 0 || patch >= 106)) {
        error_clear(&b->version_error);
        log_info("OpenShell gateway version %.64s", version);
        return;
    }
    error_set(&b->version_error, ERR_BACKEND_UNAVAILABLE,
              "the OpenShell gateway reports version \"%.64s\"; supported are 0.0.106 up to, not "
              "including, 0.1.0",
              version);
    log_error("%s", b->version_error.message);
}

static enum op_poll version_step(struct op *op)
{
    struct version_check *v = container_of(op, struct version_check, op);

    switch ((enum version_state)op->state) {
    case VERSION_START:
        for (;;) {
            AWAIT_ANY(op, VERSION_ASKING, rpc_health(&v->backend->rpc, op, &v->version));
            if (!op_last_failed(op)) {
                version_judge(v->backend, v->version);
                return OP_DONE;
            }
            v->backend->version_error = *op_last(op);
            v->backend->version_error.code = ERR_BACKEND_UNAVAILABLE;
            AWAIT(op, VERSION_PAUSING, op_sleep(op, VERSION_RETRY_MS));
        }
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type version_type = {"openshell_version", version_states, 3, version_step,
                                            NULL};

static void on_version(struct op *op, void *ctx)
{
    struct openshell_backend *b = ctx;

    (void)op;
    b->version_check = NULL;
}

static void version_begin(struct openshell_backend *b)
{
    struct version_check *v = OP_ROOT(b->base.loop, &version_type, version_check, NULL);

    v->backend = b;
    b->version_check = &v->op;
    op_start(&v->op, on_version, b);
}

/* ---- small slots ------------------------------------------------------------------------------ */

static void openshell_run_command(struct backend *b, struct op *op, struct plane *plane,
                                  const struct command_spec *spec, struct command_result *ret)
{
    shellctl_run_command(b, op, &plane->endpoint, &plane->layout, spec, ret);
}

static bool openshell_check_binding_ref(struct backend *b, const char *ref, struct error *err)
{
    (void)b;
    return name_check_sandbox(ref, err);
}

static bool openshell_check_snapshot_ref(struct backend *b, const char *ref, struct error *err)
{
    struct arena *scratch = arena_new();
    const char *root;
    bool ok =
        name_snapshot_dir(scratch, openshell_of(b)->shared_mount_path, ref, &root, err) != NULL;

    arena_free(scratch);
    return ok;
}

static bool openshell_ready(struct backend *b, struct error *err)
{
    struct openshell_backend *o = openshell_of(b);

    if (error_is(&o->version_error)) {
        *err = o->version_error;
        return false;
    }
    if (!o->version_known) {
        error_set(err, ERR_BACKEND_UNAVAILABLE, "the OpenShell gateway has not answered yet");
        return false;
    }
    if (o->rpc.auth_failed) {
        error_set(err, ERR_BACKEND_AUTH,
                  "the OpenShell gateway refuses our credentials: check "
                  "DIFY_AGENT_OPENSHELL_BEARER_TOKEN and the client certificate");
        return false;
    }
    return true;
}

static void openshell_describe(struct backend *b, struct json_writer *w)
{
    struct openshell_backend *o = openshell_of(b);

    json_object_begin(w);
    json_member_int(w, "connections", grpc_channel_connections(o->rpc.channel));
    json_member_int(w, "streams", grpc_channel_streams(o->rpc.channel));
    json_object_finish(w);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void openshell_free(struct backend *b)
{
    struct openshell_backend *o = openshell_of(b);

    if (o->version_check != NULL)
        op_cancel(o->version_check, "shutting down");
    tunnel_cancel_revokes(&o->rpc);
    LIST_FOREACH_SAFE (node, tmp, &o->uses) {
        struct sandbox_use *use = container_of(node, struct sandbox_use, link);
        if (use->stopping != NULL)
            op_cancel(use->stopping, "shutting down");
    }
    loop_turn(b->loop, false); /* they end, and tunnels without holders go */
    LIST_FOREACH_SAFE (node, tmp, &o->uses) {
        struct sandbox_use *use = container_of(node, struct sandbox_use, link);
        PRE(use->planes == 0 && use->acquiring == 0);
        timer_cancel(b->loop, &use->idle);
        list_remove(&use->link);
        free(use->name);
        free(use);
    }
    grpc_channel_free(o->rpc.channel);
    arena_free(o->arena);
    free(o);
}

static const struct backend_ops openshell_ops = {
    .name = "openshell",
    .create_binding = openshell_create_binding,
    .acquire = openshell_acquire,
    .reopen = openshell_acquire,
    .release = openshell_release,
    .destroy_binding = openshell_destroy_binding,
    .snapshot_create = openshell_snapshot_create,
    .snapshot_delete = openshell_snapshot_delete,
    .run_command = openshell_run_command,
    .list = openshell_list,
    .find = openshell_find,
    .binding_ref_of = openshell_binding_ref_of,
    .check_binding_ref = openshell_check_binding_ref,
    .snapshot_ref_of = openshell_snapshot_ref_of,
    .check_snapshot_ref = openshell_check_snapshot_ref,
    .ready = openshell_ready,
    .describe = openshell_describe,
    .free = openshell_free,
};

static bool take_settings(struct openshell_backend *o, const struct openshell_options *options,
                          struct error *err)
{
    struct json_object *config = NULL;

    if (!json_parse(o->arena, options->driver_config, strlen(options->driver_config), &config, NULL,
                    err) ||
        !json_object_is_type(config, json_type_object) || json_object_object_length(config) == 0) {
        error_set(err, ERR_BAD_REQUEST,
                  "DIFY_AGENT_OPENSHELL_DRIVER_CONFIG must be a non-empty JSON object");
        return false;
    }
    o->driver_config = message_struct(o->arena, config);
    if (!egress_parse(o->arena, options->egress_allow, &o->egress, &o->n_egress, err))
        return false;
    o->image = arena_strdup(o->arena, options->image);
    o->shared_mount_path = arena_strdup(o->arena, options->shared_mount_path);
    o->shellctl_token = arena_strdup(o->arena, options->shellctl_token);
    o->rpc.workspace = arena_strdup(o->arena, options->workspace);
    o->shellctl_port = options->shellctl_port;
    o->exec_timeout_s = options->exec_timeout_s;
    o->ready_timeout_ms = options->ready_timeout_ms;
    o->validation_timeout_ms = options->validation_timeout_ms;
    o->idle_stop_ms = options->idle_stop_ms;
    o->layout = (struct layout){"/home/dify", "/home/dify/workspace"};
    name_digest(options->instance_id, o->instance_digest);
    return true;
}

struct backend *openshell_backend_new(struct loop *loop, struct http_client *http,
                                      const struct openshell_options *options, struct error *err)
{
    struct openshell_backend *o = xcalloc(1, sizeof(*o));
    struct grpc_options grpc = {
        .host_port = options->endpoint,
        .insecure = options->insecure,
        .ca_path = options->tls_ca_path,
        .cert_path = options->tls_cert_path,
        .key_path = options->tls_key_path,
        .bearer = options->bearer_token,
    };

    o->arena = arena_new();
    o->base = (struct backend){
        .ops = &openshell_ops,
        .caps = BACKEND_SNAPSHOTS | BACKEND_LISTS | BACKEND_FINDS | BACKEND_COLD_START,
        .loop = loop,
        .http = http,
    };
    list_init(&o->uses);
    list_init(&o->rpc.revokes);
    if (!take_settings(o, options, err) ||
        (o->rpc.channel = grpc_channel_new(loop, &grpc, err)) == NULL) {
        arena_free(o->arena);
        free(o);
        return NULL;
    }
    version_begin(o);
    return &o->base;
}
