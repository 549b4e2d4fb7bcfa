/* One operation for all calls: build the request, exchange, decode. */
#include "backends/shellctl/client.h"

#include "core/runtime/json.h"
#include "core/runtime/quote.h"

#include <string.h>

enum {
    CONNECT_MS = 30000,
    READ_SLACK_MS = 10000, /* of a call that waits, beyond its own timeout */
    QUICK_MS = 30000,      /* of a call that does not wait */
    DELETE_MS = 15000,     /* a forced delete may take the default grace of 10 s */
    RUN_DEFAULT_MS = 30000,
    OUTPUT_LIMIT = 16384,
    ENVELOPE_MAX = 64 * 1024, /* of an answer, beyond its output */
};

enum reply_kind { REPLY_JOB, REPLY_VIEW, REPLY_LIST, REPLY_DELETED, REPLY_HEALTH };

struct call {
    struct op op;
    struct backend *backend;
    enum reply_kind kind;
    void *ret;
    struct http_request request;
    struct http_header headers[6];
    struct http_response response;
};

enum call_state { CALL_START, CALL_EXCHANGING };
static const char *const call_states[] = {"start", "exchanging"};

static bool decode(struct call *c, struct error *err)
{
    struct arena *arena = c->op.arena;
    const char *peer = c->request.peer;

    switch (c->kind) {
    case REPLY_JOB:
        return shellctl_read_job(arena, peer, &c->response, c->ret, err);
    case REPLY_VIEW:
        return shellctl_read_view(arena, peer, &c->response, c->ret, err);
    case REPLY_LIST:
        return shellctl_read_list(arena, peer, &c->response, c->ret, err);
    case REPLY_DELETED:
        if (shellctl_read_deleted(arena, peer, &c->response, err))
            return true;
        return err->upstream_status == 404 && strcmp(err->upstream_code, "job_not_found") == 0;
    case REPLY_HEALTH:
        return shellctl_read_health(arena, peer, &c->response, err);
    }
    UNREACHABLE("reply kind");
}

static enum op_poll call_step(struct op *op)
{
    struct call *c = container_of(op, struct call, op);
    struct error error = {0};

    switch ((enum call_state)op->state) {
    case CALL_START:
        AWAIT(op, CALL_EXCHANGING, http_fetch(c->backend->http, op, &c->request, &c->response));
        if (!decode(c, &error))
            op_fail_with(op, &error);
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type call_type = {"shellctl_call", call_states, 2, call_step, NULL};

static int64_t quick_ms(const struct endpoint *endpoint)
{
    return endpoint->call_timeout_ms > 0 ? endpoint->call_timeout_ms : QUICK_MS;
}

/* ---- requests ------------------------------------------------------------------------------- */

static struct call *call_new(struct backend *b, struct op *op, const struct endpoint *endpoint,
                             enum reply_kind kind, void *ret)
{
    struct call *c = OP_CHILD(op, &call_type, call);
    size_t n = endpoint->n_headers;

    c->backend = b;
    c->kind = kind;
    c->ret = ret;
    memcpy(c->headers, endpoint->headers, n * sizeof(c->headers[0]));
    if (kind != REPLY_HEALTH && endpoint->token != NULL && endpoint->token[0] != '\0')
        c->headers[n++] = (struct http_header){"Authorization",
                                               ARENA_CONCAT(op->arena, "Bearer ", endpoint->token)};
    c->request = (struct http_request){
        .peer = endpoint->peer,
        .method = "GET",
        .unix_socket = endpoint->unix_socket,
        .dialer = endpoint_dialer(endpoint, kind == REPLY_JOB),
        .headers = c->headers,
        .n_headers = n,
        .connect_timeout_ms = CONNECT_MS,
        .total_timeout_ms = quick_ms(endpoint),
        .max_body = ENVELOPE_MAX,
    };
    return c;
}

static void call_url(struct call *c, const struct endpoint *endpoint, const char *job_id,
                     const char *tail)
{
    struct arena *arena = c->op.arena;

    if (job_id == NULL)
        c->request.url = ARENA_CONCAT(arena, endpoint->base_url, tail);
    else
        c->request.url = ARENA_CONCAT(arena, endpoint->base_url, "/v1/jobs/",
                                      quote_url_segment(arena, job_id, false), tail);
}

static void call_body(struct call *c, struct buf *json)
{
    c->headers[c->request.n_headers++] = (struct http_header){"Content-Type", "application/json"};
    c->request.method = "POST";
    c->request.body = arena_memdup(c->op.arena, json->data, json->len);
    c->request.body_len = json->len;
    buf_fini(json);
}

/* A call that waits for `timeout_ms` at the far end: silent for that long is normal. Output may be
 * escaped to six bytes for one. */
static void call_waits(struct call *c, int64_t timeout_ms, int64_t output_limit)
{
    c->request.idle_timeout_ms = timeout_ms + READ_SLACK_MS;
    c->request.total_timeout_ms += timeout_ms + READ_SLACK_MS;
    c->request.max_body = (size_t)output_limit * 6 + ENVELOPE_MAX;
}

/* Milliseconds as seconds, exact and without printf. */
static void seconds_member(struct json_writer *w, const char *key, int64_t ms)
{
    char text[32], *at = text + sizeof(text);
    int64_t whole = ms / 1000, rest = ms % 1000;

    for (int digit = 0; digit < 3; digit++, rest /= 10)
        *--at = (char)('0' + rest % 10);
    *--at = '.';
    do {
        *--at = (char)('0' + whole % 10);
        whole /= 10;
    } while (whole > 0);
    json_key(w, key);
    json_raw(w, at, (size_t)(text + sizeof(text) - at));
}

static void window_members(struct json_writer *w, int64_t timeout_ms, int64_t output_limit)
{
    seconds_member(w, "timeout", timeout_ms > 0 ? timeout_ms : 0);
    json_member_int(w, "output_limit", output_limit);
    seconds_member(w, "idle_flush_seconds", 500);
}

static int64_t limit_of(const struct shellctl_window *window)
{
    return window->output_limit > 0 ? window->output_limit : OUTPUT_LIMIT;
}

static void env_member(struct json_writer *w, const char *const *env)
{
    json_key(w, "env");
    json_object_begin(w);
    for (; env[0] != NULL; env += 2) {
        json_key_text(w, env[0]);
        json_string(w, env[1]);
    }
    json_object_finish(w);
}

void shellctl_run(struct backend *b, struct op *op, const struct endpoint *endpoint,
                  const struct shellctl_run *run, struct shellctl_job *ret)
{
    struct call *c = call_new(b, op, endpoint, REPLY_JOB, ret);
    int64_t timeout_ms = run->window.timeout_ms > 0 ? run->window.timeout_ms : RUN_DEFAULT_MS;
    struct buf body = {0};
    struct json_writer w = {.out = &body};

    json_object_begin(&w);
    json_member_string(&w, "script", run->script);
    if (run->cwd != NULL)
        json_member_string(&w, "cwd", run->cwd);
    if (run->env != NULL && run->env[0] != NULL)
        env_member(&w, run->env);
    if (run->mode != SHELLCTL_MODE_UNSAID)
        json_member_string(&w, "mode", run->mode == SHELLCTL_MODE_STDIO ? "stdio" : "pty");
    window_members(&w, timeout_ms, limit_of(&run->window));
    json_object_finish(&w);
    call_url(c, endpoint, NULL, "/v1/jobs/run");
    call_body(c, &body);
    call_waits(c, timeout_ms, limit_of(&run->window));
    c->request.idempotent = run->repeatable;
    op_await_child(op, &c->op);
}

void shellctl_wait(struct backend *b, struct op *op, const struct endpoint *endpoint,
                   const char *job_id, const struct shellctl_window *window,
                   struct shellctl_job *ret)
{
    struct call *c = call_new(b, op, endpoint, REPLY_JOB, ret);
    struct buf body = {0};
    struct json_writer w = {.out = &body};

    json_object_begin(&w);
    json_member_int(&w, "offset", window->offset);
    window_members(&w, window->timeout_ms, limit_of(window));
    json_object_finish(&w);
    call_url(c, endpoint, job_id, "/wait");
    call_body(c, &body);
    call_waits(c, window->timeout_ms, limit_of(window));
    c->request.idempotent = true;
    op_await_child(op, &c->op);
}

void shellctl_input(struct backend *b, struct op *op, const struct endpoint *endpoint,
                    const char *job_id, const char *text, const struct shellctl_window *window,
                    struct shellctl_job *ret)
{
    struct call *c = call_new(b, op, endpoint, REPLY_JOB, ret);
    int64_t timeout_ms = window->timeout_ms > 0 ? window->timeout_ms : RUN_DEFAULT_MS;
    struct buf body = {0};
    struct json_writer w = {.out = &body};

    json_object_begin(&w);
    json_member_string(&w, "text", text);
    json_member_int(&w, "offset", window->offset);
    window_members(&w, timeout_ms, limit_of(window));
    json_object_finish(&w);
    call_url(c, endpoint, job_id, "/input");
    call_body(c, &body);
    call_waits(c, timeout_ms, limit_of(window));
    op_await_child(op, &c->op);
}

void shellctl_tail(struct backend *b, struct op *op, const struct endpoint *endpoint,
                   const char *job_id, int64_t output_limit, struct shellctl_job *ret)
{
    struct call *c = call_new(b, op, endpoint, REPLY_JOB, ret);
    int64_t limit = output_limit > 0 ? output_limit : OUTPUT_LIMIT;

    call_url(c, endpoint, job_id,
             arena_printf(op->arena, "/log/tail?output_limit=%lld", (long long)limit));
    c->request.max_body = (size_t)limit * 6 + ENVELOPE_MAX;
    op_await_child(op, &c->op);
}

void shellctl_status(struct backend *b, struct op *op, const struct endpoint *endpoint,
                     const char *job_id, struct shellctl_view *ret)
{
    struct call *c = call_new(b, op, endpoint, REPLY_VIEW, ret);

    call_url(c, endpoint, job_id, "");
    op_await_child(op, &c->op);
}

void shellctl_terminate(struct backend *b, struct op *op, const struct endpoint *endpoint,
                        const char *job_id, int64_t grace_ms, struct shellctl_view *ret)
{
    struct call *c = call_new(b, op, endpoint, REPLY_VIEW, ret);
    struct buf body = {0};
    struct json_writer w = {.out = &body};

    json_object_begin(&w);
    seconds_member(&w, "grace_seconds", grace_ms > 0 ? grace_ms : 0);
    json_object_finish(&w);
    call_url(c, endpoint, job_id, "/terminate");
    call_body(c, &body);
    call_waits(c, grace_ms, 0);
    c->request.idempotent = true;
    op_await_child(op, &c->op);
}

void shellctl_delete(struct backend *b, struct op *op, const struct endpoint *endpoint,
                     const char *job_id)
{
    struct call *c = call_new(b, op, endpoint, REPLY_DELETED, NULL);

    call_url(c, endpoint, job_id, "?force=true");
    c->request.method = "DELETE";
    c->request.idempotent = true;
    if (c->request.total_timeout_ms > DELETE_MS)
        c->request.total_timeout_ms = DELETE_MS;
    op_await_child(op, &c->op);
}

void shellctl_jobs(struct backend *b, struct op *op, const struct endpoint *endpoint,
                   struct shellctl_list *ret)
{
    struct call *c = call_new(b, op, endpoint, REPLY_LIST, ret);

    call_url(c, endpoint, NULL, "/v1/jobs?limit=200");
    op_await_child(op, &c->op);
}

void shellctl_health(struct backend *b, struct op *op, const struct endpoint *endpoint)
{
    struct call *c = call_new(b, op, endpoint, REPLY_HEALTH, NULL);

    call_url(c, endpoint, NULL, "/healthz");
    op_await_child(op, &c->op);
}

const struct endpoint *shellctl_endpoint_copy(struct arena *arena, const struct endpoint *endpoint)
{
    struct endpoint *copy = ARENA_NEW(arena, struct endpoint);

    copy->base_url = arena_strdup(arena, endpoint->base_url);
    copy->unix_socket = arena_strdup(arena, endpoint->unix_socket);
    copy->token = arena_strdup(arena, endpoint->token);
    copy->peer = endpoint->peer; /* a literal: it is a metric label */
    copy->call_timeout_ms = endpoint->call_timeout_ms;
    copy->n_headers = endpoint->n_headers;
    for (size_t i = 0; i < endpoint->n_headers; i++)
        copy->headers[i] = (struct http_header){arena_strdup(arena, endpoint->headers[i].name),
                                                arena_strdup(arena, endpoint->headers[i].value)};
    return copy;
}
