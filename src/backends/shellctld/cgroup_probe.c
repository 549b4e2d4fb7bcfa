/* Finding out where control groups for jobs can be made. */
#include "backends/shellctld/cgroup.h"

#include "backends/shellctld/cgroup_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder that holds the jobs' groups, below our own group or the root of the hierarchy. */
#define JOBS_FOLDER "bindery-jobs"

/* ---- where our own groups are ------------------------------------------------------------------ */

/* Is `word` one of the comma-separated `list` (of `len` bytes)? */
static bool list_has(const char *list, size_t len, const char *word)
{
    size_t word_len = strlen(word);

    while (len > 0) {
        const char *comma = memchr(list, ',', len);
        size_t n = comma == NULL ? len : (size_t)(comma - list);
        if (n == word_len && memcmp(list, word, n) == 0)
            return true;
        if (comma == NULL)
            return false;
        list += n + 1;
        len -= n + 1;
    }
    return false;
}

/* Our path in a hierarchy: lines are `id:controllers:path`, controllers empty for version 2. */
static bool own_path(const char *self_cgroup, const char *controller, char *ret, size_t size)
{
    for (const char *line = self_cgroup; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        const char *first = memchr(line, ':', len);
        const char *second =
            first == NULL ? NULL : memchr(first + 1, ':', len - (size_t)(first + 1 - line));
        if (second != NULL) {
            size_t list_len = (size_t)(second - first - 1);
            bool match =
                controller == NULL ? list_len == 0 : list_has(first + 1, list_len, controller);
            if (match) {
                snprintf(ret, size, "%.*s", (int)(len - (size_t)(second + 1 - line)), second + 1);
                return true;
            }
        }
        line += len + (line[len] == '\n');
    }
    return false;
}

/* The mount of a hierarchy in mountinfo (proc(5)): `… root mountpoint options - type source
 * super-options`. `controller` NULL asks for version 2. */
static bool find_mount(const char *mountinfo, const char *controller, char root[CGROUP_PATH_MAX],
                       char point[CGROUP_PATH_MAX])
{
    for (const char *line = mountinfo; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        char text[2048], type[32], super[512];
        snprintf(text, sizeof text, "%.*s", (int)len, line);
        const char *dash = strstr(text, " - ");
        if (dash != NULL && sscanf(dash, " - %31s %*s %511s", type, super) == 2 &&
            sscanf(text, "%*s %*s %*s %255s %255s", root, point) == 2 &&
            strcmp(type, controller == NULL ? "cgroup2" : "cgroup") == 0 &&
            (controller == NULL || list_has(super, strlen(super), controller)))
            return true;
        line += len + (line[len] == '\n');
    }
    return false;
}

static void locate_one(const char *self_cgroup, const char *mountinfo, const char *controller,
                       char ret[CGROUP_PATH_MAX])
{
    char path[CGROUP_PATH_MAX], root[CGROUP_PATH_MAX], point[CGROUP_PATH_MAX];
    const char *below = path;

    ret[0] = '\0';
    if (!own_path(self_cgroup, controller, path, sizeof path) ||
        !find_mount(mountinfo, controller, root, point))
        return;
    /* In a container the mount may show a part of the hierarchy only, or a path from outside. */
    size_t root_len = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(path, root, root_len) == 0)
        below += root_len;
    else
        below = "";
    if (strcmp(below, "/") == 0 || strstr(below, "..") != NULL)
        below = "";
    if (strlen(point) + strlen(below) < CGROUP_PATH_MAX)
        snprintf(ret, CGROUP_PATH_MAX, "%s%s", point, below);
}

void cgroup_locate(const char *self_cgroup, const char *mountinfo, struct cgroup_roots *ret)
{
    locate_one(self_cgroup, mountinfo, "memory", ret->memory);
    locate_one(self_cgroup, mountinfo, "pids", ret->pids);
    locate_one(self_cgroup, mountinfo, NULL, ret->unified);
}

/* ---- probing ----------------------------------------------------------------------------------- */

static bool read_whole(const char *path, char **ret)
{
    FILE *file = fopen(path, "re");
    size_t size = 0;
    bool ok = file != NULL && getdelim(ret, &size, '\0', file) >= 0;

    if (file != NULL)
        fclose(file);
    return ok;
}

/* Make `<own>/bindery-jobs` in place of our own group's folder; "" when that is not allowed. */
static void make_jobs_folder(char folder[CGROUP_PATH_MAX])
{
    size_t len = strlen(folder);

    if (len == 0)
        return;
    if (len + sizeof "/" JOBS_FOLDER > CGROUP_PATH_MAX - 40) {
        folder[0] = '\0';
        return;
    }
    memcpy(folder + len, "/" JOBS_FOLDER, sizeof "/" JOBS_FOLDER);
    if (mkdir(folder, 0755) != 0 && errno != EEXIST)
        folder[0] = '\0';
}

/* Does a group below `root` take what we will ask of it? */
static bool trial(const char *root, bool (*check)(const char *folder))
{
    char folder[CGROUP_PATH_MAX * 2];
    bool ok;

    if (root[0] == '\0')
        return false;
    snprintf(folder, sizeof folder, "%s/probe-%d", root, (int)getpid());
    if (mkdir(folder, 0755) != 0)
        return false;
    ok = check(folder);
    rmdir(folder);
    return ok;
}

static bool check_memory(const char *folder)
{
    return cgroup_limit_memory(folder, 64 << 20);
}

static bool check_pids(const char *folder)
{
    return cgroup_limit_pids(folder, 16);
}

static bool check_kill(const char *folder)
{
    return cgroup_write(folder, "cgroup.kill", "1");
}

/* Version 2: the controllers must be passed on to the jobs' groups. The kernel refuses this in a
 * group that has processes of its own, unless it is the root: so our own group serves where we were
 * given one to divide, and the top of the hierarchy where we are the machine's root. */
static void offer_unified(struct cgroup_roots *roots, char *top)
{
    char *candidates[] = {roots->unified, top};

    for (size_t i = 0; i < 2; i++) {
        char above[CGROUP_PATH_MAX];
        char *folder = candidates[i];
        make_jobs_folder(folder);
        if (folder[0] == '\0')
            continue;
        snprintf(above, sizeof above, "%.*s", (int)(strlen(folder) - strlen("/" JOBS_FOLDER)),
                 folder);
        (void)cgroup_write(above, "cgroup.subtree_control", "+memory +pids");
        (void)cgroup_write(folder, "cgroup.subtree_control", "+memory +pids");
        if (trial(folder, check_memory) || (i == 0 && roots->memory[0] != '\0')) {
            memmove(roots->unified, folder, strlen(folder) + 1);
            break;
        }
    }
    if (roots->memory[0] == '\0')
        memcpy(roots->memory, roots->unified, CGROUP_PATH_MAX);
    if (roots->pids[0] == '\0')
        memcpy(roots->pids, roots->unified, CGROUP_PATH_MAX);
}

void cgroup_probe(struct cgroup_roots *ret, char *note, size_t note_size)
{
    char *self = NULL, *mounts = NULL;
    char root[CGROUP_PATH_MAX], top[CGROUP_PATH_MAX] = "";

    *ret = (struct cgroup_roots){0};
    if (!read_whole("/proc/self/cgroup", &self) || !read_whole("/proc/self/mountinfo", &mounts)) {
        snprintf(note, note_size, "cannot read /proc/self/cgroup");
        free(self);
        free(mounts);
        return;
    }
    cgroup_locate(self, mounts, ret);
    if (!find_mount(mounts, NULL, root, top))
        top[0] = '\0';
    free(self);
    free(mounts);
    make_jobs_folder(ret->memory);
    make_jobs_folder(ret->pids);
    offer_unified(ret, top);
    if (!trial(ret->memory, check_memory))
        ret->memory[0] = '\0';
    if (!trial(ret->pids, check_pids))
        ret->pids[0] = '\0';
    if (!trial(ret->unified, check_kill))
        ret->unified[0] = '\0';
    if (ret->memory[0] == '\0' || ret->pids[0] == '\0' || ret->unified[0] == '\0')
        snprintf(note, note_size, "no control group for%s%s%s: %s",
                 ret->memory[0] == '\0' ? " memory" : "", ret->pids[0] == '\0' ? " processes" : "",
                 ret->unified[0] == '\0' ? " kill" : "",
                 geteuid() == 0 ? "not delegated to this process" : "needs root or delegation");
}
