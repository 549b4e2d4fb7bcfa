#include "backends/shellctld/job_env.h"

#include <stdlib.h>
#include <string.h>

struct env {
    struct arena *arena;
    const char **items;
    size_t n, cap;
};

/* Set or replace. */
static void put(struct env *env, const char *name, const char *value)
{
    size_t len = strlen(name), i = 0;

    while (i < env->n && (strncmp(env->items[i], name, len) != 0 || env->items[i][len] != '='))
        i++;
    if (i + 1 >= env->cap) {
        size_t cap = env->cap == 0 ? 32 : env->cap * 2;
        const char **more = arena_alloc(env->arena, cap * sizeof *more);
        if (env->n > 0)
            memcpy(more, env->items, env->n * sizeof *more);
        env->items = more;
        env->cap = cap;
    }
    env->items[i] = arena_printf(env->arena, "%s=%s", name, value);
    if (i == env->n)
        env->n++;
    env->items[env->n] = NULL;
}

static const char *find(char *const *inherited, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; inherited[i] != NULL; i++) {
        if (strncmp(inherited[i], name, len) == 0 && inherited[i][len] == '=')
            return inherited[i] + len + 1;
    }
    return NULL;
}

bool job_env_is_ours(const char *item)
{
    static const char *const prefixes[] = {"SHELLCTL_", "DIFY_", "BINDERY_", "TMUX", NULL};

    for (size_t i = 0; prefixes[i] != NULL; i++) {
        if (strncasecmp(item, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    }
    return false;
}

static void put_inherited(struct env *env, char *const *inherited)
{
    for (size_t i = 0; inherited[i] != NULL; i++) {
        const char *equals = strchr(inherited[i], '=');
        if (equals != NULL && !job_env_is_ours(inherited[i]))
            put(env, arena_memdup(env->arena, inherited[i], (size_t)(equals - inherited[i])),
                equals + 1);
    }
}

static void put_fresh(struct env *env, char *const *inherited, const char *user)
{
    static const char *const kept[] = {"LANG", "LC_ALL", "LC_CTYPE", "TZ", NULL};

    put(env, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    put(env, "LANG", "C.UTF-8");
    for (size_t i = 0; kept[i] != NULL; i++) {
        const char *value = find(inherited, kept[i]);
        if (value != NULL)
            put(env, kept[i], value);
    }
    put(env, "USER", user);
    put(env, "LOGNAME", user);
    put(env, "SHELL", "/bin/sh");
}

const char **job_env_build(struct arena *arena, const struct runner_spec *spec,
                           char *const *inherited, const char *user, const char *temporary)
{
    struct env env = {.arena = arena};

    if (spec->scope == RUNNER_CONTROL)
        put_inherited(&env, inherited);
    else
        put_fresh(&env, inherited, user);
    put(&env, "HOME", spec->home);
    put(&env, "PWD", spec->cwd);
    if (spec->mode == RUNNER_PTY)
        put(&env, "TERM", "xterm-256color");
    if (temporary != NULL) {
        put(&env, "TMPDIR", temporary);
        put(&env, "TMP", temporary);
        put(&env, "TEMP", temporary);
    }
    for (size_t i = 0; spec->env != NULL && spec->env[i] != NULL; i += 2)
        put(&env, spec->env[i], spec->env[i + 1]);
    return env.items;
}
