#include "backends/shellctld/start.h"

#include "backends/shellctld/bwrap.h"
#include "backends/shellctld/job_env.h"
#include "backends/shellctld/owner.h"
#include "backends/shellctld/program.h"
#include "backends/shellctld/small_file.h"
#include "backends/shellctld/system_paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bubblewrap's own processes, which a group counts and the job's limit does not mean. */
enum { BWRAP_PROCESSES = 3 };

static bool fail(struct error *err, const char *what)
{
    error_set(err, ERR_INTERNAL, "%s: %s", what, strerror(errno));
    return false;
}

static bool folder_exists(const char *path, const char *what, struct error *err)
{
    struct stat st;

    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return true;
    error_set(err, ERR_BINDING_LOST, "the %s %s is not there", what, path);
    return false;
}

void start_temporary_path(const char *state_dir, const char *job_id, char ret[PATH_MAX])
{
    snprintf(ret, PATH_MAX, "%s/tmp/%s", state_dir, job_id);
}

/* The script behind `fd`, and whether it names its own interpreter. */
static bool open_script(struct start *s, int *ret_fd, struct error *err)
{
    char head[2] = "";
    int fd = open(s->launch->script_path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return fail(err, "cannot open the script");
    s->jail.direct = pread(fd, head, 2, 0) == 2 && head[0] == '#' && head[1] == '!';
    *ret_fd = fd;
    return true;
}

static bool copy_file(int from, const char *path, uid_t uid, struct error *err)
{
    char chunk[16384];
    ssize_t n;
    bool ok;
    int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0500);

    if (to < 0)
        return fail(err, "cannot copy the script");
    while ((n = read(from, chunk, sizeof chunk)) > 0 &&
           write_all(to, chunk, (size_t)n) == (size_t)n)
        ;
    ok = n == 0 && (uid == geteuid() || fchown(to, uid, uid) == 0);
    if (close(to) != 0 || !ok)
        return fail(err, "cannot copy the script");
    return true;
}

/* Without a mount namespace the temporary folder is one below the state folder, and the script is
 * in it, where the job may read it. */
static bool make_temporary(struct start *s, struct arena *arena, struct error *err)
{
    char path[PATH_MAX];
    int script_fd = -1;
    bool ok;

    snprintf(path, sizeof path, "%s/tmp", s->launch->state_dir);
    /* The mode in a call of its own, past the umask: jobs' uids pass through to theirs. */
    if (mkdir(path, 0700) == 0 ? chmod(path, 0711) != 0 : errno != EEXIST)
        return fail(err, "cannot make the temporary folder");
    start_temporary_path(s->launch->state_dir, s->launch->job_id, path);
    if (mkdir(path, 0700) != 0)
        return fail(err, "cannot make the temporary folder");
    s->jail.temporary = arena_strdup(arena, path);
    s->jail.script = arena_printf(arena, "%s/.script", path);
    ok = open_script(s, &script_fd, err) && copy_file(script_fd, s->jail.script, s->uid, err);
    if (ok && s->uid != geteuid() && chown(path, s->uid, s->uid) != 0)
        ok = fail(err, "own uid: cannot hand the temporary folder over");
    if (script_fd >= 0)
        close(script_fd);
    return ok;
}

/* A control job runs the script where it is. */
static bool script_in_place(struct start *s, struct error *err)
{
    int fd;

    if (!open_script(s, &fd, err))
        return false;
    close(fd);
    s->jail.script = s->launch->script_path;
    if (s->jail.direct && chmod(s->launch->script_path, 0700) != 0)
        return fail(err, "cannot make the script executable");
    return true;
}

static int text_fd(const char *name, const char *text, size_t len, struct error *err)
{
    int fd = memfd_create(name, MFD_CLOEXEC);

    if (fd >= 0 && write_all(fd, text, len) == len && lseek(fd, 0, SEEK_SET) == 0)
        return fd;
    fail(err, "cannot hold a file in memory");
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Keep `fd` for bubblewrap; false passes a failure on. */
static bool inherit(struct start *s, int fd)
{
    if (fd >= 0)
        s->inherited[s->n_inherited++] = fd;
    return fd >= 0;
}

static bool is_below(const char *path, const char *folder)
{
    size_t len = strlen(folder);

    return strncmp(path, folder, len) == 0 && (path[len] == '/' || len == 1);
}

/* The daemon's own folder, when the job would see it inside its Home or Workspace. */
static const char *hidden_folder(const struct launch *launch)
{
    const struct runner_spec *spec = launch->spec;

    return is_below(launch->state_dir, spec->home) || is_below(launch->state_dir, spec->workspace)
               ? launch->state_dir
               : NULL;
}

static bool prepare_bwrap(struct start *s, struct arena *arena, struct error *err)
{
    const struct runner_spec *spec = s->launch->spec;
    char *passwd = arena_printf(arena,
                                "root:x:0:0:root:/:/usr/sbin/nologin\n"
                                "sandbox:x:%d:%d::%s:/bin/sh\n"
                                "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
                                BWRAP_UID, BWRAP_UID, spec->home);
    char *group = arena_printf(arena, "root:x:0:\nsandbox:x:%d:\nnogroup:x:65534:\n", BWRAP_UID);
    struct bwrap_view view = {
        .home = spec->home,
        .workspace = spec->workspace,
        .hidden = hidden_folder(s->launch),
        .whole_etc = (s->layers & LAYER_LANDLOCK) != 0,
        .network = (s->layers & LAYER_NETNS) == 0,
        .temporary_bytes = spec->limits.max_memory_bytes / 2,
    };
    struct buf text = {0};

    if ((s->layers & LAYER_UID) != 0) {
        view.home_source = BWRAP_STAGE_HOME;
        view.workspace_source = BWRAP_STAGE_WORKSPACE;
    }
    s->jail.script = SANDBOX_SCRIPT;
    s->jail.in_bwrap = true;
    if (!open_script(s, &view.script_fd, err) || !inherit(s, view.script_fd))
        return false;
    view.passwd_fd = text_fd("passwd", passwd, strlen(passwd), err);
    if (!inherit(s, view.passwd_fd))
        return false;
    view.group_fd = text_fd("group", group, strlen(group), err);
    if (!inherit(s, view.group_fd))
        return false;
    jail_encode(&s->jail, &text);
    int spec_fd = text_fd("jail", buf_text(&text), text.len, err);
    buf_fini(&text);
    int program_fd = open(runner_program(), O_PATH | O_CLOEXEC);
    if (program_fd < 0)
        fail(err, "cannot open the runner's program");
    if (!inherit(s, spec_fd) || !inherit(s, program_fd) || !inherit(s, s->status_fd))
        return false;
    const char *const command[] = {
        arena_printf(arena, "/proc/self/fd/%d", program_fd),
        JAIL_COMMAND,
        arena_printf(arena, "%d", spec_fd),
        arena_printf(arena, "%d", s->status_fd),
        NULL,
    };
    s->bwrap = bwrap_arguments(arena, &view, command);
    return true;
}

/* `path` as it is called inside the sandbox, where only Home and Workspace have their names: a data
 * folder behind a link has two. */
static const char *name_inside(struct arena *arena, const char *path, const char *folder)
{
    char real[PATH_MAX];
    size_t len;

    if (realpath(folder, real) == NULL || strcmp(real, folder) == 0)
        return path;
    len = strlen(real);
    if (strncmp(path, real, len) != 0 || (path[len] != '/' && path[len] != '\0'))
        return path;
    return arena_printf(arena, "%s%s", folder, path + len);
}

/* Without a mount namespace the job's uid walks to its folders from the root. The one right above
 * holds nothing but folders like it, each closed on its own, and may have been made with any mode;
 * what lies further up was looked at by the probe. */
static bool let_pass(const char *folder, struct error *err)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(folder, '/');
    struct stat st;

    snprintf(parent, sizeof parent, "%.*s", slash == folder ? 1 : (int)(slash - folder), folder);
    if (stat(parent, &st) != 0 || (st.st_mode & S_IXOTH) != 0 || st.st_uid != geteuid())
        return true; /* nothing to do, or not ours to do: the jail sees whether it can enter */
    return chmod(parent, (st.st_mode & 07777) | S_IXOTH) == 0 ||
           fail(err, "own uid: cannot open the folder above Home or Workspace for passing");
}

/* Ours where the job runs under our uid and sees the machine's users; no look-up, which could load
 * a directory service. */
static const char *user_name(const struct start *s)
{
    const char *ours = (s->layers & (LAYER_BWRAP | LAYER_UID)) != 0 ? NULL : getenv("USER");

    return ours == NULL ? "sandbox" : ours;
}

bool start_prepare(struct start *s, struct arena *arena, struct error *err)
{
    const struct runner_spec *spec = s->launch->spec;
    const struct owner_range range = {s->iso->uid_first, s->iso->uid_count};
    bool scoped = spec->scope == RUNNER_SCOPED, bwrap = (s->layers & LAYER_BWRAP) != 0;

    s->uid = geteuid();
    if (scoped && (!folder_exists(spec->home, "home", err) ||
                   !folder_exists(spec->workspace, "workspace", err)))
        return false;
    if ((s->layers & LAYER_UID) != 0 &&
        !owner_assign(s->launch->state_dir, &range, spec->home, spec->workspace, &s->uid, err)) {
        error_wrap(err, ERR_INTERNAL, "own uid");
        return false;
    }
    if ((s->layers & LAYER_UID) != 0 && !bwrap &&
        (!let_pass(spec->home, err) || !let_pass(spec->workspace, err)))
        return false;
    s->jail = (struct jail){
        .layers = s->layers,
        .scoped = scoped,
        .terminal = spec->mode == RUNNER_PTY,
        .landlock_abi = s->iso->landlock_abi,
        .uid = s->uid,
        .home = spec->home,
        .workspace = spec->workspace,
        .cwd = spec->cwd,
        .limits = spec->limits,
    };
    if (bwrap) {
        s->jail.cwd = name_inside(arena, s->jail.cwd, spec->home);
        s->jail.cwd = name_inside(arena, s->jail.cwd, spec->workspace);
    }
    if (!bwrap && !(scoped ? make_temporary(s, arena, err) : script_in_place(s, err)))
        return false;
    s->jail.env =
        job_env_build(arena, spec, environ, user_name(s), bwrap ? "/tmp" : s->jail.temporary);
    int64_t processes = spec->limits.max_processes;
    if (bwrap && processes > 0)
        processes += BWRAP_PROCESSES;
    return (!bwrap || prepare_bwrap(s, arena, err)) &&
           (s->layers == 0 || cgroup_create(&s->iso->cgroups, s->launch->job_id,
                                            spec->limits.max_memory_bytes, processes, err));
}
