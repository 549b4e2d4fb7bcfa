/* churn, fanout: acquire, release. gateway: run the probe's job, delete it. lifecycle: create,
 * acquire, run a command, release, destroy. A failed step is noted with its code; what the cycle
 * made is removed all the same. */
#include "bench_cycle.h"

#include "core/runtime/json.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

void bench_fetch(struct bench *bench, struct op *op, const char *method, const char *path,
                 const char *body, struct http_response *ret)
{
    struct http_request *request = ARENA_NEW(op->arena, struct http_request);

    *ret = (struct http_response){0};
    *request = (struct http_request){
        .peer = "bench",
        .method = method,
        .url = arena_printf(op->arena, "%s%s", bench->options->url, path),
        .headers = bench->headers,
        .n_headers = bench->n_headers,
        .body = body,
        .body_len = body != NULL ? strlen(body) : 0,
        .total_timeout_ms = 120000,
        .idempotent = true,
    };
    http_fetch(bench->http, op, request, ret);
}

const char *bench_answer_string(struct op *op, const struct http_response *response,
                                const char *key)
{
    struct json_object *body = NULL, *value = NULL;

    if (response->body == NULL ||
        !json_parse(op->arena, response->body, response->body_len, &body, NULL, NULL) ||
        !json_object_is_type(body, json_type_object) ||
        !json_object_object_get_ex(body, key, &value) ||
        !json_object_is_type(value, json_type_string))
        return NULL;
    return arena_strdup(op->arena, json_object_get_string(value));
}

void bench_failure_code(struct op *op, const struct http_response *response, const char *fallback,
                        char code[48])
{
    struct json_object *body = NULL, *inner = NULL, *value = NULL;

    if (response->status == 0) {
        snprintf(code, 48, "%s", fallback);
        return;
    }
    if (response->body != NULL &&
        json_parse(op->arena, response->body, response->body_len, &body, NULL, NULL) &&
        json_object_is_type(body, json_type_object)) {
        if ((json_object_object_get_ex(body, "detail", &inner) ||
             json_object_object_get_ex(body, "error", &inner)) &&
            json_object_is_type(inner, json_type_object))
            body = inner;
        if ((json_object_object_get_ex(body, "code", &value) ||
             json_object_object_get_ex(body, "reason", &value)) &&
            json_object_is_type(value, json_type_string)) {
            snprintf(code, 48, "%s", json_object_get_string(value));
            return;
        }
    }
    snprintf(code, 48, "http_%d", response->status);
}

static const char *json_of(struct op *op, const char *const *pairs)
{
    struct buf out = {0};
    struct json_writer w = {.out = &out};
    const char *text;

    json_object_begin(&w);
    for (; pairs[0] != NULL; pairs += 2)
        json_member_string(&w, pairs[0], pairs[1]);
    json_object_finish(&w);
    text = arena_strdup(op->arena, buf_text(&out));
    buf_fini(&out);
    return text;
}

#define JSON_OF(op, ...) json_of((op), (const char *const[]){__VA_ARGS__, NULL})

/* True when the latest fetch gave a 2xx; notes the code of the first that did not. */
static bool step_ok(struct bench_cycle *c)
{
    bool ok = !op_last_failed(&c->op) && c->response.status >= 200 && c->response.status < 300;

    if (!ok && c->failure[0] == '\0')
        bench_failure_code(&c->op, &c->response, err_wire(op_last(&c->op)->code), c->failure);
    return ok;
}

static void note_missing(struct bench_cycle *c, const char *text)
{
    if (text == NULL && c->failure[0] == '\0')
        snprintf(c->failure, sizeof(c->failure), "bad_answer");
}

static void begin_create(struct bench_cycle *c)
{
    struct bench *b = c->bench;
    const char *id =
        arena_printf(c->op.arena, "bench-%llx-%llu", (unsigned long long)loop_wall_ms(b->loop),
                     (unsigned long long)++b->serial);

    bench_fetch(b, &c->op, "POST", "/execution-bindings",
                JSON_OF(&c->op, "tenant_id", "bench", "agent_id", "bench", "binding_id", id,
                        "workspace_id", id),
                &c->response);
}

static void begin_acquire(struct bench_cycle *c)
{
    bench_fetch(c->bench, &c->op, "POST", "/v1/leases", JSON_OF(&c->op, "binding_ref", c->target),
                &c->response);
}

static void begin_run(struct bench_cycle *c)
{
    bench_fetch(c->bench, &c->op, "POST",
                arena_printf(c->op.arena, "/v1/leases/%s/commands", c->lease_id),
                JSON_OF(&c->op, "script", "echo bench"), &c->response);
}

static void begin_release(struct bench_cycle *c)
{
    bench_fetch(c->bench, &c->op, "DELETE", arena_printf(c->op.arena, "/v1/leases/%s", c->lease_id),
                NULL, &c->response);
}

static void begin_destroy(struct bench_cycle *c)
{
    const char *body = arena_printf(
        c->op.arena, "{\"binding_ref\":\"%s\",\"workspace_ref\":\"%s\",\"destroy_workspace\":true}",
        c->target, c->workspace_ref);

    bench_fetch(c->bench, &c->op, "POST", "/execution-bindings/destroy", body, &c->response);
}

static void begin_probe(struct bench_cycle *c)
{
    bench_fetch(c->bench, &c->op, "POST", "/proxy/v1/jobs/run",
                "{\"script\":\"set -eu\\ntest -d /home/dify\\ntest -d "
                "/home/dify/workspace\",\"timeout\":5.0,\"output_limit\":8192,"
                "\"idle_flush_seconds\":0.5}",
                &c->response);
}

static void begin_probe_delete(struct bench_cycle *c)
{
    bench_fetch(c->bench, &c->op, "DELETE",
                arena_printf(c->op.arena, "/proxy/v1/jobs/%s?force=true", c->job_id), NULL,
                &c->response);
}

enum cycle_state {
    CYCLE_START,
    CYCLE_PROBING,
    CYCLE_UNPROBING,
    CYCLE_CREATING,
    CYCLE_ACQUIRING,
    CYCLE_COMMANDING,
    CYCLE_RELEASING,
    CYCLE_DESTROYING,
};
static const char *const cycle_states[] = {"start",     "probing",    "unprobing", "creating",
                                           "acquiring", "commanding", "releasing", "destroying"};

static enum op_poll cycle_step(struct op *op)
{
    struct bench_cycle *c = container_of(op, struct bench_cycle, op);
    enum bench_scenario scenario = c->bench->options->scenario;

    switch ((enum cycle_state)op->state) {
    case CYCLE_START:
        if (scenario == BENCH_GATEWAY) {
            AWAIT_ANY(op, CYCLE_PROBING, begin_probe(c));
            c->first_us = loop_now_us(op->loop);
            if (!step_ok(c))
                return OP_DONE;
            c->job_id = bench_answer_string(op, &c->response, "job_id");
            note_missing(c, c->job_id);
            if (c->job_id == NULL)
                return OP_DONE;
            AWAIT_ANY(op, CYCLE_UNPROBING, begin_probe_delete(c));
            (void)step_ok(c);
            return OP_DONE;
        }
        if (scenario == BENCH_LIFECYCLE) {
            AWAIT_ANY(op, CYCLE_CREATING, begin_create(c));
            c->first_us = loop_now_us(op->loop);
            if (!step_ok(c))
                return OP_DONE;
            c->target = bench_answer_string(op, &c->response, "binding_ref");
            c->workspace_ref = bench_answer_string(op, &c->response, "workspace_ref");
            note_missing(c, c->workspace_ref);
            if (c->target == NULL || c->workspace_ref == NULL)
                return OP_DONE;
        }
        AWAIT_ANY(op, CYCLE_ACQUIRING, begin_acquire(c));
        if (c->first_us == 0)
            c->first_us = loop_now_us(op->loop);
        if (step_ok(c)) {
            c->lease_id = bench_answer_string(op, &c->response, "lease_id");
            note_missing(c, c->lease_id);
        }
        if (c->lease_id != NULL && c->bench->options->scenario == BENCH_LIFECYCLE) {
            AWAIT_ANY(op, CYCLE_COMMANDING, begin_run(c));
            (void)step_ok(c);
        }
        if (c->lease_id != NULL) {
            AWAIT_ANY(op, CYCLE_RELEASING, begin_release(c));
            (void)step_ok(c);
        }
        if (c->workspace_ref != NULL) {
            AWAIT_ANY(op, CYCLE_DESTROYING, begin_destroy(c));
            (void)step_ok(c);
        }
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type cycle_type = {"bench_cycle", cycle_states, 8, cycle_step, NULL};

struct bench_cycle *bench_cycle_new(struct bench *bench, int64_t intended_us, const char *target)
{
    struct bench_cycle *c = OP_ROOT(bench->loop, &cycle_type, bench_cycle, NULL);

    c->bench = bench;
    c->intended_us = intended_us;
    c->target = target;
    return c;
}
