#include "backends/enterprise/backend.h"

#include "backends/shellctl/run_command.h"
#include "backends/shellctl/scripts.h"
#include "core/runtime/json.h"
#include "core/runtime/quote.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

static const char home_dir[] = "/home/dify";

static struct enterprise_backend *enterprise_of(struct backend *b)
{
    return container_of(b, struct enterprise_backend, base);
}

/* ---- planes --------------------------------------------------------------------------------- */

struct plane *enterprise_plane_new(struct enterprise_backend *b, const char *binding_ref)
{
    struct plane *plane = xcalloc(1, sizeof(*plane));
    struct endpoint *e = &plane->endpoint;

    plane->backend = &b->base;
    plane->binding_ref = xstrdup(binding_ref);
    plane->layout = b->layout;
    e->base_url = b->proxy_url;
    e->token = b->token;
    e->peer = "gateway";
    e->call_timeout_ms = b->proxy_timeout_ms;
    e->headers[e->n_headers++] = (struct http_header){"X-Sandbox-Id", plane->binding_ref};
    if (b->gateway.key.value != NULL)
        e->headers[e->n_headers++] = b->gateway.key;
    return plane;
}

void enterprise_plane_free(struct plane *plane)
{
    if (plane == NULL)
        return;
    free(plane->binding_ref);
    free(plane);
}

/* Whether the binding still exists shows with the first request through the plane. */
static void enterprise_reopen(struct backend *b, struct op *op, const char *binding_ref,
                              struct plane **ret)
{
    struct error err;

    if (!b->ops->check_binding_ref(b, binding_ref, &err)) {
        op_complete(op, &err);
        return;
    }
    *ret = enterprise_plane_new(enterprise_of(b), binding_ref);
    op_complete(op, NULL);
}

static void enterprise_release(struct backend *b, struct op *op, struct plane *plane)
{
    PRE(plane->backend == b);
    enterprise_plane_free(plane);
    op_complete(op, NULL);
}

static void enterprise_run_command(struct backend *b, struct op *op, struct plane *plane,
                                   const struct command_spec *spec, struct command_result *ret)
{
    shellctl_run_command(b, op, &plane->endpoint, &plane->layout, spec, ret);
}

/* ---- snapshots ------------------------------------------------------------------------------- */

static void enterprise_snapshot_create(struct backend *b, struct op *op,
                                       const struct snapshot_spec *spec, struct plane *plane,
                                       const char **ret_ref)
{
    PRE(plane->backend == b);
    gateway_create_snapshot(&enterprise_of(b)->gateway, op, plane->binding_ref, spec, ret_ref);
}

static void enterprise_snapshot_delete(struct backend *b, struct op *op, const char *snapshot_ref)
{
    struct error err;

    if (!b->ops->check_snapshot_ref(b, snapshot_ref, &err)) {
        op_complete(op, &err);
        return;
    }
    gateway_delete_snapshot(&enterprise_of(b)->gateway, op, snapshot_ref);
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* The ref travels in a header and as one percent-encoded path segment. Encoding cannot save the
 * dot segments, and a slash has no business in an id that the gateway itself compares by segment. */
static bool check_ref(const char *ref, bool allow_slash, struct error *err)
{
    size_t len = strlen(ref);

    if (len == 0 || len > REF_MAX || !quote_is_header_safe(ref) || !quote_is_utf8(ref, len) ||
        strcmp(ref, ".") == 0 || strcmp(ref, "..") == 0 || strstr(ref, "/../") != NULL ||
        strncmp(ref, "../", 3) == 0 || (len >= 3 && strcmp(ref + len - 3, "/..") == 0) ||
        (!allow_slash && strpbrk(ref, "/\\") != NULL)) {
        error_set(err, ERR_INVALID_REF,
                  "not a reference that the Enterprise gateway can have issued");
        return false;
    }
    return true;
}

static bool enterprise_check_binding_ref(struct backend *b, const char *ref, struct error *err)
{
    (void)b;
    return check_ref(ref, false, err);
}

static bool enterprise_check_snapshot_ref(struct backend *b, const char *ref, struct error *err)
{
    (void)b;
    return check_ref(ref, true, err);
}

static bool enterprise_answer_means_lost(struct backend *b, int status, const char *body,
                                         size_t len)
{
    struct arena *scratch = arena_new();
    struct json_object *root = NULL, *error = NULL, *code = NULL;
    bool lost = false;

    (void)b;
    if (json_parse(scratch, body, len, &root, NULL, NULL) &&
        json_object_is_type(root, json_type_object)) {
        if (json_object_object_get_ex(root, "error", &error) &&
            json_object_is_type(error, json_type_object))
            root = error;
        if ((json_object_object_get_ex(root, "code", &code) ||
             json_object_object_get_ex(root, "reason", &code)) &&
            json_object_is_type(code, json_type_string))
            lost = enterprise_says_gone(status, json_object_get_string(code));
    }
    arena_free(scratch);
    return lost;
}

static bool enterprise_ready(struct backend *b, struct error *err)
{
    struct enterprise_backend *e = enterprise_of(b);

    if (e->gateway.auth_failed) {
        error_set(err, ERR_BACKEND_AUTH,
                  "the Enterprise gateway refuses our key: check "
                  "DIFY_AGENT_ENTERPRISE_SANDBOX_GATEWAY_AUTH_TOKEN");
        return false;
    }
    return true;
}

static void enterprise_describe(struct backend *b, struct json_writer *w)
{
    struct enterprise_backend *e = enterprise_of(b);

    json_object_begin(w);
    json_member_string(w, "gateway", e->gateway.base_url);
    json_member_string(w, "workspace_dir", e->layout.workspace_dir);
    json_member_bool(w, "home_snapshots", (b->caps & BACKEND_SNAPSHOTS) != 0);
    json_member_int(w, "throttled_ms", throttle_closed_ms(&e->gateway.throttle));
    json_object_finish(w);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void enterprise_free(struct backend *b)
{
    struct enterprise_backend *e = enterprise_of(b);

    throttle_fini(&e->gateway.throttle);
    arena_free(e->arena);
    free(e);
}

static const struct backend_ops enterprise_ops = {
    .name = "enterprise",
    .create_binding = enterprise_create_binding,
    .acquire = enterprise_acquire,
    .reopen = enterprise_reopen,
    .release = enterprise_release,
    .destroy_binding = enterprise_destroy_binding,
    .snapshot_create = enterprise_snapshot_create,
    .snapshot_delete = enterprise_snapshot_delete,
    .run_command = enterprise_run_command,
    .answer_means_lost = enterprise_answer_means_lost,
    .check_binding_ref = enterprise_check_binding_ref,
    .check_snapshot_ref = enterprise_check_snapshot_ref,
    .ready = enterprise_ready,
    .describe = enterprise_describe,
    .free = enterprise_free,
};

struct backend *enterprise_backend_new(struct loop *loop, struct http_client *http,
                                       const struct enterprise_options *options, struct error *err)
{
    struct enterprise_backend *e;
    size_t len = strlen(options->endpoint);
    const char *token = options->auth_token != NULL ? options->auth_token : "";

    if (!quote_is_header_safe(token)) {
        error_set(err, ERR_BAD_REQUEST,
                  "DIFY_AGENT_ENTERPRISE_SANDBOX_GATEWAY_AUTH_TOKEN holds control characters");
        return NULL;
    }
    e = xcalloc(1, sizeof(*e));
    e->arena = arena_new();
    e->base = (struct backend){
        .ops = &enterprise_ops,
        .caps = options->snapshots ? BACKEND_SNAPSHOTS : 0,
        .loop = loop,
        .http = http,
    };
    while (len > 0 && options->endpoint[len - 1] == '/')
        len--;
    e->token = arena_strdup(e->arena, token);
    e->layout = (struct layout){home_dir, arena_strdup(e->arena, options->workspace_dir)};
    e->proxy_timeout_ms = options->proxy_timeout_ms;
    e->validation_timeout_ms = options->validation_timeout_ms;
    e->gateway = (struct gateway){
        .loop = loop,
        .http = http,
        .base_url = arena_memdup(e->arena, options->endpoint, len),
        .key = {"X-Inner-Api-Key", token[0] != '\0' ? e->token : NULL},
        .timeout_ms = options->gateway_timeout_ms,
        .snapshot_timeout_ms = options->snapshot_timeout_ms,
        .retry_budget_ms = options->retry_budget_ms,
    };
    e->proxy_url = arena_printf(e->arena, "%s/proxy", e->gateway.base_url);
    e->probe_script = script_probe(e->arena, &e->layout);
    throttle_init(&e->gateway.throttle, loop);
    return &e->base;
}
