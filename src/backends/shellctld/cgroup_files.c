#include "backends/shellctld/cgroup_files.h"

#include "backends/shellctld/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool cgroup_write(const char *folder, const char *file, const char *text)
{
    char path[CGROUP_PATH_MAX * 2];
    int fd;
    bool ok;

    snprintf(path, sizeof path, "%s/%s", folder, file);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ok = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    int saved = errno;
    close(fd);
    errno = saved;
    return ok;
}

bool cgroup_write_number(const char *folder, const char *file, int64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRId64, value);
    return cgroup_write(folder, file, text);
}

bool cgroup_read(const char *folder, const char *file, char *text, size_t size)
{
    char path[CGROUP_PATH_MAX * 2];
    int fd;
    ssize_t n;

    snprintf(path, sizeof path, "%s/%s", folder, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n >= 0;
}

bool cgroup_has(const char *folder, const char *file)
{
    char path[CGROUP_PATH_MAX * 2];

    snprintf(path, sizeof path, "%s/%s", folder, file);
    return access(path, F_OK) == 0;
}

/* ---- limits ------------------------------------------------------------------------------------ */

/* Either version's file, whichever this folder has. */
bool cgroup_limit_memory(const char *folder, int64_t bytes)
{
    if (cgroup_has(folder, "memory.max"))
        return cgroup_write_number(folder, "memory.max", bytes) &&
               (!cgroup_has(folder, "memory.swap.max") ||
                cgroup_write_number(folder, "memory.swap.max", 0)) &&
               (!cgroup_has(folder, "memory.oom.group") ||
                cgroup_write_number(folder, "memory.oom.group", 0));
    return cgroup_write_number(folder, "memory.limit_in_bytes", bytes) &&
           (!cgroup_has(folder, "memory.memsw.limit_in_bytes") ||
            cgroup_write_number(folder, "memory.memsw.limit_in_bytes", bytes));
}

bool cgroup_limit_pids(const char *folder, int64_t count)
{
    return cgroup_write_number(folder, "pids.max", count);
}
