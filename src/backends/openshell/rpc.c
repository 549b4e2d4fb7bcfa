#include "backends/openshell/rpc.h"

#include "core/runtime/quote.h"

#include <string.h>

#define METHOD(name) "/openshell.v1.OpenShell/" name

enum { LIST_PAGE_MAX = 1000 };

/* One unary call: pack, call, unpack, hand the message to `take`. */
struct unary_call {
    struct op op;
    struct rpc *rpc;
    const char *method;
    const uint8_t *request;
    size_t len;
    int64_t timeout_ms;
    const ProtobufCMessageDescriptor *reply_type;
    void (*take)(struct unary_call *c, const void *message);
    struct grpc_reply reply;
    bool absent_is_success;
    bool is_open; /* the gateway looks at no credentials */
    bool write;   /* a lost answer leaves the outcome open */
    bool held;    /* makes something: its answer is waited for whatever happens to the caller */
    struct sandbox_view *ret_view;
    struct sandbox_view **ret_views;
    size_t *ret_n;
    const char **ret_text;
    int64_t *ret_time;
};

enum call_state { CALL_START, CALL_CALLING, CALL_MAKING };
static const char *const call_states[] = {"start", "calling", "making"};

static void call_begin(struct unary_call *c)
{
    grpc_unary(c->rpc->channel, &c->op, c->method, c->request, c->len, c->timeout_ms, &c->reply);
}

/* The gateway has answered, with a message or with a status. */
static void call_over(struct unary_call *c)
{
    struct op *op = &c->op;
    struct error err;
    const void *message;

    if (!c->is_open)
        rpc_note_auth(c->rpc, op_last_failed(op) ? op_last(op) : NULL);
    if (op_last_failed(op)) {
        err = *op_last(op);
        if (c->absent_is_success && rpc_is(&err, GRPC_NOT_FOUND))
            return;
        if (!c->write)
            err.admitted = ADMITTED_NO;
        op_fail_with(op, &err);
        return;
    }
    message =
        message_unpack(op->arena, c->reply_type, c->reply.message, c->reply.len, c->method, &err);
    if (message == NULL)
        op_fail_with(op, &err);
    else if (c->take != NULL)
        c->take(c, message);
}

static enum op_poll call_step(struct op *op)
{
    struct unary_call *c = container_of(op, struct unary_call, op);

    switch ((enum call_state)op->state) {
    case CALL_START:
        if (c->held)
            AWAIT_HELD(op, CALL_MAKING, call_begin(c));
        else
            AWAIT_ANY(op, CALL_CALLING, call_begin(c));
        call_over(c);
        return OP_DONE;

    undo: /* given up, or refused; what was made meanwhile is told all the same */
        call_over(c);
        op_error_edit(op)->admitted = op_last_failed(op) ? op_last(op)->admitted : ADMITTED_YES;
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type call_type = {"openshell_rpc", call_states, 3, call_step, NULL};

static struct unary_call *call_new(struct rpc *rpc, struct op *op, const char *method,
                                   const ProtobufCMessage *request,
                                   const ProtobufCMessageDescriptor *reply_type,
                                   void (*take)(struct unary_call *c, const void *message))
{
    struct unary_call *c = OP_CHILD(op, &call_type, unary_call);

    c->rpc = rpc;
    c->method = method;
    c->request = message_pack(op->arena, request, &c->len);
    c->timeout_ms = RPC_TIMEOUT_MS;
    c->reply_type = reply_type;
    c->take = take;
    return c;
}

/* Texts of records end in messages and headers: what is no UTF-8 is refused as a whole. */
static const char *text_of(const char *text)
{
    return text != NULL && quote_is_utf8(text, strlen(text)) ? text : "";
}

static void view_of(const Openshell__Sandbox *sandbox, struct sandbox_view *ret)
{
    const Openshell__ObjectMeta *meta = sandbox->metadata;
    const Openshell__SandboxStatus *status = sandbox->status;

    *ret = (struct sandbox_view){"", "", 0, "", "", "", "", "", "", 0};
    if (meta != NULL) {
        ret->name = text_of(meta->name);
        ret->id = text_of(meta->id);
        ret->created_at_ms = meta->created_at_ms;
        for (size_t i = 0; i < meta->n_annotations; i++) {
            if (strcmp(text_of(meta->annotations[i]->key), "bindery.create") == 0)
                ret->marker = text_of(meta->annotations[i]->value);
        }
        for (size_t i = 0; i < meta->n_labels; i++) {
            if (strcmp(text_of(meta->labels[i]->key), "dify.binding") == 0)
                ret->binding_digest = text_of(meta->labels[i]->value);
            else if (strcmp(text_of(meta->labels[i]->key), "bindery.instance") == 0)
                ret->instance_label = text_of(meta->labels[i]->value);
        }
    }
    if (status != NULL) {
        ret->phase = (int)status->phase;
        ret->instance_id = text_of(status->main_process_instance_id);
        for (size_t i = 0; i < status->n_conditions; i++) {
            if (strcmp(text_of(status->conditions[i]->type), "Ready") == 0) {
                ret->reason = text_of(status->conditions[i]->reason);
                ret->message = text_of(status->conditions[i]->message);
            }
        }
    }
}

static void take_sandbox(struct unary_call *c, const void *message)
{
    const Openshell__SandboxResponse *reply = message;

    if (reply->sandbox == NULL || reply->sandbox->metadata == NULL ||
        text_of(reply->sandbox->metadata->id)[0] == '\0') {
        op_fail(&c->op, ERR_UPSTREAM_PROTOCOL, "%s: the answer names no sandbox", c->method);
        op_error_edit(&c->op)->admitted = c->write ? ADMITTED_UNKNOWN : ADMITTED_NO;
        return;
    }
    view_of(reply->sandbox, c->ret_view);
}

static void name_call(struct rpc *rpc, struct op *op, const char *method, const char *name,
                      bool write, int64_t timeout_ms, struct sandbox_view *ret)
{
    Openshell__SandboxNameRequest request = OPENSHELL__SANDBOX_NAME_REQUEST__INIT;
    struct unary_call *c;

    request.name = (char *)name;
    request.workspace = (char *)rpc->workspace;
    c = call_new(rpc, op, method, &request.base, &openshell__sandbox_response__descriptor,
                 take_sandbox);
    c->write = write;
    c->timeout_ms = timeout_ms;
    c->ret_view = ret;
    op_await_child(op, &c->op);
}

/* ---- lifecycle ------------------------------------------------------------------------------- */

static void take_version(struct unary_call *c, const void *message)
{
    const Openshell__HealthResponse *reply = message;

    *c->ret_text = text_of(reply->version);
}

void rpc_health(struct rpc *rpc, struct op *op, const char **ret_version)
{
    Openshell__HealthRequest request = OPENSHELL__HEALTH_REQUEST__INIT;
    struct unary_call *c = call_new(rpc, op, METHOD("Health"), &request.base,
                                    &openshell__health_response__descriptor, take_version);

    c->is_open = true;
    c->ret_text = ret_version;
    op_await_child(op, &c->op);
}

void rpc_create(struct rpc *rpc, struct op *op, const Openshell__CreateSandboxRequest *request,
                struct sandbox_view *ret)
{
    struct unary_call *c = call_new(rpc, op, METHOD("CreateSandbox"), &request->base,
                                    &openshell__sandbox_response__descriptor, take_sandbox);

    c->write = c->held = true;
    c->timeout_ms = RPC_SLOW_TIMEOUT_MS;
    c->ret_view = ret;
    op_await_child(op, &c->op);
}

void rpc_get(struct rpc *rpc, struct op *op, const char *name, struct sandbox_view *ret)
{
    name_call(rpc, op, METHOD("GetSandbox"), name, false, RPC_TIMEOUT_MS, ret);
}

void rpc_start(struct rpc *rpc, struct op *op, const char *name, struct sandbox_view *ret)
{
    name_call(rpc, op, METHOD("StartSandbox"), name, true, RPC_SLOW_TIMEOUT_MS, ret);
}

void rpc_stop(struct rpc *rpc, struct op *op, const char *name, struct sandbox_view *ret)
{
    name_call(rpc, op, METHOD("StopSandbox"), name, true, RPC_SLOW_TIMEOUT_MS, ret);
}

void rpc_delete(struct rpc *rpc, struct op *op, const char *name)
{
    Openshell__SandboxNameRequest request = OPENSHELL__SANDBOX_NAME_REQUEST__INIT;
    struct unary_call *c;

    request.name = (char *)name;
    request.workspace = (char *)rpc->workspace;
    c = call_new(rpc, op, METHOD("DeleteSandbox"), &request.base,
                 &openshell__delete_sandbox_response__descriptor, NULL);
    c->write = true;
    c->absent_is_success = true;
    op_await_child(op, &c->op);
}

static void take_list(struct unary_call *c, const void *message)
{
    const Openshell__ListSandboxesResponse *reply = message;

    *c->ret_n = reply->n_sandboxes;
    *c->ret_views = arena_alloc(c->op.arena, reply->n_sandboxes * sizeof(struct sandbox_view));
    for (size_t i = 0; i < reply->n_sandboxes; i++)
        view_of(reply->sandboxes[i], &(*c->ret_views)[i]);
}

void rpc_list(struct rpc *rpc, struct op *op, const char *label_selector, uint32_t offset,
              uint32_t limit, struct sandbox_view **ret, size_t *ret_n)
{
    Openshell__ListSandboxesRequest request = OPENSHELL__LIST_SANDBOXES_REQUEST__INIT;
    struct unary_call *c;

    PRE(limit >= 1 && limit <= LIST_PAGE_MAX);
    request.label_selector = (char *)label_selector;
    request.offset = offset;
    request.limit = limit;
    request.workspace = (char *)rpc->workspace;
    c = call_new(rpc, op, METHOD("ListSandboxes"), &request.base,
                 &openshell__list_sandboxes_response__descriptor, take_list);
    c->ret_views = ret;
    c->ret_n = ret_n;
    op_await_child(op, &c->op);
}

/* ---- sessions -------------------------------------------------------------------------------- */

/* The official clients refuse a token outside this alphabet (8.10); so do we, since it travels on. */
static bool token_ok(const char *token)
{
    size_t len = strlen(token);

    return len >= 1 && len <= 4096 &&
           strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                         "._~+/=-") == len;
}

static void take_session(struct unary_call *c, const void *message)
{
    const Openshell__CreateSshSessionResponse *reply = message;

    if (!token_ok(text_of(reply->token))) {
        op_fail(&c->op, ERR_UPSTREAM_PROTOCOL, "%s: the answer holds no usable token", c->method);
        return;
    }
    *c->ret_text = reply->token;
    *c->ret_time = reply->expires_at_ms;
}

void rpc_session_create(struct rpc *rpc, struct op *op, const char *sandbox_id,
                        const char **ret_token, int64_t *ret_expires_at_ms)
{
    Openshell__CreateSshSessionRequest request = OPENSHELL__CREATE_SSH_SESSION_REQUEST__INIT;
    struct unary_call *c;

    request.sandbox_id = (char *)sandbox_id;
    c = call_new(rpc, op, METHOD("CreateSshSession"), &request.base,
                 &openshell__create_ssh_session_response__descriptor, take_session);
    c->held = true;
    c->ret_text = ret_token;
    c->ret_time = ret_expires_at_ms;
    op_await_child(op, &c->op);
}

void rpc_session_revoke(struct rpc *rpc, struct op *op, const char *token)
{
    Openshell__RevokeSshSessionRequest request = OPENSHELL__REVOKE_SSH_SESSION_REQUEST__INIT;
    struct unary_call *c;

    request.token = (char *)token;
    c = call_new(rpc, op, METHOD("RevokeSshSession"), &request.base,
                 &openshell__revoke_ssh_session_response__descriptor, NULL);
    c->absent_is_success = true;
    op_await_child(op, &c->op);
}

/* ---- what a status means --------------------------------------------------------------------- */

/* Any other status came from behind the gateway's check of credentials. A lost connection says
 * nothing about them. */
void rpc_note_auth(struct rpc *rpc, const struct error *err)
{
    if (err != NULL && (rpc_is(err, GRPC_UNAUTHENTICATED) || rpc_is(err, GRPC_PERMISSION_DENIED)))
        rpc->auth_failed = true;
    else if (err == NULL || err->code == ERR_UPSTREAM_STATUS)
        rpc->auth_failed = false;
}

void rpc_judge(struct error *err, enum err_code code, enum err_code if_absent)
{
    enum err_code to = code;

    if (err->code == ERR_CANCELLED || err->code == ERR_DEADLINE || err->code == ERR_INTERNAL)
        return;
    if (rpc_is(err, GRPC_NOT_FOUND))
        to = if_absent;
    else if (rpc_is(err, GRPC_UNAUTHENTICATED) || rpc_is(err, GRPC_PERMISSION_DENIED))
        to = ERR_BACKEND_AUTH;
    else if (rpc_is(err, GRPC_RESOURCE_EXHAUSTED))
        to = ERR_RATE_LIMITED;
    else if (err->code == ERR_UPSTREAM_LOST && err->admitted == ADMITTED_UNKNOWN)
        to = ERR_BACKEND_OUTCOME_UNKNOWN;
    else if (err->code != ERR_UPSTREAM_STATUS && err->code != ERR_UPSTREAM_LOST &&
             err->code != ERR_UPSTREAM_CONNECT && err->code != ERR_UPSTREAM_PROTOCOL)
        return; /* judged already */
    err->code = to;
}
