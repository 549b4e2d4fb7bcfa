#include "backends/shellctld/isolation.h"

#include "backends/shellctld/jail.h"
#include "backends/shellctld/landlock.h"
#include "backends/shellctld/launch.h"
#include "backends/shellctld/seccomp_filter.h"
#include "backends/shellctld/small_file.h"
#include "backends/shellctld/system_paths.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TRIAL_MS = 10000,
    UID_COUNT = 65536,
    UID_COUNT_SMALL = 20000,
};

/* Far above what systems give out (systemd's own ranges end below), and, in a user namespace that
 * maps 16 bits only, the largest gap that distributions leave. */
static const uid_t uid_first_wide = 1879048192, uid_first_small = 40000;

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

/* Does a job start with these layers? `note` says why not. */
static bool try_layers(const struct isolation_options *options, const struct isolation *iso,
                       char *note)
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

/* ---- what there is ----------------------------------------------------------------------------- */

/* Root with capabilities: the one that jobs must not share. Root without any, as in a container
 * that dropped them, is a user like others. */
static bool is_privileged(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};

    if (geteuid() != 0)
        return false;
    return syscall(SYS_capget, &head, data) != 0 || data[0].effective != 0 ||
           data[1].effective != 0;
}

/* Are these ids known in our user namespace? */
static bool ids_mapped(uid_t first, uint32_t count)
{
    FILE *file = fopen("/proc/self/uid_map", "re");
    unsigned long inside, outside, size;
    bool found = false;

    while (file != NULL && !found && fscanf(file, "%lu %lu %lu", &inside, &outside, &size) == 3)
        found = first >= inside && first + (unsigned long)count <= inside + size;
    if (file != NULL)
        fclose(file);
    return found;
}

static void choose_uids(const struct isolation_options *options, struct isolation *iso)
{
    iso->uid_first = options->uid_first;
    iso->uid_count = options->uid_count;
    if (iso->uid_first == 0 || iso->uid_count == 0) {
        iso->uid_first = uid_first_wide;
        iso->uid_count = UID_COUNT;
        if (!ids_mapped(iso->uid_first, iso->uid_count)) {
            iso->uid_first = uid_first_small;
            iso->uid_count = UID_COUNT_SMALL;
        }
    }
    if (ids_mapped(iso->uid_first, iso->uid_count))
        iso->layers |= LAYER_UID;
    else
        snprintf(iso->note_uid, ISOLATION_NOTE_MAX, "the uids from %u are not mapped here",
                 (unsigned)iso->uid_first);
}

/* Other uids must be able to pass through the folders that hold theirs. Those that are ours alone
 * are opened for passing (not for listing); what lies above is the operator's to decide. */
static void open_for_passing(const char *path, char *note)
{
    char part[PATH_MAX];
    struct stat st;

    if (path == NULL || stat(path, &st) != 0)
        return;
    if ((st.st_mode & S_IXOTH) == 0 && st.st_uid == geteuid())
        (void)chmod(path, (st.st_mode & 07777) | S_IXOTH);
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = part; note[0] == '\0' && slash != NULL; slash = strrchr(part, '/')) {
        if (stat(part, &st) == 0 && (st.st_mode & S_IXOTH) == 0)
            snprintf(
                note, ISOLATION_NOTE_MAX,
                "jobs' uids cannot pass through %.120s: chmod o+x it, or choose another folder",
                part);
        *strrchr(part, '/') = '\0';
        if (part[0] == '\0')
            break;
    }
}

static void find_layers(const struct isolation_options *options, struct isolation *iso)
{
    struct error err = {0};

    iso->landlock_abi = landlock_abi();
    if (iso->landlock_abi > 0)
        iso->layers |= LAYER_LANDLOCK;
    else
        snprintf(iso->note_landlock, ISOLATION_NOTE_MAX, "not offered here: %s", strerror(errno));
    if (seccomp_filter_available(&err))
        iso->layers |= LAYER_SECCOMP;
    else
        snprintf(iso->note_seccomp, ISOLATION_NOTE_MAX, "%.190s", err.message);
    if (is_privileged())
        choose_uids(options, iso);
    else
        snprintf(iso->note_uid, ISOLATION_NOTE_MAX, "needs root");
    cgroup_probe(&iso->cgroups, iso->note_cgroup, ISOLATION_NOTE_MAX);
    if (iso->cgroups.memory[0] != '\0')
        iso->layers |= LAYER_MEMORY;
    if (iso->cgroups.pids[0] != '\0')
        iso->layers |= LAYER_PIDS;
    if (iso->cgroups.unified[0] != '\0')
        iso->layers |= LAYER_CGKILL;
}

/* ---- choosing ---------------------------------------------------------------------------------- */

static bool with_bwrap(const struct isolation_options *options, struct isolation *iso)
{
    struct isolation full = *iso;

    if (options->policy == ISOLATION_LANDLOCK) {
        snprintf(iso->note_bwrap, ISOLATION_NOTE_MAX, "switched off by the policy");
        return false;
    }
    full.layers |= LAYER_BWRAP | (options->network ? 0 : LAYER_NETNS);
    if (!try_layers(options, &full, iso->note_bwrap))
        return false;
    *iso = full;
    return true;
}

static bool without_bwrap(const struct isolation_options *options, struct isolation *iso)
{
    struct isolation less = *iso;
    char note[ISOLATION_NOTE_MAX] = "";

    if ((less.layers & LAYER_LANDLOCK) == 0)
        return false;
    if (!options->network)
        less.layers |= LAYER_NO_INET;
    if ((less.layers & LAYER_UID) != 0) {
        open_for_passing(options->data_dir, note);
        open_for_passing(options->state_dir, note);
        open_for_passing(options->home_root, note);
        open_for_passing(options->workspace_root, note);
    }
    if (note[0] == '\0' && try_layers(options, &less, note)) {
        *iso = less;
        return true;
    }
    snprintf(iso->note_landlock, ISOLATION_NOTE_MAX, "%s", note);
    return false;
}

static bool refuse(const struct isolation *iso, struct error *err)
{
    error_set(
        err, ERR_NOT_IMPLEMENTED,
        "jobs cannot be isolated here (bubblewrap: %s; Landlock: %s%s%s). Mend one of them, or "
        "set BINDERY_LOCAL_ISOLATION=none to run jobs without isolation",
        iso->note_bwrap, iso->note_landlock, iso->note_seccomp[0] != '\0' ? "; seccomp: " : "",
        iso->note_seccomp);
    return false;
}

/* State beneath a folder that every job may read would be open to every job. */
static bool check_places(const struct isolation_options *options, struct error *err)
{
    const char *const places[] = {options->state_dir, options->home_root, options->workspace_root};

    for (size_t i = 0; i < 3; i++) {
        if (places[i] == NULL || !system_paths_cover(places[i]))
            continue;
        error_set(err, ERR_NOT_IMPLEMENTED,
                  "%s lies in a part of the system that every job can read; choose another folder",
                  places[i]);
        return false;
    }
    return true;
}

bool isolation_probe(const struct isolation_options *options, struct isolation *ret,
                     struct error *err)
{
    struct isolation iso = {.policy = options->policy, .network = options->network};

    *ret = iso;
    if (options->policy == ISOLATION_NONE)
        return true;
    if (!check_places(options, err))
        return false;
    find_layers(options, &iso);
    if ((iso.layers & LAYER_SECCOMP) == 0)
        return refuse(&iso, err);
    if (is_privileged() && (iso.layers & LAYER_UID) == 0) {
        error_set(err, ERR_NOT_IMPLEMENTED,
                  "running as root, jobs need uids of their own: %s. Run as another user",
                  iso.note_uid);
        return false;
    }
    if (!with_bwrap(options, &iso) && !without_bwrap(options, &iso))
        return refuse(&iso, err);
    *ret = iso;
    return true;
}

bool isolation_policy_parse(const char *text, enum isolation_policy *ret)
{
    static const char *const names[] = {"auto", "landlock", "none"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i]) == 0) {
            *ret = (enum isolation_policy)i;
            return true;
        }
    }
    return false;
}
