#include "backends/shellctld/runner_spec.h"

#include "backends/shellctld/small_file.h"
#include "core/runtime/json.h"

#include <json-c/json_object.h>
#include <stdio.h>
#include <string.h>

enum { TERMINAL_SIDE_MAX = 4096, SPEC_BYTES_MAX = 8 << 20 };

static const char *const mode_names[] = {"pty", "stdio", NULL};
static const char *const scope_names[] = {"scoped", "control", NULL};

static int index_of(const char *const *names, const char *name)
{
    int i = 0;

    while (names[i] != NULL && (name == NULL || strcmp(names[i], name) != 0))
        i++;
    return i;
}

static bool is_absolute(const char *path)
{
    return path != NULL && path[0] == '/';
}

static bool spec_check(const struct runner_spec *spec, struct error *err)
{
    const char *wrong = NULL;

    if (spec->cols < 1 || spec->cols > TERMINAL_SIDE_MAX || spec->rows < 1 ||
        spec->rows > TERMINAL_SIDE_MAX)
        wrong = "the terminal's size must be between 1 and 4096";
    else if (!is_absolute(spec->cwd) || !is_absolute(spec->home))
        wrong = "working directory and home must be absolute paths";
    else if (spec->scope == RUNNER_SCOPED && !is_absolute(spec->workspace))
        wrong = "a binding's job needs an absolute workspace path";
    for (size_t i = 0; wrong == NULL && spec->env != NULL && spec->env[i] != NULL; i += 2) {
        if (spec->env[i][0] == '\0' || strchr(spec->env[i], '=') != NULL ||
            spec->env[i + 1] == NULL)
            wrong = "environment names must not be empty or contain =";
    }
    if (wrong != NULL)
        error_set(err, ERR_BAD_REQUEST, "%s", wrong);
    return wrong == NULL;
}

static void write_isolation(struct json_writer *w, const struct isolation *iso)
{
    json_key(w, "isolation");
    json_object_begin(w);
    json_member_int(w, "layers", iso->layers);
    json_member_bool(w, "network", iso->network);
    json_member_int(w, "landlock_abi", iso->landlock_abi);
    json_member_int(w, "uid_first", iso->uid_first);
    json_member_int(w, "uid_count", iso->uid_count);
    json_member_string(w, "cgroup_memory", iso->cgroups.memory);
    json_member_string(w, "cgroup_pids", iso->cgroups.pids);
    json_member_string(w, "cgroup_unified", iso->cgroups.unified);
    json_object_finish(w);
}

bool runner_spec_write(const char *job_dir, const struct runner_spec *spec,
                       const struct isolation *iso, struct error *err)
{
    struct buf text = {0};
    struct json_writer w = {.out = &text};
    bool ok;

    if (!spec_check(spec, err))
        return false;
    json_object_begin(&w);
    json_member_string(&w, "mode", mode_names[spec->mode]);
    json_member_string(&w, "scope", scope_names[spec->scope]);
    json_member_int(&w, "cols", spec->cols);
    json_member_int(&w, "rows", spec->rows);
    json_member_string(&w, "cwd", spec->cwd);
    json_member_string(&w, "home", spec->home);
    json_member_string(&w, "workspace", spec->workspace);
    json_key(&w, "env");
    json_array_begin(&w);
    for (size_t i = 0; spec->env != NULL && spec->env[i] != NULL; i++)
        json_string(&w, spec->env[i]);
    json_array_finish(&w);
    json_member_int(&w, "max_processes", spec->limits.max_processes);
    json_member_int(&w, "max_memory_bytes", spec->limits.max_memory_bytes);
    json_member_int(&w, "max_open_files", spec->limits.max_open_files);
    json_member_int(&w, "nice", spec->limits.nice);
    json_member_int(&w, "max_output_bytes", spec->limits.max_output_bytes);
    write_isolation(&w, iso);
    json_object_finish(&w);
    ok = small_file_write(job_dir, "job.json", buf_text(&text), text.len, err);
    buf_fini(&text);
    return ok;
}

/* ---- reading ----------------------------------------------------------------------------------- */

static void copy_path(struct json_reader *r, const char *key, char ret[CGROUP_PATH_MAX])
{
    const char *text = json_read_string(r, key, 0);

    snprintf(ret, CGROUP_PATH_MAX, "%s", text == NULL ? "" : text);
}

static void read_isolation(struct json_reader *r, struct isolation *ret)
{
    ret->layers = (unsigned)json_read_int(r, "layers", true, 0, 0, INT32_MAX);
    ret->network = json_read_bool(r, "network", true, false, false);
    ret->landlock_abi = (int)json_read_int(r, "landlock_abi", true, 0, 0, 1000);
    ret->uid_first = (uid_t)json_read_int(r, "uid_first", true, 0, 0, UINT32_MAX);
    ret->uid_count = (uint32_t)json_read_int(r, "uid_count", true, 0, 0, UINT32_MAX);
    copy_path(r, "cgroup_memory", ret->cgroups.memory);
    copy_path(r, "cgroup_pids", ret->cgroups.pids);
    copy_path(r, "cgroup_unified", ret->cgroups.unified);
}

static const char *const *read_env(struct json_reader *r)
{
    struct json_object *array = json_read_any(r, "env");
    bool is_array = json_object_is_type(array, json_type_array);
    size_t n = is_array ? json_object_array_length(array) : 0;
    const char **env = arena_alloc(r->arena, (n + 1) * sizeof *env);

    if (!is_array || n % 2 != 0)
        json_reader_problem(r, "env", "list_type", "Input should be a list of names and values");
    for (size_t i = 0; i < n; i++) {
        const char *text = json_object_get_string(json_object_array_get_idx(array, i));
        env[i] = arena_strdup(r->arena, text == NULL ? "" : text);
    }
    env[n] = NULL;
    return env;
}

bool runner_spec_read(const char *job_dir, struct arena *arena, struct runner_spec *ret,
                      struct error *err)
{
    struct runner_spec spec = {0};
    struct json_reader r, iso;
    struct json_object *root;
    const char *text;
    size_t len;

    if (!small_file_read(job_dir, "job.json", SPEC_BYTES_MAX, arena, &text, &len, err) ||
        !json_parse(arena, text, len, &root, NULL, err))
        return false;
    json_reader_init(&r, arena, root);
    spec.mode =
        (enum runner_mode)index_of(mode_names, json_read_choice(&r, "mode", true, mode_names));
    spec.scope =
        (enum runner_scope)index_of(scope_names, json_read_choice(&r, "scope", true, scope_names));
    spec.cols = (int)json_read_int(&r, "cols", true, 80, 1, TERMINAL_SIDE_MAX);
    spec.rows = (int)json_read_int(&r, "rows", true, 24, 1, TERMINAL_SIDE_MAX);
    spec.cwd = json_read_string(&r, "cwd", 1);
    spec.home = json_read_string(&r, "home", 1);
    spec.workspace = json_read_string_opt(&r, "workspace", 1);
    spec.env = read_env(&r);
    spec.limits.max_processes = json_read_int(&r, "max_processes", true, 0, 0, INT64_MAX);
    spec.limits.max_memory_bytes = json_read_int(&r, "max_memory_bytes", true, 0, 0, INT64_MAX);
    spec.limits.max_open_files = json_read_int(&r, "max_open_files", true, 0, 0, INT64_MAX);
    spec.limits.nice = json_read_int(&r, "nice", true, 0, 0, 19);
    spec.limits.max_output_bytes = json_read_int(&r, "max_output_bytes", true, 0, 0, INT64_MAX);
    if (json_read_object(&r, "isolation", true, &iso))
        read_isolation(&iso, &spec.isolation);
    if (!json_reader_finish(&r, true, err) || !spec_check(&spec, err))
        return false;
    *ret = spec;
    return true;
}
