#include "http/handlers_command.h"

#include "http/codec.h"
#include "http/handler.h"
#include "http/lease_door.h"

#include <string.h>

struct command_call {
    struct handler_call call;
    char lease_id[LEASE_ID_CHARS + 1];
    struct command_spec spec;
    struct command_result result;
    int64_t began_ms;
};

static void command_start(struct handler_call *call)
{
    struct command_call *t = container_of(call, struct command_call, call);
    struct lease *lease = lease_find(broker_leases(call->broker), t->lease_id);
    struct error err;

    if (lease == NULL) {
        error_set(&err, ERR_LEASE_GONE, "the lease has ended: acquire a new one");
        op_complete(&call->op, &err);
        return;
    }
    broker_run(call->broker, &call->op, lease, &t->spec, &t->result);
}

static void command_write(struct json_writer *w, const void *ctx)
{
    const struct command_call *t = ctx;

    codec_write_command_result(w, &t->result, loop_now_ms(t->call.x->loop) - t->began_ms);
}

static void command_reply(struct handler_call *call)
{
    struct command_call *t = container_of(call, struct command_call, call);

    handler_reply_object(call->x, 200, command_write, t);
}

static void command_enter(struct exchange *x, struct lease *lease, void *ctx)
{
    struct command_call *t = HANDLER_CALL(x, command_call);
    struct json_reader r;

    (void)ctx;
    if (!handler_read(x, &r))
        return;
    codec_read_command(&r, &t->spec);
    if (!handler_accept(x, &r))
        return;
    memcpy(t->lease_id, lease->id, sizeof(t->lease_id));
    t->began_ms = loop_now_ms(x->loop);
    t->call.start = command_start;
    t->call.reply = command_reply;
    handler_run(&t->call);
}

static void handle_command(struct exchange *x)
{
    struct lease_caller caller = lease_caller_of(x);

    lease_door_enter(x, &caller, command_enter, NULL);
}

enum { BODY_MAX = 2 * 1024 * 1024 };

static const char command_request[] =
    "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"script\"],"
    "\"properties\":{\"script\":{\"type\":\"string\",\"minLength\":1},"
    "\"cwd\":{\"type\":[\"string\",\"null\"]},"
    "\"env\":{\"type\":[\"object\",\"null\"],\"additionalProperties\":{\"type\":\"string\"}},"
    "\"timeout_seconds\":{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":3600,"
    "\"default\":60},"
    "\"max_output_bytes\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":16777216,"
    "\"default\":1048576},\"mode\":{\"enum\":[\"pty\",\"stdio\"],\"default\":\"pty\"}}}";
static const char command_response[] =
    "{\"type\":\"object\",\"required\":[\"status\",\"exit_code\",\"output\",\"truncated\","
    "\"stop_reason\",\"duration_ms\"],\"properties\":{"
    "\"status\":{\"enum\":[\"exited\",\"terminated\",\"failed\",\"lost\"]},"
    "\"exit_code\":{\"type\":[\"integer\",\"null\"]},\"output\":{\"type\":\"string\"},"
    "\"truncated\":{\"type\":\"boolean\"},\"stop_reason\":{\"enum\":[null,\"timeout\","
    "\"output_limit\"]},\"duration_ms\":{\"type\":\"integer\"}}}";

const struct route command_routes[] = {
    {"POST", "/v1/leases/{id}/commands", AUTH_LEASE, ERRORS_V1, ROUTE_LONG, BODY_MAX,
     handle_command, "Run one script in a lease to its end", command_request, command_response},
    {0},
};
