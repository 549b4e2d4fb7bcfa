#include "backends/shellctld/cgroup.h"

#include "backends/shellctld/cgroup_files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The distinct roots, so that one of version 2 is not handled three times. */
static size_t distinct(const struct cgroup_roots *roots, const char *ret[3])
{
    const char *all[3] = {roots->memory, roots->pids, roots->unified};
    size_t n = 0;

    for (size_t i = 0; i < 3; i++) {
        bool seen = all[i][0] == '\0';
        for (size_t k = 0; k < n; k++)
            seen = seen || strcmp(ret[k], all[i]) == 0;
        if (!seen)
            ret[n++] = all[i];
    }
    return n;
}

static void group_path(const char *root, const char *id, char ret[CGROUP_PATH_MAX * 2])
{
    snprintf(ret, CGROUP_PATH_MAX * 2, "%s/%s", root, id);
}

bool cgroup_create(const struct cgroup_roots *roots, const char *id, int64_t max_memory,
                   int64_t max_processes, struct error *err)
{
    const char *all[3];
    char folder[CGROUP_PATH_MAX * 2];
    size_t n = distinct(roots, all);
    bool ok = true;

    for (size_t i = 0; ok && i < n; i++) {
        group_path(all[i], id, folder);
        ok = mkdir(folder, 0755) == 0 || errno == EEXIST;
    }
    if (ok && roots->memory[0] != '\0' && max_memory > 0) {
        group_path(roots->memory, id, folder);
        ok = cgroup_limit_memory(folder, max_memory);
    }
    if (ok && roots->pids[0] != '\0' && max_processes > 0) {
        group_path(roots->pids, id, folder);
        ok = cgroup_limit_pids(folder, max_processes);
    }
    if (!ok) {
        error_set(err, ERR_INTERNAL, "cgroup: %s: %s", folder, strerror(errno));
        cgroup_remove(roots, id);
    }
    return ok;
}

pid_t cgroup_fork(const struct cgroup_roots *roots, const char *id)
{
    char folder[CGROUP_PATH_MAX * 2];
    struct clone_args args = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD};
    int fd;
    long pid;

    if (roots->unified[0] == '\0')
        return fork();
    group_path(roots->unified, id, folder);
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    args.cgroup = (uint64_t)fd;
    pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid < 0 && (errno == ENOSYS || errno == EPERM || errno == EOPNOTSUPP))
        pid = fork(); /* a container's filter: cgroup_join moves it */
    int saved = errno;
    close(fd);
    errno = saved;
    return (pid_t)pid;
}

/* Is the calling process in this version 2 group already? */
static bool born_into(const char *root, const char *id)
{
    char text[4096];
    const char *line;

    if (!cgroup_read("/proc/self", "cgroup", text, sizeof text))
        return false;
    line = strstr(text, "0::");
    return cgroup_has(root, "cgroup.subtree_control") && line != NULL && strstr(line, id) != NULL;
}

bool cgroup_join(const struct cgroup_roots *roots, const char *id, struct error *err)
{
    const char *all[3];
    size_t n = distinct(roots, all);

    for (size_t i = 0; i < n; i++) {
        char folder[CGROUP_PATH_MAX * 2];
        if (born_into(all[i], id))
            continue;
        group_path(all[i], id, folder);
        /* Version 1: moving one thread, and be it the only one, spares the kernel a lock over every
         * process of the machine that takes it milliseconds to get. */
        const char *file = cgroup_has(folder, "tasks") ? "tasks" : "cgroup.procs";
        if (!cgroup_write(folder, file, "0")) {
            error_set(err, ERR_INTERNAL, "cgroup: cannot join %s: %s", folder, strerror(errno));
            return false;
        }
    }
    return true;
}

/* Does `pid` belong to group `id` still? Asked while a pidfd pins it. */
static bool is_member(pid_t pid, const char *id)
{
    char folder[32], text[4096];

    snprintf(folder, sizeof folder, "/proc/%d", (int)pid);
    return cgroup_read(folder, "cgroup", text, sizeof text) && strstr(text, id) != NULL;
}

/* Kill what a group's list shows, each only after it is certain who has the pid. Returns how many
 * were listed. */
static size_t kill_listed(const char *folder, const char *id)
{
    char path[CGROUP_PATH_MAX * 2 + 16];
    FILE *file;
    int pid;
    size_t n = 0;

    snprintf(path, sizeof path, "%s/cgroup.procs", folder);
    file = fopen(path, "re");
    while (file != NULL && fscanf(file, "%d", &pid) == 1) {
        int fd = pid > 1 ? pidfd_open(pid, 0) : -1;
        n++;
        if (fd >= 0 && is_member(pid, id))
            pidfd_send_signal(fd, SIGKILL, NULL, 0);
        if (fd >= 0)
            close(fd);
    }
    if (file != NULL)
        fclose(file);
    return n;
}

bool cgroup_kill(const struct cgroup_roots *roots, const char *id)
{
    const char *all[3];
    size_t n = distinct(roots, all), left = 0;

    for (size_t i = n; i-- > 0;) {
        char folder[CGROUP_PATH_MAX * 2], text[8];
        group_path(all[i], id, folder);
        if (!cgroup_write(folder, "cgroup.kill", "1"))
            left += kill_listed(folder, id);
        else if (cgroup_read(folder, "cgroup.procs", text, sizeof text) && text[0] != '\0')
            left++;
    }
    return left == 0;
}

int64_t cgroup_oom_kills(const struct cgroup_roots *roots, const char *id)
{
    char folder[CGROUP_PATH_MAX * 2], text[512];
    const char *at;

    if (roots->memory[0] == '\0')
        return 0;
    group_path(roots->memory, id, folder);
    if (!cgroup_read(folder, "memory.events", text, sizeof text) &&
        !cgroup_read(folder, "memory.oom_control", text, sizeof text))
        return 0;
    at = strstr(text, "oom_kill ");
    return at == NULL ? 0 : strtoll(at + strlen("oom_kill "), NULL, 10);
}

bool cgroup_remove(const struct cgroup_roots *roots, const char *id)
{
    const char *all[3];
    size_t n = distinct(roots, all);
    bool gone = true;

    for (size_t i = 0; i < n; i++) {
        char folder[CGROUP_PATH_MAX * 2];
        group_path(all[i], id, folder);
        gone = (rmdir(folder) == 0 || errno == ENOENT) && gone;
    }
    return gone;
}
