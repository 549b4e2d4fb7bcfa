#include "backends/shellctld/job_store.h"

#include "backends/shellctld/fault.h"
#include "backends/shellctld/job_runner.h"
#include "core/runtime/json.h"
#include "core/runtime/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define UNBOUND_FILE "unbound"

enum {
    ID_ATTEMPTS = 20,
    LOCK_PAUSE_MS = 20,
    END_FILE_MAX = 4096,
    REMOVE_FDS = 8,
};

struct job_store {
    char *dir;      /* absolute */
    char *jobs_dir; /* <dir>/jobs */
    int lock_fd;
};

/* ---- opening --------------------------------------------------------------------------------- */

/* mkdir -p; new folders are 0700. */
static bool make_folders(const char *path, struct error *err)
{
    char partial[PATH_MAX];
    size_t len = strlen(path);
    struct stat st;

    if (len == 0 || len >= sizeof(partial)) {
        error_set(err, ERR_INTERNAL, "the state folder's path is empty or too long");
        return false;
    }
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(partial, path, i);
        partial[i] = '\0';
        if (mkdir(partial, 0700) != 0 && errno != EEXIST) {
            error_set(err, ERR_INTERNAL, "cannot make the folder %s: %s", partial, strerror(errno));
            return false;
        }
    }
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode) && access(path, R_OK | W_OK | X_OK) == 0)
        return true;
    error_set(err, ERR_INTERNAL, "%s is no folder that can be read and written", path);
    return false;
}

/* A POSIX record lock: it belongs to this process alone, not to runners that outlive it. */
static int lock_folder(const char *dir, int64_t patience_ms, struct error *err)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof(path), "%s/daemon.lock", dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        error_set(err, ERR_INTERNAL, "cannot write to the state folder: %s: %s", path,
                  strerror(errno));
        return -1;
    }
    while (fcntl(fd, F_SETLK, &lock) != 0) {
        if ((errno != EACCES && errno != EAGAIN) || patience_ms <= 0) {
            error_set(err, ERR_CONFLICT, "another daemon uses the state folder %s", dir);
            close(fd);
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_MS * 1000000L}, NULL);
        patience_ms -= LOCK_PAUSE_MS;
    }
    return fd;
}

struct job_store *job_store_open(const char *state_dir, int64_t patience_ms, struct error *err)
{
    char resolved[PATH_MAX], jobs_dir[PATH_MAX + sizeof("/jobs")];
    struct job_store *store;
    int fd;

    if (!make_folders(state_dir, err))
        return NULL;
    if (realpath(state_dir, resolved) == NULL) {
        error_set(err, ERR_INTERNAL, "cannot find the state folder %s: %s", state_dir,
                  strerror(errno));
        return NULL;
    }
    snprintf(jobs_dir, sizeof(jobs_dir), "%s/jobs", resolved);
    if (!make_folders(jobs_dir, err))
        return NULL;
    fd = lock_folder(resolved, patience_ms, err);
    if (fd < 0)
        return NULL;
    store = xcalloc(1, sizeof(*store));
    store->dir = xstrdup(resolved);
    store->jobs_dir = xstrdup(jobs_dir);
    store->lock_fd = fd;
    return store;
}

void job_store_close(struct job_store *store)
{
    if (store == NULL)
        return;
    close(store->lock_fd);
    free(store->dir);
    free(store->jobs_dir);
    free(store);
}

const char *job_store_dir(const struct job_store *store)
{
    return store->dir;
}

/* ---- removing -------------------------------------------------------------------------------- */

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

static void remove_folder(const char *dir)
{
    if (nftw(dir, remove_entry, REMOVE_FDS, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        log_error("cannot remove the job folder %s: %s", dir, strerror(errno));
}

void job_store_delete(struct job *job)
{
    remove_folder(job->dir);
    job_remove(job);
}

/* ---- creating -------------------------------------------------------------------------------- */

static void new_id(char ret_id[JOB_ID_CHARS + 1])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char random[JOB_ID_CHARS / 2];

    PRE(getrandom(random, sizeof(random), 0) == (ssize_t)sizeof(random));
    for (size_t i = 0; i < sizeof(random); i++) {
        ret_id[2 * i] = digits[random[i] >> 4];
        ret_id[2 * i + 1] = digits[random[i] & 15];
    }
    ret_id[JOB_ID_CHARS] = '\0';
}

static bool write_file(const char *dir, const char *name, const void *bytes, size_t len,
                       struct error *err)
{
    char path[PATH_MAX];
    const char *at = bytes;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    while (fd >= 0 && len > 0) {
        ssize_t n = write(fd, at, len);
        if (n < 0 && errno != EINTR)
            break;
        if (n > 0) {
            at += n;
            len -= (size_t)n;
        }
    }
    if (fd < 0 || len > 0) {
        fault_set(err, FAULT_INTERNAL, "cannot write the job's %s: %s", name, strerror(errno));
        if (fd >= 0)
            close(fd);
        return false;
    }
    close(fd);
    return true;
}

struct job *job_store_create(struct job_store *store, struct job_table *jobs,
                             const struct job_seed *seed, struct error *err)
{
    char id[JOB_ID_CHARS + 1], dir[PATH_MAX];
    struct job *job;

    for (int attempt = 0;; attempt++) {
        new_id(id);
        snprintf(dir, sizeof(dir), "%s/%s", store->jobs_dir, id);
        if (job_find(jobs, id) == NULL && mkdir(dir, 0700) == 0)
            break;
        if (errno != EEXIST) {
            fault_set(err, FAULT_INTERNAL, "cannot make a job folder: %s", strerror(errno));
            return NULL;
        }
        if (attempt == ID_ATTEMPTS) {
            fault_set(err, FAULT_JOB_ID_COLLISION, "no free job id in %d attempts", ID_ATTEMPTS);
            return NULL;
        }
    }
    if (!write_file(dir, "script", seed->script, strlen(seed->script), err) ||
        (seed->unbound && !write_file(dir, UNBOUND_FILE, NULL, 0, err))) {
        remove_folder(dir);
        return NULL;
    }
    job = job_add(jobs, id, &seed->scope, dir, loop_wall_ms(job_table_loop(jobs)));
    job->stdio = seed->stdio;
    return job;
}

int64_t job_store_output_size(const struct job *job)
{
    struct stat st;

    return stat(job->output_path, &st) == 0 ? (int64_t)st.st_size : 0;
}

/* ---- ends that no runner recorded -------------------------------------------------------------- */

bool job_store_record_end(const struct job *job, const char *reason, const char *message,
                          struct error *err)
{
    struct buf text = {0};
    struct json_writer w = {.out = &text};
    bool ok;

    json_object_begin(&w);
    json_member_string(&w, "status", job_status_name(job->status));
    json_member_string(&w, "reason", reason);
    json_member_string(&w, "message", message);
    json_member_int(&w, "ended_at_ms", job->ended_wall_ms);
    json_object_finish(&w);
    ok = write_file(job->dir, "end.json", text.data, text.len, err);
    buf_fini(&text);
    return ok;
}

static bool read_end(const char *dir, enum job_status *ret_status, int64_t *ret_ended_wall_ms)
{
    static const char *const ends[] = {"terminated", "failed", "lost", NULL};
    static const enum job_status statuses[] = {JOB_TERMINATED, JOB_FAILED, JOB_LOST};
    char path[PATH_MAX], text[END_FILE_MAX];
    struct arena *arena = arena_new();
    struct json_object *root = NULL;
    struct json_reader r;
    struct error err = {0};
    const char *status = NULL;
    ssize_t len = -1;
    int fd;

    snprintf(path, sizeof(path), "%s/end.json", dir);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        len = read(fd, text, sizeof(text));
        close(fd);
    }
    if (len > 0 && json_parse(arena, text, (size_t)len, &root, NULL, &err)) {
        json_reader_init(&r, arena, root);
        status = json_read_choice(&r, "status", true, ends);
        *ret_ended_wall_ms = json_read_int(&r, "ended_at_ms", true, 0, 1, INT64_MAX);
        if (!json_reader_finish(&r, true, &err))
            status = NULL;
    }
    for (size_t i = 0; status != NULL && ends[i] != NULL; i++)
        if (strcmp(status, ends[i]) == 0)
            *ret_status = statuses[i];
    arena_free(arena);
    return status != NULL;
}

/* ---- loading ---------------------------------------------------------------------------------- */

static bool is_id(const char *name)
{
    return strlen(name) == JOB_ID_CHARS && strspn(name, "0123456789abcdef") == JOB_ID_CHARS;
}

static bool has_file(const char *dir, const char *name, struct stat *ret)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return stat(path, ret) == 0;
}

static void load_job(struct job_table *jobs, const char *id, const char *dir)
{
    struct arena *arena = arena_new();
    struct runner_spec spec = {0};
    struct scope scope = {NULL, NULL};
    struct error err = {0};
    struct stat spec_file, unused;
    enum job_status status = JOB_LOST;
    int64_t ended_wall_ms = 0;
    struct job *job;

    if (!has_file(dir, "job.json", &spec_file)) {
        arena_free(arena);
        remove_folder(dir); /* its run was never answered, no runner was started */
        return;
    }
    if (!runner_spec_read(dir, arena, &spec, &err))
        LOG_WITH(LOG_ERROR, err.message, {"job", id});
    else if (spec.scope == RUNNER_SCOPED && !has_file(dir, UNBOUND_FILE, &unused))
        scope = (struct scope){spec.home, spec.workspace};
    job = job_add(jobs, id, &scope, dir,
                  spec_file.st_mtim.tv_sec * 1000LL + spec_file.st_mtim.tv_nsec / 1000000);
    job->stdio = spec.mode == RUNNER_STDIO;
    arena_free(arena);
    job_move(job, JOB_BIT(JOB_CREATED), JOB_STARTING);
    job->started_wall_ms = job->created_wall_ms;
    if (read_end(dir, &status, &ended_wall_ms)) {
        job->ended_wall_ms = ended_wall_ms;
        job_move(job, JOB_LIVE, status);
    }
}

bool job_store_load(struct job_store *store, struct job_table *jobs, struct error *err)
{
    DIR *folder = opendir(store->jobs_dir);
    struct dirent *entry;
    char dir[PATH_MAX];

    if (folder == NULL) {
        error_set(err, ERR_INTERNAL, "cannot read %s: %s", store->jobs_dir, strerror(errno));
        return false;
    }
    while ((entry = readdir(folder)) != NULL) {
        if (!is_id(entry->d_name))
            continue;
        snprintf(dir, sizeof(dir), "%s/%s", store->jobs_dir, entry->d_name);
        load_job(jobs, entry->d_name, dir);
    }
    closedir(folder);
    return true;
}
