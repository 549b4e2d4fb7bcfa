/* A server with routes made for testing the HTTP edge: edge_server LISTEN [setting=value…]. It
 * prints its addresses, one a line, then serves until SIGTERM drains it. */
#include "core/runtime/log.h"
#include "core/runtime/loop.h"
#include "core/runtime/op.h"
#include "http/auth.h"
#include "http/exchange.h"
#include "http/handlers_system.h"
#include "http/server.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct app {
    struct http_server *server;
    struct loop *loop;
    struct event *term;
    int64_t drain_grace_ms, drain_timeout_ms, drain_settle_ms;
    char *token;
    int handled, napping, cancelled, gone, left;
};

static void reply_text(struct exchange *x, const char *text)
{
    exchange_reply(x, 200, "text/plain", text, strlen(text));
}

/* ---- plain handlers ---------------------------------------------------------------------------- */

static void handle_hello(struct exchange *x)
{
    ((struct app *)x->app)->handled++;
    reply_text(x, "hello\n");
}

static void handle_echo(struct exchange *x)
{
    ((struct app *)x->app)->handled++;
    exchange_reply(x, 200, "application/octet-stream", x->body, x->body_len);
}

static void handle_json(struct exchange *x)
{
    struct json_object *value;
    struct json_reader r;
    struct buf out = {0};
    struct json_writer w = {.out = &out};
    const char *name;

    ((struct app *)x->app)->handled++;
    if (!exchange_json(x, &value))
        return;
    json_reader_init(&r, x->arena, value);
    name = json_read_string(&r, "name", 1);
    if (!json_reader_finish(&r, false, NULL)) {
        exchange_reply_problems(x, &r);
        return;
    }
    json_object_begin(&w);
    json_member_string(&w, "name", name);
    json_object_finish(&w);
    exchange_reply_json(x, 201, &out);
    buf_fini(&out);
}

static void add_header_line(void *ctx, const char *name, const char *value)
{
    buf_addf(ctx, "%s=%s\n", name, value);
}

/* What the handler sees of a request. */
static void handle_seen(struct exchange *x)
{
    const char *wanted = exchange_query(x, "q");
    struct buf out = {0};

    ((struct app *)x->app)->handled++;
    buf_addf(&out, "method=%s\npath=%s\nquery=%s\nq=%s\nrest=%s\nid=%s\ntrace=%s\nbearer=%s\n",
             x->method, x->path, x->query, wanted != NULL ? wanted : "-",
             x->rest != NULL ? x->rest : "-", x->request_id,
             x->traceparent != NULL ? x->traceparent : "-", x->bearer != NULL ? x->bearer : "-");
    for (int i = 0; i < x->n_params; i++)
        buf_addf(&out, "param.%s=%s\n", x->params[i].name, x->params[i].value);
    buf_addf(&out, "authorized=%d\nlength=%lld\n", x->authorized,
             (long long)exchange_body_length(x));
    exchange_each_header(x, add_header_line, &out);
    exchange_reply(x, 200, "text/plain", out.data, out.len);
    buf_fini(&out);
}

static void handle_error(struct exchange *x)
{
    struct error err;

    error_set(&err, ERR_RATE_LIMITED, "slow down");
    err.retry_after_ms = 2500;
    err.admitted = ADMITTED_UNKNOWN;
    exchange_reply_error(x, &err);
}

static void handle_counters(struct exchange *x)
{
    struct app *app = x->app;
    struct buf out = {0};

    buf_addf(&out, "{\"handled\":%d,\"napping\":%d,\"cancelled\":%d,\"gone\":%d,\"in_flight\":%d}",
             app->handled, app->napping, app->cancelled, app->gone,
             http_server_in_flight(app->server));
    exchange_reply_json(x, 200, &out);
    buf_fini(&out);
}

static void handle_empty(struct exchange *x)
{
    exchange_reply_empty(x, 204);
}

/* ---- a deferred reply --------------------------------------------------------------------------- */

struct nap {
    struct op op;
    struct app *app;
    int64_t ms, undo_ms;
};

enum nap_state { NAP_START, NAP_SLEEPING, NAP_UNDOING };

static enum op_poll nap_step(struct op *op)
{
    struct nap *t = (struct nap *)op;

    switch ((enum nap_state)op->state) {
    case NAP_START:
        t->app->napping++;
        AWAIT(op, NAP_SLEEPING, op_sleep(op, t->ms));
        return OP_DONE;
    undo:
        op_begin_undo(op, 10000);
        t->app->cancelled++;
        AWAIT_ANY(op, NAP_UNDOING, op_sleep(op, t->undo_ms));
        return OP_DONE;
    }
    unreachable_state(op);
}

static const char *const nap_states[] = {"start", "sleeping", "undoing"};
static const struct op_type nap_type = {"nap", nap_states, 3, nap_step, NULL};

static void on_nap_done(struct exchange *x, struct op *op)
{
    if (op_failed(op))
        exchange_reply_error(x, op_error(op));
    else
        reply_text(x, "slept\n");
}

static void handle_nap(struct exchange *x)
{
    struct nap *nap = OP_ROOT(x->loop, &nap_type, nap, x->arena);
    const char *undo = exchange_query(x, "undo_ms");

    ((struct app *)x->app)->handled++;
    nap->app = x->app;
    nap->ms = atoll(exchange_param(x, "ms"));
    nap->undo_ms = undo != NULL ? atoll(undo) : 0;
    exchange_run(x, &nap->op, on_nap_done);
}

/* ---- streams ------------------------------------------------------------------------------------ */

/* GET /big/{bytes}: a pattern, as fast as the client reads. POST /sink: counts and hashes. */
struct stream {
    int64_t left, taken;
    uint64_t at;
    uint32_t hash;
    bool chunked;
    struct timer resume;
    struct exchange *x;
};

static void big_fill(struct exchange *x, struct stream *s)
{
    char piece[8192];

    while (s->left > 0) {
        size_t len = s->left < (int64_t)sizeof(piece) ? (size_t)s->left : sizeof(piece);
        for (size_t i = 0; i < len; i++)
            piece[i] = (char)('a' + (s->at + i) % 23);
        s->at += len;
        s->left -= (int64_t)len;
        if (exchange_reply_data(x, piece, len) > 65536 && s->left > 0)
            return;
    }
    exchange_reply_end(x, true);
}

static void big_on_writable(struct exchange *x, void *ctx)
{
    big_fill(x, ctx);
}

static void on_gone(struct exchange *x, void *ctx)
{
    struct stream *s = ctx;

    ((struct app *)x->app)->gone++;
    timer_cancel(x->loop, &s->resume);
}

static const struct exchange_stream_events big_events = {.on_writable = big_on_writable,
                                                         .on_gone = on_gone};

static void on_nothing(void *ctx)
{
    (void)ctx;
}

static struct stream *stream_new(struct exchange *x)
{
    struct stream *s = ARENA_NEW(x->arena, struct stream);

    s->x = x;
    s->hash = 2166136261U;
    timer_init(&s->resume, on_nothing, s);
    ((struct app *)x->app)->handled++;
    return s;
}

static void handle_big(struct exchange *x)
{
    struct http_header type = {"Content-Type", "text/plain"};
    struct stream *s = stream_new(x);

    s->left = atoll(exchange_param(x, "bytes"));
    exchange_stream(x, &big_events, s);
    exchange_reply_begin(x, 200, &type, 1, exchange_query(x, "chunked") != NULL ? -1 : s->left);
    if (exchange_query(x, "cut") != NULL) {
        exchange_reply_data(x, "partial", 7);
        exchange_reply_end(x, false);
        return;
    }
    big_fill(x, s);
}

static void sink_resume(void *ctx)
{
    struct stream *s = ctx;

    exchange_body_resume(s->x);
}

static void sink_on_body(struct exchange *x, void *ctx, const void *bytes, size_t len)
{
    struct stream *s = ctx;

    for (size_t i = 0; i < len; i++)
        s->hash = (s->hash ^ ((const unsigned char *)bytes)[i]) * 16777619U;
    s->taken += (int64_t)len;
    if (exchange_query(x, "slow") != NULL) {
        exchange_body_pause(x);
        timer_set_ms(x->loop, &s->resume, 5);
    }
}

static void sink_on_end(struct exchange *x, void *ctx)
{
    struct stream *s = ctx;
    struct buf out = {0};

    timer_cancel(x->loop, &s->resume);
    buf_addf(&out, "{\"bytes\":%lld,\"hash\":%u}", (long long)s->taken, s->hash);
    exchange_reply_json(x, 200, &out);
    buf_fini(&out);
}

static const struct exchange_stream_events sink_events = {
    .on_body = sink_on_body, .on_body_end = sink_on_end, .on_gone = on_gone};

static void handle_sink(struct exchange *x)
{
    struct stream *s = stream_new(x);

    timer_init(&s->resume, sink_resume, s);
    exchange_stream(x, &sink_events, s);
}

/* Takes the body only after a while, as a proxy does whose peer is not there yet; or refuses it. */
static void late_decide(void *ctx)
{
    struct stream *s = ctx;
    struct error err;

    if (exchange_query(s->x, "refuse") == NULL) {
        exchange_body_resume(s->x);
        return;
    }
    error_set(&err, ERR_LEASE_GONE, "too late");
    exchange_reply_error(s->x, &err);
}

static void handle_late(struct exchange *x)
{
    struct stream *s = stream_new(x);

    timer_init(&s->resume, late_decide, s);
    timer_set_ms(x->loop, &s->resume, atoll(exchange_param(x, "ms")));
    exchange_stream(x, &sink_events, s);
    exchange_body_pause(x);
}

/* Answers with what it gets while it gets it: both directions at once. */
static void mirror_on_body(struct exchange *x, void *ctx, const void *bytes, size_t len)
{
    (void)ctx;
    if (exchange_reply_data(x, bytes, len) > 65536)
        exchange_body_pause(x);
}

static void mirror_on_writable(struct exchange *x, void *ctx)
{
    (void)ctx;
    exchange_body_resume(x);
}

static void mirror_on_end(struct exchange *x, void *ctx)
{
    (void)ctx;
    exchange_reply_end(x, true);
}

static const struct exchange_stream_events mirror_events = {.on_body = mirror_on_body,
                                                            .on_body_end = mirror_on_end,
                                                            .on_writable = mirror_on_writable,
                                                            .on_gone = on_gone};

static void handle_mirror(struct exchange *x)
{
    exchange_stream(x, &mirror_events, stream_new(x));
    exchange_reply_begin(x, 200, NULL, 0, -1);
}

/* What a hostile peer could send through a proxy. */
static void handle_hostile(struct exchange *x)
{
    const struct http_header headers[] = {
        {"X-Good", "1"},           {"X-Bad", "a\r\nX-Injected: 1"}, {"X Bad", "1"},
        {"Content-Length", "999"}, {"transfer-encoding", "gzip"},   {"Connection", "upgrade"},
        {"Date", "yesterday"},     {"Content-Type", "text/x"}};

    exchange_stream(x, &big_events, stream_new(x));
    exchange_reply_begin(x, atoi(exchange_param(x, "status")), headers, 8, 5);
    exchange_reply_data(x, "hello and more", 14);
    exchange_reply_end(x, true);
}

/* ---- the program -------------------------------------------------------------------------------- */

static const struct route routes[] = {
    {"GET", "/hello", AUTH_NONE, ERRORS_DETAIL, ROUTE_WHILE_DRAINING, 0, handle_hello, "", 0, 0},
    {"POST", "/echo", AUTH_NONE, ERRORS_DETAIL, 0, 1 << 20, handle_echo, "", 0, 0},
    {"POST", "/json", AUTH_API, ERRORS_DETAIL, 0, 65536, handle_json, "", 0, 0},
    {"POST", "/v1/json", AUTH_API, ERRORS_V1, 0, 65536, handle_json, "", 0, 0},
    {"POST", "/shell/json", AUTH_API, ERRORS_SHELLCTL, 0, 65536, handle_json, "", 0, 0},
    {"POST", "/files", AUTH_API, ERRORS_DETAIL, ROUTE_VALIDATION_400, 65536, handle_json, "", 0, 0},
    {"GET", "/seen/{a}/x/{b}", AUTH_NONE, ERRORS_V1, 0, 0, handle_seen, "", 0, 0},
    {"POST", "/seen/{a}/x/{b}", AUTH_NONE, ERRORS_V1, 0, 0, handle_seen, "", 0, 0},
    {NULL, "/any/{a}/*", AUTH_LEASE, ERRORS_V1, ROUTE_ANY_METHOD, 0, handle_seen, "", 0, 0},
    {"GET", "/error", AUTH_NONE, ERRORS_V1, 0, 0, handle_error, "", 0, 0},
    {"GET", "/counters", AUTH_NONE, ERRORS_DETAIL, ROUTE_WHILE_DRAINING, 0, handle_counters, "", 0,
     0},
    {"DELETE", "/empty", AUTH_NONE, ERRORS_DETAIL, 0, 0, handle_empty, "", 0, 0},
    {"GET", "/nap/{ms}", AUTH_NONE, ERRORS_DETAIL, 0, 0, handle_nap, "", 0, 0},
    {"POST", "/nap/{ms}", AUTH_NONE, ERRORS_DETAIL, ROUTE_LONG, 0, handle_nap, "", 0, 0},
    {"GET", "/big/{bytes}", AUTH_NONE, ERRORS_DETAIL, ROUTE_STREAM | ROUTE_LONG, 0, handle_big, "",
     0, 0},
    {"GET", "/hostile/{status}", AUTH_NONE, ERRORS_V1, ROUTE_STREAM, 0, handle_hostile, "", 0, 0},
    {"POST", "/sink", AUTH_API, ERRORS_DETAIL, ROUTE_STREAM | ROUTE_LONG, 0, handle_sink, "", 0, 0},
    {NULL, "/late/{ms}", AUTH_NONE, ERRORS_V1, ROUTE_STREAM | ROUTE_ANY_METHOD, 0, handle_late, "",
     0, 0},
    {"POST", "/mirror", AUTH_NONE, ERRORS_DETAIL, ROUTE_STREAM | ROUTE_LONG, 0, handle_mirror, "",
     0, 0},
    {0},
};

static void on_drained(void *ctx, int left)
{
    struct app *app = ctx;

    app->left = left;
    loop_stop(app->loop);
}

static void on_term(evutil_socket_t fd, short what, void *ctx)
{
    struct app *app = ctx;

    (void)fd;
    (void)what;
    loop_touch(app->loop);
    if (http_server_draining(app->server))
        http_server_hurry(app->server);
    else
        http_server_drain(app->server, app->drain_grace_ms, app->drain_timeout_ms,
                          app->drain_settle_ms, on_drained, app);
}

static void take_setting(struct http_server_options *o, struct app *app, const char *arg)
{
    const struct {
        const char *name;
        int64_t *ms;
        int *n;
    } settings[] = {
        {"header_timeout_ms", &o->header_timeout_ms, NULL},
        {"body_timeout_ms", &o->body_timeout_ms, NULL},
        {"idle_timeout_ms", &o->idle_timeout_ms, NULL},
        {"write_timeout_ms", &o->write_timeout_ms, NULL},
        {"request_timeout_ms", &o->request_timeout_ms, NULL},
        {"drain_grace_ms", &app->drain_grace_ms, NULL},
        {"drain_timeout_ms", &app->drain_timeout_ms, NULL},
        {"drain_settle_ms", &app->drain_settle_ms, NULL},
        {"max_connections", NULL, &o->max_connections},
        {"max_connections_per_ip", NULL, &o->max_connections_per_ip},
        {"max_in_flight", NULL, &o->max_in_flight},
    };
    const char *equals = strchr(arg, '=');

    for (size_t i = 0; equals != NULL && i < sizeof(settings) / sizeof(settings[0]); i++) {
        if (strncmp(arg, settings[i].name, strlen(settings[i].name)) != 0 ||
            strlen(settings[i].name) != (size_t)(equals - arg))
            continue;
        if (settings[i].ms != NULL)
            *settings[i].ms = atoll(equals + 1);
        else
            *settings[i].n = atoi(equals + 1);
        return;
    }
    if (strncmp(arg, "token=", 6) == 0) {
        app->token = strdup(arg + 6);
        o->auth = (struct http_auth){auth_bearer_callback, app->token};
    } else if (strcmp(arg, "quiet") == 0) {
        o->no_access_log = true;
    } else {
        fprintf(stderr, "edge_server: unknown setting %s\n", arg);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static const struct route *const tables[] = {routes, system_routes};
    static const struct route_set set = {tables, 2};
    struct app app = {.drain_timeout_ms = 5000, .drain_settle_ms = 2000};
    struct http_server_options options = {.listen = argc > 1 ? argv[1] : "127.0.0.1:0"};
    struct error err;

    for (int i = 2; i < argc; i++)
        take_setting(&options, &app, argv[i]);
    app.loop = loop_new(NULL);
    log_init(LOG_DEBUG, LOG_LOGFMT, app.loop);
    app.server = http_server_new(app.loop, &options, &set, &app, &err);
    if (app.server == NULL) {
        fprintf(stderr, "edge_server: %s\n", err.message);
        return 1;
    }
    signal(SIGTERM, SIG_IGN); /* what event_free puts back: a late second signal is no crash */
    app.term = evsignal_new(loop_base(app.loop), SIGTERM, on_term, &app);
    event_add(app.term, NULL);
    for (size_t i = 0; http_server_address(app.server, i) != NULL; i++)
        printf("%s\n", http_server_address(app.server, i));
    fflush(stdout);
    loop_run(app.loop);
    printf("drained %d\n", app.left);
    fflush(stdout);
    if (app.left > 0) { /* operations that still undo hold memory */
        log_flush();
        _exit(0);
    }
    event_free(app.term);
    http_server_free(app.server);
    for (int i = 0; i < 3; i++)
        loop_turn(app.loop, false);
    log_flush();
    log_init(LOG_INFO, LOG_LOGFMT, NULL);
    loop_free(app.loop);
    free(app.token);
    return 0;
}
