#include "backends/local/local_internal.h"

#include "core/runtime/quote.h"

#include <stdlib.h>
#include <string.h>

#define SNAPSHOT_PREFIX "home-"

/* ---- ids and refs --------------------------------------------------------------------------- */

static bool is_id(const char *text)
{
    return quote_is_safe_part(text) && text[0] != '.';
}

static bool is_within(const char *path, const char *dir)
{
    size_t len = strlen(dir);

    return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/' || len == 1);
}

/* An id must not name a folder that holds one of the roots. */
static bool is_free(const struct local_backend *l, const char *path)
{
    return !is_within(l->home_root, path) && !is_within(l->workspace_root, path) &&
           !is_within(l->snapshot_root, path);
}

bool local_make_ref(const struct local_backend *l, struct arena *arena, const char *binding_id,
                    const char *workspace_id, struct local_ref *ret, struct error *err)
{
    if (!is_id(binding_id) || !is_id(workspace_id) ||
        strlen(binding_id) + 1 + strlen(workspace_id) > REF_MAX) {
        error_set(
            err, ERR_INVALID_REF,
            "binding_id and workspace_id take letters, digits, `.`, `_` and `-`, do not begin "
            "with a dot, and have at most %d bytes together",
            REF_MAX - 1);
        return false;
    }
    ret->binding_id = binding_id;
    ret->workspace_id = workspace_id;
    ret->layout.home_dir = ARENA_CONCAT(arena, l->home_root, "/", binding_id);
    ret->layout.workspace_dir = ARENA_CONCAT(arena, l->workspace_root, "/", workspace_id);
    if (!is_free(l, ret->layout.home_dir) || !is_free(l, ret->layout.workspace_dir)) {
        error_set(err, ERR_INVALID_REF, "an id names a folder of this installation");
        return false;
    }
    return true;
}

bool local_parse_ref(const struct local_backend *l, struct arena *arena, const char *ref,
                     struct local_ref *ret, struct error *err)
{
    const char *colon = strchr(ref, ':');

    if (colon == NULL || strlen(ref) > REF_MAX ||
        !local_make_ref(l, arena, arena_memdup(arena, ref, (size_t)(colon - ref)),
                        arena_strdup(arena, colon + 1), ret, err)) {
        error_set(err, ERR_INVALID_REF, "binding_ref: the local backend issues no such reference");
        return false;
    }
    return true;
}

bool local_check_binding_ref(struct backend *b, const char *ref, struct error *err)
{
    struct arena *arena = arena_new();
    struct local_ref parsed;
    bool good = local_parse_ref(local_of(b), arena, ref, &parsed, err);

    arena_free(arena);
    return good;
}

bool local_check_snapshot_ref(struct backend *b, const char *ref, struct error *err)
{
    (void)b;
    if (strncmp(ref, SNAPSHOT_PREFIX, strlen(SNAPSHOT_PREFIX)) == 0 && is_id(ref) &&
        ref[strlen(SNAPSHOT_PREFIX)] != '\0')
        return true;
    error_set(err, ERR_INVALID_REF,
              "home_snapshot_ref: the local backend issues no such reference");
    return false;
}

const char *local_snapshot_path(const struct local_backend *l, struct arena *arena, const char *ref)
{
    return ARENA_CONCAT(arena, l->snapshot_root, "/", ref);
}

/* ---- roots ---------------------------------------------------------------------------------- */

static void strip_slashes(char *path)
{
    size_t len = strlen(path);

    while (len > 1 && path[len - 1] == '/')
        path[--len] = '\0';
}

static bool is_plain(const char *path)
{
    return path[0] == '/' && path[1] != '\0' && strstr(path, "//") == NULL &&
           strstr(path, "/../") == NULL && strstr(path, "/./") == NULL &&
           (strlen(path) < 3 || strcmp(path + strlen(path) - 3, "/..") != 0) &&
           strcmp(path + strlen(path) - 2, "/.") != 0 && quote_is_header_safe(path);
}

static size_t common_length(const char *a, size_t len, const char *b)
{
    size_t same = 0, at = 0;

    while (at < len && a[at] == b[at])
        at++;
    for (size_t i = 1; i <= at; i++) {
        bool end_a = i == len || a[i] == '/' || a[i] == '\0';
        bool end_b = b[i] == '\0' || b[i] == '/';
        if (end_a && end_b)
            same = i;
    }
    return same;
}

bool local_check_roots(struct local_backend *l, struct error *err)
{
    const char *roots[] = {l->home_root, l->workspace_root, l->snapshot_root};
    size_t len;

    strip_slashes(l->home_root);
    strip_slashes(l->workspace_root);
    strip_slashes(l->snapshot_root);
    for (int i = 0; i < 3; i++) {
        if (!is_plain(roots[i])) {
            error_set(err, ERR_BAD_REQUEST,
                      "the local backend's root \"%s\" must be an absolute, plain path below /",
                      roots[i]);
            return false;
        }
        for (int j = 0; j < i; j++) {
            if (strcmp(roots[i], roots[j]) == 0) {
                error_set(err, ERR_BAD_REQUEST,
                          "the local backend needs three different roots for Homes, Workspaces and "
                          "Snapshots; \"%s\" is given twice",
                          roots[i]);
                return false;
            }
        }
    }
    len = strlen(l->home_root);
    len = common_length(l->home_root, len, l->workspace_root);
    len = common_length(l->home_root, len, l->snapshot_root);
    l->control_root = xstrndup(l->home_root, len);
    for (int i = 0; i < 3; i++) {
        if (strcmp(l->control_root, roots[i]) == 0)
            *strrchr(l->control_root, '/') = '\0';
    }
    if (l->control_root[0] == '\0') {
        free(l->control_root);
        l->control_root = xstrdup("/");
    }
    return true;
}
