#include "backends/shellctld/owner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 512 }; /* folders inside folders: one descriptor each */

static bool fail(struct error *err, const char *what)
{
    error_set(err, ERR_INTERNAL, "%s: %s", what, strerror(errno));
    return false;
}

static bool in_range(const struct owner_range *range, uid_t uid)
{
    return uid >= range->first && uid - range->first < range->count;
}

/* ---- handing over ------------------------------------------------------------------------------ */

struct walk {
    uid_t uid;
    dev_t device;
    struct error *err;
};

/* Every step is relative to an open folder and follows no link, so that whoever owns a part of the
 * tree cannot lead the walk out of it. `fd` is consumed. */
static bool hand_over_folder(struct walk *w, int fd, int depth)
{
    DIR *dir = fdopendir(fd);
    struct dirent *entry;
    bool ok = true;

    if (dir == NULL) {
        close(fd);
        return fail(w->err, "cannot read a folder of the binding");
    }
    while (ok && (entry = readdir(dir)) != NULL) {
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            st.st_dev != w->device)
            continue; /* just removed, or a mount that is not ours */
        if (S_ISDIR(st.st_mode)) {
            int sub =
                openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (sub < 0)
                continue; /* replaced meanwhile */
            if (depth >= DEPTH_MAX) {
                close(sub);
                errno = ELOOP;
                ok = fail(w->err, "the binding's folders are nested too deep");
                break;
            }
            ok = hand_over_folder(w, sub, depth + 1);
        }
        if (ok && st.st_uid != w->uid &&
            fchownat(dirfd(dir), entry->d_name, w->uid, w->uid, AT_SYMLINK_NOFOLLOW) != 0 &&
            errno != ENOENT)
            ok = fail(w->err, "cannot hand a file over to the binding's uid");
    }
    closedir(dir);
    return ok;
}

bool owner_hand_over(int dir_fd, uid_t uid, struct error *err)
{
    struct walk walk = {.uid = uid, .err = err};
    struct stat st;
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return fail(err, "cannot read a folder of the binding");
    if (fstat(fd, &st) != 0) {
        close(fd);
        return fail(err, "cannot look at a folder of the binding");
    }
    walk.device = st.st_dev;
    if (!hand_over_folder(&walk, fd, 0))
        return false;
    return fchown(dir_fd, uid, uid) == 0 ||
           fail(err, "cannot hand a folder over to the binding's uid");
}

bool owner_become(uid_t uid)
{
    uid_t real, effective, saved;

    /* 0 is who must not be, and to setresuid -1 means: change nothing. */
    if (uid == 0 || uid == (uid_t)-1) {
        errno = EINVAL;
        return false;
    }
    if (setgroups(0, NULL) != 0 || setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0 ||
        getresuid(&real, &effective, &saved) != 0)
        return false;
    if (real == uid && effective == uid && saved == uid)
        return true;
    errno = EPERM;
    return false;
}

/* ---- choosing ---------------------------------------------------------------------------------- */

/* Is any other Workspace beside this one owned by `uid`? Asked only once the counter has gone round
 * the whole range. */
static bool uid_taken(const char *workspace, uid_t uid)
{
    char parent[4096];
    const char *slash = strrchr(workspace, '/');
    struct dirent *entry;
    struct stat st;
    bool taken = false;

    snprintf(parent, sizeof parent, "%.*s/", (int)(slash - workspace), workspace);
    DIR *dir = opendir(parent);
    while (dir != NULL && !taken && (entry = readdir(dir)) != NULL)
        taken =
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == uid;
    if (dir != NULL)
        closedir(dir);
    return taken;
}

/* The next free uid by the counter in `counter_fd`, which is locked. */
static bool next_uid(int counter_fd, const struct owner_range *range, const char *workspace,
                     uid_t *ret, struct error *err)
{
    char text[32] = "";
    uint64_t next;

    if (pread(counter_fd, text, sizeof text - 1, 0) < 0)
        return fail(err, "cannot read the uid counter");
    next = strtoull(text, NULL, 10);
    for (uint32_t tries = 0; tries < range->count; tries++, next++) {
        uid_t uid = range->first + (uid_t)(next % range->count);
        if (next >= range->count && uid_taken(workspace, uid))
            continue;
        int len = snprintf(text, sizeof text, "%020llu\n", (unsigned long long)(next + 1));
        if (pwrite(counter_fd, text, (size_t)len, 0) != len)
            return fail(err, "cannot store the uid counter");
        *ret = uid;
        return true;
    }
    errno = EUSERS;
    return fail(err, "no uid is left for another workspace");
}

static bool assign_locked(int counter_fd, const struct owner_range *range, int home_fd,
                          int workspace_fd, const char *workspace, uid_t *ret, struct error *err)
{
    struct stat st;
    uid_t uid;

    if (fstat(workspace_fd, &st) != 0)
        return fail(err, "cannot look at the workspace");
    uid = st.st_uid;
    if (!in_range(range, uid)) {
        if (!next_uid(counter_fd, range, workspace, &uid, err) ||
            !owner_hand_over(workspace_fd, uid, err))
            return false;
    }
    if (fstat(home_fd, &st) != 0)
        return fail(err, "cannot look at the home");
    if (st.st_uid != uid && !owner_hand_over(home_fd, uid, err))
        return false;
    *ret = uid;
    return true;
}

static int open_folder(const char *path, const char *what, struct error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        error_set(err, ERR_INTERNAL, "cannot open the %s %s: %s", what, path, strerror(errno));
    return fd;
}

static bool assign_open(const char *state_dir, const struct owner_range *range, int home_fd,
                        int workspace_fd, const char *workspace, uid_t *ret, struct error *err)
{
    struct stat home, space;
    char path[4096];
    bool ok;

    /* The usual case needs no lock: everything was handed over before. */
    if (fstat(workspace_fd, &space) == 0 && in_range(range, space.st_uid) &&
        fstat(home_fd, &home) == 0 && home.st_uid == space.st_uid) {
        *ret = space.st_uid;
        return true;
    }
    snprintf(path, sizeof path, "%s/owner.next", state_dir);
    int counter = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (counter < 0 || flock(counter, LOCK_EX) != 0) {
        ok = fail(err, "cannot lock the uid counter");
    } else {
        ok = assign_locked(counter, range, home_fd, workspace_fd, workspace, ret, err);
    }
    if (counter >= 0)
        close(counter);
    return ok;
}

bool owner_assign(const char *state_dir, const struct owner_range *range, const char *home,
                  const char *workspace, uid_t *ret, struct error *err)
{
    if (range->first == 0 || range->count == 0 || range->first > UINT32_MAX - range->count) {
        error_set(err, ERR_INTERNAL, "there is no range of uids for jobs");
        return false;
    }
    int home_fd = open_folder(home, "home", err);
    int workspace_fd = home_fd < 0 ? -1 : open_folder(workspace, "workspace", err);
    bool ok = home_fd >= 0 && workspace_fd >= 0 &&
              assign_open(state_dir, range, home_fd, workspace_fd, workspace, ret, err);

    if (home_fd >= 0)
        close(home_fd);
    if (workspace_fd >= 0)
        close(workspace_fd);
    return ok;
}
