/* Whose request it is. The server in front of the embedded sandbox names the Home and Workspace of
 * a binding in two headers; such a request is confined: it runs jobs that see these two folders
 * and sees only jobs of the same two folders. A request without the headers is a control request. */
#pragma once

#include "core/runtime/arena.h"
#include "core/runtime/error.h"

#include <stdbool.h>

#define SCOPE_HOME_HEADER      "X-Bindery-Home"
#define SCOPE_WORKSPACE_HEADER "X-Bindery-Workspace"

/** The Home as every other sandbox system names it (protocols "runtime backends" 1.5). Where jobs have
 * a view of the file system of their own, a confined one finds its Home under this name too, so that
 * clients of those systems work unchanged. */
#define CANONICAL_HOME "/home/dify"

/** Both set or both NULL. Absolute paths without `.`, `..`, `//` or a slash at the end, so that
 * equal folders have equal texts. Borrowed. */
struct scope {
    const char *home, *workspace;
};

static inline bool scope_is_confined(const struct scope *scope)
{
    return scope->home != NULL;
}

bool scope_equal(const struct scope *a, const struct scope *b);

/** From the two header values (NULL = absent); copies into `arena`. False with the fault
 * INVALID_REQUEST when only one is given or one is not an absolute, plain path. */
bool scope_parse(struct arena *arena, const char *home, const char *workspace, struct scope *ret,
                 struct error *err) MUST_CHECK;

/** Both folders of a confined scope exist; else false with the fault SANDBOX_NOT_FOUND. */
bool scope_check_exists(const struct scope *scope, struct error *err) MUST_CHECK;

/** The folder that a job starts in: `cwd` of the request, NULL or "" for the default. The default
 * of a confined scope is its Workspace, otherwise `default_dir`; a relative path starts there for
 * a confined scope, otherwise in this process's folder. Returns it absolute, links resolved when
 * confined; NULL with the fault INVALID_CWD when it is no folder, or outside a confined scope. */
const char *scope_resolve_cwd(const struct scope *scope, struct arena *arena, const char *cwd,
                              const char *default_dir, struct error *err) MUST_CHECK;
