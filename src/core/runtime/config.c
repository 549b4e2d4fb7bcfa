#include "core/runtime/config.h"

#include "core/runtime/config_check.h"
#include "core/runtime/config_env.h"
#include "core/runtime/config_table.h"

#include <string.h>
#include <strings.h>

enum { LEASE_SECRET_MIN = 16 };

/* A parse in progress. */
struct parse {
    struct config *config;
    struct arena *arena;
    struct env_sources env;
    struct env_value *found; /* per setting; all-zero when it was not given */
    struct buf *problems;
};

/* ---- fields ---------------------------------------------------------------------------------- */

static const char **text_field(const struct config *config, const struct setting *s)
{
    return (const char **)(void *)((char *)config + s->offset);
}

static int64_t *int_field(const struct config *config, const struct setting *s)
{
    return (int64_t *)(void *)((char *)config + s->offset);
}

static bool *bool_field(const struct config *config, const struct setting *s)
{
    return (bool *)(void *)((char *)config + s->offset);
}

static bool is_text(const struct setting *s)
{
    return s->kind == SETTING_TEXT || s->kind == SETTING_CHOICE;
}

static void number_store(const struct config *config, const struct setting *s, int64_t number)
{
    if (s->kind == SETTING_BOOL)
        *bool_field(config, s) = number != 0;
    else
        *int_field(config, s) = number;
}

/* ---- problems -------------------------------------------------------------------------------- */

static void report(struct parse *p, const struct setting *s, const char *why)
{
    const struct env_value *v = &p->found[s - settings];
    char expects[160];

    setting_expects(s, expects, sizeof(expects));
    buf_addf(p->problems, "%s", v->name != NULL ? v->name : s->name);
    if (v->value != NULL)
        buf_addf(p->problems, "='%s'", config_shown(s, v->value, p->arena));
    if (v->where != NULL)
        buf_addf(p->problems, " (from %s)", v->where);
    buf_addf(p->problems, ": %s; expected %s\n", why, expects);
}

static void report_rule(struct parse *p, const char *name, const char *why)
{
    buf_addf(p->problems, "%s: %s\n", name, why);
}

/* ---- reading the sources ---------------------------------------------------------------------- */

static const char *stripped(struct arena *arena, const char *text)
{
    static const char white[] = " \t\r\n\f\v";
    size_t len;

    text += strspn(text, white);
    for (len = strlen(text); len > 0 && strchr(white, text[len - 1]) != NULL;)
        len--;
    return arena_memdup(arena, text, len);
}

/* Take a given value over, or the default. Numbers are checked here, for every backend. */
static void setting_read(struct parse *p, const struct setting *s)
{
    struct env_value *v = &p->found[s - settings];
    const char *names[SETTING_NAMES_MAX];
    size_t n_names = setting_names(s, names);
    int64_t number = s->number_default;
    const char *text = s->text_default;
    const char *why = NULL;

    if (env_find(&p->env, names, n_names, v)) {
        if (v->value == NULL)
            why = v->why;
        else if (is_text(s))
            text = (s->flags & SETTING_STRIP) != 0 ? stripped(p->arena, v->value) : v->value;
        else
            why = config_check_number(s, v->value, &number);
        if (why != NULL) {
            report(p, s, why);
        } else if ((s->flags & SETTING_BLANK_UNSET) != 0 && *stripped(p->arena, text) == '\0') {
            text = s->text_default;
            *v = (struct env_value){0};
        }
    }
    if (is_text(s))
        *text_field(p->config, s) = arena_strdup(p->arena, text);
    else
        number_store(p->config, s, number);
}

/* ---- checking -------------------------------------------------------------------------------- */

static void setting_check(struct parse *p, const struct setting *s, unsigned backend)
{
    unsigned demanded_by = s->flags & SETTING_FOR_ANY_BACKEND;
    const struct env_value *v = &p->found[s - settings];
    const char *text = is_text(s) ? *text_field(p->config, s) : NULL;
    bool blank_means_none = s->check == CHECK_URL && (s->flags & SETTING_REQUIRED) == 0;
    const char *why = NULL;

    if (v->why != NULL || (demanded_by != 0 && (demanded_by & backend) == 0))
        return;
    if (text == NULL) {
        if ((s->flags & SETTING_REQUIRED) != 0)
            report(p, s, "is not set, and the chosen backend needs it");
        return;
    }
    if (blank_means_none && *text == '\0')
        return;
    why = config_check_text(s, text);
    if (why != NULL)
        report(p, s, why);
}

static bool is_base64url(const char *text)
{
    size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_");

    return len > 0 && text[len + strspn(text + len, "=")] == '\0';
}

/* What no single setting says. */
static void rules_check(struct parse *p, unsigned backend)
{
    const struct config *c = p->config;

    if (backend == SETTING_FOR_OPENSHELL &&
        (c->openshell_tls_cert_path == NULL) != (c->openshell_tls_key_path == NULL))
        report_rule(p,
                    c->openshell_tls_cert_path == NULL ? "DIFY_AGENT_OPENSHELL_TLS_CLIENT_CERT_PATH"
                                                       : "DIFY_AGENT_OPENSHELL_TLS_CLIENT_KEY_PATH",
                    "is not set, but its counterpart is; set certificate and key, or neither");
    if (c->lease_secret != NULL && strlen(c->lease_secret) < LEASE_SECRET_MIN)
        report_rule(p, "BINDERY_LEASE_SECRET",
                    "is shorter than 16 bytes; make one with: openssl rand -hex 32");
    if (c->server_secret_key != NULL && !is_base64url(c->server_secret_key))
        report_rule(p, "DIFY_AGENT_SERVER_SECRET_KEY", "is not base64url text");
    if (c->stub_api_base_url != NULL && c->server_secret_key == NULL)
        report_rule(p, "DIFY_AGENT_SERVER_SECRET_KEY",
                    "is not set, but DIFY_AGENT_STUB_API_BASE_URL needs it");
    if (c->lease_ttl_ms > c->lease_max_ttl_ms)
        report_rule(p, "BINDERY_LEASE_TTL_SECONDS",
                    "is longer than BINDERY_LEASE_MAX_TTL_SECONDS; raise that or lower this");
    if (c->lease_max_ttl_ms > c->lease_max_total_ms)
        report_rule(p, "BINDERY_LEASE_MAX_TTL_SECONDS",
                    "is longer than BINDERY_LEASE_MAX_TOTAL_SECONDS; raise that or lower this");
}

static void data_dir_default(struct parse *p)
{
    const char *state = env_process(&p->env, "XDG_STATE_HOME");
    const char *home = env_process(&p->env, "HOME");

    if (p->config->data_dir != NULL)
        return;
    if (state != NULL && state[0] == '/') /* XDG Base Directory: a relative one is ignored */
        p->config->data_dir = arena_printf(p->arena, "%s/bindery", state);
    else if (home != NULL && home[0] == '/')
        p->config->data_dir =
            arena_printf(p->arena, "%s/.local/state/bindery", home[1] == '\0' ? "" : home);
    else
        report_rule(p, "BINDERY_DATA_DIR",
                    "is not set, and HOME does not tell a default; set it to an absolute path");
}

static bool given(const struct parse *p, const char *name)
{
    for (size_t i = 0; i < n_settings; i++) {
        if (strcmp(settings[i].name, name) == 0)
            return p->found[i].name != NULL;
    }
    UNREACHABLE(name);
}

static bool is_setting(const char *name)
{
    for (size_t i = 0; i < n_settings; i++) {
        const char *names[SETTING_NAMES_MAX];
        size_t n_names = setting_names(&settings[i], names);
        for (size_t n = 0; n < n_names; n++) {
            if (strcasecmp(names[n], name) == 0)
                return true;
        }
    }
    return false;
}

/* Our own prefix with an unknown name is most likely a slip of the pen. */
static const char *unknown_names(const struct parse *p)
{
    const char *unknown = NULL;

    for (size_t s = 0; s < p->env.n_sources; s++) {
        for (size_t i = 0; i < p->env.source[s].n_entries; i++) {
            const char *name = p->env.source[s].entries[i].name;
            if (strncasecmp(name, "BINDERY_", 8) != 0 || is_setting(name))
                continue;
            unknown = unknown == NULL ? name : arena_printf(p->arena, "%s, %s", unknown, name);
            if (strlen(unknown) > 400)
                return unknown;
        }
    }
    return unknown;
}

struct config *config_parse(const struct config_sources *sources, struct buf *problems)
{
    struct arena *arena = arena_new();
    struct parse p = {.arena = arena, .problems = problems};
    size_t before = problems->len;
    unsigned backend;

    p.config = ARENA_NEW(arena, struct config);
    p.config->arena = arena;
    p.found = arena_alloc(arena, n_settings * sizeof(*p.found));
    env_sources_init(&p.env, arena, sources);
    for (size_t i = 0; i < n_settings; i++)
        setting_read(&p, &settings[i]);
    backend = setting_backend_flag(p.config->runtime_backend);
    for (size_t i = 0; i < n_settings; i++)
        setting_check(&p, &settings[i], backend);
    rules_check(&p, backend);
    data_dir_default(&p);
    p.config->local_endpoint_given = given(&p, "DIFY_AGENT_LOCAL_SANDBOX_ENDPOINT");
    p.config->local_roots_given[0] = given(&p, "DIFY_AGENT_LOCAL_SANDBOX_MATERIALIZED_HOME_ROOT");
    p.config->local_roots_given[1] = given(&p, "DIFY_AGENT_LOCAL_SANDBOX_WORKSPACE_ROOT");
    p.config->local_roots_given[2] = given(&p, "DIFY_AGENT_LOCAL_SANDBOX_HOME_SNAPSHOT_ROOT");
    p.config->unknown = unknown_names(&p);
    if (problems->len == before)
        return p.config;
    arena_free(arena);
    return NULL;
}

void config_free(struct config *config)
{
    if (config != NULL)
        arena_free(config->arena);
}
