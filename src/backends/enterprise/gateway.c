#include "backends/enterprise/gateway.h"

#include "core/runtime/json.h"
#include "core/runtime/quote.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

enum {
    AUTH_PAUSE_MS =
        1000, /* after a refused key, one attempt a second finds out when it is mended */
    DEFAULT_RETRY_MS =
        1000, /* told to callers when the gateway sheds load without saying how long */
};

/* One call: wait at the gate, send, judge the answer; again when the gateway said when. */
struct gateway_call {
    struct op op;
    struct gateway *gw;
    struct http_request request;
    struct http_response response;
    struct http_header headers[2];
    enum err_code code;     /* what a failure of this call is to the caller */
    const char *what;       /* "creating a sandbox": for messages */
    const char *answer_key; /* string that a 2xx answer must hold; NULL = no body needed */
    const char **ret_answer;
    bool absent_is_success;
    int64_t give_up_ms; /* loop time until which Retry-After is waited out */
    bool again;
};

enum call_state { CALL_START, CALL_ENTERING, CALL_FETCHING };
static const char *const call_states[] = {"start", "entering", "fetching"};

/* The gateway's own words: {"reason","message"}, or shellctl's {"error":{"code","message"}}. Texts
 * of the arena; "" for what is missing. */
static void read_reason(struct gateway_call *c, const char **ret_code, const char **ret_message)
{
    struct json_object *body = NULL, *text = NULL, *inner = NULL;

    *ret_code = *ret_message = "";
    if (!json_parse(c->op.arena, c->response.body, c->response.body_len, &body, NULL, NULL) ||
        !json_object_is_type(body, json_type_object))
        return;
    if (json_object_object_get_ex(body, "error", &inner) &&
        json_object_is_type(inner, json_type_object))
        body = inner;
    if ((json_object_object_get_ex(body, "reason", &text) ||
         json_object_object_get_ex(body, "code", &text)) &&
        json_object_is_type(text, json_type_string))
        *ret_code = json_object_get_string(text);
    if (json_object_object_get_ex(body, "message", &text) &&
        json_object_is_type(text, json_type_string))
        *ret_message = json_object_get_string(text);
}

/* A complete answer that is no success. */
static struct error judge_status(struct gateway_call *c)
{
    int status = c->response.status;
    int64_t retry_ms = c->response.retry_after_ms;
    enum err_code code = c->code;
    const char *reason, *message;
    struct error err;

    if (status == 401 || status == 403)
        code = ERR_BACKEND_AUTH;
    else if (status == 429)
        code = ERR_RATE_LIMITED;
    else if (status == 503)
        code = ERR_OVERLOADED;
    read_reason(c, &reason, &message);
    error_set(&err, code, "%s: the gateway answered HTTP %d%s%s%.300s", c->what, status,
              status >= 300 && status < 400 ? " (a redirect, which is not followed)" : "",
              message[0] != '\0' ? ": " : "", message);
    snprintf(err.upstream_code, sizeof(err.upstream_code), "%s", reason);
    err.upstream_status = status;
    /* Behind a 502 or 504 some proxy gave up: the gateway itself may have gone on. */
    err.admitted = status == 502 || status == 504 ? ADMITTED_UNKNOWN : ADMITTED_NO;
    if (code == ERR_RATE_LIMITED || code == ERR_OVERLOADED)
        err.retry_after_ms = retry_ms > 0 ? retry_ms : DEFAULT_RETRY_MS;
    return err;
}

/* No complete answer. */
static struct error judge_transport(const struct gateway_call *c)
{
    struct error err = *op_last(&c->op);
    enum err_code code = err.code;

    if (err.code != ERR_DEADLINE && err.code != ERR_OVERLOADED && err.code != ERR_CANCELLED &&
        err.code != ERR_BAD_REQUEST)
        code = err.admitted == ADMITTED_NO ? c->code : ERR_BACKEND_OUTCOME_UNKNOWN;
    error_wrap(&err, code, "%s", c->what);
    return err;
}

/* A 2xx answer: take the one string that it must hold. */
static void take_answer(struct gateway_call *c)
{
    struct json_object *body = NULL, *value = NULL;
    const char *text;

    if (c->answer_key == NULL)
        return;
    if (!json_parse(c->op.arena, c->response.body, c->response.body_len, &body, NULL, NULL) ||
        !json_object_is_type(body, json_type_object) ||
        !json_object_object_get_ex(body, c->answer_key, &value) ||
        !json_object_is_type(value, json_type_string)) {
        op_fail(&c->op, c->code, "%s: the gateway's answer holds no string \"%s\"", c->what,
                c->answer_key);
        op_error_edit(&c->op)->admitted = ADMITTED_UNKNOWN;
        return;
    }
    text = json_object_get_string(value);
    if (text[0] == '\0' || strlen(text) != (size_t)json_object_get_string_len(value) ||
        strlen(text) > REF_MAX || !quote_is_header_safe(text)) {
        op_fail(&c->op, c->code, "%s: the gateway returned an invalid \"%s\"", c->what,
                c->answer_key);
        op_error_edit(&c->op)->admitted = ADMITTED_UNKNOWN;
        return;
    }
    *c->ret_answer = arena_strdup(c->op.arena, text);
}

/* Look at the result of the fetch: success, failure, or `again` after the gateway's pause. */
static void judge(struct gateway_call *c)
{
    struct gateway *gw = c->gw;
    int status = c->response.status;
    struct error err;

    c->again = false;
    if (op_last_failed(&c->op)) {
        err = judge_transport(c);
        op_fail_with(&c->op, &err);
        return;
    }
    gw->auth_failed = status == 401 || status == 403;
    if ((status >= 200 && status < 300) || (status == 404 && c->absent_is_success)) {
        take_answer(c);
        return;
    }
    err = judge_status(c);
    if (gw->auth_failed)
        throttle_close(&gw->throttle, AUTH_PAUSE_MS, false, &err);
    if ((status == 429 || status == 503) && c->response.retry_after_ms > 0) {
        throttle_close(&gw->throttle, c->response.retry_after_ms, true, &err);
        c->again = loop_now_ms(gw->loop) + c->response.retry_after_ms < c->give_up_ms;
    }
    if (!c->again)
        op_fail_with(&c->op, &err);
}

static int64_t call_budget_ms(const struct gateway_call *c)
{
    int64_t budget_ms = c->give_up_ms - loop_now_ms(c->op.loop);
    int64_t remaining_ms = op_remaining_ms(&c->op, budget_ms);

    return remaining_ms < budget_ms ? remaining_ms : budget_ms;
}

static enum op_poll call_step(struct op *op)
{
    struct gateway_call *c = container_of(op, struct gateway_call, op);

    switch ((enum call_state)op->state) {
    case CALL_START:
        do {
            AWAIT(op, CALL_ENTERING, throttle_enter(&c->gw->throttle, op, call_budget_ms(c)));
            AWAIT_ANY(op, CALL_FETCHING, http_fetch(c->gw->http, op, &c->request, &c->response));
            judge(c);
        } while (c->again);
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type call_type = {"enterprise_gateway_call", call_states, 3, call_step,
                                         NULL};

static struct gateway_call *call_new(struct gateway *gw, struct op *op, const char *method,
                                     const char *path)
{
    struct gateway_call *c = OP_CHILD(op, &call_type, gateway_call);
    size_t n = 0;

    c->gw = gw;
    if (gw->key.value != NULL)
        c->headers[n++] = gw->key;
    c->request = (struct http_request){
        .peer = "gateway",
        .method = method,
        .url = arena_printf(op->arena, "%s%s", gw->base_url, path),
        .headers = c->headers,
        .n_headers = n,
        .total_timeout_ms = gw->timeout_ms,
        .connect_timeout_ms = gw->timeout_ms,
    };
    c->give_up_ms = loop_now_ms(op->loop) + gw->retry_budget_ms;
    return c;
}

static void call_send_json(struct gateway_call *c, const struct buf *json)
{
    size_t n = c->request.n_headers;

    c->headers[n++] = (struct http_header){"Content-Type", "application/json"};
    c->request.n_headers = n;
    c->request.body = arena_memdup(c->op.arena, json->data, json->len);
    c->request.body_len = json->len;
}

void gateway_create_sandbox(struct gateway *gw, struct op *op, const char *tenant_id,
                            const char *snapshot_ref, const char **ret_id)
{
    struct gateway_call *c = call_new(gw, op, "POST", "/v1/sandboxes");
    struct buf body = {0};
    struct json_writer w = {.out = &body};

    c->code = ERR_BINDING_CREATE;
    c->what = "creating a sandbox";
    c->answer_key = "sandboxId";
    c->ret_answer = ret_id;
    json_object_begin(&w);
    json_member_string(&w, "tenantId", tenant_id);
    if (snapshot_ref != NULL) {
        json_member_string(&w, "homeSnapshotRef", snapshot_ref);
        c->request.total_timeout_ms = gw->snapshot_timeout_ms;
    }
    json_object_finish(&w);
    call_send_json(c, &body);
    buf_fini(&body);
    op_await_child(op, &c->op);
}

void gateway_delete_sandbox(struct gateway *gw, struct op *op, const char *id)
{
    char *path =
        arena_printf(op->arena, "/v1/sandboxes/%s", quote_url_segment(op->arena, id, false));
    struct gateway_call *c = call_new(gw, op, "DELETE", path);

    c->code = ERR_BINDING_DESTROY;
    c->what = "deleting a sandbox";
    c->absent_is_success = true;
    c->request.idempotent = true;
    op_await_child(op, &c->op);
}

void gateway_create_snapshot(struct gateway *gw, struct op *op, const char *sandbox_id,
                             const struct snapshot_spec *spec, const char **ret_ref)
{
    char *path = arena_printf(op->arena, "/v1/sandboxes/%s/home-snapshots",
                              quote_url_segment(op->arena, sandbox_id, false));
    struct gateway_call *c = call_new(gw, op, "POST", path);
    struct buf body = {0};
    struct json_writer w = {.out = &body};

    c->code = ERR_SNAPSHOT_CREATE;
    c->what = "creating a home snapshot";
    c->answer_key = "snapshotRef";
    c->ret_answer = ret_ref;
    c->request.total_timeout_ms = gw->snapshot_timeout_ms;
    json_object_begin(&w);
    json_member_string(&w, "tenantId", spec->tenant_id);
    json_member_string(&w, "agentId", spec->agent_id);
    json_member_string(&w, "homeSnapshotId", spec->home_snapshot_id);
    json_object_finish(&w);
    call_send_json(c, &body);
    buf_fini(&body);
    op_await_child(op, &c->op);
}

void gateway_delete_snapshot(struct gateway *gw, struct op *op, const char *ref)
{
    char *path =
        arena_printf(op->arena, "/v1/home-snapshots/%s", quote_url_segment(op->arena, ref, true));
    struct gateway_call *c = call_new(gw, op, "DELETE", path);

    c->code = ERR_SNAPSHOT_DELETE;
    c->what = "deleting a home snapshot";
    c->absent_is_success = true;
    c->request.idempotent = true;
    c->request.total_timeout_ms = gw->snapshot_timeout_ms;
    op_await_child(op, &c->op);
}
