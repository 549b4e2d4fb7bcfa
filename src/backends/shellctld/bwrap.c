#include "backends/shellctld/bwrap.h"

#include "backends/shellctld/scope.h"
#include "backends/shellctld/system_paths.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

struct words {
    struct arena *arena;
    const char **items;
    size_t n, cap;
};

static void word(struct words *w, const char *text)
{
    if (w->n == w->cap) {
        size_t cap = w->cap == 0 ? 128 : w->cap * 2;
        const char **more = arena_alloc(w->arena, cap * sizeof *more);
        if (w->n > 0)
            memcpy(more, w->items, w->n * sizeof *more);
        w->items = more;
        w->cap = cap;
    }
    w->items[w->n++] = text;
}

/* Up to three words; NULL ends earlier. */
static void option(struct words *w, const char *name, const char *a, const char *b)
{
    word(w, name);
    if (a != NULL)
        word(w, a);
    if (b != NULL)
        word(w, b);
}

static const char *number(struct words *w, int64_t value)
{
    return arena_printf(w->arena, "%lld", (long long)value);
}

/* A link of the merged-/usr layout stays a link; a folder is bound. */
static void system_folder(struct words *w, const char *path)
{
    char target[256];
    ssize_t n = readlink(path, target, sizeof target - 1);

    if (n > 0) {
        target[n] = '\0';
        option(w, "--symlink", arena_strdup(w->arena, target), path);
    } else if (access(path, F_OK) == 0) {
        option(w, "--ro-bind", path, path);
    }
}

static void sized_tmpfs(struct words *w, const char *path, int64_t bytes)
{
    if (bytes > 0)
        option(w, "--size", number(w, bytes), NULL);
    option(w, "--tmpfs", path, NULL);
}

static void copied_file(struct words *w, int fd, const char *perms, const char *path)
{
    option(w, "--perms", perms, NULL);
    option(w, "--ro-bind-data", number(w, fd), path);
}

static void writable(struct words *w, const char *source, const char *path)
{
    option(w, "--bind", source == NULL ? path : source, path);
}

static void machine(struct words *w, const struct bwrap_view *view)
{
    for (size_t i = 0; system_folders[i] != NULL; i++)
        system_folder(w, system_folders[i]);
    /* Each mount costs a third of a millisecond: one for all of it where another layer selects. */
    if (view->whole_etc)
        option(w, "--ro-bind", "/etc", "/etc");
    for (size_t i = 0; !view->whole_etc && system_etc[i] != NULL; i++) {
        if (strcmp(system_etc[i], "/etc/passwd") != 0 && strcmp(system_etc[i], "/etc/group") != 0)
            option(w, "--ro-bind-try", system_etc[i], system_etc[i]);
    }
    copied_file(w, view->passwd_fd, "0444", "/etc/passwd");
    copied_file(w, view->group_fd, "0444", "/etc/group");
    option(w, "--proc", "/proc", NULL);
    option(w, "--dev", "/dev", NULL);
    sized_tmpfs(w, "/dev/shm", view->temporary_bytes);
    sized_tmpfs(w, "/tmp", view->temporary_bytes);
    option(w, "--symlink", "../tmp", "/var/tmp");
    copied_file(w, view->script_fd, "0555", SANDBOX_SCRIPT);
}

char **bwrap_arguments(struct arena *arena, const struct bwrap_view *view,
                       const char *const *command)
{
    struct words w = {.arena = arena};
    static const char *const fixed[] = {
        BWRAP_PROGRAM,
        "--unshare-user",
        "--disable-userns",
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--hostname",
        "sandbox",
        "--die-with-parent",
        NULL,
    };

    for (size_t i = 0; fixed[i] != NULL; i++)
        word(&w, fixed[i]);
    option(&w, "--uid", number(&w, BWRAP_UID), NULL);
    option(&w, "--gid", number(&w, BWRAP_UID), NULL);
    if (!view->network)
        word(&w, "--unshare-net");
    machine(&w, view);
    /* A Home inside the Workspace, or the other way round: the outer one first. */
    if (strlen(view->home) <= strlen(view->workspace)) {
        writable(&w, view->home_source, view->home);
        writable(&w, view->workspace_source, view->workspace);
    } else {
        writable(&w, view->workspace_source, view->workspace);
        writable(&w, view->home_source, view->home);
    }
    if (view->hidden != NULL) {
        option(&w, "--size", "4096", NULL);
        option(&w, "--tmpfs", view->hidden, NULL);
        option(&w, "--remount-ro", view->hidden, NULL);
    }
    /* Clients of the gateway protocol know the Home by this name (docs/isolation.md). */
    if (strncmp(view->home, CANONICAL_HOME, strlen(CANONICAL_HOME)) != 0 &&
        strncmp(view->workspace, CANONICAL_HOME, strlen(CANONICAL_HOME)) != 0)
        option(&w, "--symlink", view->home, CANONICAL_HOME);
    option(&w, "--remount-ro", "/dev", NULL);
    option(&w, "--remount-ro", "/", NULL);
    word(&w, "--");
    for (size_t i = 0; command[i] != NULL; i++)
        word(&w, command[i]);
    word(&w, NULL);
    return (char **)w.items;
}

/* ---- staging ----------------------------------------------------------------------------------- */

static bool bind_folder(int fd, const char *path)
{
    char source[32];

    snprintf(source, sizeof source, "/proc/self/fd/%d", fd);
    return mkdir(path, 0755) == 0 && mount(source, path, NULL, MS_BIND, NULL) == 0;
}

bool bwrap_stage(const char *home, const char *workspace, struct error *err)
{
    int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    bool ok = unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) == 0;
    /* The stage hides the real folder of that name, from this process on only: what is to be shown
     * is opened before; and after the unshare, since only mounts of the own namespace can be bound. */
    int home_fd = ok ? open(home, flags) : -1, workspace_fd = ok ? open(workspace, flags) : -1;

    ok = ok && home_fd >= 0 && workspace_fd >= 0 &&
         mount("bindery", BWRAP_STAGE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64k") == 0 &&
         bind_folder(home_fd, BWRAP_STAGE_HOME) && bind_folder(workspace_fd, BWRAP_STAGE_WORKSPACE);
    if (!ok)
        error_set(err, ERR_INTERNAL, "cannot stage Home and Workspace: %s", strerror(errno));
    if (home_fd >= 0)
        close(home_fd);
    if (workspace_fd >= 0)
        close(workspace_fd);
    return ok;
}
