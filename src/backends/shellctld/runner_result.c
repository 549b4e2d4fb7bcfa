#include "backends/shellctld/runner_result.h"

#include "backends/shellctld/jail.h"
#include "backends/shellctld/small_file.h"
#include "core/runtime/json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RESULT_BYTES = 4096, RESULT_BYTES_MAX = 16384 };

static const char *const status_names[] = {"exited", "terminated", "failed", NULL};

int64_t result_wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- writing ----------------------------------------------------------------------------------- */

static bool fail(struct error *err, const char *what)
{
    error_set(err, ERR_INTERNAL, "cannot %s exit.json: %s", what, strerror(errno));
    return false;
}

static int open_reserved(const char *job_dir)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/exit.json.new", job_dir);
    return open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

bool result_reserve(const char *job_dir, struct error *err)
{
    static const char blank[RESULT_BYTES];
    int fd = open_reserved(job_dir);
    bool ok;

    if (fd < 0)
        return fail(err, "reserve");
    ok = write_all(fd, blank, sizeof blank) == sizeof blank || fail(err, "reserve");
    close(fd);
    return ok;
}

/* Over the reserved blocks, then shortened: neither needs space. */
bool result_write(const char *job_dir, const struct runner_exit *exit, struct error *err)
{
    struct buf text = {0};
    struct json_writer w = {.out = &text};
    char path[PATH_MAX], fresh[PATH_MAX];
    int fd = open_reserved(job_dir);
    bool ok;

    if (fd < 0)
        return fail(err, "open");
    json_object_begin(&w);
    json_member_string(&w, "status", status_names[exit->status]);
    json_member_int(&w, "exit_code", exit->exit_code);
    json_member_string(&w, "reason", exit->reason);
    json_member_string(&w, "message", exit->message);
    json_member_int(&w, "ended_wall_ms", exit->ended_wall_ms);
    json_member_int(&w, "output_bytes", exit->output_bytes);
    json_member_int(&w, "output_dropped", exit->output_dropped);
    json_member_int(&w, "stderr_bytes", exit->stderr_bytes);
    json_member_int(&w, "stderr_dropped", exit->stderr_dropped);
    json_object_finish(&w);
    ok = (write_all(fd, buf_text(&text), text.len) == text.len &&
          ftruncate(fd, (off_t)text.len) == 0) ||
         fail(err, "write");
    close(fd);
    buf_fini(&text);
    snprintf(path, sizeof path, "%s/exit.json", job_dir);
    snprintf(fresh, sizeof fresh, "%s/exit.json.new", job_dir);
    return ok && (rename(fresh, path) == 0 || fail(err, "rename"));
}

bool result_write_started(const char *job_dir, struct error *err)
{
    char text[64];
    int len =
        snprintf(text, sizeof text, "{\"started_wall_ms\":%lld}", (long long)result_wall_ms());

    return small_file_write(job_dir, "started.json", text, (size_t)len, err);
}

/* ---- reading ----------------------------------------------------------------------------------- */

static bool read_object(const char *job_dir, const char *name, struct arena *arena,
                        struct json_reader *ret, struct error *err)
{
    struct json_object *root;
    const char *text;
    size_t len;

    if (!small_file_read(job_dir, name, RESULT_BYTES_MAX, arena, &text, &len, err) ||
        !json_parse(arena, text, len, &root, NULL, err))
        return false;
    json_reader_init(ret, arena, root);
    return true;
}

static void copy_text(char *ret, size_t size, const char *text)
{
    snprintf(ret, size, "%s", text == NULL ? "" : text);
}

static bool parse_exit(struct json_reader *r, struct runner_exit *ret, struct error *err)
{
    const char *status = json_read_choice(r, "status", true, status_names);

    ret->exit_code = (int)json_read_int(r, "exit_code", true, 0, INT32_MIN, INT32_MAX);
    copy_text(ret->reason, sizeof ret->reason, json_read_string(r, "reason", 0));
    copy_text(ret->message, sizeof ret->message, json_read_string(r, "message", 0));
    ret->ended_wall_ms = json_read_int(r, "ended_wall_ms", true, 0, 0, INT64_MAX);
    ret->output_bytes = json_read_int(r, "output_bytes", true, 0, 0, INT64_MAX);
    ret->output_dropped = json_read_int(r, "output_dropped", true, 0, 0, INT64_MAX);
    ret->stderr_bytes = json_read_int(r, "stderr_bytes", true, 0, 0, INT64_MAX);
    ret->stderr_dropped = json_read_int(r, "stderr_dropped", true, 0, 0, INT64_MAX);
    if (!json_reader_finish(r, true, err))
        return false;
    for (int i = 0; status_names[i] != NULL; i++) {
        if (strcmp(status, status_names[i]) == 0)
            ret->status = (enum runner_status)i;
    }
    return true;
}

bool job_runner_read_exit(const char *job_dir, struct runner_exit *ret)
{
    struct arena *arena = arena_new();
    struct error err = {0};
    struct json_reader r;
    bool found = true;

    *ret = (struct runner_exit){0};
    if (!read_object(job_dir, "exit.json", arena, &r, &err) || !parse_exit(&r, ret, &err)) {
        found = err.code != ERR_NOT_FOUND;
        *ret = (struct runner_exit){
            .status = RUNNER_FAILED,
            .exit_code = JAIL_EXIT_SETUP,
            .reason = "exit_unreadable",
            .ended_wall_ms = result_wall_ms(),
        };
        copy_text(ret->message, sizeof ret->message, err.message);
    }
    arena_free(arena);
    return found;
}

bool job_runner_read_started(const char *job_dir, int64_t *ret_wall_ms)
{
    struct arena *arena = arena_new();
    struct error err = {0};
    struct json_reader r;
    bool ok = read_object(job_dir, "started.json", arena, &r, &err);

    if (ok) {
        *ret_wall_ms = json_read_int(&r, "started_wall_ms", true, 0, 0, INT64_MAX);
        ok = json_reader_finish(&r, true, &err);
    }
    arena_free(arena);
    return ok;
}
