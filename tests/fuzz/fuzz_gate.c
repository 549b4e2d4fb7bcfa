/* The whole edge, from a client's bytes to handlers and replies: gate, libevhtp, exchanges.
 *
 * The first byte says in what pieces the rest is sent. The same bytes in one piece must make the
 * same handlers run with the same bodies: where reads end must never matter. Afterwards nothing may
 * be left: no connection, no request in flight. */
#include "core/runtime/buf.h"
#include "core/runtime/check.h"
#include "core/runtime/log.h"
#include "core/runtime/op.h"
#include "fuzz.h"
#include "http/exchange.h"
#include "http/server.h"
#include "http/server_impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { NAP_MS = 3 };

static struct loop *loop;
static struct http_server *server;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static struct buf seen, said; /* what handlers saw and what the client was told */

/* ---- handlers ---------------------------------------------------------------------------------- */

static void note(const struct exchange *x)
{
    buf_addf(&seen, "%s %s ?%s [%zu]", x->method, x->path, x->query, x->body_len);
    buf_add(&seen, x->body, x->body_len);
    buf_addc(&seen, '\n');
}

static void handle_echo(struct exchange *x)
{
    note(x);
    exchange_reply(x, 200, "text/plain", x->body, x->body_len);
}

struct nap {
    struct op op;
};

static enum op_poll nap_step(struct op *op)
{
    switch (op->state) {
    case 0:
        AWAIT_ANY(op, 1, op_sleep(op, NAP_MS));
        return OP_DONE;
    }
    unreachable_state(op);
}

static void on_nap_done(struct exchange *x, struct op *op)
{
    (void)op;
    exchange_reply_empty(x, 204);
}

static void handle_nap(struct exchange *x)
{
    static const char *const states[] = {"start", "sleeping"};
    static const struct op_type type = {"nap", states, 2, nap_step, NULL};
    struct nap *nap = OP_ROOT(x->loop, &type, nap, x->arena);

    note(x);
    exchange_run(x, &nap->op, on_nap_done);
}

static void sink_on_body(struct exchange *x, void *ctx, const void *bytes, size_t len)
{
    (void)ctx;
    (void)x;
    buf_add(&seen, bytes, len);
}

static void sink_on_end(struct exchange *x, void *ctx)
{
    (void)ctx;
    buf_adds(&seen, " end\n");
    exchange_reply_empty(x, 204);
}

static void mirror_on_body(struct exchange *x, void *ctx, const void *bytes, size_t len)
{
    sink_on_body(x, ctx, bytes, len);
    exchange_reply_data(x, bytes, len);
}

static void mirror_on_end(struct exchange *x, void *ctx)
{
    (void)ctx;
    buf_adds(&seen, " end\n");
    exchange_reply_end(x, true);
}

static void on_gone(struct exchange *x, void *ctx)
{
    (void)x;
    (void)ctx;
    buf_adds(&seen, " gone\n");
}

static const struct exchange_stream_events sink_events = {
    .on_body = sink_on_body, .on_body_end = sink_on_end, .on_gone = on_gone};
static const struct exchange_stream_events mirror_events = {
    .on_body = mirror_on_body, .on_body_end = mirror_on_end, .on_gone = on_gone};

static void handle_sink(struct exchange *x)
{
    note(x);
    exchange_stream(x, &sink_events, NULL);
}

static void handle_mirror(struct exchange *x)
{
    note(x);
    exchange_stream(x, &mirror_events, NULL);
    exchange_reply_begin(x, 200, NULL, 0, -1);
}

static const struct route routes[] = {
    {"GET", "/e", AUTH_NONE, ERRORS_DETAIL, 0, 0, handle_echo, "", NULL, NULL},
    {"POST", "/e", AUTH_NONE, ERRORS_DETAIL, 0, 4096, handle_echo, "", NULL, NULL},
    {"POST", "/p/{id}", AUTH_API, ERRORS_V1, 0, 4096, handle_echo, "", NULL, NULL},
    {NULL, "/n/*", AUTH_LEASE, ERRORS_SHELLCTL, ROUTE_ANY_METHOD, 0, handle_nap, "", NULL, NULL},
    {"POST", "/s", AUTH_NONE, ERRORS_DETAIL, ROUTE_STREAM, 0, handle_sink, "", NULL, NULL},
    {"POST", "/m", AUTH_NONE, ERRORS_DETAIL, ROUTE_STREAM, 0, handle_mirror, "", NULL, NULL},
    {0},
};

/* ---- one client -------------------------------------------------------------------------------- */

static void start(void)
{
    static const struct route *const tables[] = {routes};
    static const struct route_set set = {tables, 1};
    char folder[] = "/tmp/fuzz-gate-XXXXXX", listen[64];
    struct error err;

    PRE(mkdtemp(folder) != NULL);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", folder);
    snprintf(listen, sizeof(listen), "unix:%s/s", folder);
    loop = loop_new(&(struct loop_options){.virtual_clock = true});
    log_init(LOG_ERROR, LOG_LOGFMT, NULL);
    server = http_server_new(
        loop, &(struct http_server_options){.listen = listen, .max_header_bytes = 2048}, &set, NULL,
        &err);
    PRE(server != NULL);
}

static void stop(void)
{
    http_server_free(server);
    loop_free(loop);
    *strrchr(address.sun_path, '/') = '\0';
    rmdir(address.sun_path);
    buf_fini(&seen);
    buf_fini(&said);
}

static void listen_to(int fd)
{
    char bytes[65536];
    ssize_t n;

    while ((n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
        buf_add(&said, bytes, (size_t)n);
}

static void turns(int fd, int n)
{
    for (; n > 0; n--) {
        loop_turn(loop, false);
        listen_to(fd);
    }
}

static void talk(const uint8_t *bytes, size_t len, size_t piece)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    buf_clear(&seen);
    buf_clear(&said);
    PRE(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    turns(fd, 1);
    while (len > 0) {
        size_t n = piece < len ? piece : len;
        ssize_t sent = send(fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0)
            break; /* closed, or refuses to read on */
        bytes += sent;
        len -= (size_t)sent;
        turns(fd, 1);
    }
    for (int i = 0; i < 16; i++) { /* so many pipelined naps may be waited for */
        loop_advance_ms(loop, NAP_MS + 1);
        turns(fd, 2);
    }
    close(fd);
    turns(fd, 0);
    for (int i = 0; i < 4; i++)
        loop_turn(loop, false);
    loop_advance_ms(loop, NAP_MS + 1);
    POST(server->connections == 0 && server->in_flight == 0);
    POST(list_empty(&server->exchanges) && list_empty(&server->gates));
    POST(said.len == 0 || strncmp(said.data, "HTTP/1.1 ", 9) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct buf whole = {0};

    if (server == NULL) {
        start();
        atexit(stop);
    }
    if (len < 2 || len > 8192)
        return 0;
    talk(bytes + 1, len - 1, len);
    buf_adds(&whole, buf_text(&seen));
    talk(bytes + 1, len - 1, (size_t)bytes[0] % 64 + 1);
    POST(strcmp(buf_text(&whole), buf_text(&seen)) == 0);
    buf_fini(&whole);
    return 0;
}
