/* The least of an OpenShell gateway that a lease can be had of, quick enough to be no bottleneck: what
 * the tunnel is measured against. Every sandbox is READY, every exec ends with 0, and the forwarded port
 * answers HTTP: /bytes/N with N bytes, POST with its body, anything else as /healthz does.
 * Prints `listening PORT`. */
#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRAME = 64 << 10, PREFIX = 5, DATA_HEAD = 4, WINDOW = 16 << 20, OUT_MAX = 1 << 20 };

struct conn {
    struct bufferevent *bev;
    nghttp2_session *ng;
};

struct call {
    char method[32];
    struct evbuffer *in;   /* gRPC messages, not yet whole */
    struct evbuffer *out;  /* gRPC messages to go */
    struct evbuffer *http; /* what came through the forward, not yet a whole request */
    size_t bulk;           /* zeros of a /bytes answer still to be framed */
    bool answered, ended, deferred, in_over;
    int32_t id;
    struct conn *conn;
};

/* ---- protobuf by hand ------------------------------------------------------------------------- */

static size_t put_varint(uint8_t *to, size_t value)
{
    size_t n = 0;

    for (; value > 127; value >>= 7)
        to[n++] = (uint8_t)(value | 128);
    to[n++] = (uint8_t)value;
    return n;
}

/* One length-delimited field. */
static size_t put_field(uint8_t *to, int number, const void *bytes, size_t len)
{
    size_t n = put_varint(to, (size_t)number << 3 | 2);

    n += put_varint(to + n, len);
    memcpy(to + n, bytes, len);
    return n + len;
}

static size_t get_varint(const uint8_t *at, size_t len, size_t *ret)
{
    size_t n = 0;

    *ret = 0;
    for (int shift = 0; n < len && shift < 63; shift += 7) {
        *ret |= (size_t)(at[n] & 127) << shift;
        if (!(at[n++] & 128))
            break;
    }
    return n;
}

/* The text of a length-delimited field; "" when it is not there. */
static void get_field(const uint8_t *at, size_t len, size_t number, char *ret, size_t room)
{
    size_t n = 0, key, value;

    *ret = '\0';
    while (n < len) {
        n += get_varint(at + n, len - n, &key);
        n += get_varint(at + n, len - n, &value);
        if ((key & 7) != 2)
            continue;
        if (key >> 3 == number && value < room && value <= len - n) {
            memcpy(ret, at + n, value);
            ret[value] = '\0';
        }
        n += value;
    }
}

static void put_message(struct call *c, const uint8_t *bytes, size_t len)
{
    uint8_t head[PREFIX] = {0, (uint8_t)(len >> 24), (uint8_t)(len >> 16), (uint8_t)(len >> 8),
                            (uint8_t)len};

    evbuffer_add(c->out, head, sizeof(head));
    evbuffer_add(c->out, bytes, len);
}

/* ---- answers ---------------------------------------------------------------------------------- */

static void put_sandbox(struct call *c, const char *name, uint8_t phase)
{
    uint8_t meta[256], status[2] = {6 << 3, phase}, sandbox[512], reply[600];
    size_t n = put_field(meta, 1, name, strlen(name)), m;

    n += put_field(meta + n, 2, name, strlen(name));
    m = put_field(sandbox, 1, meta, n);
    m += put_field(sandbox + m, 3, status, sizeof(status));
    put_message(c, reply, put_field(reply, 1, sandbox, m));
}

static void answer_unary(struct call *c, const uint8_t *bytes, size_t len)
{
    static const uint8_t exited[] = {3 << 3 | 2, 0}, yes[] = {1 << 3, 1};
    uint8_t reply[64];
    char name[64];

    c->ended = true;
    if (strcmp(c->method, "Health") == 0)
        put_message(c, reply, put_field(reply, 2, "0.0.110", 7));
    else if (strcmp(c->method, "ExecSandbox") == 0)
        put_message(c, exited, sizeof(exited));
    else if (strcmp(c->method, "CreateSshSession") == 0)
        put_message(c, reply, put_field(reply, 2, "token", 5));
    else if (strcmp(c->method, "ListSandboxes") == 0)
        put_message(c, reply, 0);
    else if (strcmp(c->method, "DeleteSandbox") == 0 || strcmp(c->method, "RevokeSshSession") == 0)
        put_message(c, yes, sizeof(yes));
    else {
        get_field(bytes, len, strcmp(c->method, "CreateSandbox") == 0 ? 2 : 1, name, sizeof(name));
        put_sandbox(c, name, 2);
    }
}

static void put_data(struct call *c, const void *bytes, size_t len)
{
    static uint8_t frame[FRAME + 8];

    put_message(c, frame, put_field(frame, 2, bytes, len));
}

/* A frame of a /bytes answer at a time, when the one before has gone. */
static void put_bulk(struct call *c)
{
    static const uint8_t zeros[FRAME - 16];
    size_t n = c->bulk < sizeof(zeros) ? c->bulk : sizeof(zeros);

    put_data(c, zeros, n);
    c->bulk -= n;
}

/* Whole requests of the forwarded HTTP. */
static void answer_http(struct call *c)
{
    static const char healthy[] = "{\"status\":\"ok\"}";
    struct evbuffer_ptr end;
    char head[512], *length;
    size_t body, whole;

    for (;;) {
        end = evbuffer_search(c->http, "\r\n\r\n", 4, NULL);
        if (end.pos < 0)
            return;
        char *request = (char *)evbuffer_pullup(c->http, end.pos + 4);
        request[end.pos + 3] = '\0';
        length = strcasestr(request, "content-length:");
        body = length != NULL ? strtoul(length + 15, NULL, 10) : 0;
        char *bytes = strstr(request, "/bytes/");
        c->bulk = bytes != NULL ? strtoul(bytes + 7, NULL, 10) : 0;
        request[end.pos + 3] = '\n';
        whole = (size_t)end.pos + 4 + body;
        if (evbuffer_get_length(c->http) < whole)
            return;
        int n = snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
                         bytes != NULL ? c->bulk
                         : body > 0    ? body
                                       : sizeof(healthy) - 1,
                         bytes == NULL && body == 0 ? healthy : "");
        put_data(c, head, (size_t)n);
        if (bytes == NULL && body > 0)
            put_data(c, evbuffer_pullup(c->http, (ev_ssize_t)whole) + end.pos + 4, body);
        evbuffer_drain(c->http, whole);
    }
}

static void take_frame(struct call *c, const uint8_t *bytes, size_t len)
{
    size_t key, n, value;

    n = get_varint(bytes, len, &key);
    n += get_varint(bytes + n, len - n, &value);
    if (key != (2 << 3 | 2)) /* init */
        return;
    evbuffer_add(c->http, bytes + n, len - n);
    answer_http(c);
}

/* ---- HTTP/2 ----------------------------------------------------------------------------------- */

static bool has_more(const struct call *c)
{
    return evbuffer_get_length(c->out) > 0 || c->bulk > 0;
}

static ssize_t read_out(nghttp2_session *ng, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
                        nghttp2_data_source *source, void *user)
{
    static nghttp2_nv ok = {(uint8_t *)"grpc-status", (uint8_t *)"0", 11, 1, 0};
    struct call *c = source->ptr;
    ssize_t n;

    (void)user;
    if (c->bulk > 0 && evbuffer_get_length(c->out) < room)
        put_bulk(c);
    n = evbuffer_remove(c->out, to, room);
    if (n < 0)
        n = 0;
    if (!has_more(c) && c->ended) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        nghttp2_submit_trailer(ng, id, &ok, 1);
    } else if (n == 0) {
        c->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    return n;
}

static void call_go(struct call *c)
{
    nghttp2_nv head[] = {
        {(uint8_t *)":status", (uint8_t *)"200", 7, 3, 0},
        {(uint8_t *)"content-type", (uint8_t *)"application/grpc", 12, 16, 0},
    };
    nghttp2_data_provider provider = {.source.ptr = c, .read_callback = read_out};

    if (!c->answered) {
        c->answered = true;
        nghttp2_submit_response(c->conn->ng, c->id, head, 2, &provider);
    } else if (c->deferred) {
        c->deferred = false;
        nghttp2_session_resume_data(c->conn->ng, c->id);
    }
}

static int on_begin(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    struct call *c = calloc(1, sizeof(*c));

    c->id = frame->hd.stream_id;
    c->conn = user;
    c->in = evbuffer_new();
    c->out = evbuffer_new();
    c->http = evbuffer_new();
    return nghttp2_session_set_stream_user_data(ng, c->id, c);
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    struct call *c = nghttp2_session_get_stream_user_data(ng, frame->hd.stream_id);
    const char *slash;

    (void)flags;
    (void)user;
    (void)value_len;
    if (c != NULL && name_len == 5 && memcmp(name, ":path", 5) == 0) {
        slash = strrchr((const char *)value, '/');
        snprintf(c->method, sizeof(c->method), "%s", slash != NULL ? slash + 1 : "");
    }
    return 0;
}

static int on_chunk(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *bytes,
                    size_t len, void *user)
{
    struct call *c = nghttp2_session_get_stream_user_data(ng, id);
    uint8_t *at;
    size_t n;

    (void)flags;
    (void)user;
    evbuffer_add(c->in, bytes, len);
    while ((at = evbuffer_pullup(c->in, PREFIX)) != NULL) {
        n = (size_t)at[1] << 24 | (size_t)at[2] << 16 | (size_t)at[3] << 8 | at[4];
        if (evbuffer_get_length(c->in) < PREFIX + n)
            break;
        at = evbuffer_pullup(c->in, (ev_ssize_t)(PREFIX + n));
        if (strcmp(c->method, "ForwardTcp") == 0)
            take_frame(c, at + PREFIX, n);
        else
            answer_unary(c, at + PREFIX, n);
        evbuffer_drain(c->in, PREFIX + n);
        call_go(c);
    }
    return 0;
}

static int on_frame(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    struct call *c;

    (void)user;
    if (frame->hd.type != NGHTTP2_DATA || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    c = nghttp2_session_get_stream_user_data(ng, frame->hd.stream_id);
    if (c != NULL) {
        c->ended = true;
        call_go(c);
    }
    return 0;
}

static int on_close(nghttp2_session *ng, int32_t id, uint32_t code, void *user)
{
    struct call *c = nghttp2_session_get_stream_user_data(ng, id);

    (void)code;
    (void)user;
    if (c != NULL) {
        evbuffer_free(c->in);
        evbuffer_free(c->out);
        evbuffer_free(c->http);
        free(c);
    }
    return 0;
}

static void flush(struct conn *c)
{
    struct evbuffer *output = bufferevent_get_output(c->bev);
    const uint8_t *bytes;
    ssize_t n;

    while (evbuffer_get_length(output) < OUT_MAX &&
           (n = nghttp2_session_mem_send(c->ng, &bytes)) > 0)
        evbuffer_add(output, bytes, (size_t)n);
}

static void on_drained(struct bufferevent *bev, void *ctx)
{
    (void)bev;
    flush(ctx);
}

static void on_end(struct bufferevent *bev, short what, void *ctx)
{
    struct conn *c = ctx;

    (void)what;
    nghttp2_session_del(c->ng);
    bufferevent_free(bev);
    free(c);
}

static void on_readable(struct bufferevent *bev, void *ctx)
{
    struct conn *c = ctx;
    struct evbuffer *input = bufferevent_get_input(bev);
    size_t len;

    while ((len = evbuffer_get_contiguous_space(input)) > 0) {
        if (nghttp2_session_mem_recv(c->ng, evbuffer_pullup(input, (ev_ssize_t)len), len) < 0) {
            on_end(bev, 0, c);
            return;
        }
        evbuffer_drain(input, len);
    }
    flush(c);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *peer,
                      int peer_len, void *ctx)
{
    nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 200},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
    };
    struct conn *c = calloc(1, sizeof(*c));
    nghttp2_session_callbacks *callbacks;
    int on = 1;

    (void)peer;
    (void)peer_len;
    (void)ctx;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_server_new(&c->ng, callbacks, c);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(c->ng, NGHTTP2_FLAG_NONE, settings, 2);
    nghttp2_session_set_local_window_size(c->ng, NGHTTP2_FLAG_NONE, 0, WINDOW);
    c->bev = bufferevent_socket_new(evconnlistener_get_base(listener), fd, BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(c->bev, on_readable, on_drained, on_end, c);
    bufferevent_setwatermark(c->bev, EV_WRITE, OUT_MAX / 4, 0);
    bufferevent_set_max_single_write(c->bev, OUT_MAX);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
    flush(c);
}

int main(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(here);
    struct event_base *base = event_base_new();
    struct evconnlistener *listener =
        evconnlistener_new_bind(base, on_accept, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE,
                                1024, (struct sockaddr *)&here, sizeof(here));

    if (listener == NULL)
        return 1;
    getsockname(evconnlistener_get_fd(listener), (struct sockaddr *)&here, &len);
    printf("listening %d\n", ntohs(here.sin_port));
    fflush(stdout);
    return event_base_dispatch(base);
}
