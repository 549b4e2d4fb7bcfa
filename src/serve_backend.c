#include "serve_backend.h"

#include "backends/enterprise/enterprise.h"
#include "backends/local/embedded.h"
#include "backends/local/local_backend.h"
#include "backends/openshell/openshell.h"
#include "backends/shellctl/job_delete.h"

#include "core/runtime/json.h"

#include <string.h>

enum { DELETES_MS = 3000 }; /* that transient jobs get to be deleted at the end */

/* One function for each value of DIFY_AGENT_RUNTIME_BACKEND. */
struct constructor {
    const char *name;
    bool (*start)(struct served_backend *ret, struct loop *loop, struct http_client *http,
                  const struct config *config, struct error *err);
};

/* ---- local: the embedded daemon, or a shellctl of the operator's */

static void on_embedded_change(void *ctx, bool ready)
{
    struct served_backend *served = ctx;
    struct error why;

    if (served->backend == NULL)
        return;
    if (ready || embedded_ready(served->embedded, &why))
        local_backend_set_ready(served->backend, NULL);
    else
        local_backend_set_ready(served->backend, &why);
}

/* Roots that were not set explicitly lie in the data folder of the embedded sandbox. */
static const char *root_of(const struct config *config, int which, const char *configured,
                           const char *name)
{
    if (config->local_roots_given[which])
        return configured;
    return arena_printf(config->arena, "%s/sandbox/%s", config->data_dir, name);
}

static bool start_embedded(struct served_backend *ret, struct loop *loop, struct http_client *http,
                           const struct config *config, struct error *err)
{
    struct local_options options = {
        .base_url = "http://sandbox",
        .embedded = true,
        .home_root = root_of(config, 0, config->local_home_root, "homes"),
        .workspace_root = root_of(config, 1, config->local_workspace_root, "workspaces"),
        .snapshot_root = root_of(config, 2, config->local_snapshot_root, "snapshots"),
        .instance_id = config->instance_id,
        .acquire_timeout_ms = config->acquire_timeout_ms,
    };
    struct embedded_options embedded = {
        .config = config,
        .data_dir = config->data_dir,
        .home_root = options.home_root,
        .workspace_root = options.workspace_root,
        .on_change = on_embedded_change,
        .ctx = ret,
    };

    ret->embedded = embedded_start(loop, &embedded, err);
    if (ret->embedded == NULL)
        return false;
    options.unix_socket = embedded_socket(ret->embedded);
    ret->backend = local_backend_new(loop, http, &options, err);
    if (ret->backend != NULL)
        on_embedded_change(ret, false);
    return ret->backend != NULL;
}

static bool start_local(struct served_backend *ret, struct loop *loop, struct http_client *http,
                        const struct config *config, struct error *err)
{
    if (config->local_endpoint_given && config->local_endpoint[0] == '\0')
        return true; /* no sandbox at all: 503 on every route that needs one */
    if (!config->local_endpoint_given)
        return start_embedded(ret, loop, http, config, err);
    ret->backend = local_backend_new(loop, http,
                                     &(struct local_options){
                                         .base_url = config->local_endpoint,
                                         .token = config->local_auth_token,
                                         .home_root = config->local_home_root,
                                         .workspace_root = config->local_workspace_root,
                                         .snapshot_root = config->local_snapshot_root,
                                         .instance_id = config->instance_id,
                                         .acquire_timeout_ms = config->acquire_timeout_ms,
                                     },
                                     err);
    return ret->backend != NULL;
}

/* ---- enterprise: a sandbox gateway */

static bool start_enterprise(struct served_backend *ret, struct loop *loop,
                             struct http_client *http, const struct config *config,
                             struct error *err)
{
    ret->backend =
        enterprise_backend_new(loop, http,
                               &(struct enterprise_options){
                                   .endpoint = config->enterprise_endpoint,
                                   .auth_token = config->enterprise_auth_token,
                                   .workspace_dir = config->enterprise_workspace_dir,
                                   .gateway_timeout_ms = config->enterprise_gateway_timeout_ms,
                                   .proxy_timeout_ms = config->enterprise_proxy_timeout_ms,
                                   .snapshot_timeout_ms = config->enterprise_snapshot_timeout_ms,
                                   .validation_timeout_ms = config->acquire_timeout_ms,
                                   .retry_budget_ms = config->enterprise_retry_budget_ms,
                                   .snapshots = config->enterprise_snapshots,
                               },
                               err);
    return ret->backend != NULL;
}

/* ---- openshell: a sandbox of its own for each binding, over gRPC */

static bool start_openshell(struct served_backend *ret, struct loop *loop, struct http_client *http,
                            const struct config *config, struct error *err)
{
    ret->backend =
        openshell_backend_new(loop, http,
                              &(struct openshell_options){
                                  .endpoint = config->openshell_endpoint,
                                  .workspace = config->openshell_workspace,
                                  .bearer_token = config->openshell_bearer_token,
                                  .tls_ca_path = config->openshell_tls_ca_path,
                                  .tls_cert_path = config->openshell_tls_cert_path,
                                  .tls_key_path = config->openshell_tls_key_path,
                                  .insecure = config->openshell_insecure,
                                  .image = config->openshell_image,
                                  .driver_config = config->openshell_driver_config,
                                  .shared_mount_path = config->openshell_shared_mount_path,
                                  .egress_allow = config->openshell_egress_allow,
                                  .shellctl_token = config->openshell_shellctl_token,
                                  .shellctl_port = (int)config->openshell_shellctl_port,
                                  .ready_timeout_ms = config->openshell_ready_timeout_ms,
                                  .exec_timeout_s = (int)config->openshell_exec_timeout_s,
                                  .validation_timeout_ms = config->acquire_timeout_ms,
                                  .idle_stop_ms = config->openshell_idle_stop_ms,
                                  .instance_id = config->instance_id,
                              },
                              err);
    return ret->backend != NULL;
}

/* ---- all */

static const struct constructor constructors[] = {
    {"local", start_local},
    {"enterprise", start_enterprise},
    {"openshell", start_openshell},
};

bool served_backend_start(struct served_backend *ret, struct loop *loop, struct http_client *http,
                          const struct config *config, struct error *err)
{
    *ret = (struct served_backend){0};
    for (size_t i = 0; i < sizeof(constructors) / sizeof(*constructors); i++) {
        if (strcmp(constructors[i].name, config->runtime_backend) == 0)
            return constructors[i].start(ret, loop, http, config, err);
    }
    error_set(err, ERR_NOT_IMPLEMENTED, "this build has no %s backend", config->runtime_backend);
    return false;
}

void served_backend_describe(const struct served_backend *served, struct json_writer *w)
{
    struct backend *backend = served->backend;

    json_object_begin(w);
    json_member_string(w, "name", backend != NULL ? backend->ops->name : NULL);
    if (backend != NULL && backend->ops->describe != NULL) {
        json_key(w, "facts");
        backend->ops->describe(backend, w);
    }
    if (served->embedded != NULL) {
        json_key(w, "sandbox");
        embedded_describe(served->embedded, w);
    }
    json_object_finish(w);
}

static void on_deletes_over(void *ctx)
{
    struct served_backend *served = ctx;

    if (served->embedded != NULL)
        embedded_stop(served->embedded, served->stopped, served->stopped_ctx);
    else
        served->stopped(served->stopped_ctx);
}

void served_backend_stop(struct served_backend *served, struct loop *loop, void (*done)(void *ctx),
                         void *ctx)
{
    served->stopped = done;
    served->stopped_ctx = ctx;
    job_deletes_finish(loop, DELETES_MS, on_deletes_over, served);
}

bool served_backend_owns(void *ctx, pid_t pid)
{
    const struct served_backend *served = ctx;

    return served->embedded != NULL && embedded_is_child(served->embedded, pid);
}

void served_backend_free(struct served_backend *served)
{
    if (served->backend != NULL)
        served->backend->ops->free(served->backend);
    served->backend = NULL;
    embedded_free(served->embedded);
    served->embedded = NULL;
}
