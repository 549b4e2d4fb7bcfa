#include "backends/shellctld/process.h"

#include "core/runtime/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

/* Read a small file of /proc whole; false when it is gone. */
static bool read_file(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return false;
    n = read(fd, text, size - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    return true;
}

bool process_stat_parse(const char *text, struct process_stat *ret)
{
    const char *behind = strrchr(text, ')');
    struct process_stat s = {0};
    long pid, parent;

    if (behind == NULL || sscanf(text, "%ld (", &pid) != 1)
        return false;
    /* Fields 3, 4 and 22 of proc(5). */
    if (sscanf(
            behind + 1,
            " %c %ld %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64,
            &s.state, &parent, &s.start_ticks) != 3)
        return false;
    s.pid = (pid_t)pid;
    s.parent = (pid_t)parent;
    *ret = s;
    return true;
}

static bool stat_of(pid_t pid, struct process_stat *ret)
{
    char path[32], text[1024];

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    return read_file(path, text, sizeof text) && process_stat_parse(text, ret);
}

static bool boot_id(char ret[BOOT_ID_CHARS + 1])
{
    char text[64];

    if (!read_file("/proc/sys/kernel/random/boot_id", text, sizeof text))
        return false;
    text[strcspn(text, "\n")] = '\0';
    if (strlen(text) != BOOT_ID_CHARS)
        return false;
    memcpy(ret, text, BOOT_ID_CHARS + 1);
    return true;
}

bool process_id_of(pid_t pid, struct process_id *ret)
{
    struct process_stat s;
    struct process_id id = {.pid = pid};

    if (!stat_of(pid, &s) || !boot_id(id.boot_id))
        return false;
    id.start_ticks = s.start_ticks;
    *ret = id;
    return true;
}

void process_id_format(const struct process_id *id, char *text, size_t size)
{
    snprintf(text, size, "%d %" PRIu64 " %s\n", (int)id->pid, id->start_ticks, id->boot_id);
}

bool process_id_parse(const char *text, struct process_id *ret)
{
    struct process_id id = {0};
    long pid;
    int end = 0;

    if (sscanf(text, "%ld %" SCNu64 " %36s%n", &pid, &id.start_ticks, id.boot_id, &end) != 3)
        return false;
    if (pid <= 0 || pid > INT32_MAX || strlen(id.boot_id) != BOOT_ID_CHARS)
        return false;
    if (text[end] != '\0' && strcmp(text + end, "\n") != 0)
        return false;
    id.pid = (pid_t)pid;
    *ret = id;
    return true;
}

int process_open(const struct process_id *id)
{
    struct process_id now;
    int fd = pidfd_open(id->pid, 0);

    if (fd < 0)
        return -1;
    /* The pidfd pins whoever has the pid at this moment; only then is it certain who that is. */
    if (!process_id_of(id->pid, &now) || now.start_ticks != id->start_ticks ||
        strcmp(now.boot_id, id->boot_id) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* ---- the whole table --------------------------------------------------------------------------- */

struct table {
    struct process_stat *rows;
    bool *marked; /* descends from the root */
    size_t n, cap;
};

static void table_read(struct table *t)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;

    *t = (struct table){0};
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        struct process_stat s;
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || !stat_of(atoi(entry->d_name), &s))
            continue;
        if (t->n == t->cap) {
            t->cap = t->cap == 0 ? 256 : t->cap * 2;
            t->rows = xrealloc(t->rows, t->cap * sizeof *t->rows);
        }
        t->rows[t->n++] = s;
    }
    if (dir != NULL)
        closedir(dir);
    t->marked = xcalloc(t->n + 1, sizeof *t->marked);
}

static void table_fini(struct table *t)
{
    free(t->rows);
    free(t->marked);
}

static int by_pid(const void *a, const void *b)
{
    pid_t x = ((const struct process_stat *)a)->pid, y = ((const struct process_stat *)b)->pid;

    return (x > y) - (x < y);
}

/* Mark what descends from `root`: pass after pass, as deep as the tree is. */
static void table_mark(struct table *t, pid_t root)
{
    bool changed = true;

    if (t->n > 0)
        qsort(t->rows, t->n, sizeof *t->rows, by_pid);
    while (changed) {
        changed = false;
        for (size_t i = 0; i < t->n; i++) {
            if (t->marked[i])
                continue;
            struct process_stat key = {.pid = t->rows[i].parent};
            struct process_stat *parent = bsearch(&key, t->rows, t->n, sizeof key, by_pid);
            if (key.pid == root || (parent != NULL && t->marked[parent - t->rows]))
                changed = t->marked[i] = true;
        }
    }
}

static void signal_exactly(const struct process_stat *s, int sig)
{
    struct process_stat now;
    int fd = pidfd_open(s->pid, 0);

    if (fd < 0)
        return;
    if (stat_of(s->pid, &now) && now.start_ticks == s->start_ticks)
        pidfd_send_signal(fd, sig, NULL, 0); /* fails only when it has just gone */
    close(fd);
}

size_t process_signal_descendants(pid_t root, int sig, pid_t spare)
{
    struct table t;
    size_t living = 0;

    table_read(&t);
    table_mark(&t, root);
    for (size_t i = 0; i < t.n; i++) {
        const struct process_stat *s = &t.rows[i];
        if (!t.marked[i] || s->state == 'Z' || s->state == 'X')
            continue;
        living++;
        if (spare == 0 || (s->pid != spare && s->parent != spare))
            signal_exactly(s, sig);
    }
    table_fini(&t);
    return living;
}

size_t process_count_of_uid(uid_t uid)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    size_t count = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        struct stat st;
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
            fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 && st.st_uid == uid)
            count++;
    }
    if (dir != NULL)
        closedir(dir);
    return count;
}
