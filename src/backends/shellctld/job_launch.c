#include "backends/shellctld/job_launch.h"

#include "backends/shellctld/fault.h"
#include "backends/shellctld/job_process.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { OVERLOADED_RETRY_MS = 1000 };

void launcher_set_isolation(struct launcher *launcher, const struct isolation *isolation)
{
    launcher->isolation = *isolation;
    launcher->unbound_isolation = *isolation;
    launcher->unbound_isolation.layers &= ~(unsigned)LAYER_UID;
}

/* HOME of a job. A confined one cannot choose, and it is never made; others take the request's, and
 * it is made where it is missing, as shellctl's runner does. NULL with the fault INTERNAL. */
static const char *home_of(const struct launcher *launcher, struct arena *arena,
                           const struct scope *scope, const struct run_request *request,
                           struct error *err)
{
    const char *home = launcher->user_home;
    char resolved[PATH_MAX];

    if (scope_is_confined(scope))
        return scope->home;
    for (size_t i = 0; request->env != NULL && request->env[i] != NULL; i += 2)
        if (strcmp(request->env[i], "HOME") == 0 && request->env[i + 1][0] == '/')
            home = request->env[i + 1];
    if ((mkdir(home, 0700) != 0 && errno != EEXIST) || realpath(home, resolved) == NULL) {
        fault_set(err, FAULT_INTERNAL, "cannot make HOME %.200s: %s", home, strerror(errno));
        return NULL;
    }
    /* An isolated job sees folders, not the links that lead to them. */
    return launcher->confine_unscoped ? arena_strdup(arena, resolved) : home;
}

/* The request's variables without HOME, which the spec gives. */
static const char *const *env_without_home(struct arena *arena, const char *const *env)
{
    const char **words;
    size_t n = 0, kept = 0;

    while (env != NULL && env[n] != NULL)
        n += 2;
    words = arena_alloc(arena, (n + 1) * sizeof(*words));
    for (size_t i = 0; i < n; i += 2) {
        if (strcmp(env[i], "HOME") == 0)
            continue;
        words[kept++] = env[i];
        words[kept++] = env[i + 1];
    }
    return words;
}

static bool has_room(const struct launcher *launcher, struct error *err)
{
    if (job_live_count(launcher->jobs) < launcher->max_live)
        return true;
    fault_set(err, FAULT_OVERLOADED, "%zu jobs run already (BINDERY_JOB_MAX_RUNNING)",
              launcher->max_live);
    err->retry_after_ms = OVERLOADED_RETRY_MS;
    return false;
}

struct job *job_launch(struct launcher *launcher, struct arena *arena, const struct scope *scope,
                       const struct run_request *request, struct error *err)
{
    bool unbound = !scope_is_confined(scope) && launcher->confine_unscoped;
    struct runner_spec spec = {
        .mode = request->stdio ? RUNNER_STDIO : RUNNER_PTY,
        .scope = scope_is_confined(scope) || unbound ? RUNNER_SCOPED : RUNNER_CONTROL,
        .cols = request->cols,
        .rows = request->rows,
        .limits = launcher->limits,
    };
    struct job_seed seed = {*scope, request->script, request->stdio, unbound};
    struct job *job;

    if (!scope_check_exists(scope, err))
        return NULL;
    spec.cwd = scope_resolve_cwd(scope, arena, request->cwd, launcher->user_home, err);
    if (spec.cwd == NULL || !has_room(launcher, err))
        return NULL;
    spec.home = home_of(launcher, arena, scope, request, err);
    if (spec.home == NULL)
        return NULL;
    spec.workspace = scope_is_confined(scope) ? scope->workspace : unbound ? spec.cwd : NULL;
    spec.env = env_without_home(arena, request->env);
    job = job_store_create(launcher->store, launcher->jobs, &seed, err);
    if (job == NULL)
        return NULL;
    if (!runner_spec_write(job->dir, &spec,
                           unbound ? &launcher->unbound_isolation : &launcher->isolation, err)) {
        job_store_delete(job);
        return NULL;
    }
    job_process_start(job);
    return job;
}
