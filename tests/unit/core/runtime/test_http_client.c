/* http_fetch against a scripted server on the same loop, over either transport: pooling, the POST that must not go out
 * twice, every way an answer can break, the clocks, cancellation, and where errors say that the
 * remote effect may have taken place. Real clock: curl has no other. */
#include "core/runtime/http_client.h"
#include "core/runtime/metrics.h"
#include "support/deaf_listener.h"
#include "support/script_server.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static struct loop *loop;
static struct http_client *client;
static struct script_server *server;

/* The same suite runs over each transport (tests/CMakeLists.txt). */
static bool over_curl(void)
{
    const char *transport = getenv("HTTP_CLIENT_TRANSPORT");

    return transport != NULL && strcmp(transport, "curl") == 0;
}

static void set_up(void)
{
    signal(SIGPIPE, SIG_IGN);
    loop = loop_new(NULL);
    client = http_client_new(loop, &(struct http_client_options){.curl_only = over_curl()});
}

static void tear_down(void)
{
    http_client_free(client);
    if (server != NULL)
        script_server_free(server);
    loop_turn(loop, false);
    loop_free(loop);
    metrics_reset();
}

TestSuite(http_client, .init = set_up, .fini = tear_down, .timeout = 20);

/* ---- one fetch as an op --------------------------------------------------------------------- */

struct outcome {
    bool done;
    struct error error;
    int status;
    char body[256];
    size_t body_len;
    int64_t retry_after_ms;
    char header[64]; /* of the answer, x-test */
};

struct getter {
    struct op op;
    struct http_request request;
    struct http_response response;
    struct outcome *outcome;
};

enum getter_state { GETTER_START, GETTER_FETCHING };
static const char *const getter_states[] = {"start", "fetching"};

static enum op_poll getter_step(struct op *op)
{
    struct getter *g = container_of(op, struct getter, op);
    const char *header;

    switch ((enum getter_state)op->state) {
    case GETTER_START:
        AWAIT(op, GETTER_FETCHING, http_fetch(client, op, &g->request, &g->response));
        g->outcome->status = g->response.status;
        g->outcome->body_len = g->response.body_len;
        g->outcome->retry_after_ms = g->response.retry_after_ms;
        snprintf(g->outcome->body, sizeof(g->outcome->body), "%.200s", g->response.body);
        header = http_response_header(&g->response, "x-test");
        snprintf(g->outcome->header, sizeof(g->outcome->header), "%s", header ? header : "");
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type getter_type = {"getter", getter_states, 2, getter_step, NULL};

static void note_done(struct op *op, void *ctx)
{
    struct outcome *o = ctx;

    o->error = *op_error(op);
    o->done = true;
}

static struct getter *start(struct http_request request, struct outcome *o)
{
    struct getter *g = OP_ROOT(loop, &getter_type, getter, NULL);

    *o = (struct outcome){0};
    g->request = request;
    if (g->request.peer == NULL)
        g->request.peer = "test";
    if (g->request.method == NULL)
        g->request.method = "GET";
    g->outcome = o;
    op_start(&g->op, note_done, o);
    return g;
}

static void finish(struct outcome *o)
{
    while (!o->done)
        loop_turn(loop, true);
}

static struct outcome fetch(struct http_request request)
{
    struct outcome o;

    start(request, &o);
    finish(&o);
    return o;
}

/* Everything that is under way settles: bounded by turns, not by time. */
static void settle(int turns)
{
    for (int i = 0; i < turns; i++) {
        loop_turn(loop, false);
        usleep(500);
    }
}

static void serve(script_fn script, void *ctx)
{
    server = script_server_new(loop, NULL, script, ctx);
}

static const char *url(const char *path)
{
    return script_server_url(server, path);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void echo(void *ctx, struct script_conn *c, const struct script_request *r)
{
    struct buf b = {0};

    (void)ctx;
    buf_addf(&b, "%s %s %s", r->method, r->target, r->body);
    script_reply(c, 200, "X-Test:  seen \r\n", b.data);
    buf_fini(&b);
}

Test(http_client, connections_are_reused)
{
    serve(echo, NULL);
    for (int i = 0; i < 20; i++) {
        struct outcome o = fetch((struct http_request){.url = url("/a?b=c")});
        cr_assert(eq(int, o.error.code, ERR_NONE), "%s", o.error.message);
        cr_assert(eq(int, o.status, 200));
        cr_assert(eq(str, o.body, "GET /a?b=c "));
        cr_assert(eq(str, o.header, "seen"));
    }
    cr_assert(eq(int, script_server_connections(server), 1));
    cr_assert(eq(dbl, metric_value(METRIC_HTTP_CLIENT_REQUESTS, LABELS("test", "2xx")), 20));
    cr_assert(eq(dbl, metric_value(METRIC_HTTP_CLIENT_CONNECTIONS, NULL), 1));
}

Test(http_client, many_at_once_each_get_their_own_answer)
{
    enum { N = 64 };
    struct outcome o[N];
    char urls[N][64];

    serve(echo, NULL);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            snprintf(urls[i], sizeof(urls[i]), "%s%d", url("/"), i);
            start((struct http_request){.url = urls[i]}, &o[i]);
        }
        for (int i = 0; i < N; i++) {
            char want[32];
            finish(&o[i]);
            snprintf(want, sizeof(want), "GET /%d ", i);
            cr_assert(eq(str, o[i].body, want));
        }
    }
    cr_assert(eq(int, script_server_connections(server), N), "the second burst reuses the first's");
}

Test(http_client, methods_and_bodies)
{
    static const struct {
        const char *method, *body;
        bool idempotent;
    } cases[] = {
        {"POST", "once", false}, {"POST", "again", true},  {"PUT", "p", false},
        {"DELETE", NULL, true},  {"DELETE", "d", true},    {"PATCH", "x", true},
        {"POST", NULL, true},    {"POST", NULL, false},    {"GET", NULL, false},
        {"DELETE", NULL, false}, {"OPTIONS", NULL, false},
    };

    serve(echo, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *body = cases[i].body;
        char want[64];
        struct outcome o = fetch((struct http_request){
            .method = cases[i].method,
            .url = url("/x"),
            .body = body,
            .body_len = body != NULL ? strlen(body) : 0,
            .idempotent = cases[i].idempotent,
        });
        snprintf(want, sizeof(want), "%s /x %s", cases[i].method, body != NULL ? body : "");
        cr_assert(eq(int, o.error.code, ERR_NONE), "%s", o.error.message);
        cr_assert(eq(str, o.body, want));
    }
}

static void show_head(void *ctx, struct script_conn *c, const struct script_request *r)
{
    snprintf(ctx, 2048, "%s", r->head);
    script_reply(c, 200, "", "");
}

Test(http_client, exactly_the_given_headers_go_out)
{
    char head[2048];
    struct http_header headers[] = {{"X-Sandbox-Id", "a b"},
                                    {"X-Empty", ""},
                                    {"Content-Length", "999"},
                                    {"Connection", "close"}};
    struct outcome o;

    serve(show_head, head);
    o = fetch((struct http_request){.method = "POST",
                                    .url = url("/p/%2e%2e/../q"),
                                    .headers = headers,
                                    .n_headers = 4,
                                    .body = "{}",
                                    .body_len = 2});
    cr_assert(eq(int, o.error.code, ERR_NONE));
    cr_assert(strncmp(head, "POST /p/%2e%2e/../q HTTP/1.1\r\n", 30) == 0, "%s", head);
    cr_assert_not_null(strstr(head, "\r\nX-Sandbox-Id: a b\r\n"));
    cr_assert_not_null(strstr(head, "\r\nX-Empty:\r\n"));
    cr_assert_not_null(strstr(head, "\r\nContent-Length: 2\r\n"));
    cr_assert_null(strcasestr(head, "expect"));
    cr_assert_null(strcasestr(head, "content-type"));
    cr_assert_null(strcasestr(head, "connection"));
    cr_assert_null(strstr(head, "999"));
}

Test(http_client, header_injection_is_refused_before_anything_is_sent)
{
    static const struct http_header bad[] = {{"X-A", "x\r\nX-Inner-Api-Key: y"},
                                             {"X-A", "\x01"},
                                             {"X A", "x"},
                                             {"", "x"},
                                             {"X-A", "\x7f"}};

    serve(echo, NULL);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct outcome o =
            fetch((struct http_request){.url = url("/"), .headers = &bad[i], .n_headers = 1});
        cr_assert(eq(int, o.error.code, ERR_BAD_REQUEST));
    }
    cr_assert(eq(int, fetch((struct http_request){.url = "ftp://127.0.0.1/"}).error.code,
                 ERR_BAD_REQUEST));
    cr_assert(eq(int, fetch((struct http_request){.url = "http://127.0.0.1/\r\nX: y"}).error.code,
                 ERR_BAD_REQUEST));
    cr_assert(eq(int, script_server_connections(server), 0));
}

static void redirect(void *ctx, struct script_conn *c, const struct script_request *r)
{
    (void)r;
    script_reply(c, 307, ctx, "");
}

Test(http_client, redirects_are_answers)
{
    struct outcome o;
    char location[128];

    serve(redirect, location);
    snprintf(location, sizeof(location), "Location: %s\r\n", url("/elsewhere"));
    o = fetch((struct http_request){.method = "POST", .url = url("/"), .body = "x", .body_len = 1});
    cr_assert(eq(int, o.status, 307));
    settle(5);
    cr_assert(eq(int, script_server_requests(server), 1));
}

static void busy(void *ctx, struct script_conn *c, const struct script_request *r)
{
    (void)r;
    script_reply(c, 429, ctx, "slow down");
}

Test(http_client, retry_after_is_read_and_capped)
{
    char header[64];

    serve(busy, header);
    strcpy(header, "Retry-After: 2\r\n");
    cr_assert(eq(i64, fetch((struct http_request){.url = url("/")}).retry_after_ms, 2000));
    strcpy(header, "Retry-After: 999999\r\n");
    cr_assert(eq(i64, fetch((struct http_request){.url = url("/")}).retry_after_ms, 3600000));
    strcpy(header, "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\n");
    cr_assert(eq(i64, fetch((struct http_request){.url = url("/")}).retry_after_ms, 0));
    strcpy(header, "Retry-After: soon\r\n");
    cr_assert(eq(i64, fetch((struct http_request){.url = url("/")}).retry_after_ms, 0));
    header[0] = '\0';
    cr_assert(eq(i64, fetch((struct http_request){.url = url("/")}).retry_after_ms, 0));
}

static void interim(void *ctx, struct script_conn *c, const struct script_request *r)
{
    (void)ctx;
    (void)r;
    script_send(c, "HTTP/1.1 102 Wait\r\nX-Test: interim\r\n\r\n"
                   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Test: final\r\n\r\n"
                   "3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nX-Test: trailer\r\n\r\n");
}

Test(http_client, interim_answers_chunks_and_trailers)
{
    serve(interim, NULL);
    for (int i = 0; i < 2; i++) {
        struct outcome o = fetch((struct http_request){.url = url("/")});
        cr_assert(eq(int, o.status, 200));
        cr_assert(eq(str, o.body, "abcde"));
        cr_assert(eq(str, o.header, "final"));
    }
    cr_assert(eq(int, script_server_connections(server), 1));
}

/* ---- stale connections ---------------------------------------------------------------------- */

/* The first request of a connection is answered; the second is read, then the connection dies. */
static void dies_on_reuse(void *ctx, struct script_conn *c, const struct script_request *r)
{
    int *seen = ctx;

    if (strcmp(r->target, "/warm") == 0) {
        script_reply(c, 200, "", "warm");
        return;
    }
    (*seen)++;
    if (r->nth_of_conn > 1)
        script_reset(c);
    else
        script_reply(c, 200, "", "fresh");
}

Test(http_client, a_post_on_a_dying_connection_is_sent_once)
{
    int seen = 0;
    struct outcome o;

    serve(dies_on_reuse, &seen);
    for (int i = 0; i < 3; i++) {
        fetch((struct http_request){.url = url("/warm")});
        o = fetch((struct http_request){
            .method = "POST", .url = url("/create"), .body = "{}", .body_len = 2});
        cr_assert(eq(int, o.error.code, ERR_UPSTREAM_LOST), "%s", o.error.message);
        cr_assert(eq(int, o.error.admitted, ADMITTED_UNKNOWN));
        cr_assert(eq(int, seen, i + 1));
    }
}

Test(http_client, a_post_without_body_is_sent_once_too)
{
    int seen = 0;
    struct outcome o;

    serve(dies_on_reuse, &seen);
    fetch((struct http_request){.url = url("/warm")});
    o = fetch((struct http_request){.method = "POST", .url = url("/create")});
    if (over_curl())
        cr_assert(eq(int, o.error.code, ERR_NONE), "it goes out on a new connection");
    else
        cr_assert(eq(int, o.error.admitted, ADMITTED_UNKNOWN));
    cr_assert(eq(int, seen, 1));
}

Test(http_client, a_fresh_request_ignores_the_pool)
{
    int seen = 0;
    struct outcome o;

    serve(dies_on_reuse, &seen);
    fetch((struct http_request){.url = url("/warm")});
    o = fetch((struct http_request){
        .method = "POST", .url = url("/create"), .body = "{}", .body_len = 2, .fresh = true});
    cr_assert(eq(str, o.body, "fresh"));
    cr_assert(eq(int, seen, 1));
}

Test(http_client, idempotent_requests_are_repeated_once_on_a_new_connection)
{
    int seen = 0;
    struct outcome o;

    serve(dies_on_reuse, &seen);
    fetch((struct http_request){.url = url("/warm")});
    o = fetch((struct http_request){.url = url("/get")});
    cr_assert(eq(str, o.body, "fresh"), "%s", o.error.message);
    cr_assert(eq(int, seen, 2));
    o = fetch((struct http_request){.url = url("/warm")});
    seen = 0;
    o = fetch((struct http_request){
        .method = "POST", .url = url("/run"), .body = "{}", .body_len = 2, .idempotent = true});
    cr_assert(eq(str, o.body, "fresh"), "%s", o.error.message);
    cr_assert(eq(int, seen, 2));
}

static void closes_idle(void *ctx, struct script_conn *c, const struct script_request *r)
{
    (void)ctx;
    (void)r;
    script_reply(c, 200, "", "bye");
    script_close(c);
}

Test(http_client, a_connection_closed_while_idle_is_not_used_for_a_post)
{
    serve(closes_idle, NULL);
    for (int i = 0; i < 5; i++) {
        struct outcome o = fetch(
            (struct http_request){.method = "POST", .url = url("/"), .body = "x", .body_len = 1});
        cr_assert(eq(int, o.error.code, ERR_NONE), "%s", o.error.message);
        settle(3);
    }
    cr_assert(eq(int, script_server_requests(server), 5));
}

/* ---- broken answers ------------------------------------------------------------------------- */

enum breakage {
    CUT_BEFORE_HEAD,
    CUT_IN_HEAD,
    CUT_IN_BODY,
    CUT_IN_CHUNK,
    RST_IN_BODY,
    GARBAGE,
    HTTP_09,
    BAD_CHUNK,
    ONLY_INTERIM,
    HUGE_HEAD,
    BREAKAGES,
};

static void breaks(void *ctx, struct script_conn *c, const struct script_request *r)
{
    enum breakage how = *(enum breakage *)ctx;
    char *big;

    (void)r;
    switch (how) {
    case CUT_BEFORE_HEAD:
        break;
    case CUT_IN_HEAD:
        script_send(c, "HTTP/1.1 200 OK\r\nContent-Le");
        break;
    case CUT_IN_BODY:
    case RST_IN_BODY:
        script_send(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
        break;
    case CUT_IN_CHUNK:
        script_send(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc");
        break;
    case GARBAGE:
        script_send(c, "\x00\x01\x02 what is this\r\n\r\n");
        break;
    case HTTP_09:
        script_send(c, "<html>no head at all</html>\n");
        break;
    case BAD_CHUNK:
        script_send(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n");
        break;
    case ONLY_INTERIM:
        script_send(c, "HTTP/1.1 102 Wait\r\n\r\n");
        break;
    case HUGE_HEAD:
        big = malloc(200001);
        memset(big, 'a', 200000);
        big[200000] = '\0';
        script_send(c, "HTTP/1.1 200 OK\r\n");
        for (int i = 0; i < 4; i++) {
            script_send(c, "X-Big: ");
            script_send_bytes(c, big, 60000);
            script_send(c, "\r\n");
        }
        script_send(c, "\r\n");
        free(big);
        break;
    case BREAKAGES:
        break;
    }
    if (how == RST_IN_BODY)
        script_reset(c);
    else
        script_close(c);
}

Test(http_client, broken_answers_are_told_apart_and_never_success)
{
    enum breakage how;

    serve(breaks, &how);
    for (int i = 0; i < BREAKAGES; i++) {
        struct outcome o;
        how = (enum breakage)i;
        o = fetch((struct http_request){
            .method = "POST", .url = url("/secret?token=abc"), .body = "x", .body_len = 1});
        cr_assert(o.error.code == ERR_UPSTREAM_LOST || o.error.code == ERR_UPSTREAM_PROTOCOL,
                  "breakage %d: %s", i, o.error.message);
        cr_assert(eq(int, o.error.admitted, ADMITTED_UNKNOWN), "breakage %d", i);
        cr_assert_null(strstr(o.error.message, "token"), "no query in messages");
        cr_assert_not_null(strstr(o.error.message, "test: POST /secret"), "%s", o.error.message);
    }
    cr_assert(eq(int, script_server_requests(server), BREAKAGES));
}

static void big_body(void *ctx, struct script_conn *c, const struct script_request *r)
{
    (void)ctx;
    script_reply(c, 200, "", strcmp(r->target, "/fits") == 0 ? "0123456789" : "0123456789a");
}

Test(http_client, a_body_over_the_limit_is_refused)
{
    struct outcome o;

    serve(big_body, NULL);
    o = fetch((struct http_request){.url = url("/fits"), .max_body = 10});
    cr_assert(eq(str, o.body, "0123456789"));
    o = fetch((struct http_request){.url = url("/"), .max_body = 10});
    cr_assert(eq(int, o.error.code, ERR_UPSTREAM_PROTOCOL));
    o = fetch((struct http_request){.url = url("/fits"), .max_body = 10});
    cr_assert(eq(str, o.body, "0123456789"), "the half-read connection is not used again");
}

/* ---- half-read connections (A59) -------------------------------------------------------------- */

static void excess(void *ctx, struct script_conn *c, const struct script_request *r)
{
    int *mode = ctx;

    if (strcmp(r->target, "/marker") == 0) {
        script_reply(c, 200, "", "marker");
        return;
    }
    if (*mode == 0)
        script_send(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n"
                       "Content-Length: 6\r\n\r\nforged");
    else if (*mode == 1)
        script_send(c,
                    "HTTP/1.1 204 None\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged");
    else
        script_drip(c,
                    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n"
                    "Content-Length: 6\r\n\r\nforged",
                    0);
}

Test(http_client, bytes_behind_an_answer_never_reach_the_next_request)
{
    int mode;

    serve(excess, &mode);
    for (mode = 0; mode < 3; mode++) {
        struct outcome o = fetch((struct http_request){.url = url("/excess")});
        cr_assert(eq(int, o.error.code, ERR_NONE));
        settle(60);
        o = fetch((struct http_request){.url = url("/marker")});
        cr_assert(eq(str, o.body, "marker"), "mode %d", mode);
    }
}

static void slow_or_marker(void *ctx, struct script_conn *c, const struct script_request *r)
{
    (void)ctx;
    if (strcmp(r->target, "/marker") == 0)
        script_reply(c, 200, "", "marker");
    else
        script_drip(c, "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nnot a marker", 1);
}

Test(http_client, after_a_cancel_at_any_byte_the_next_answer_is_the_own)
{
    serve(slow_or_marker, NULL);
    for (int turns = 1; turns < 60; turns++) {
        struct outcome o, marker;
        struct getter *g = start((struct http_request){.url = url("/slow")}, &o);
        for (int i = 0; i < turns && !o.done; i++)
            loop_turn(loop, true);
        if (!o.done)
            op_cancel(&g->op, "moved on");
        finish(&o);
        marker = fetch((struct http_request){.url = url("/marker")});
        cr_assert(eq(str, marker.body, "marker"), "after %d turns", turns);
    }
    cr_assert(eq(dbl, metric_value(METRIC_HTTP_CLIENT_CONNECTIONS, NULL), 1));
}

/* ---- clocks --------------------------------------------------------------------------------- */

static void never(void *ctx, struct script_conn *c, const struct script_request *r)
{
    (void)ctx;
    (void)c;
    (void)r;
}

Test(http_client, total_timeout)
{
    struct outcome o;

    serve(never, NULL);
    o = fetch((struct http_request){.url = url("/"), .total_timeout_ms = 30});
    cr_assert(eq(int, o.error.code, ERR_DEADLINE));
    cr_assert(eq(int, o.error.admitted, ADMITTED_UNKNOWN));
    settle(3);
    cr_assert(eq(int, script_server_open(server), 0), "the connection is closed");
}

Test(http_client, a_drip_defeats_the_idle_timeout_but_not_the_total)
{
    struct outcome o;

    serve(slow_or_marker, NULL);
    o = fetch((struct http_request){.url = url("/slow"), .idle_timeout_ms = 10000});
    cr_assert(eq(str, o.body, "not a marker"));
    o = fetch((struct http_request){
        .url = url("/slow"), .idle_timeout_ms = 10000, .total_timeout_ms = 20});
    cr_assert(eq(int, o.error.code, ERR_DEADLINE));
}

static void half(void *ctx, struct script_conn *c, const struct script_request *r)
{
    (void)ctx;
    (void)r;
    script_send(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
}

Test(http_client, idle_timeout)
{
    struct outcome o;

    serve(half, NULL);
    o = fetch((struct http_request){.url = url("/"), .idle_timeout_ms = 30});
    cr_assert(eq(int, o.error.code, ERR_DEADLINE));
    cr_assert_not_null(strstr(o.error.message, "silent"));
}

Test(http_client, the_ops_deadline_cuts_and_says_that_the_effect_is_unknown)
{
    struct outcome o;
    struct getter *g;

    serve(never, NULL);
    g = start((struct http_request){.method = "POST", .url = url("/"), .body = "x", .body_len = 1},
              &o);
    op_set_deadline_ms(&g->op, 50, "creating");
    finish(&o);
    cr_assert(eq(int, o.error.code, ERR_DEADLINE));
    cr_assert(eq(int, o.error.admitted, ADMITTED_UNKNOWN));
    settle(3);
    cr_assert(eq(int, script_server_open(server), 0));

    g = start((struct http_request){.url = url("/")}, &o);
    op_set_deadline_ms(&g->op, 50, "reading");
    finish(&o);
    cr_assert(eq(int, o.error.admitted, ADMITTED_NO), "a GET has no effect");
}

/* ---- connections ----------------------------------------------------------------------------- */

static void client_with(struct http_client_options options)
{
    options.curl_only = over_curl();
    http_client_free(client);
    client = http_client_new(loop, &options);
}

Test(http_client, above_the_limit_exchanges_queue)
{
    enum { N = 9 };
    struct outcome o[N], fresh;
    struct getter *g[N];

    client_with((struct http_client_options){.max_connections_per_host = 2});
    serve(echo, NULL);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++)
            g[i] = start((struct http_request){.url = url("/q")}, &o[i]);
        loop_turn(loop, false);
        op_cancel(&g[4]->op, "waited long enough");
        for (int i = 0; i < N; i++) {
            finish(&o[i]);
            cr_assert(eq(int, o[i].error.code, i == 4 ? ERR_CANCELLED : ERR_NONE), "%s",
                      o[i].error.message);
        }
        cr_assert(eq(int, script_server_connections(server), 2));
        cr_assert(le(int, script_server_open(server), 2));
    }
    fresh = fetch((struct http_request){.url = url("/q"), .fresh = true});
    cr_assert(eq(int, fresh.error.code, ERR_NONE), "an idle one makes room");
    cr_assert(eq(int, script_server_connections(server), 3));
}

Test(http_client, a_queued_exchange_has_its_deadline)
{
    struct outcome hog, late;

    client_with((struct http_client_options){.max_connections_per_host = 1});
    serve(never, NULL);
    start((struct http_request){.url = url("/"), .total_timeout_ms = 200}, &hog);
    settle(3);
    start((struct http_request){.method = "POST", .url = url("/"), .total_timeout_ms = 20}, &late);
    finish(&late);
    cr_assert(eq(int, late.error.code, ERR_DEADLINE));
    cr_assert(eq(int, late.error.admitted, ADMITTED_NO), "it was never sent");
    finish(&hog);
}

Test(http_client, idle_connections_end_by_number)
{
    struct outcome o[6];

    client_with((struct http_client_options){.max_idle_connections = 2});
    serve(echo, NULL);
    for (int i = 0; i < 6; i++)
        start((struct http_request){.url = url("/")}, &o[i]);
    for (int i = 0; i < 6; i++)
        finish(&o[i]);
    while (script_server_open(server) > 2)
        loop_turn(loop, true);
    cr_assert(eq(int, script_server_connections(server), 6));
}

Test(http_client, idle_connections_end_by_age)
{
    if (over_curl()) /* which only looks when it needs one */
        cr_skip_test("libcurl keeps them until then");
    client_with((struct http_client_options){.max_idle_ms = 20});
    serve(echo, NULL);
    fetch((struct http_request){.url = url("/")});
    cr_assert(eq(int, script_server_open(server), 1));
    while (script_server_open(server) > 0)
        loop_turn(loop, true);
    cr_assert(eq(dbl, metric_value(METRIC_HTTP_CLIENT_CONNECTIONS, NULL), 0));
}

Test(http_client, a_close_by_the_peer_is_seen_while_idle)
{
    if (over_curl())
        cr_skip_test("libcurl looks when it needs one");
    serve(closes_idle, NULL);
    fetch((struct http_request){.url = url("/")});
    while (metric_value(METRIC_HTTP_CLIENT_CONNECTIONS, NULL) > 0)
        loop_turn(loop, true);
}

/* The peer closes in the very turn in which the connection is taken: the loop has not told yet. */
Test(http_client, a_post_asks_whether_the_kept_connection_still_stands)
{
    struct outcome o;
    struct getter *g;

    serve(closes_idle, NULL);
    for (int i = 0; i < 5; i++) {
        /* both ends in one process: the answer and the close are there before the next turn */
        g = start((struct http_request){.url = url("/")}, &o);
        (void)g;
        finish(&o);
        o = fetch(
            (struct http_request){.method = "POST", .url = url("/"), .body = "x", .body_len = 1});
        cr_assert(eq(int, o.error.code, ERR_NONE), "%s", o.error.message);
    }
    cr_assert(eq(int, script_server_requests(server), 10));
}

static void show_host(void *ctx, struct script_conn *c, const struct script_request *r)
{
    const char *host = strstr(r->head, "\r\nHost: ");

    (void)ctx;
    script_reply(c, 200, "", host != NULL ? host + 8 : "none");
}

static const char *by_name(const char *path)
{
    static char text[128];

    snprintf(text, sizeof(text), "http://localhost%s", strrchr(url(path), ':'));
    return text;
}

Test(http_client, a_name_is_looked_up_and_all_its_addresses_are_tried)
{
    serve(show_host, NULL); /* on 127.0.0.1 alone; `localhost` is often ::1 first */
    for (int i = 0; i < 3; i++) {
        struct outcome o = fetch((struct http_request){.url = by_name("/")});
        cr_assert(eq(int, o.status, 200), "%s", o.error.message);
        cr_assert(strncmp(o.body, "localhost:", 10) == 0, "%s", o.body);
    }
    cr_assert(eq(int, script_server_connections(server), 1));
}

Test(http_client, cancel_while_a_name_is_looked_up)
{
    serve(echo, NULL);
    for (int turns = 0; turns < 4; turns++) {
        struct outcome o;
        struct getter *g;
        client_with((struct http_client_options){0}); /* knows no names yet */
        g = start((struct http_request){.url = by_name("/")}, &o);
        for (int i = 0; i < turns; i++)
            loop_turn(loop, false);
        op_cancel(&g->op, "gone");
        finish(&o);
        cr_assert(o.error.code == ERR_CANCELLED || o.status == 200);
    }
}

Test(http_client, a_name_that_nobody_knows)
{
    char there[128];
    struct outcome o;

    snprintf(there, sizeof(there), "http://%070d.invalid/", 1);
    o = fetch((struct http_request){.method = "POST", .url = there});
    cr_assert(eq(int, o.error.code, ERR_UPSTREAM_CONNECT), "%s", o.error.message);
    cr_assert(eq(int, o.error.admitted, ADMITTED_NO));
}

Test(http_client, connect_timeout)
{
    struct deaf_listener deaf;
    struct outcome o;
    char there[64];

    snprintf(there, sizeof(there), "http://127.0.0.1:%d/",
             deaf_listener_tcp(&deaf, "127.0.0.1", 0));
    o = fetch((struct http_request){
        .method = "POST", .url = there, .body = "x", .body_len = 1, .connect_timeout_ms = 40});
    cr_assert(eq(int, o.error.code, ERR_DEADLINE), "%s", o.error.message);
    cr_assert(eq(int, o.error.admitted, ADMITTED_NO));
    deaf_listener_close(&deaf);
}

/* ---- connecting ----------------------------------------------------------------------------- */

Test(http_client, refused_connections_are_tried_again_as_asked)
{
    struct outcome o;
    const char *there;

    serve(echo, NULL);
    there = url("/");
    script_server_deafen(server);
    o = fetch((struct http_request){.method = "POST", .url = there, .body = "x", .body_len = 1});
    cr_assert(eq(int, o.error.code, ERR_UPSTREAM_CONNECT));
    cr_assert(eq(int, o.error.admitted, ADMITTED_NO));

    start((struct http_request){.url = there, .connect_retries = 3}, &o);
    settle(4); /* two attempts, the second at once */
    cr_assert_not(o.done);
    script_server_listen(server);
    finish(&o);
    cr_assert(eq(int, o.error.code, ERR_NONE), "the third attempt, after half a second: %s",
              o.error.message);
}

Test(http_client, cancel_between_two_connection_attempts)
{
    struct outcome o;
    struct getter *g;

    serve(echo, NULL);
    script_server_deafen(server);
    g = start((struct http_request){.url = url("/"), .connect_retries = 3}, &o);
    settle(4);
    op_cancel(&g->op, "enough");
    finish(&o);
    cr_assert(eq(int, o.error.code, ERR_CANCELLED));
}

Test(http_client, cancel_at_every_stage)
{
    serve(slow_or_marker, NULL);
    for (int turns = 0; turns < 12; turns++) {
        struct outcome o;
        struct getter *g = start(
            (struct http_request){
                .method = "POST", .url = url("/slow"), .body = "x", .body_len = 1},
            &o);
        for (int i = 0; i < turns; i++)
            loop_turn(loop, false);
        op_cancel(&g->op, "gone");
        finish(&o);
        cr_assert(eq(int, o.error.code, ERR_CANCELLED));
    }
    settle(5);
    cr_assert(eq(int, script_server_open(server), 0));
}

Test(http_client, out_of_descriptors_is_our_own_overload)
{
    struct rlimit few, before;
    struct outcome o;
    int hog[256], n = 0;

    serve(echo, NULL);
    getrlimit(RLIMIT_NOFILE, &before);
    few = before;
    few.rlim_cur = 128;
    setrlimit(RLIMIT_NOFILE, &few);
    while (n < 256 && (hog[n] = open("/dev/null", O_RDONLY)) >= 0)
        n++;
    o = fetch((struct http_request){.url = url("/")});
    while (n > 0)
        close(hog[--n]);
    setrlimit(RLIMIT_NOFILE, &before);
    cr_assert(eq(int, o.error.code, ERR_OVERLOADED), "%s", o.error.message);
    cr_assert(eq(int, o.error.admitted, ADMITTED_NO));
    o = fetch((struct http_request){.url = url("/")});
    cr_assert(eq(int, o.status, 200));
}

Test(http_client, environment_proxies_are_ignored)
{
    struct outcome o;

    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
    serve(echo, NULL);
    o = fetch((struct http_request){.url = url("/")});
    cr_assert(eq(int, o.status, 200), "%s", o.error.message);
}

Test(http_client, unix_socket)
{
    char dir[] = "/tmp/http_client.XXXXXX";
    char path[64];
    struct outcome o;

    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/sock", dir);
    server = script_server_new(loop, path, echo, NULL);
    for (int i = 0; i < 2; i++) {
        o = fetch((struct http_request){.url = "http://shellctl/v1", .unix_socket = path});
        cr_assert(eq(str, o.body, "GET /v1 "), "%s", o.error.message);
    }
    cr_assert(eq(int, script_server_connections(server), 1));
    script_server_free(server);
    server = NULL;
    o = fetch((struct http_request){.url = "http://shellctl/v1", .unix_socket = path});
    cr_assert(eq(int, o.error.code, ERR_UPSTREAM_CONNECT));
    rmdir(dir);
}

static int dial(void *ctx, struct error *err)
{
    int *left = ctx;
    int pair[2];

    if ((*left)-- == 0) {
        error_set(err, ERR_RATE_LIMITED, "no more streams");
        return -1;
    }
    cr_assert(http_dialer_pair(pair, err));
    script_server_adopt(server, pair[1]);
    return pair[0];
}

Test(http_client, dialer)
{
    int left = 1, other_left = 1;
    struct http_dialer dialer = {.key = "tunnel-1", .open = dial, .ctx = &left};
    struct http_dialer other = {.key = "tunnel-2", .open = dial, .ctx = &other_left};
    struct outcome o;

    serve(dies_on_reuse, &(int){0});
    for (int i = 0; i < 3; i++) {
        o = fetch((struct http_request){.url = "http://127.0.0.1:5004/warm", .dialer = &dialer});
        cr_assert(eq(str, o.body, "warm"), "%s", o.error.message);
    }
    o = fetch((struct http_request){.url = "http://127.0.0.1:5004/warm", .dialer = &other});
    cr_assert(eq(str, o.body, "warm"), "%s", o.error.message);
    cr_assert(eq(int, script_server_connections(server), 2), "one pool for each dialer");
    o = fetch((struct http_request){
        .url = "http://127.0.0.1:5004/warm", .dialer = &dialer, .fresh = true});
    cr_assert(eq(int, o.error.code, ERR_RATE_LIMITED), "the dialer's own word: %s",
              o.error.message);
}
