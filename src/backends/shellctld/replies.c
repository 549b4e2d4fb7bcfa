#include "backends/shellctld/replies.h"

#include "backends/shellctld/fault.h"
#include "backends/shellctld/job_process.h"
#include "backends/shellctld/job_store.h"
#include "core/runtime/json.h"
#include "http/exchange.h"

#include <string.h>
#include <time.h>

static void send_json(struct exchange *x, struct buf *body)
{
    buf_addc(body, '\n');
    exchange_reply_json(x, 200, body);
    buf_fini(body);
}

/* UTC, whole seconds; null when it has not happened. */
static void member_time(struct json_writer *w, const char *key, int64_t wall_ms)
{
    char text[sizeof("+9223372036854775807-12-31T23:59:59Z")];
    time_t seconds = wall_ms / 1000;
    struct tm utc;

    if (wall_ms == 0 || gmtime_r(&seconds, &utc) == NULL ||
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        json_member_null(w, key);
    else
        json_member_string(w, key, text);
}

static void member_exit_code(struct json_writer *w, enum job_status status, int exit_code)
{
    if (status == JOB_EXITED)
        json_member_int(w, "exit_code", exit_code);
    else
        json_member_null(w, "exit_code");
}

void reply_result(struct exchange *x, const struct job_result *result)
{
    struct buf body = {0};
    struct json_writer w = {.out = &body};

    buf_reserve(&body, result->output.len + result->output.len / 8 + 512);
    json_object_begin(&w);
    json_member_string(&w, "job_id", result->job_id);
    json_member_bool(&w, "done", job_status_is_terminal(result->status));
    json_member_string(&w, "status", job_status_name(result->status));
    member_exit_code(&w, result->status, result->exit_code);
    json_member_string(&w, "output_path", result->output_path);
    json_key(&w, "output");
    json_string_n(&w, buf_text(&result->output), result->output.len);
    json_member_int(&w, "offset", result->offset);
    json_member_bool(&w, "truncated", result->truncated);
    json_object_finish(&w);
    send_json(x, &body);
}

void reply_view(struct exchange *x, const struct job *job)
{
    struct buf body = {0};
    struct json_writer w = {.out = &body};

    json_object_begin(&w);
    json_member_string(&w, "job_id", job->id);
    json_member_string(&w, "status", job_status_name(job->status));
    json_member_bool(&w, "done", job_status_is_terminal(job->status));
    member_exit_code(&w, job->status, job->exit_code);
    member_time(&w, "created_at", job->created_wall_ms);
    member_time(&w, "started_at", job->started_wall_ms);
    member_time(&w, "ended_at", job->ended_wall_ms);
    json_member_int(&w, "offset", job_store_output_size(job));
    json_object_finish(&w);
    send_json(x, &body);
}

static void write_info(struct json_writer *w, const struct job *job)
{
    json_object_begin(w);
    json_member_string(w, "job_id", job->id);
    json_member_string(w, "status", job_status_name(job->status));
    member_time(w, "created_at", job->created_wall_ms);
    if (job->started_wall_ms != 0)
        member_time(w, "started_at", job->started_wall_ms);
    if (job->ended_wall_ms != 0)
        member_time(w, "ended_at", job->ended_wall_ms);
    json_object_finish(w);
}

void reply_list(struct exchange *x, struct job_table *jobs, const struct scope *scope,
                const char *status, int64_t limit)
{
    struct buf body = {0};
    struct json_writer w = {.out = &body};

    json_object_begin(&w);
    json_key(&w, "jobs");
    json_array_begin(&w);
    for (struct job *job = job_first(jobs); job != NULL && limit > 0; job = job_next(job)) {
        if (!scope_equal(&job->scope, scope))
            continue;
        job_process_refresh(job);
        if (status != NULL && strcmp(status, job_status_name(job->status)) != 0)
            continue;
        write_info(&w, job);
        limit--;
    }
    json_array_finish(&w);
    json_object_finish(&w);
    send_json(x, &body);
}

void reply_deleted(struct exchange *x, const char *job_id)
{
    struct buf body = {0};
    struct json_writer w = {.out = &body};

    json_object_begin(&w);
    json_member_string(&w, "job_id", job_id);
    json_member_bool(&w, "deleted", true);
    json_object_finish(&w);
    send_json(x, &body);
}

void reply_health(struct exchange *x)
{
    struct buf body = {0};

    buf_adds(&body, "{\"status\":\"ok\"}");
    send_json(x, &body);
}

void reply_fault(struct exchange *x, const struct error *err)
{
    struct buf body = {0};
    struct json_writer w = {.out = &body};

    json_object_begin(&w);
    json_key(&w, "error");
    json_object_begin(&w);
    json_member_string(&w, "code", fault_code(err));
    json_member_string(&w, "message", err->message);
    json_object_finish(&w);
    json_object_finish(&w);
    buf_addc(&body, '\n');
    if (err->retry_after_ms > 0)
        exchange_add_header(
            x, "Retry-After",
            arena_printf(x->arena, "%lld", (long long)((err->retry_after_ms + 999) / 1000)));
    exchange_reply_json(x, fault_status(err), &body);
    buf_fini(&body);
}
