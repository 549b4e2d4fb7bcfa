/* Streamed exchanges: order of events, back-pressure both ways with bounded memory and every byte
 * accounted for, early answers, breaks, and cancellation from inside each callback. */
#include "core/runtime/http_client.h"
#include "core/runtime/metrics.h"
#include "support/script_server.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <malloc.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    loop_turn(loop, false); /* the streams' deferred frees */
    http_client_free(client);
    if (server != NULL)
        script_server_free(server);
    loop_turn(loop, false);
    loop_free(loop);
    metrics_reset();
}

TestSuite(http_stream, .init = set_up, .fini = tear_down, .timeout = 60);

/* ---- a byte source and sink whose hash is compared ------------------------------------------- */

struct hash {
    EVP_MD_CTX *md;
    uint64_t bytes;
};

static void hash_init(struct hash *h)
{
    h->md = EVP_MD_CTX_new();
    h->bytes = 0;
    EVP_DigestInit_ex(h->md, EVP_sha1(), NULL);
}

static void hash_add(struct hash *h, const void *bytes, size_t len)
{
    EVP_DigestUpdate(h->md, bytes, len);
    h->bytes += len;
}

static bool hash_same(struct hash *a, struct hash *b)
{
    unsigned char da[EVP_MAX_MD_SIZE], db[EVP_MAX_MD_SIZE];
    unsigned na, nb;

    EVP_DigestFinal_ex(a->md, da, &na);
    EVP_DigestFinal_ex(b->md, db, &nb);
    EVP_MD_CTX_free(a->md);
    EVP_MD_CTX_free(b->md);
    return a->bytes == b->bytes && na == nb && memcmp(da, db, na) == 0;
}

static size_t fill(char *to, size_t room, uint64_t at)
{
    for (size_t i = 0; i + 8 <= room; i += 8) {
        uint64_t x = (at + i) * UINT64_C(0x9E3779B97F4A7C15);
        x ^= x >> 29;
        memcpy(to + i, &x, 8);
    }
    return room & ~(size_t)7;
}

/* Live heap: resident memory says nothing under a sanitizer that holds freed memory back. */
extern size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t heap_bytes(void)
{
    if (__sanitizer_get_current_allocated_bytes != NULL)
        return __sanitizer_get_current_allocated_bytes();
    return mallinfo2().uordblks;
}

static size_t heap_start, heap_peak;

static void heap_sample(void)
{
    size_t now = heap_bytes();

    if (now > heap_peak)
        heap_peak = now;
}

/* ---- a reader -------------------------------------------------------------------------------- */

enum { CANCEL_NEVER, CANCEL_IN_HEAD, CANCEL_IN_DATA, CANCEL_IN_WRITABLE };

struct reader {
    struct http_stream *stream;
    char trace[64]; /* one letter for each event; repeats collapse */
    int status;
    char header[64];
    struct buf text;
    struct hash *hash;
    struct error error;
    bool over;
    int cancel_in;
    int pieces;
    size_t largest;
    bool pauses; /* every 8th piece, until `nap` fires */
    struct timer nap;
};

static void trace(struct reader *r, char what)
{
    size_t len = strlen(r->trace);

    cr_assert_not(r->over, "an event (%c) after the end", what);
    if ((len == 0 || r->trace[len - 1] != what) && len + 1 < sizeof(r->trace))
        r->trace[len] = what;
}

static bool cancels(struct reader *r, int where)
{
    if (r->cancel_in != where)
        return false;
    http_stream_cancel(r->stream);
    r->over = true;
    return true;
}

static void on_head(void *ctx, const struct http_response *head)
{
    struct reader *r = ctx;
    const char *value = http_response_header(head, "x-test");

    trace(r, 'h');
    r->status = head->status;
    snprintf(r->header, sizeof(r->header), "%s", value != NULL ? value : "");
    cancels(r, CANCEL_IN_HEAD);
}

static void on_data(void *ctx, const void *bytes, size_t len)
{
    struct reader *r = ctx;

    trace(r, 'd');
    heap_sample();
    if (r->hash != NULL)
        hash_add(r->hash, bytes, len);
    else
        buf_add(&r->text, bytes, len);
    if (len > r->largest)
        r->largest = len;
    if (cancels(r, CANCEL_IN_DATA))
        return;
    if (r->pauses && ++r->pieces % 8 == 0) {
        http_stream_pause(r->stream);
        timer_set_ms(loop, &r->nap, r->pieces % 64 == 0 ? 2 : 0);
    }
}

static void on_writable(void *ctx)
{
    struct reader *r = ctx;

    trace(r, 'w');
    cancels(r, CANCEL_IN_WRITABLE);
}

static void on_end(void *ctx, const struct error *err)
{
    struct reader *r = ctx;

    trace(r, err != NULL ? 'e' : '.');
    if (err != NULL)
        r->error = *err;
    r->over = true;
}

static const struct http_stream_events events = {on_head, on_data, on_writable, on_end};

static void on_nap_over(void *ctx)
{
    struct reader *r = ctx;

    if (!r->over)
        http_stream_resume(r->stream);
}

static struct http_request get(const char *path)
{
    return (struct http_request){
        .peer = "test", .method = "GET", .url = script_server_url(server, path)};
}

static void open_stream(struct reader *r, struct http_request request, bool upload, int64_t len)
{
    r->stream = http_stream_open(client, &request, upload, len, &events, r);
    timer_init(&r->nap, on_nap_over, r);
}

static void finish(struct reader *r)
{
    while (!r->over)
        loop_turn(loop, true);
    timer_cancel(loop, &r->nap);
}

/* ---- down ------------------------------------------------------------------------------------ */

static void small(void *ctx, struct script_conn *c, const struct script_request *r)
{
    (void)ctx;
    (void)r;
    script_send(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Made\r\nX-Test: yes\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n");
}

Test(http_stream, events_come_in_order)
{
    server = script_server_new(loop, NULL, small, NULL);
    for (int i = 0; i < 3; i++) {
        struct reader r = {0};
        open_stream(&r, get("/"), false, 0);
        cr_assert(eq(str, r.trace, ""), "nothing from inside open");
        finish(&r);
        cr_assert(eq(str, r.trace, "hd."), "%s", r.error.message);
        cr_assert(eq(int, r.status, 201));
        cr_assert(eq(str, r.header, "yes"));
        cr_assert(eq(str, r.text.data, "abcdefg"));
        buf_fini(&r.text);
    }
    cr_assert(eq(int, script_server_connections(server), 1));
}

Test(http_stream, a_bad_request_ends_at_once_but_not_inside_open)
{
    struct reader r = {0};
    struct http_request bad = {.peer = "test", .method = "GET", .url = "file:///etc/passwd"};

    open_stream(&r, bad, false, 0);
    finish(&r);
    cr_assert(eq(str, r.trace, "e"));
    cr_assert(eq(int, r.error.code, ERR_BAD_REQUEST));
    r = (struct reader){0};
    bad.method = "GE T";
    open_stream(&r, bad, false, 0);
    cr_assert_not(r.over);
    finish(&r);
    cr_assert(eq(int, r.error.code, ERR_BAD_REQUEST));
}

static void cut(void *ctx, struct script_conn *c, const struct script_request *r)
{
    (void)ctx;
    (void)r;
    script_send(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    script_close(c);
}

Test(http_stream, what_came_before_a_break_is_delivered_first)
{
    struct reader r = {0};

    server = script_server_new(loop, NULL, cut, NULL);
    open_stream(&r, get("/"), false, 0);
    finish(&r);
    cr_assert(eq(str, r.trace, "hde"));
    cr_assert(eq(str, r.text.data, "abc"));
    cr_assert(eq(int, r.error.code, ERR_UPSTREAM_LOST));
    buf_fini(&r.text);
}

enum { BIG = 200 * 1024 * 1024 };

struct source {
    uint64_t at, size;
    struct hash hash;
    struct script_conn *conn;
};

static bool pump(void *ctx, struct script_conn *c)
{
    struct source *s = ctx;
    char piece[64 * 1024];

    while (s->at < s->size && script_unsent(c) < 256 * 1024) {
        size_t room = s->size - s->at < sizeof(piece) ? (size_t)(s->size - s->at) : sizeof(piece);
        size_t n = fill(piece, room, s->at);
        hash_add(&s->hash, piece, n);
        script_send_bytes(c, piece, n);
        s->at += n;
    }
    return s->at < s->size;
}

static void serve_big(void *ctx, struct script_conn *c, const struct script_request *r)
{
    struct source *s = ctx;
    char head[128];

    (void)r;
    snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %llu\r\n\r\n",
             (unsigned long long)s->size);
    script_send(c, head);
    s->conn = c;
    script_pump(c, pump, s);
}

Test(http_stream, two_hundred_megabytes_through_pauses_arrive_whole_in_bounded_memory)
{
    struct source s = {.size = BIG};
    struct hash got;
    struct reader r = {.pauses = true, .hash = &got};

    hash_init(&s.hash);
    hash_init(&got);
    server = script_server_new(loop, NULL, serve_big, &s);
    heap_start = heap_peak = heap_bytes();
    open_stream(&r, get("/"), false, 0);
    finish(&r);
    cr_assert(eq(int, r.error.code, ERR_NONE), "%s", r.error.message);
    cr_assert(hash_same(&s.hash, &got));
    cr_assert(le(sz, r.largest, 96 * 1024));
    cr_assert(lt(sz, heap_peak - heap_start, 1024 * 1024));
    cr_assert(gt(int, r.pieces, 1000));
}

/* Turn until the head has arrived and the source has not moved for 60 turns. */
static void turn_until_held(const struct source *s, const struct reader *r)
{
    uint64_t before = s->at;

    for (int quiet = 0; quiet < 60;
         quiet = s->at == before && r->trace[0] != '\0' ? quiet + 1 : 0) {
        before = s->at;
        usleep(1000);
        loop_turn(loop, false);
    }
}

Test(http_stream, a_paused_reader_holds_the_peer_and_is_not_timed_out_for_it)
{
    struct source s = {.size = BIG};
    struct reader r = {0};
    struct http_request request;

    hash_init(&s.hash);
    server = script_server_new(loop, NULL, serve_big, &s);
    request = get("/");
    request.idle_timeout_ms = 250;
    open_stream(&r, request, false, 0);
    http_stream_pause(r.stream);
    turn_until_held(&s, &r);
    for (int i = 0; i < 400; i++) {
        usleep(1000);
        loop_turn(loop, false);
    }
    cr_assert(lt(u64, s.at, 16 * 1024 * 1024), "the peer is held by TCP");
    cr_assert(eq(str, r.trace, "h"), "no data and no timeout: %s", r.error.message);
    r.cancel_in = CANCEL_IN_DATA;
    http_stream_resume(r.stream);
    finish(&r);
    for (int i = 0; i < 20; i++)
        loop_turn(loop, false);
    cr_assert(eq(int, script_server_open(server), 0), "cancelled: the connection is closed");
    EVP_MD_CTX_free(s.hash.md);
    buf_fini(&r.text);
}

/* ---- up -------------------------------------------------------------------------------------- */

struct sink {
    struct hash hash;
    struct script_conn *conn;
    struct timer wake;
    bool slow;
    int pieces;
    bool complete;
    char head[1024];
};

static void sink_head(void *ctx, struct script_conn *c, const struct script_request *r)
{
    struct sink *s = ctx;

    s->conn = c;
    snprintf(s->head, sizeof(s->head), "%s", r->head);
}

static void sink_bytes(void *ctx, struct script_conn *c, const void *data, size_t len)
{
    struct sink *s = ctx;

    if (data == NULL) {
        s->complete = true;
        script_reply(c, 200, "", "taken");
        return;
    }
    hash_add(&s->hash, data, len);
    heap_sample();
    if (s->slow && ++s->pieces % 50 == 0) {
        script_read(c, false);
        timer_set_ms(loop, &s->wake, 1);
    }
}

static void sink_wake(void *ctx)
{
    struct sink *s = ctx;

    script_read(s->conn, true);
}

/* Sends `size` bytes as the stream asks for them. */
struct writer {
    struct reader r; /* first: the events' context */
    struct hash hash;
    uint64_t at, size;
    size_t most_queued;
};

static void writer_more(struct writer *w)
{
    char piece[16 * 1024];

    while (w->at < w->size) {
        size_t room = w->size - w->at < sizeof(piece) ? (size_t)(w->size - w->at) : sizeof(piece);
        size_t n = fill(piece, room, w->at), queued;
        hash_add(&w->hash, piece, n);
        w->at += n;
        queued = http_stream_send(w->r.stream, piece, n);
        if (queued > w->most_queued)
            w->most_queued = queued;
        if (queued > 64 * 1024)
            return;
    }
    http_stream_send_end(w->r.stream);
}

static void writer_writable(void *ctx)
{
    struct writer *w = ctx;

    trace(&w->r, 'w');
    if (w->at < w->size)
        writer_more(w);
}

static const struct http_stream_events writer_events = {on_head, on_data, writer_writable, on_end};

static void upload(uint64_t size, int64_t declared, bool slow)
{
    struct sink sink = {.slow = slow};
    struct writer w = {.size = size};
    struct http_request request;

    hash_init(&sink.hash);
    hash_init(&w.hash);
    timer_init(&sink.wake, sink_wake, &sink);
    server = script_server_new(loop, NULL, sink_head, &sink);
    script_server_stream_bodies(server, sink_bytes);
    request = get("/up");
    request.method = "POST";
    heap_start = heap_peak = heap_bytes();
    w.r.stream = http_stream_open(client, &request, true, declared, &writer_events, &w);
    timer_init(&w.r.nap, on_nap_over, &w.r);
    writer_more(&w);
    finish(&w.r);
    cr_assert(eq(int, w.r.error.code, ERR_NONE), "%s", w.r.error.message);
    cr_assert(eq(int, w.r.status, 200));
    cr_assert(eq(str, w.r.text.data, "taken"));
    cr_assert(sink.complete);
    cr_assert(hash_same(&sink.hash, &w.hash));
    cr_assert(le(sz, w.most_queued, 96 * 1024));
    cr_assert(lt(sz, heap_peak - heap_start, 1024 * 1024));
    cr_assert_not_null(
        strstr(sink.head, declared < 0 ? "Transfer-Encoding: chunked" : "Content-Length:"));
    cr_assert_null(strcasestr(sink.head, "expect"));
    timer_cancel(loop, &sink.wake);
    buf_fini(&w.r.text);
}

Test(http_stream, upload_of_known_length_to_a_slow_reader)
{
    upload(32 * 1024 * 1024, 32 * 1024 * 1024, true);
}

Test(http_stream, chunked_upload_to_a_slow_reader)
{
    upload(32 * 1024 * 1024, -1, true);
}

Test(http_stream, small_uploads)
{
    upload(8, -1, false);
}

Test(http_stream, empty_upload)
{
    upload(0, 0, false);
}

Test(http_stream, an_upload_shorter_than_announced_is_no_request)
{
    struct sink sink = {0};
    struct reader r = {0};
    struct http_request request;

    if (over_curl())
        cr_skip_test("libcurl waits for an answer");
    hash_init(&sink.hash);
    server = script_server_new(loop, NULL, sink_head, &sink);
    script_server_stream_bodies(server, sink_bytes);
    request = get("/up");
    request.method = "POST";
    open_stream(&r, request, true, 10);
    http_stream_send(r.stream, "abc", 3);
    http_stream_send_end(r.stream);
    finish(&r);
    cr_assert(eq(str, r.trace, "e"));
    cr_assert_not_null(strstr(r.error.message, "announced length"), "%s", r.error.message);
    cr_assert_not(sink.complete);
    EVP_MD_CTX_free(sink.hash.md);
    buf_fini(&r.text);
}

static void refuses(void *ctx, struct script_conn *c, const struct script_request *r)
{
    (void)ctx;
    (void)r;
    script_reply(c, 413, "Connection: close\r\n", "too much");
    script_close(c);
}

static void ignore_bytes(void *ctx, struct script_conn *c, const void *data, size_t len)
{
    (void)ctx;
    (void)c;
    (void)data;
    (void)len;
}

Test(http_stream, an_early_answer_to_an_upload_is_delivered)
{
    struct reader r = {0};
    struct http_request request;

    server = script_server_new(loop, NULL, refuses, NULL);
    script_server_stream_bodies(server, ignore_bytes);
    request = get("/up");
    request.method = "PUT";
    open_stream(&r, request, true, 1000000);
    http_stream_send(r.stream, "abc", 3);
    finish(&r);
    cr_assert(eq(int, r.status, 413));
    cr_assert(eq(str, r.text.data, "too much"));
    buf_fini(&r.text);
}

/* ---- cancellation ---------------------------------------------------------------------------- */

static void never(void *ctx, struct script_conn *c, const struct script_request *r)
{
    (void)ctx;
    (void)c;
    (void)r;
}

Test(http_stream, cancel_from_inside_each_callback)
{
    for (int where = CANCEL_IN_HEAD; where <= CANCEL_IN_WRITABLE; where++) {
        struct reader r = {.cancel_in = where};
        bool up = where == CANCEL_IN_WRITABLE;
        struct http_request request;
        server = script_server_new(loop, NULL, up ? never : small, NULL);
        request = get("/");
        request.method = up ? "POST" : "GET";
        open_stream(&r, request, up, -1);
        finish(&r);
        for (int i = 0; i < 20; i++)
            loop_turn(loop, false);
        if (up)
            cr_assert(eq(int, script_server_open(server), 0));
        buf_fini(&r.text);
        script_server_free(server);
    }
    server = NULL;
}

Test(http_stream, cancel_before_anything_and_while_waiting)
{
    server = script_server_new(loop, NULL, never, NULL);
    for (int turns = 0; turns < 6; turns++) {
        struct reader r = {0};
        open_stream(&r, get("/"), false, 0);
        for (int i = 0; i < turns; i++)
            loop_turn(loop, false);
        http_stream_cancel(r.stream);
        for (int i = 0; i < 6; i++)
            loop_turn(loop, false);
        cr_assert(eq(str, r.trace, ""));
    }
    cr_assert(eq(int, script_server_open(server), 0));
}
