#include "backends/local/embedded_spawn.h"

#include "backends/local/embedded.h"
#include "core/runtime/config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOCKET_NAME "/shellctl.sock"

enum {
    READY_FD = 3, /* the child's end of the ready pipe */
    SOCKET_MAX = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1,
    EXEC_FAILED = 127,
};

/* ---- folders ----------------------------------------------------------------------------------- */

static char *joined(const char *folder, const char *name)
{
    struct buf path = {0};

    buf_adds(&path, folder);
    buf_adds(&path, name);
    return path.data;
}

static bool make_folder(const char *path, struct error *err)
{
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        return true;
    error_set(err, ERR_INTERNAL, "cannot make the folder %.300s: %s", path, strerror(errno));
    return false;
}

/* The socket's folder must not let others in, whoever made it. */
static bool close_folder(const char *path, struct error *err)
{
    if (make_folder(path, err) && chmod(path, 0700) == 0)
        return true;
    if (!error_is(err))
        error_set(err, ERR_INTERNAL, "cannot close the folder %.300s to others: %s", path,
                  strerror(errno));
    return false;
}

static bool make_temporary(struct embedded_paths *paths, struct error *err)
{
    free(paths->run_dir);
    paths->run_dir = xstrdup("/tmp/bindery-XXXXXX");
    if (mkdtemp(paths->run_dir) == NULL) {
        error_set(err, ERR_INTERNAL, "cannot make a folder for the socket in /tmp: %s",
                  strerror(errno));
        return false;
    }
    paths->temporary = true;
    return true;
}

bool embedded_paths_make(struct embedded_paths *paths, const char *data_dir, struct error *err)
{
    paths->state_dir = joined(data_dir, "/sandbox");
    paths->run_dir = joined(data_dir, "/run");
    if (!make_folder(data_dir, err) || !make_folder(paths->state_dir, err))
        return false;
    if (strlen(paths->run_dir) + sizeof(SOCKET_NAME) - 1 > SOCKET_MAX) {
        if (!make_temporary(paths, err))
            return false;
    } else if (!close_folder(paths->run_dir, err)) {
        return false;
    }
    paths->socket = joined(paths->run_dir, SOCKET_NAME);
    return true;
}

void embedded_paths_remove(const struct embedded_paths *paths)
{
    unlink(paths->socket);
    if (paths->temporary)
        rmdir(paths->run_dir);
}

void embedded_paths_fini(struct embedded_paths *paths)
{
    free(paths->state_dir);
    free(paths->run_dir);
    free(paths->socket);
}

/* ---- environment ------------------------------------------------------------------------------- */

static void add_variable(struct buf *out, const char *name, const char *value)
{
    buf_addf(out, "%s=%s", name, value);
    buf_addc(out, '\0');
}

static void add_number(struct buf *out, const char *name, int64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, value);
    add_variable(out, name, text);
}

static void add_seconds(struct buf *out, const char *name, int64_t ms)
{
    char text[32];

    snprintf(text, sizeof(text), "%" PRId64 ".%03d", ms / 1000, (int)(ms % 1000));
    add_variable(out, name, text);
}

static void pass_on(struct buf *out)
{
    static const char *const names[] = {"PATH",   "HOME",         "USER",          "LOGNAME",
                                        "LANG",   "LC_ALL",       "LC_CTYPE",      "TZ",
                                        "TMPDIR", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *value = getenv(names[i]);
        if (value != NULL)
            add_variable(out, names[i], value);
    }
}

void embedded_environment(struct buf *out, const struct embedded_options *options)
{
    const struct config *c = options->config;

    pass_on(out);
    add_variable(out, "BINDERY_DATA_DIR", options->data_dir);
    add_variable(out, "BINDERY_LOG_LEVEL", c->log_level);
    add_variable(out, "BINDERY_LOG_FORMAT", c->log_format);
    add_variable(out, "BINDERY_ACCESS_LOG", "false"); /* the server's own lines tell as much */
    add_variable(out, "BINDERY_LOCAL_ISOLATION", c->local_isolation);
    add_variable(out, "BINDERY_LOCAL_NETWORK", c->local_network ? "true" : "false");
    add_number(out, "BINDERY_JOB_MAX_PROCESSES", c->job_max_processes);
    add_number(out, "BINDERY_JOB_MAX_MEMORY_MIB", c->job_max_memory_mib);
    add_number(out, "BINDERY_JOB_MAX_OPEN_FILES", c->job_max_open_files);
    add_number(out, "BINDERY_JOB_NICE", c->job_nice);
    add_number(out, "BINDERY_JOB_MAX_OUTPUT_MIB", c->job_max_output_mib);
    add_number(out, "BINDERY_JOB_MAX_RUNNING", c->job_max_count);
    add_seconds(out, "BINDERY_JOB_GC_SECONDS", c->job_gc_interval_ms);
    add_seconds(out, "BINDERY_JOB_RETENTION_SECONDS", c->job_retention_ms);
    if (options->home_root != NULL)
        add_variable(out, "DIFY_AGENT_LOCAL_SANDBOX_MATERIALIZED_HOME_ROOT", options->home_root);
    if (options->workspace_root != NULL)
        add_variable(out, "DIFY_AGENT_LOCAL_SANDBOX_WORKSPACE_ROOT", options->workspace_root);
}

/* The NULL-terminated array that execve takes; to be freed, its strings stay in `environment`. */
static char **environment_array(const struct buf *environment)
{
    size_t count = 0;
    char **array;

    for (size_t i = 0; i < environment->len; i++)
        count += environment->data[i] == '\0';
    array = xcalloc(count + 1, sizeof(*array));
    for (size_t i = 0, at = 0; i < count; i++) {
        array[i] = environment->data + at;
        at += strlen(array[i]) + 1;
    }
    return array;
}

/* ---- process ----------------------------------------------------------------------------------- */

/* Everything that the child does between fork and exec; only calls that are safe there. */
struct child_plan {
    const char *program, *run_dir;
    char *const *argv;
    char *const *env;
    int ready_fd, null_fd;
    pid_t parent;
};

/* dup2 that also works in place, where it would leave close-on-exec set. */
static bool move_descriptor(int from, int to)
{
    return from == to ? fcntl(to, F_SETFD, 0) == 0 : dup2(from, to) >= 0;
}

_Noreturn static void become_child(const struct child_plan *plan)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    setsid(); /* a Ctrl-C at the server's terminal is for the server, which then stops us */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != plan->parent) /* it died before that took effect */
        _exit(EXEC_FAILED);
    if (!move_descriptor(plan->ready_fd, READY_FD) ||
        !move_descriptor(plan->null_fd, STDIN_FILENO) ||
        !move_descriptor(STDERR_FILENO, STDOUT_FILENO) || chdir(plan->run_dir) != 0)
        _exit(EXEC_FAILED);
    syscall(SYS_close_range, READY_FD + 1, ~0U, 0);
    execve(plan->program, plan->argv, plan->env);
    _exit(EXEC_FAILED);
}

static bool no_room(const char *what, struct error *err)
{
    error_set(err, ERR_OVERLOADED, "%s: %s", what, strerror(errno));
    return false;
}

static bool fork_child(const struct child_plan *plan, struct embedded_child *ret, struct error *err)
{
    ret->pid = fork();
    if (ret->pid < 0)
        return no_room("fork", err);
    if (ret->pid == 0)
        become_child(plan);
    ret->pidfd = (int)syscall(SYS_pidfd_open, ret->pid, 0);
    if (ret->pidfd >= 0)
        return true;
    no_room("pidfd_open", err);
    kill(ret->pid, SIGKILL); /* our own child, not reaped yet: the pid is its */
    waitpid(ret->pid, NULL, 0);
    return false;
}

bool embedded_spawn(const struct embedded_paths *paths, const struct buf *environment,
                    const char *program, struct embedded_child *ret, struct error *err)
{
    char *listen = joined("unix:", paths->socket);
    char *const argv[] = {"bindery",     "shellctl",       "serve",      "--listen", listen,
                          "--state-dir", paths->state_dir, "--ready-fd", "3",        NULL};
    char **env = environment_array(environment);
    struct child_plan plan = {.program = program,
                              .run_dir = paths->run_dir,
                              .argv = argv,
                              .env = env,
                              .parent = getpid()};
    int pipe_fds[2] = {-1, -1};
    bool ok = false;

    *ret = (struct embedded_child){.pid = -1, .pidfd = -1, .ready_fd = -1};
    plan.null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (plan.null_fd < 0 || pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) {
        no_room("descriptors", err);
    } else {
        plan.ready_fd = pipe_fds[1];
        ok = fork_child(&plan, ret, err);
    }
    if (plan.null_fd >= 0)
        close(plan.null_fd);
    if (pipe_fds[1] >= 0)
        close(pipe_fds[1]);
    if (ok)
        ret->ready_fd = pipe_fds[0];
    else if (pipe_fds[0] >= 0)
        close(pipe_fds[0]);
    free(env);
    free(listen);
    return ok;
}

void embedded_child_signal(const struct embedded_child *child, int number)
{
    syscall(SYS_pidfd_send_signal, child->pidfd, number, NULL, 0);
}
