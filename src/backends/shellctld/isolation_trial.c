#include "backends/shellctld/isolation_trial.h"

#include "backends/shellctld/jail.h"
#include "backends/shellctld/launch.h"
#include "backends/shellctld/small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TRIAL_MS = 10000 };

/* What a trial job does: work in its folders, and find out that it cannot read past them. */
static const char trial_script[] = "set -e\n"
                                   "test -d \"$HOME\"\n"
                                   ": > \"$HOME/.probe\"\n"
                                   "rm \"$HOME/.probe\"\n"
                                   ": > .probe\n"
                                   "rm .probe\n"
                                   ": > \"$TMPDIR/probe\"\n"
                                   "if cat \"$PROBE_SECRET\" 2>/dev/null; then exit 99; fi\n";

/* One trial. */
struct trial {
    const struct isolation_options *options;
    char folder[PATH_MAX]; /* <state_dir>/probe, with home, workspace, job and a secret */
    const struct isolation *iso;
};

/* ---- the trial's folder ------------------------------------------------------------------------ */

static const char *in_trial(struct arena *arena, const struct trial *t, const char *name)
{
    return arena_printf(arena, "%s/%s", t->folder, name);
}

static bool trial_make(const struct trial *t, struct arena *arena, struct error *err)
{
    static const char *const folders[] = {"", "home", "workspace", "job"};

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const char *path = in_trial(arena, t, folders[i]);
        if (mkdir(path, 0700) != 0 || (i == 0 && chmod(path, 0711) != 0)) {
            error_set(err, ERR_INTERNAL, "isolation probe: cannot make %s: %s", path,
                      strerror(errno));
            return false;
        }
    }
    if (!small_file_write(t->folder, "secret", "secret\n", 7, err) ||
        !small_file_write(t->folder, "job/script", trial_script, sizeof trial_script - 1, err))
        return false;
    /* Readable by mode, so that only the sandbox stands in front of it. */
    return chmod(in_trial(arena, t, "secret"), 0644) == 0;
}

static void trial_remove(const struct trial *t, struct arena *arena)
{
    static const char *const names[] = {
        "output", "secret",           "job/script", "job", "home/.probe",
        "home",   "workspace/.probe", "workspace",  ""};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)remove(in_trial(arena, t, names[i])); /* not all of them exist */
}

/* ---- running it -------------------------------------------------------------------------------- */

/* The exit status of `pid`, which is killed if it takes too long. */
static int trial_wait(pid_t pid)
{
    int pidfd = pidfd_open(pid, 0), status = 0;
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};

    if (poll(&poll_fd, 1, TRIAL_MS) <= 0)
        kill(pid, SIGKILL); /* our child, not reaped yet: the number is still its own */
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (pidfd >= 0)
        close(pidfd);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Why it failed, in the words of whoever said something. */
static void trial_explain(const struct trial *t, struct arena *arena, int code, const char *said,
                          char *note)
{
    struct error ignored;
    const char *output = "";
    size_t len;

    if (said[0] == JAIL_FAILED) {
        snprintf(note, ISOLATION_NOTE_MAX, "%.190s", said + 1);
    } else if (code == 99) {
        snprintf(note, ISOLATION_NOTE_MAX, "a trial job could read a file outside of its folders");
    } else {
        if (!small_file_read(t->folder, "output", 1 << 16, arena, &output, &len, &ignored))
            output = "";
        snprintf(note, ISOLATION_NOTE_MAX, "a trial job ended with %d: %.*s", code,
                 (int)strcspn(output, "\n"), output);
    }
}

static bool trial_start(const struct trial *t, struct arena *arena, int output, char *note)
{
    const char *const env[] = {"PROBE_SECRET", in_trial(arena, t, "secret"), NULL};
    struct runner_spec spec = {
        .mode = RUNNER_STDIO,
        .scope = RUNNER_SCOPED,
        .cols = 80,
        .rows = 24,
        .home = in_trial(arena, t, "home"),
        .workspace = in_trial(arena, t, "workspace"),
        .env = env,
        .limits = {.max_processes = 64, .max_memory_bytes = 64 << 20, .max_open_files = 64},
        .isolation = *t->iso,
    };
    char job_id[32], said[512] = "";
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC), status_fd = -1;
    struct error err = {0};
    pid_t pid;
    bool ok;

    snprintf(job_id, sizeof job_id, "probe-%d", (int)getpid());
    spec.cwd = spec.workspace;
    const struct launch launch = {
        .state_dir = t->options->state_dir,
        .job_id = job_id,
        .script_path = in_trial(arena, t, "job/script"),
        .spec = &spec,
        .stdio = {null_fd, output, output},
    };
    ok = launch_start(&launch, arena, &pid, &status_fd, &err);
    if (ok) {
        int code = trial_wait(pid);
        ssize_t n = read(status_fd, said, sizeof said - 1); /* bubblewrap is gone: never waits */
        said[n > 0 ? n : 0] = '\0';
        ok = code == 0 && said[0] == JAIL_STARTED;
        if (!ok)
            trial_explain(t, arena, code, said, note);
        close(status_fd);
    } else {
        snprintf(note, ISOLATION_NOTE_MAX, "%.190s", err.message);
    }
    for (int i = 0; i < 100 && !launch_clean_up(t->options->state_dir, job_id, t->iso); i++)
        usleep(2000);
    if (null_fd >= 0)
        close(null_fd);
    return ok;
}

bool isolation_trial(const struct isolation_options *options, const struct isolation *iso,
                     char note[ISOLATION_NOTE_MAX])
{
    struct trial t = {.options = options, .iso = iso};
    struct arena *arena = arena_new();
    struct error err = {0};
    bool ok;

    snprintf(t.folder, sizeof t.folder, "%s/probe", options->state_dir);
    trial_remove(&t, arena); /* of a probe that was killed */
    ok = trial_make(&t, arena, &err);
    if (ok) {
        int output = open(in_trial(arena, &t, "output"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        ok = output >= 0 && trial_start(&t, arena, output, note);
        if (output >= 0)
            close(output);
    } else {
        snprintf(note, ISOLATION_NOTE_MAX, "%.190s", err.message);
    }
    trial_remove(&t, arena);
    arena_free(arena);
    return ok;
}
