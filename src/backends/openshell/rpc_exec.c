#include "backends/openshell/rpc.h"

#include "core/runtime/buf.h"

#include <string.h>

enum { EXEC_EXTRA_MS = 10000 }; /* what the stream may take beyond the gateway's own timeout */

/* One exec in progress; memory of the op's arena. */
struct exec {
    struct op *op;
    struct rpc *rpc;
    struct grpc_call *call;
    struct exec_result *ret;
    struct buf output;
    bool exited, truncated;
    struct error bad;
};

static void exec_output(struct exec *x, const ProtobufCBinaryData *data)
{
    size_t room = RPC_EXEC_OUTPUT_MAX - x->output.len;

    x->truncated |= data->len > room;
    buf_add(&x->output, data->data, data->len < room ? data->len : room);
}

static void exec_event(struct exec *x, const Openshell__ExecSandboxEvent *event)
{
    switch (event->payload_case) {
    case OPENSHELL__EXEC_SANDBOX_EVENT__PAYLOAD_STDOUT:
        exec_output(x, &event->stdout->data);
        break;
    case OPENSHELL__EXEC_SANDBOX_EVENT__PAYLOAD_STDERR:
        exec_output(x, &event->stderr->data);
        break;
    case OPENSHELL__EXEC_SANDBOX_EVENT__PAYLOAD_EXIT:
        x->exited = true;
        x->ret->exit_code = event->exit->exit_code;
        break;
    case OPENSHELL__EXEC_SANDBOX_EVENT__PAYLOAD__NOT_SET:
    default: /* a kind of event that a newer gateway sends */
        break;
    }
}

static void on_message(void *ctx, const uint8_t *message, size_t len)
{
    struct exec *x = ctx;
    struct arena *scratch = arena_new(); /* output has no end: nothing of an event is kept */
    const Openshell__ExecSandboxEvent *event = message_unpack(
        scratch, &openshell__exec_sandbox_event__descriptor, message, len, "exec event", &x->bad);

    if (event != NULL)
        exec_event(x, event);
    arena_free(scratch);
}

static void on_end(void *ctx, const struct error *err)
{
    struct exec *x = ctx;

    rpc_note_auth(x->rpc, err);
    if (err == NULL && error_is(&x->bad))
        err = &x->bad;
    if (err == NULL && !x->exited) {
        error_set(&x->bad, ERR_UPSTREAM_PROTOCOL, "the exec stream ended without an exit event");
        err = &x->bad;
    }
    if (x->truncated)
        buf_adds(&x->output, "\n[output cut]");
    x->ret->output = arena_strdup(x->op->arena, buf_text(&x->output));
    buf_fini(&x->output);
    op_wake(x->op, err);
}

static void exec_cancel(void *ctx)
{
    struct exec *x = ctx;

    buf_fini(&x->output);
    grpc_call_cancel(x->call);
}

void rpc_exec(struct rpc *rpc, struct op *op, const char *sandbox_id, const char *script,
              int timeout_s, struct exec_result *ret)
{
    static const struct grpc_call_events events = {on_message, NULL, on_end};
    Openshell__ExecSandboxRequest request = OPENSHELL__EXEC_SANDBOX_REQUEST__INIT;
    char *argv[] = {(char *)"/bin/sh", (char *)"-s"};
    struct exec *x = ARENA_NEW(op->arena, struct exec);
    const uint8_t *bytes;
    size_t len;

    x->op = op;
    x->rpc = rpc;
    x->ret = ret;
    *ret = (struct exec_result){.exit_code = -1, .output = ""};
    request.sandbox_id = (char *)sandbox_id;
    request.command = argv;
    request.n_command = 2;
    request.timeout_seconds = (uint32_t)timeout_s;
    request.stdin.data = (uint8_t *)script;
    request.stdin.len = strlen(script);
    bytes = message_pack(op->arena, &request.base, &len);
    op_wait_begin(op, exec_cancel, x);
    x->call = grpc_call_open(rpc->channel, "/openshell.v1.OpenShell/ExecSandbox",
                             timeout_s * 1000 + EXEC_EXTRA_MS, &events, x);
    grpc_call_send(x->call, bytes, len);
    grpc_call_send_end(x->call);
}
