#include "http/codec.h"

#include <json-c/json.h>
#include <string.h>

/* ---- control plane --------------------------------------------------------------------------- */

void codec_read_binding_spec(struct json_reader *r, struct binding_spec *ret)
{
    ret->tenant_id = json_read_string(r, "tenant_id", 1);
    ret->agent_id = json_read_string(r, "agent_id", 1);
    ret->binding_id = json_read_string(r, "binding_id", 1);
    ret->workspace_id = json_read_string(r, "workspace_id", 1);
    ret->existing_workspace_ref = json_read_string_opt(r, "existing_workspace_ref", 0);
    ret->home_snapshot_ref = json_read_string_opt(r, "home_snapshot_ref", 1);
}

void codec_read_destroy_spec(struct json_reader *r, struct destroy_spec *ret)
{
    int before = r->count;

    ret->binding_ref = json_read_string(r, "binding_ref", 1);
    ret->destroy_workspace = json_read_bool(r, "destroy_workspace", true, false, true);
    ret->workspace_ref = json_read_string_opt(r, "workspace_ref", 0);
    /* a rule of the whole model, looked at only when its fields are right */
    if (r->count == before && ret->destroy_workspace &&
        (ret->workspace_ref == NULL || ret->workspace_ref[0] == '\0'))
        json_reader_problem(
            r, NULL, "value_error",
            "Value error, workspace_ref is required when destroy_workspace is true");
}

void codec_read_snapshot_spec(struct json_reader *r, struct snapshot_spec *ret,
                              const char **ret_binding_ref)
{
    ret->tenant_id = json_read_string(r, "tenant_id", 1);
    ret->agent_id = json_read_string(r, "agent_id", 1);
    ret->home_snapshot_id = json_read_string(r, "home_snapshot_id", 1);
    *ret_binding_ref = json_read_string(r, "backend_binding_ref", 1);
}

void codec_write_binding(struct json_writer *w, const struct binding *binding)
{
    json_member_string(w, "binding_ref", binding->binding_ref);
    json_member_string(w, "workspace_ref", binding->workspace_ref);
}

bool codec_read_execution_context(struct json_reader *r)
{
    static const char *const modes[] = {"workflow_run", "single_step", "agent_app",
                                        "babysit",      "fasten",      NULL};
    static const char *const invokers[] = {"service-api", "openapi",    "web-app",
                                           "trigger",     "explore",    "debugger",
                                           "published",   "validation", NULL};
    static const char *const users[] = {"account", "end-user", NULL};
    static const char *const optional[] = {"app_id",
                                           "workflow_id",
                                           "workflow_run_id",
                                           "node_id",
                                           "node_execution_id",
                                           "conversation_id",
                                           "agent_id",
                                           "agent_config_version_id",
                                           "trace_id",
                                           NULL};
    struct json_reader context;
    const char *user_id, *user_from;

    if (!json_read_object(r, "execution_context", true, &context))
        return false;
    json_read_string(&context, "tenant_id", 0);
    json_read_choice(&context, "agent_mode", true, modes);
    json_read_choice(&context, "invoke_from", true, invokers);
    user_id = json_read_string_opt(&context, "user_id", 0);
    user_from = json_read_choice(&context, "user_from", false, users);
    for (size_t i = 0; optional[i] != NULL; i++)
        json_read_string_opt(&context, optional[i], 0);
    if (!json_reader_finish(&context, false, NULL))
        return false;
    return user_id != NULL && user_id[0] != '\0' && user_from != NULL;
}

/* ---- leases ---------------------------------------------------------------------------------- */

enum { MILLISECONDS = 1000 };

int64_t codec_read_ttl_ms(struct json_reader *r)
{
    double seconds = json_read_double(r, "ttl_seconds", false, 0);
    bool given = json_object_object_get(r->object, "ttl_seconds") != NULL;

    if (given && !(seconds > 0 && seconds <= 1e9)) {
        json_reader_problem(r, "ttl_seconds", "greater_than", "Input should be greater than 0");
        return 0;
    }
    return (int64_t)(seconds * MILLISECONDS);
}

static void command_env_problem(struct json_reader *r, const char *message)
{
    json_reader_problem(r, "env", "value_error", message);
}

/* NAME, value, …, NULL from an object of strings (rules: shellctl.md 4.1). */
static const char *const *read_env(struct json_reader *r)
{
    struct json_object *env = json_read_any(r, "env");
    const char **list;
    size_t n = 0;

    if (env == NULL)
        return NULL;
    if (!json_object_is_type(env, json_type_object)) {
        json_reader_problem(r, "env", "dict_type", "Input should be a valid dictionary");
        return NULL;
    }
    list = arena_alloc(r->arena, (2 * (size_t)json_object_object_length(env) + 1) * sizeof(*list));
    json_object_object_foreach(env, name, value)
    {
        if (!json_object_is_type(value, json_type_string)) {
            command_env_problem(r, "Value error, every value of env must be a string");
            return NULL;
        }
        if (name[0] == '\0' || strchr(name, '=') != NULL) {
            command_env_problem(r, "Value error, a name in env is empty or holds an equals sign");
            return NULL;
        }
        if (strlen(json_object_get_string(value)) != (size_t)json_object_get_string_len(value)) {
            command_env_problem(r, "Value error, a value of env holds a NUL");
            return NULL;
        }
        list[n++] = arena_strdup(r->arena, name);
        list[n++] = arena_strdup(r->arena, json_object_get_string(value));
    }
    return list;
}

void codec_read_command(struct json_reader *r, struct command_spec *ret)
{
    static const char *const modes[] = {"pty", "stdio", NULL};
    const char *mode;
    double timeout_s;

    ret->script = json_read_string(r, "script", 1);
    ret->cwd = json_read_string_opt(r, "cwd", 0);
    ret->env = read_env(r);
    timeout_s = json_read_double(r, "timeout_seconds", false, COMMAND_TIMEOUT_DEFAULT_S);
    if (!(timeout_s > 0 && timeout_s <= COMMAND_TIMEOUT_MAX_S))
        json_reader_problem(r, "timeout_seconds", "value_error",
                            "Value error, timeout_seconds must be above 0 and at most 3600");
    else
        ret->timeout_ms = (long)(timeout_s * MILLISECONDS);
    ret->max_output = (size_t)json_read_int(r, "max_output_bytes", false, COMMAND_OUTPUT_DEFAULT, 1,
                                            COMMAND_OUTPUT_MAX);
    mode = json_read_choice(r, "mode", false, modes);
    ret->stdio = mode != NULL && strcmp(mode, "stdio") == 0;
}

void codec_write_command_result(struct json_writer *w, const struct command_result *result,
                                int64_t duration_ms)
{
    json_member_string(w, "status", result->status);
    if (strcmp(result->status, "exited") == 0)
        json_member_int(w, "exit_code", result->exit_code);
    else /* shellctl reports 0 for jobs that never exited */
        json_member_null(w, "exit_code");
    json_key(w, "output");
    json_string_n(w, result->output, result->output_len);
    json_member_bool(w, "truncated", result->truncated);
    json_member_string(w, "stop_reason", result->stop_reason);
    json_member_int(w, "duration_ms", duration_ms);
}

static void write_layout(struct json_writer *w, const struct layout *layout)
{
    json_key(w, "layout");
    json_object_begin(w);
    json_member_string(w, "home_dir", layout->home_dir);
    json_member_string(w, "workspace_dir", layout->workspace_dir);
    json_object_finish(w);
}

void codec_write_lease(struct json_writer *w, const struct lease_grant *grant, const char *base_url)
{
    json_member_string(w, "lease_id", grant->id);
    json_member_string(w, "binding_ref", grant->binding_ref);
    json_member_string(w, "backend", grant->backend);
    if (grant->layout.home_dir != NULL)
        write_layout(w, &grant->layout);
    json_key(w, "acquired_at");
    json_time_ms(w, grant->acquired_wall_ms);
    json_key(w, "expires_at");
    json_time_ms(w, grant->expires_wall_ms);
    json_key(w, "shellctl");
    json_object_begin(w);
    json_member_string(w, "base_url", base_url);
    if (grant->token != NULL)
        json_member_string(w, "token", grant->token);
    json_object_finish(w);
}
