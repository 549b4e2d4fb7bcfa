#include "backends/shellctld/jail.h"

#include "backends/shellctld/isolation.h"
#include "backends/shellctld/landlock.h"
#include "backends/shellctld/owner.h"
#include "backends/shellctld/process.h"
#include "backends/shellctld/seccomp_filter.h"
#include "backends/shellctld/system_paths.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void report(int status_fd, char kind, const char *text)
{
    char message[512];
    int len = snprintf(message, sizeof message, "%c%s", kind, text);
    size_t n = (size_t)len < sizeof message ? (size_t)len : sizeof message - 1;

    /* One write within PIPE_BUF; a reader that is gone makes no difference to the job. */
    while (write(status_fd, message, n) < 0 && errno == EINTR)
        ;
}

/* A layer that was promised does not work: the job must not run without it. */
_Noreturn static void refuse(int status_fd, const char *layer, const char *why)
{
    char text[480];

    snprintf(text, sizeof text, "%s: %s", layer, why);
    report(status_fd, JAIL_FAILED, text);
    _exit(JAIL_EXIT_SETUP);
}

/* ---- steps ------------------------------------------------------------------------------------- */

static void enter_session(const struct jail *jail, int status_fd)
{
    if (setsid() < 0)
        refuse(status_fd, "session", strerror(errno));
    if (jail->terminal && ioctl(STDIN_FILENO, TIOCSCTTY, 0) != 0)
        refuse(status_fd, "terminal", strerror(errno));
}

/* Root without an own uid, as in a container, still has its capabilities; a job needs none. With
 * no_new_privs nothing that it executes brings them back. */
static void drop_capabilities(int status_fd)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[2] = {{0}};

    if (syscall(SYS_capset, &head, none) != 0)
        refuse(status_fd, "capabilities", strerror(errno));
}

static void become_user(const struct jail *jail, int status_fd)
{
    if ((jail->layers & LAYER_UID) != 0 && !jail->in_bwrap && !owner_become(jail->uid))
        refuse(status_fd, "own uid", strerror(errno));
    if ((jail->layers & LAYER_UID) != 0 &&
        (access(jail->home, W_OK | X_OK) != 0 || access(jail->workspace, W_OK | X_OK) != 0))
        refuse(status_fd, "own uid", "it cannot reach its Home and Workspace");
    if (!jail->in_bwrap)
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* after the change of user, which clears it */
    if (jail->layers != 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        refuse(status_fd, "no_new_privs", strerror(errno));
    if (jail->layers != 0)
        drop_capabilities(status_fd);
}

static void set_limit(int status_fd, __rlimit_resource_t what, const char *name, rlim_t value)
{
    struct rlimit limit;

    if (getrlimit(what, &limit) != 0)
        refuse(status_fd, name, strerror(errno));
    if (limit.rlim_max == RLIM_INFINITY || value < limit.rlim_max)
        limit.rlim_max = value;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(what, &limit) != 0)
        refuse(status_fd, name, strerror(errno));
}

/* A user namespace and an own uid have a count of their own; otherwise this user's other processes
 * count too and must not use up the job's. */
static rlim_t process_limit(const struct jail *jail)
{
    rlim_t others = 0;

    if (!jail->in_bwrap && (jail->layers & LAYER_UID) == 0)
        others = process_count_of_uid(getuid());
    return (rlim_t)jail->limits.max_processes + others;
}

static void set_limits(const struct jail *jail, int status_fd)
{
    /* Everybody may lower himself; and whoever cannot be lowered further runs as low as he can. */
    errno = 0;
    if (jail->limits.nice > 0 && nice((int)jail->limits.nice) == -1 && errno != 0)
        refuse(status_fd, "priority", strerror(errno));
    set_limit(status_fd, RLIMIT_CORE, "core limit", 0);
    if (jail->limits.max_open_files > 0)
        set_limit(status_fd, RLIMIT_NOFILE, "open file limit", (rlim_t)jail->limits.max_open_files);
    if (jail->limits.max_processes > 0 && jail->scoped)
        set_limit(status_fd, RLIMIT_NPROC, "process limit", process_limit(jail));
    /* Where no group counts what is used: not RLIMIT_AS, since runtimes reserve far more address
     * space than they ever touch. */
    if (jail->limits.max_memory_bytes > 0 && (jail->layers & LAYER_MEMORY) == 0 && jail->scoped)
        set_limit(status_fd, RLIMIT_DATA, "memory limit", (rlim_t)jail->limits.max_memory_bytes);
}

static void restrict_files(const struct jail *jail, int status_fd)
{
    struct landlock_rule rules[SYSTEM_PATHS_MAX + 24];
    struct error err = {0};
    size_t n;

    if ((jail->layers & LAYER_LANDLOCK) == 0)
        return;
    n = system_paths_rules(rules, SYSTEM_PATHS_MAX);
    rules[n++] = (struct landlock_rule){jail->home, LANDLOCK_WRITE, true};
    rules[n++] = (struct landlock_rule){jail->workspace, LANDLOCK_WRITE, true};
    if (jail->temporary != NULL)
        rules[n++] = (struct landlock_rule){jail->temporary, LANDLOCK_WRITE, true};
    if (jail->in_bwrap) {
        /* All of these belong to this job alone. */
        rules[n++] = (struct landlock_rule){"/", LANDLOCK_LIST, true};
        rules[n++] = (struct landlock_rule){"/tmp", LANDLOCK_WRITE, true};
        rules[n++] = (struct landlock_rule){"/dev/shm", LANDLOCK_WRITE, false};
        rules[n++] = (struct landlock_rule){"/dev/pts", LANDLOCK_DEVICE, false};
        rules[n++] = (struct landlock_rule){"/dev/ptmx", LANDLOCK_DEVICE, false};
        rules[n++] = (struct landlock_rule){SANDBOX_SCRIPT_DIR, LANDLOCK_READ, true};
    }
    bool no_tcp = (jail->layers & LAYER_NO_INET) != 0;
    if (!landlock_restrict(jail->landlock_abi, rules, n, no_tcp, &err))
        refuse(status_fd, "Landlock", err.message);
}

static void restrict_calls(const struct jail *jail, int status_fd)
{
    struct error err = {0};
    unsigned flags = 0;

    if ((jail->layers & LAYER_SECCOMP) == 0)
        return;
    if ((jail->layers & LAYER_NO_INET) != 0)
        flags |= SECCOMP_NO_INET;
    /* Landlock does not fence in named local sockets; with an own uid the folders' modes do. */
    if (!jail->in_bwrap && (jail->layers & LAYER_UID) == 0)
        flags |= SECCOMP_NO_UNIX;
    if (!seccomp_filter_load(flags, &err))
        refuse(status_fd, "seccomp", err.message);
}

static void reset_signals(void)
{
    sigset_t none;

    sigemptyset(&none);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL); /* the few that cannot be set need no setting */
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* ---- running the script ------------------------------------------------------------------------ */

_Noreturn static void run_script(const struct jail *jail)
{
    char *const shell[] = {"/bin/sh", (char *)jail->script, NULL};
    char *const direct[] = {(char *)jail->script, NULL};

    if (jail->direct)
        execve(jail->script, direct, (char *const *)jail->env);
    else
        execve(shell[0], shell, (char *const *)jail->env);
    int code = errno == ENOENT || errno == ENOTDIR ? JAIL_EXIT_NOT_FOUND : JAIL_EXIT_NOT_EXECUTABLE;
    dprintf(STDERR_FILENO, "cannot run the script: %s\n",
            errno == ENOENT ? "its interpreter does not exist" : strerror(errno));
    _exit(code);
}

void jail_enter(const struct jail *jail, int status_fd)
{
    reset_signals();
    umask(022);
    enter_session(jail, status_fd);
    become_user(jail, status_fd);
    if (chdir(jail->cwd) != 0) {
        report(status_fd, JAIL_STARTED, "");
        dprintf(STDERR_FILENO, "cannot enter %s: %s\n", jail->cwd, strerror(errno));
        _exit(JAIL_EXIT_CHDIR);
    }
    restrict_files(jail, status_fd);
    if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0)
        refuse(status_fd, "close_range", strerror(errno));
    restrict_calls(jail, status_fd);
    set_limits(jail, status_fd); /* last, since they bind this process too */
    report(status_fd, JAIL_STARTED, "");
    run_script(jail);
}

/* ---- from one process to another --------------------------------------------------------------- */

static void put_number(struct buf *out, int64_t value)
{
    buf_addf(out, "%lld", (long long)value);
    buf_addc(out, '\0');
}

static void put_text(struct buf *out, const char *text)
{
    buf_addc(out, text == NULL ? '-' : '+');
    if (text != NULL)
        buf_adds(out, text);
    buf_addc(out, '\0');
}

void jail_encode(const struct jail *jail, struct buf *out)
{
    size_t n_env = 0;

    put_number(out, jail->layers);
    put_number(out, jail->in_bwrap);
    put_number(out, jail->scoped);
    put_number(out, jail->terminal);
    put_number(out, jail->landlock_abi);
    put_number(out, jail->uid);
    put_number(out, jail->direct);
    put_number(out, jail->limits.max_processes);
    put_number(out, jail->limits.max_memory_bytes);
    put_number(out, jail->limits.max_open_files);
    put_number(out, jail->limits.nice);
    put_text(out, jail->home);
    put_text(out, jail->workspace);
    put_text(out, jail->temporary);
    put_text(out, jail->cwd);
    put_text(out, jail->script);
    while (jail->env[n_env] != NULL)
        n_env++;
    put_number(out, (int64_t)n_env);
    for (size_t i = 0; i < n_env; i++)
        put_text(out, jail->env[i]);
}

struct reader {
    const char *at, *end;
    bool ok;
};

static const char *get(struct reader *r)
{
    const char *text = r->at;
    const char *nul = r->ok ? memchr(text, '\0', (size_t)(r->end - text)) : NULL;

    r->ok = nul != NULL;
    if (r->ok)
        r->at = nul + 1;
    return r->ok ? text : "";
}

static int64_t get_number(struct reader *r)
{
    const char *text = get(r);
    char *end;
    long long value = strtoll(text, &end, 10);

    r->ok = r->ok && end != text && *end == '\0';
    return r->ok ? value : 0;
}

static const char *get_text(struct reader *r, struct arena *arena)
{
    const char *text = get(r);

    r->ok = r->ok && (*text == '+' || strcmp(text, "-") == 0);
    return r->ok && *text == '+' ? arena_strdup(arena, text + 1) : NULL;
}

bool jail_decode(const char *bytes, size_t len, struct arena *arena, struct jail *ret)
{
    struct reader r = {.at = bytes, .end = bytes + len, .ok = true};
    struct jail jail = {0};

    jail.layers = (unsigned)get_number(&r);
    jail.in_bwrap = get_number(&r) != 0;
    jail.scoped = get_number(&r) != 0;
    jail.terminal = get_number(&r) != 0;
    jail.landlock_abi = (int)get_number(&r);
    jail.uid = (uid_t)get_number(&r);
    jail.direct = get_number(&r) != 0;
    jail.limits.max_processes = get_number(&r);
    jail.limits.max_memory_bytes = get_number(&r);
    jail.limits.max_open_files = get_number(&r);
    jail.limits.nice = get_number(&r);
    jail.home = get_text(&r, arena);
    jail.workspace = get_text(&r, arena);
    jail.temporary = get_text(&r, arena);
    jail.cwd = get_text(&r, arena);
    jail.script = get_text(&r, arena);
    int64_t n_env = get_number(&r);
    if (!r.ok || n_env < 0 || n_env > (int64_t)len || jail.cwd == NULL || jail.script == NULL)
        return false;
    jail.env = arena_alloc(arena, ((size_t)n_env + 1) * sizeof *jail.env);
    for (int64_t i = 0; i < n_env; i++)
        jail.env[i] = get_text(&r, arena);
    jail.env[n_env] = NULL;
    if (!r.ok || r.at != r.end)
        return false;
    *ret = jail;
    return true;
}

int jail_main(int argc, char **argv)
{
    struct buf text = {0};
    struct jail jail;
    struct arena *arena = arena_new();
    char chunk[4096];
    ssize_t n;

    if (argc != 3)
        return JAIL_EXIT_SETUP;
    int spec_fd = atoi(argv[1]), status_fd = atoi(argv[2]);
    while ((n = read(spec_fd, chunk, sizeof chunk)) > 0)
        buf_add(&text, chunk, (size_t)n);
    if (n < 0 || !jail_decode(buf_text(&text), text.len, arena, &jail))
        refuse(status_fd, "jail", "the job's description cannot be read");
    jail_enter(&jail, status_fd);
}
