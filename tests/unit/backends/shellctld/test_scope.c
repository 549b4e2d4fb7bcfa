/* Scopes: which headers name one, and which folders a confined job may start in. */
#include "backends/shellctld/scope.h"

#include "backends/shellctld/fault.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static struct arena *arena;
static char dir[64], home[96], workspace[96];

static void set_up(void)
{
    arena = arena_new();
    snprintf(dir, sizeof(dir), "/tmp/bindery-scope-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    snprintf(home, sizeof(home), "%s/home", dir);
    snprintf(workspace, sizeof(workspace), "%s/work", dir);
    mkdir(home, 0700);
    mkdir(workspace, 0700);
}

static void tear_down(void)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/link", workspace);
    unlink(path);
    snprintf(path, sizeof(path), "%s/sub", workspace);
    rmdir(path);
    rmdir(home);
    rmdir(workspace);
    rmdir(dir);
    arena_free(arena);
}

TestSuite(scope, .init = set_up, .fini = tear_down, .timeout = 10);

static bool parses(const char *a, const char *b)
{
    struct scope scope;
    struct error err = {0};
    bool ok = scope_parse(arena, a, b, &scope, &err);

    cr_assert(ok || strcmp(fault_code(&err), "invalid_request") == 0);
    return ok;
}

Test(scope, both_headers_or_neither_and_plain_absolute_paths)
{
    cr_assert(parses(NULL, NULL));
    cr_assert(parses("/a", "/b"));
    cr_assert(parses("/a/..b/.c/d..", "/a b/ü"));
    cr_assert_not(parses("/a", NULL));
    cr_assert_not(parses(NULL, "/b"));
    static const char *const bad[] = {"",      "a",      "./a",     "/",   "/a/",  "//a",
                                      "/a//b", "/a/./b", "/a/../b", "/..", "/a/.."};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        cr_assert_not(parses(bad[i], "/b"), "%s", bad[i]);
        cr_assert_not(parses("/a", bad[i]), "%s", bad[i]);
    }
}

static const char *resolve(const struct scope *scope, const char *cwd)
{
    struct error err = {0};
    const char *path = scope_resolve_cwd(scope, arena, cwd, dir, &err);

    cr_assert(path != NULL || strcmp(fault_code(&err), "invalid_cwd") == 0);
    return path;
}

Test(scope, a_confined_job_starts_inside_its_folders)
{
    struct scope scope = {home, workspace};
    char path[160];

    cr_assert_str_eq(resolve(&scope, NULL), workspace);
    cr_assert_str_eq(resolve(&scope, ""), workspace);
    cr_assert_str_eq(resolve(&scope, home), home);
    snprintf(path, sizeof(path), "%s/sub", workspace);
    cr_assert_null(resolve(&scope, path), "not there");
    mkdir(path, 0700);
    cr_assert_str_eq(resolve(&scope, path), path);
    cr_assert_str_eq(resolve(&scope, "sub"), path);
    cr_assert_str_eq(resolve(&scope, "sub/../sub/."), path);
    cr_assert_null(resolve(&scope, "/"));
    cr_assert_null(resolve(&scope, dir));
    cr_assert_null(resolve(&scope, ".."));
    snprintf(path, sizeof(path), "%s-other", workspace); /* a name that merely begins alike */
    mkdir(path, 0700);
    cr_assert_null(resolve(&scope, path));
    rmdir(path);
    snprintf(path, sizeof(path), "%s/link", workspace);
    cr_assert_eq(symlink("/etc", path), 0);
    cr_assert_null(resolve(&scope, path), "a link that leads out");
}

Test(scope, others_start_where_they_like)
{
    struct scope none = {NULL, NULL};

    cr_assert_str_eq(resolve(&none, NULL), dir);
    cr_assert_str_eq(resolve(&none, "/"), "/");
    cr_assert_null(resolve(&none, "/etc/passwd"));
    cr_assert_null(resolve(&none, "/nowhere-at-all"));
}

Test(scope, existence_names_what_is_gone)
{
    struct scope scope = {home, workspace}, none = {NULL, NULL};
    struct error err = {0};

    cr_assert(scope_check_exists(&scope, &err));
    cr_assert(scope_check_exists(&none, &err));
    rmdir(home);
    cr_assert_not(scope_check_exists(&scope, &err));
    cr_assert_str_eq(fault_code(&err), "sandbox_not_found");
    cr_assert_eq(fault_status(&err), 404);
    cr_assert_not_null(strstr(err.message, "Home"));
    mkdir(home, 0700);
    rmdir(workspace);
    cr_assert_not(scope_check_exists(&scope, &err));
    cr_assert_not_null(strstr(err.message, "Workspace"));
    mkdir(workspace, 0700);
}
