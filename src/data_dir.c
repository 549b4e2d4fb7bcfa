#include "data_dir.h"

#include "core/runtime/quote.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/rand.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SECRET_BYTES = 32, SECRET_CHARS = 2 * SECRET_BYTES };

static bool unusable(struct error *err, const char *what, const char *path)
{
    error_set(err, ERR_BAD_REQUEST,
              "the data folder cannot be used: %s %s: %s; set BINDERY_DATA_DIR to a folder that "
              "this user can write",
              what, path, strerror(errno));
    return false;
}

/* mkdir -p, mode 0700 for what is made. */
static bool make_folders(const char *path, struct error *err)
{
    char *copy = xstrdup(path);
    bool ok = true;

    for (char *at = copy + 1; ok; at++) {
        char was = *at;

        if (was != '/' && was != '\0')
            continue;
        *at = '\0';
        if (mkdir(copy, S_IRWXU) != 0 && errno != EEXIST)
            ok = unusable(err, "making", copy);
        *at = was;
        if (was == '\0')
            break;
    }
    free(copy);
    return ok;
}

static bool lock_folder(struct data_dir *dir, struct error *err)
{
    char *path = NULL;
    char owner[24] = "";

    if (asprintf(&path, "%s/lock", dir->path) < 0)
        UNREACHABLE("out of memory");
    dir->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (dir->lock_fd < 0) {
        unusable(err, "writing", path);
        free(path);
        return false;
    }
    free(path);
    if (flock(dir->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        ssize_t n = read(dir->lock_fd, owner, sizeof(owner) - 1);

        owner[n > 0 ? strspn(owner, "0123456789") : 0] = '\0';
        error_set(err, ERR_CONFLICT,
                  "the data folder %s is in use by another server%s%s; give each server its own "
                  "BINDERY_DATA_DIR",
                  dir->path, owner[0] != '\0' ? ", process " : "", owner);
        close(dir->lock_fd);
        return false;
    }
    if (ftruncate(dir->lock_fd, 0) != 0 || dprintf(dir->lock_fd, "%ld\n", (long)getpid()) < 0)
        return unusable(err, "writing the lock in", dir->path);
    return true;
}

bool data_dir_open(struct data_dir *dir, const char *path, struct error *err)
{
    *dir = (struct data_dir){path, -1};
    return make_folders(path, err) && lock_folder(dir, err);
}

void data_dir_close(struct data_dir *dir)
{
    if (dir->lock_fd >= 0)
        close(dir->lock_fd);
    dir->lock_fd = -1;
}

/* ---- secrets */

static bool write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, text, len);

        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0) {
            text += n;
            len -= (size_t)n;
        }
    }
    return true;
}

static const char *make_secret(const char *path, struct arena *arena, struct error *err)
{
    unsigned char bytes[SECRET_BYTES];
    char *secret, *temporary = arena_printf(arena, "%s.new", path);
    bool ok;
    int fd;

    if (RAND_bytes(bytes, sizeof(bytes)) != 1) {
        error_set(err, ERR_INTERNAL, "the system gives no random bytes");
        return NULL;
    }
    secret = quote_hex(arena, bytes, sizeof(bytes));
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
    ok = fd >= 0 && write_all(fd, secret, SECRET_CHARS) && fsync(fd) == 0;
    if (fd >= 0 && close(fd) != 0)
        ok = false;
    if (ok && rename(temporary, path) == 0)
        return secret;
    unusable(err, "writing", path);
    return NULL;
}

const char *data_dir_secret(const struct data_dir *dir, const char *name, struct arena *arena,
                            struct error *err)
{
    const char *path = arena_printf(arena, "%s/%s", dir->path, name);
    char *secret = arena_alloc(arena, SECRET_CHARS + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0 && errno == ENOENT)
        return make_secret(path, arena, err);
    if (fd < 0) {
        unusable(err, "reading", path);
        return NULL;
    }
    n = read(fd, secret, SECRET_CHARS);
    close(fd);
    if (n == SECRET_CHARS && strspn(secret, "0123456789abcdef") == SECRET_CHARS)
        return secret;
    error_set(
        err, ERR_BAD_REQUEST,
        "%s does not hold a secret as this server writes it; restore it, or remove it to make a "
        "new one (leases of now end then)",
        path);
    return NULL;
}
