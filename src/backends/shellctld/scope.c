#include "backends/shellctld/scope.h"

#include "backends/shellctld/fault.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool scope_equal(const struct scope *a, const struct scope *b)
{
    if (!scope_is_confined(a) || !scope_is_confined(b))
        return scope_is_confined(a) == scope_is_confined(b);
    return strcmp(a->home, b->home) == 0 && strcmp(a->workspace, b->workspace) == 0;
}

/* Absolute, at least one component, none of them empty, `.` or `..`. */
static bool is_plain_path(const char *path)
{
    if (path[0] != '/' || strlen(path) >= PATH_MAX)
        return false;
    while (*path == '/') {
        size_t len = strcspn(++path, "/");
        if (len == 0 || (len <= 2 && strncmp(path, "..", len) == 0))
            return false;
        path += len;
    }
    return true;
}

bool scope_parse(struct arena *arena, const char *home, const char *workspace, struct scope *ret,
                 struct error *err)
{
    *ret = (struct scope){NULL, NULL};
    if (home == NULL && workspace == NULL)
        return true;
    if (home == NULL || workspace == NULL) {
        fault_set(err, FAULT_INVALID_REQUEST, "%s and %s come together or not at all",
                  SCOPE_HOME_HEADER, SCOPE_WORKSPACE_HEADER);
        return false;
    }
    if (!is_plain_path(home) || !is_plain_path(workspace)) {
        fault_set(err, FAULT_INVALID_REQUEST, "%s must be an absolute path without `.` or `..`",
                  is_plain_path(home) ? SCOPE_WORKSPACE_HEADER : SCOPE_HOME_HEADER);
        return false;
    }
    ret->home = arena_strdup(arena, home);
    ret->workspace = arena_strdup(arena, workspace);
    return true;
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool scope_check_exists(const struct scope *scope, struct error *err)
{
    if (!scope_is_confined(scope))
        return true;
    if (is_folder(scope->home) && is_folder(scope->workspace))
        return true;
    fault_set(err, FAULT_SANDBOX_NOT_FOUND, "the sandbox's %s is gone",
              is_folder(scope->home) ? "Workspace" : "Home");
    return false;
}

static bool is_within(const char *path, const char *folder)
{
    char resolved[PATH_MAX];
    size_t len;

    if (realpath(folder, resolved) == NULL)
        return false;
    len = strlen(resolved);
    return strncmp(path, resolved, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* A path under the name that every sandbox system gives the Home, as the Home of this scope. */
static const char *own_home(const struct scope *scope, struct arena *arena, const char *path)
{
    size_t len = strlen(CANONICAL_HOME);

    if (!scope_is_confined(scope) || strncmp(path, CANONICAL_HOME, len) != 0 ||
        (path[len] != '/' && path[len] != '\0') || strncmp(scope->home, CANONICAL_HOME, len) == 0)
        return path;
    return arena_printf(arena, "%s%s", scope->home, path + len);
}

const char *scope_resolve_cwd(const struct scope *scope, struct arena *arena, const char *cwd,
                              const char *default_dir, struct error *err)
{
    char resolved[PATH_MAX];
    const char *base = scope_is_confined(scope) ? scope->workspace : default_dir;

    if (cwd == NULL || cwd[0] == '\0')
        cwd = base;
    else if (cwd[0] != '/' && scope_is_confined(scope))
        cwd = arena_printf(arena, "%s/%s", base, cwd);
    cwd = own_home(scope, arena, cwd);
    if (realpath(cwd, resolved) == NULL || !is_folder(resolved)) {
        fault_set(err, FAULT_INVALID_CWD, "cwd is not an existing directory: %.200s", cwd);
        return NULL;
    }
    if (scope_is_confined(scope) && !is_within(resolved, scope->home) &&
        !is_within(resolved, scope->workspace)) {
        fault_set(err, FAULT_INVALID_CWD, "cwd is outside the sandbox's Home and Workspace: %.200s",
                  cwd);
        return NULL;
    }
    return arena_strdup(arena, resolved);
}
