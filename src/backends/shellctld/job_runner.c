/* The daemon's side of a runner. */
#include "backends/shellctld/job_runner.h"

#include "backends/shellctld/job_env.h"
#include "backends/shellctld/launch.h"
#include "backends/shellctld/process.h"
#include "backends/shellctld/program.h"
#include "backends/shellctld/runner_control.h"
#include "backends/shellctld/small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool fail(struct error *err, const char *what)
{
    bool busy = errno == EAGAIN || errno == EMFILE || errno == ENFILE || errno == ENOMEM;

    error_set(err, busy ? ERR_OVERLOADED : ERR_INTERNAL, "%s: %s", what, strerror(errno));
    return false;
}

/* ---- starting ---------------------------------------------------------------------------------- */

/* The FIFO is opened here, for both directions, and becomes the runner's standard input: commands
 * sent before the runner reads are kept, and as long as it lives there is a reader. */
static int make_control(const char *job_dir)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/control", job_dir);
    if (mkfifo(path, 0600) != 0 && errno != EEXIST)
        return -1;
    return open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
}

/* Our environment without our own settings: tokens have no business in a process beside jobs. */
static char **public_environment(struct arena *arena)
{
    size_t n = 0, kept = 0;

    while (environ[n] != NULL)
        n++;
    char **ret = arena_alloc(arena, (n + 1) * sizeof *ret);
    for (size_t i = 0; i < n; i++) {
        if (!job_env_is_ours(environ[i]))
            ret[kept++] = environ[i];
    }
    ret[kept] = NULL;
    return ret;
}

static int spawn(const char *job_dir, int control_fd, pid_t *ret_pid)
{
    char log_path[PATH_MAX];
    char *argv[] = {(char *)runner_program(), (char *)RUNNER_COMMAND, (char *)job_dir, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    struct arena *arena = arena_new();
    int rc;

    snprintf(log_path, sizeof log_path, "%s/runner.log", job_dir);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, control_fd, STDIN_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log_path,
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    rc = posix_spawn(ret_pid, argv[0], &actions, &attributes, argv, public_environment(arena));
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    arena_free(arena);
    return rc;
}

bool job_runner_spawn(const char *job_dir, struct job_runner *ret, struct error *err)
{
    struct job_runner runner = {.pidfd = -1};
    int control = make_control(job_dir);

    if (control < 0)
        return fail(err, "cannot make the job's control FIFO");
    errno = spawn(job_dir, control, &runner.pid);
    if (errno != 0) {
        int saved = errno;
        close(control);
        errno = saved;
        return fail(err, "cannot start a job runner");
    }
    close(control);
    runner.pidfd = pidfd_open(runner.pid, 0); /* not reaped yet, so the number is its own */
    if (runner.pidfd < 0) {
        int saved = errno;
        kill(runner.pid, SIGKILL);
        while (waitpid(runner.pid, NULL, 0) < 0 && errno == EINTR)
            ; /* killed: ends at once */
        errno = saved;
        return fail(err, "cannot watch a job runner");
    }
    *ret = runner;
    return true;
}

bool job_runner_reap(const struct job_runner *runner)
{
    siginfo_t info = {0};

    if (waitid(P_PIDFD, (id_t)runner->pidfd, &info, WEXITED | WNOHANG) != 0)
        return errno != EINTR; /* ECHILD: reaped before, or not ours */
    return info.si_pid != 0;
}

bool job_runner_open(const char *job_dir, struct job_runner *ret)
{
    struct arena *arena = arena_new();
    struct error err = {0};
    struct process_id id;
    const char *text;
    size_t len;
    bool ok = small_file_read(job_dir, "runner.pid", 256, arena, &text, &len, &err) &&
              process_id_parse(text, &id);

    arena_free(arena);
    if (!ok)
        return false;
    *ret = (struct job_runner){.pid = id.pid, .pidfd = process_open(&id)};
    return ret->pidfd >= 0;
}

bool job_runner_alive(const char *job_dir)
{
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof path, "%s/control", job_dir);
    fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

void job_runner_kill(const struct job_runner *runner)
{
    pidfd_send_signal(runner->pidfd, SIGKILL, NULL, 0); /* fails only when it has ended */
}

bool job_runner_clean_up(const char *job_dir)
{
    char state_dir[PATH_MAX];
    struct arena *arena = arena_new();
    struct error err = {0};
    struct runner_spec spec;
    const char *job_id = strrchr(job_dir, '/');
    bool done = true;

    /* Without a readable spec nothing was started. */
    if (job_id != NULL && job_id - job_dir > (ptrdiff_t)strlen("/jobs") &&
        runner_spec_read(job_dir, arena, &spec, &err)) {
        snprintf(state_dir, sizeof state_dir, "%.*s",
                 (int)(job_id - job_dir - (ptrdiff_t)strlen("/jobs")), job_dir);
        done = launch_clean_up(state_dir, job_id + 1, &spec.isolation);
    }
    arena_free(arena);
    return done;
}

/* ---- commands ---------------------------------------------------------------------------------- */

static bool input_by_file(const char *job_dir, const char *bytes, size_t len, struct error *err)
{
    static unsigned count;
    char name[64], path[PATH_MAX];

    snprintf(name, sizeof name, "input.%d.%u", (int)getpid(), count++);
    if (!small_file_write(job_dir, name, bytes, len, err))
        return false;
    if (control_send(job_dir, CONTROL_INPUT_FILE, name, strlen(name), err))
        return true;
    snprintf(path, sizeof path, "%s/%s", job_dir, name);
    unlink(path);
    return false;
}

bool job_runner_input(const char *job_dir, const char *bytes, size_t len, struct error *err)
{
    if (len <= CONTROL_INLINE_MAX)
        return control_send(job_dir, CONTROL_INPUT, bytes, len, err);
    if (len > CONTROL_INPUT_MAX) {
        error_set(err, ERR_PAYLOAD_TOO_LARGE, "input of more than 16 MiB at once");
        return false;
    }
    return input_by_file(job_dir, bytes, len, err);
}

bool job_runner_resize(const char *job_dir, int cols, int rows, struct error *err)
{
    const int32_t size[2] = {cols, rows};

    return control_send(job_dir, CONTROL_RESIZE, size, sizeof size, err);
}

bool job_runner_terminate(const char *job_dir, int64_t grace_ms, struct error *err)
{
    return control_send(job_dir, CONTROL_TERMINATE, &grace_ms, sizeof grace_ms, err);
}
