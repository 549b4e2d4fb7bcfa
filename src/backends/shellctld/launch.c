#include "backends/shellctld/launch.h"

#include "backends/shellctld/bwrap.h"
#include "backends/shellctld/owner.h"
#include "backends/shellctld/small_file.h"
#include "backends/shellctld/start.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static bool fail(struct error *err, const char *what)
{
    error_set(err, ERR_INTERNAL, "%s: %s", what, strerror(errno));
    return false;
}

/* ---- the child --------------------------------------------------------------------------------- */

_Noreturn static void child_refuse(const struct start *s, const char *layer, const char *why)
{
    char text[512];
    int n = snprintf(text, sizeof text, "%c%s: %s", JAIL_FAILED, layer, why);

    if (n > 0)
        (void)write_all(s->status_fd, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
    _exit(JAIL_EXIT_SETUP);
}

/* Opening /dev/stdout again asks for the right to it: the job's uid gets its terminal and pipes.
 * Not /dev/null, which belongs to everybody. */
static void own_stdio(const struct start *s)
{
    for (int fd = 0; fd <= 2; fd++) {
        struct stat st;
        if (fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || isatty(fd)) && st.st_uid != s->uid &&
            fchown(fd, s->uid, (gid_t)-1) != 0)
            child_refuse(s, "own uid", strerror(errno));
    }
}

_Noreturn static void enter_bwrap(const struct start *s)
{
    const struct runner_spec *spec = s->launch->spec;
    char *env[] = {"PATH=/usr/bin:/bin", NULL};
    struct error err = {0};

    if ((s->layers & LAYER_UID) != 0) {
        if (!bwrap_stage(spec->home, spec->workspace, &err))
            child_refuse(s, "bubblewrap", err.message);
        if (!owner_become(s->uid))
            child_refuse(s, "own uid", strerror(errno));
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < s->n_inherited; i++)
        fcntl(s->inherited[i], F_SETFD, 0);
    execve(BWRAP_PROGRAM, s->bwrap, env);
    child_refuse(s, "bubblewrap", strerror(errno));
}

_Noreturn static void child(const struct start *s)
{
    const int *stdio = s->launch->stdio;
    struct error err = {0};
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (s->layers != 0 && !cgroup_join(&s->iso->cgroups, s->launch->job_id, &err))
        child_refuse(s, "cgroup", err.message);
    /* The job's own descriptors are above 2 here, so none is overwritten before it is copied. */
    for (int fd = 0; fd <= 2; fd++) {
        if (dup2(stdio[fd], fd) < 0)
            child_refuse(s, "descriptors", strerror(errno));
    }
    if ((s->layers & LAYER_UID) != 0)
        own_stdio(s);
    if (s->bwrap != NULL)
        enter_bwrap(s);
    jail_enter(&s->jail, s->status_fd);
}

/* ---- starting and ending ----------------------------------------------------------------------- */

bool launch_start(const struct launch *launch, struct arena *arena, pid_t *ret_pid, int *ret_status,
                  struct error *err)
{
    const struct isolation *iso = &launch->spec->isolation;
    struct start s = {
        .launch = launch,
        .iso = iso,
        .layers = launch->spec->scope == RUNNER_SCOPED ? iso->layers : 0,
    };
    int status[2];
    pid_t pid = -1;
    bool ok;

    if (pipe2(status, O_CLOEXEC) != 0)
        return fail(err, "no pipe");
    s.status_fd = status[1];
    ok = start_prepare(&s, arena, err);
    if (ok)
        pid = s.layers != 0 ? cgroup_fork(&iso->cgroups, launch->job_id) : fork();
    if (ok && pid == 0)
        child(&s);
    if (ok && pid < 0)
        ok = fail(err, "no process");
    for (int i = 0; i < s.n_inherited; i++) {
        if (s.inherited[i] != s.status_fd)
            close(s.inherited[i]);
    }
    close(status[1]);
    if (!ok) {
        close(status[0]);
        return false;
    }
    *ret_pid = pid;
    *ret_status = status[0];
    return true;
}

/* Everything below `path` and itself. Nothing of the job lives any more that could interfere. */
static void remove_tree(char *path)
{
    char *const roots[] = {path, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    FTSENT *entry;

    while (walk != NULL && (entry = fts_read(walk)) != NULL) {
        if (entry->fts_info == FTS_D)
            chmod(entry->fts_accpath, 0700); /* a folder that its owner locked */
        else
            (void)remove(entry->fts_accpath);
    }
    if (walk != NULL)
        fts_close(walk);
}

bool launch_clean_up(const char *state_dir, const char *job_id, const struct isolation *iso)
{
    char path[PATH_MAX];

    if (!cgroup_kill(&iso->cgroups, job_id) || !cgroup_remove(&iso->cgroups, job_id))
        return false;
    start_temporary_path(state_dir, job_id, path);
    if (access(path, F_OK) == 0)
        remove_tree(path);
    return true;
}
