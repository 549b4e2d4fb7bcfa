/* The gRPC client before a peer that a test scripts frame by frame. */
#include "core/runtime/grpc.h"
#include "support/h2_server.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct loop *loop;
static struct h2_server *server;
static struct grpc_channel *channel;

typedef void (*answer_fn)(struct h2_request *r);
static answer_fn answer; /* of the test in progress */

static void on_request(void *ctx, struct h2_request *r)
{
    (void)ctx;
    answer(r);
}

static void open_channel(uint32_t streams, size_t max_message, int max_connections)
{
    struct error err;

    server = h2_server_new(loop, streams, on_request, NULL);
    channel = grpc_channel_new(loop,
                               &(struct grpc_options){.host_port = h2_server_host_port(server),
                                                      .insecure = true,
                                                      .max_message = max_message,
                                                      .max_connections = max_connections},
                               &err);
    cr_assert(channel != NULL, "%s", err.message);
}

static void set_up(void)
{
    signal(SIGPIPE, SIG_IGN);
    loop = loop_new(NULL);
}

static void tear_down(void)
{
    grpc_channel_free(channel);
    loop_turn(loop, false);
    h2_server_free(server);
    loop_turn(loop, false);
    loop_free(loop);
}

TestSuite(grpc, .init = set_up, .fini = tear_down, .timeout = 30);

/* ---- unary calls as ops --------------------------------------------------------------------------- */

struct outcome {
    struct op *op;
    bool done;
    struct error error;
    char reply[64];
    size_t len;
};

struct caller {
    struct op op;
    int64_t timeout_ms;
    struct grpc_reply reply;
    struct outcome *outcome;
};

enum caller_state { CALLER_START, CALLER_CALLING };
static const char *const caller_states[] = {"start", "calling"};

static enum op_poll caller_step(struct op *op)
{
    struct caller *c = container_of(op, struct caller, op);
    struct outcome *o = c->outcome;

    switch ((enum caller_state)op->state) {
    case CALLER_START:
        AWAIT(op, CALLER_CALLING,
              grpc_unary(channel, op, "/test.Service/Call", "ping", 4, c->timeout_ms, &c->reply));
        o->len = c->reply.len;
        snprintf(o->reply, sizeof(o->reply), "%.*s", (int)(c->reply.len < 60 ? c->reply.len : 60),
                 (const char *)c->reply.message);
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type caller_type = {"caller", caller_states, 2, caller_step, NULL};

static void on_done(struct op *op, void *ctx)
{
    struct outcome *o = ctx;

    o->done = true;
    o->error = *op_error(op);
}

static void call_start(struct outcome *o, int64_t timeout_ms)
{
    struct caller *c = OP_ROOT(loop, &caller_type, caller, NULL);

    *o = (struct outcome){.op = &c->op};
    c->timeout_ms = timeout_ms;
    c->outcome = o;
    op_start(&c->op, on_done, o);
}

static void finish(struct outcome *o)
{
    while (!o->done)
        loop_turn(loop, true);
}

static struct outcome call(answer_fn fn)
{
    struct outcome o;

    answer = fn;
    if (channel == NULL)
        open_channel(100, 0, 0);
    call_start(&o, 20000);
    finish(&o);
    return o;
}

static void expect(const struct outcome *o, enum err_code code, enum err_admitted admitted)
{
    cr_assert(eq(int, o->error.code, code), "%s: %s", err_wire(o->error.code), o->error.message);
    cr_assert(eq(int, o->error.admitted, admitted), "%s", o->error.message);
}

/* ---- answers that are well ------------------------------------------------------------------------- */

static void answer_pong(struct h2_request *r)
{
    cr_assert(eq(sz, r->body.len, 9)); /* prefix and "ping" */
    cr_assert_str_eq(r->path, "/test.Service/Call");
    h2_reply_head(r, "200", "application/grpc", NULL, NULL, false);
    h2_reply_message(r, "pong", 4);
    h2_reply_end(r, "0", NULL);
}

Test(grpc, a_unary_call_has_one_message_each_way)
{
    struct outcome o = call(answer_pong);

    expect(&o, ERR_NONE, ADMITTED_NO);
    cr_assert_str_eq(o.reply, "pong");
    o = call(answer_pong);
    cr_assert(eq(int, h2_server_connections(server), 1), "connections are kept");
}

static void answer_in_crumbs(struct h2_request *r)
{
    static const char message[] = {0, 0, 0, 0, 4, 'p', 'o', 'n', 'g'};

    h2_reply_head(r, "200", "application/grpc+proto", NULL, NULL, false);
    for (size_t i = 0; i < sizeof(message); i++)
        h2_reply_data(r, message + i, 1);
    h2_reply_end(r, "0", NULL);
}

Test(grpc, a_message_may_come_in_any_pieces)
{
    struct outcome o = call(answer_in_crumbs);

    expect(&o, ERR_NONE, ADMITTED_NO);
    cr_assert_str_eq(o.reply, "pong");
}

static void answer_empty(struct h2_request *r)
{
    h2_reply_head(r, "200", "application/grpc", NULL, NULL, false);
    h2_reply_message(r, "", 0);
    h2_reply_end(r, "0", NULL);
}

Test(grpc, an_empty_message_is_a_message)
{
    struct outcome o = call(answer_empty);

    expect(&o, ERR_NONE, ADMITTED_NO);
    cr_assert(eq(sz, o.len, 0));
}

/* ---- statuses -------------------------------------------------------------------------------------- */

static void answer_trailers_only(struct h2_request *r)
{
    h2_reply_head(r, "200", "application/grpc", "5", "no%20such%0Athing%e2%98%83%zz", true);
}

Test(grpc, an_error_without_a_body_is_decoded)
{
    struct outcome o = call(answer_trailers_only);

    expect(&o, ERR_UPSTREAM_STATUS, ADMITTED_NO);
    cr_assert(eq(int, o.error.upstream_status, GRPC_NOT_FOUND));
    cr_assert_str_eq(o.error.upstream_code, "NOT_FOUND");
    cr_assert(strstr(o.error.message, "no such thing\xe2\x98\x83%zz") != NULL, "%s",
              o.error.message);
}

static void answer_late_error(struct h2_request *r)
{
    h2_reply_head(r, "200", "application/grpc", NULL, NULL, false);
    h2_reply_message(r, "pong", 4);
    h2_reply_end(r, "13", "broke");
}

Test(grpc, an_error_behind_a_message_counts)
{
    struct outcome o = call(answer_late_error);

    expect(&o, ERR_UPSTREAM_STATUS, ADMITTED_NO);
    cr_assert_str_eq(o.error.upstream_code, "INTERNAL");
}

static const char *http_status;

static void answer_http(struct h2_request *r)
{
    h2_reply_head(r, http_status, "text/html", NULL, NULL, false);
    h2_reply_data(r, "<html>", 6);
    h2_reply_end(r, NULL, NULL);
}

Test(grpc, http_statuses_have_their_grpc_code)
{
    static const struct {
        const char *http;
        enum grpc_code code;
    } cases[] = {{"400", GRPC_INTERNAL},          {"401", GRPC_UNAUTHENTICATED},
                 {"403", GRPC_PERMISSION_DENIED}, {"404", GRPC_UNIMPLEMENTED},
                 {"429", GRPC_UNAVAILABLE},       {"502", GRPC_UNAVAILABLE},
                 {"503", GRPC_UNAVAILABLE},       {"504", GRPC_UNAVAILABLE},
                 {"418", GRPC_UNKNOWN},           {"200", GRPC_UNKNOWN}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        http_status = cases[i].http;
        struct outcome o = call(answer_http);
        expect(&o, ERR_UPSTREAM_STATUS, ADMITTED_UNKNOWN);
        cr_assert(eq(int, o.error.upstream_status, (int)cases[i].code), "HTTP %s", cases[i].http);
    }
}

/* ---- answers that are not well --------------------------------------------------------------------- */

static void answer_compressed(struct h2_request *r)
{
    h2_reply_head(r, "200", "application/grpc", NULL, NULL, false);
    h2_reply_data(r, "\1\0\0\0\1x", 6);
    h2_reply_end(r, "0", NULL);
}

static void answer_huge(struct h2_request *r)
{
    h2_reply_head(r, "200", "application/grpc", NULL, NULL, false);
    h2_reply_data(r, "\0\x7f\xff\xff\xff", 5);
}

static void answer_half(struct h2_request *r)
{
    h2_reply_head(r, "200", "application/grpc", NULL, NULL, false);
    h2_reply_data(r, "\0\0\0\0\4po", 7);
    h2_reply_end(r, "0", NULL);
}

static void answer_twice(struct h2_request *r)
{
    h2_reply_head(r, "200", "application/grpc", NULL, NULL, false);
    h2_reply_message(r, "a", 1);
    h2_reply_message(r, "b", 1);
    h2_reply_end(r, "0", NULL);
}

static void answer_nothing(struct h2_request *r)
{
    h2_reply_head(r, "200", "application/grpc", "0", NULL, true);
}

static void answer_without_status(struct h2_request *r)
{
    h2_reply_head(r, "200", "application/grpc", NULL, NULL, false);
    h2_reply_message(r, "pong", 4);
    h2_reply_end(r, NULL, NULL);
}

Test(grpc, what_is_no_answer_is_said)
{
    static const answer_fn bad[] = {answer_compressed, answer_huge,    answer_half,
                                    answer_twice,      answer_nothing, answer_without_status};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct outcome o = call(bad[i]);
        cr_assert(eq(int, o.error.code, ERR_UPSTREAM_PROTOCOL), "answer %zu: %s", i,
                  o.error.message);
        o = call(answer_pong); /* and the channel goes on */
        expect(&o, ERR_NONE, ADMITTED_NO);
    }
}

Test(grpc, a_message_beyond_the_limit_is_not_taken)
{
    struct outcome o;

    open_channel(100, 3, 0);
    o = call(answer_pong);
    cr_assert(eq(int, o.error.code, ERR_UPSTREAM_PROTOCOL), "%s", o.error.message);
}

/* ---- streams that do not end well ------------------------------------------------------------------ */

static int refusals;

static void answer_refused(struct h2_request *r)
{
    if (r->nth <= refusals)
        h2_reset(r, 7 /* REFUSED_STREAM */);
    else
        answer_pong(r);
}

/* A09: refused means not processed, so it is repeated; but not for ever */
Test(grpc, a_refused_stream_is_repeated_twice_at_most)
{
    struct outcome o;

    refusals = 2;
    o = call(answer_refused);
    expect(&o, ERR_NONE, ADMITTED_NO);
    cr_assert(eq(int, h2_server_requests(server), 3));
    refusals = 100;
    o = call(answer_refused);
    expect(&o, ERR_UPSTREAM_LOST, ADMITTED_NO);
    cr_assert(eq(int, h2_server_requests(server), 6));
}

static void answer_goaway(struct h2_request *r)
{
    if (r->nth == 1)
        h2_goaway(r, true);
    else
        answer_pong(r);
}

/* A09 */
Test(grpc, what_a_goaway_leaves_out_goes_to_a_new_connection)
{
    struct outcome o = call(answer_goaway);

    expect(&o, ERR_NONE, ADMITTED_NO);
    cr_assert(eq(int, h2_server_requests(server), 2));
    cr_assert(eq(int, h2_server_connections(server), 2));
}

static void answer_behind_goaway(struct h2_request *r)
{
    if (r->nth == 1)
        h2_goaway(r, false);
    answer_pong(r);
}

/* A09 */
Test(grpc, a_goaway_lets_what_runs_end)
{
    struct outcome o = call(answer_behind_goaway);

    expect(&o, ERR_NONE, ADMITTED_NO);
    cr_assert(eq(int, h2_server_requests(server), 1));
    o = call(answer_pong);
    expect(&o, ERR_NONE, ADMITTED_NO);
    cr_assert(eq(int, h2_server_connections(server), 2));
}

static void answer_reset(struct h2_request *r)
{
    h2_reset(r, 2 /* INTERNAL_ERROR */);
}

static void answer_cut(struct h2_request *r)
{
    h2_cut(r);
}

/* A08: what was sent may have been done; it is not sent again */
Test(grpc, a_call_that_broke_off_has_an_unknown_outcome)
{
    struct outcome o = call(answer_reset);

    expect(&o, ERR_UPSTREAM_LOST, ADMITTED_UNKNOWN);
    o = call(answer_cut);
    expect(&o, ERR_UPSTREAM_LOST, ADMITTED_UNKNOWN);
    cr_assert(eq(int, h2_server_requests(server), 2), "neither was repeated");
    o = call(answer_pong);
    expect(&o, ERR_NONE, ADMITTED_NO);
}

Test(grpc, nobody_there_means_nothing_was_sent)
{
    struct outcome o;
    struct error err;

    answer = answer_pong;
    server = h2_server_new(loop, 10, on_request, NULL);
    channel = grpc_channel_new(
        loop, &(struct grpc_options){.host_port = "127.0.0.1:9", .insecure = true}, &err);
    call_start(&o, 5000);
    finish(&o);
    expect(&o, ERR_UPSTREAM_CONNECT, ADMITTED_NO);
}

/* ---- time and cancelling --------------------------------------------------------------------------- */

static void answer_never(struct h2_request *r)
{
    (void)r;
}

Test(grpc, the_deadline_is_ours_and_ends_the_stream)
{
    struct outcome o;

    open_channel(100, 0, 0);
    answer = answer_never;
    call_start(&o, 50);
    finish(&o);
    expect(&o, ERR_DEADLINE, ADMITTED_UNKNOWN);
    cr_assert(eq(int, grpc_channel_streams(channel), 0));
    o = call(answer_pong);
    expect(&o, ERR_NONE, ADMITTED_NO);
}

Test(grpc, a_cancelled_call_leaves_no_stream)
{
    struct outcome o;

    open_channel(100, 0, 0);
    answer = answer_never;
    call_start(&o, 20000);
    while (h2_server_requests(server) == 0)
        loop_turn(loop, true);
    op_cancel(o.op, "the test");
    finish(&o);
    cr_assert(eq(int, o.error.code, ERR_CANCELLED));
    cr_assert(eq(int, grpc_channel_streams(channel), 0));
    o = call(answer_pong);
    expect(&o, ERR_NONE, ADMITTED_NO);
    cr_assert(eq(int, h2_server_connections(server), 1));
}

/* All are answered; returns over how many connections. */
static int fifty_calls(uint32_t streams, int max_connections)
{
    static struct outcome many[50];

    open_channel(streams, 0, max_connections);
    answer = answer_pong;
    for (int i = 0; i < 50; i++)
        call_start(&many[i], 20000);
    for (int i = 0; i < 50; i++) {
        finish(&many[i]);
        expect(&many[i], ERR_NONE, ADMITTED_NO);
    }
    return h2_server_connections(server);
}

Test(grpc, more_calls_than_streams_open_more_connections)
{
    cr_assert(le(int, fifty_calls(10, 0), 6));
}

Test(grpc, calls_beyond_all_connections_wait_their_turn)
{
    cr_assert(le(int, fifty_calls(2, 2), 2));
}

/* ---- streams and windows --------------------------------------------------------------------------- */

struct stream {
    struct grpc_call *call;
    size_t bytes;
    int messages;
    bool over, pauses;
    struct error error;
};

static void on_message(void *ctx, const uint8_t *message, size_t len)
{
    struct stream *s = ctx;

    (void)message;
    s->bytes += len;
    if (++s->messages == 1 && s->pauses)
        grpc_call_pause(s->call);
}

static void on_end(void *ctx, const struct error *err)
{
    struct stream *s = ctx;

    s->over = true;
    if (err != NULL)
        s->error = *err;
}

enum { MESSAGES = 200, MESSAGE_BYTES = 16384 };

static struct h2_request *long_answer;

static void answer_much(struct h2_request *r)
{
    static char message[MESSAGE_BYTES];

    if (strcmp(r->path, "/test.Service/Call") == 0) {
        answer_pong(r);
        return;
    }
    long_answer = r;
    h2_reply_head(r, "200", "application/grpc", NULL, NULL, false);
    for (int i = 0; i < MESSAGES; i++)
        h2_reply_message(r, message, sizeof(message));
    h2_reply_end(r, "0", NULL);
}

static void stream_open(struct stream *s)
{
    static const struct grpc_call_events events = {on_message, NULL, on_end};

    s->call = grpc_call_open(channel, "/test.Service/Much", 0, &events, s);
    grpc_call_send(s->call, "x", 1);
    grpc_call_send_end(s->call);
}

Test(grpc, a_paused_stream_holds_the_peer_back_and_nobody_else)
{
    struct stream s = {.pauses = true};
    struct outcome o;
    size_t held;

    open_channel(100, 0, 0);
    answer = answer_much;
    stream_open(&s);
    while (s.messages == 0)
        loop_turn(loop, true);
    for (int i = 0; i < 5; i++) { /* other calls on the connection go on */
        call_start(&o, 20000);
        finish(&o);
        expect(&o, ERR_NONE, ADMITTED_NO);
    }
    held = h2_server_held(server);
    cr_assert(gt(sz, held, (size_t)MESSAGES * MESSAGE_BYTES / 2), "%zu bytes are held back", held);
    h2_ping(long_answer); /* and pings are answered */
    while (h2_server_pongs(server) == 0)
        loop_turn(loop, true);
    cr_assert(eq(int, h2_server_connections(server), 1));
    s.pauses = false;
    grpc_call_resume(s.call);
    while (!s.over)
        loop_turn(loop, true);
    cr_assert_not(error_is(&s.error), "%s", s.error.message);
    cr_assert(eq(int, s.messages, MESSAGES));
    cr_assert(eq(sz, s.bytes, (size_t)MESSAGES * MESSAGE_BYTES));
}

Test(grpc, a_cancelled_stream_gives_no_more_events)
{
    struct stream s = {.pauses = true};
    struct outcome o;

    open_channel(100, 0, 0);
    answer = answer_much;
    stream_open(&s);
    while (s.messages == 0)
        loop_turn(loop, true);
    grpc_call_cancel(s.call);
    call_start(&o, 20000);
    finish(&o);
    expect(&o, ERR_NONE, ADMITTED_NO);
    cr_assert_not(s.over);
    cr_assert(eq(int, grpc_channel_streams(channel), 0));
}
