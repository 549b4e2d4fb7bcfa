#include "backends/shellctld/small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

size_t write_all(int fd, const char *bytes, size_t len)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = write(fd, bytes + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    return done;
}

static bool fail(struct error *err, enum err_code code, const char *what, const char *path)
{
    error_set(err, code, "cannot %s %s: %s", what, path, strerror(errno));
    return false;
}

bool small_file_write(const char *folder, const char *name, const char *bytes, size_t len,
                      struct error *err)
{
    char path[PATH_MAX], fresh[PATH_MAX];
    int fd;
    bool ok;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(fresh, sizeof fresh, "%s/%s.new", folder, name);
    fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fail(err, ERR_INTERNAL, "create", fresh);
    ok = write_all(fd, bytes, len) == len || fail(err, ERR_INTERNAL, "write", fresh);
    if (close(fd) != 0 && ok)
        ok = fail(err, ERR_INTERNAL, "write", fresh);
    if (ok && rename(fresh, path) != 0)
        ok = fail(err, ERR_INTERNAL, "rename", fresh);
    if (!ok)
        unlink(fresh);
    return ok;
}

bool small_file_read(const char *folder, const char *name, size_t max, struct arena *arena,
                     const char **ret, size_t *ret_len, struct error *err)
{
    char path[PATH_MAX];
    struct stat st;
    int fd;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return fail(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_INTERNAL, "open", path);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < 0 || (size_t)st.st_size > max) {
        close(fd);
        errno = EFBIG;
        return fail(err, ERR_INTERNAL, "read", path);
    }
    size_t size = (size_t)st.st_size, have = 0;
    char *text = arena_alloc(arena, size + 1);
    while (have < size) {
        ssize_t n = read(fd, text + have, size - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    close(fd);
    text[have] = '\0';
    *ret = text;
    *ret_len = have;
    return true;
}
