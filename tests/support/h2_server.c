#include "support/h2_server.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct h2_server {
    struct loop *loop;
    struct evconnlistener *listener;
    h2_script_fn script;
    void *ctx;
    uint32_t streams;
    struct list peers;
    int connections, requests, pongs;
    char host_port[32];
};

struct h2_peer {
    struct list link;
    struct h2_server *server;
    struct bufferevent *bev;
    nghttp2_session *ng;
    struct list requests;
    bool cut, inside; /* in nghttp2: it is not to be freed now */
};

struct entry {
    struct h2_request request; /* first */
    struct list link;
};

/* ---- connection ----------------------------------------------------------------------------------- */

static void entry_free(struct entry *e)
{
    list_remove(&e->link);
    buf_fini(&e->request.body);
    buf_fini(&e->request.out);
    free(e);
}

static void peer_free(struct h2_peer *p)
{
    list_remove(&p->link);
    LIST_FOREACH_SAFE (node, tmp, &p->requests)
        entry_free(container_of(node, struct entry, link));
    nghttp2_session_del(p->ng);
    bufferevent_free(p->bev);
    free(p);
}

static void peer_flush(struct h2_peer *p)
{
    const uint8_t *bytes;
    ssize_t len;

    if (p->inside)
        return;
    while (!p->cut && (len = nghttp2_session_mem_send(p->ng, &bytes)) > 0)
        bufferevent_write(p->bev, bytes, (size_t)len);
}

static void on_read(struct bufferevent *bev, void *ctx)
{
    struct h2_peer *p = ctx;
    struct evbuffer *in = bufferevent_get_input(bev);
    size_t len = evbuffer_get_length(in);
    ssize_t used;

    loop_touch(p->server->loop);
    p->inside = true;
    used = nghttp2_session_mem_recv(p->ng, evbuffer_pullup(in, -1), len);
    p->inside = false;
    evbuffer_drain(in, len);
    peer_flush(p);
    if (used < 0 || p->cut)
        peer_free(p);
}

static void on_event(struct bufferevent *bev, short what, void *ctx)
{
    (void)bev;
    (void)what;
    peer_free(ctx);
}

/* ---- nghttp2 --------------------------------------------------------------------------------------- */

static int on_begin(nghttp2_session *ng, const nghttp2_frame *frame, void *ctx)
{
    struct h2_peer *p = ctx;
    struct entry *e;

    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    e = xcalloc(1, sizeof(*e));
    e->request.peer = p;
    e->request.stream_id = frame->hd.stream_id;
    list_init(&e->link);
    list_push(&p->requests, &e->link);
    nghttp2_session_set_stream_user_data(ng, frame->hd.stream_id, e);
    return 0;
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *ctx)
{
    struct entry *e = nghttp2_session_get_stream_user_data(ng, frame->hd.stream_id);

    (void)flags;
    (void)ctx;
    if (e != NULL && name_len == 5 && memcmp(name, ":path", 5) == 0)
        snprintf(e->request.path, sizeof(e->request.path), "%.*s", (int)value_len, value);
    return 0;
}

static int on_chunk(nghttp2_session *ng, uint8_t flags, int32_t stream_id, const uint8_t *bytes,
                    size_t len, void *ctx)
{
    struct entry *e = nghttp2_session_get_stream_user_data(ng, stream_id);

    (void)flags;
    (void)ctx;
    if (e != NULL)
        buf_add(&e->request.body, bytes, len);
    return 0;
}

static int on_frame(nghttp2_session *ng, const nghttp2_frame *frame, void *ctx)
{
    struct h2_peer *p = ctx;
    struct entry *e = nghttp2_session_get_stream_user_data(ng, frame->hd.stream_id);

    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0)
        p->server->pongs++;
    if (e == NULL || (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) ||
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
        return 0;
    e->request.nth = ++p->server->requests;
    p->server->script(p->server->ctx, &e->request);
    return 0;
}

static int on_close(nghttp2_session *ng, int32_t stream_id, uint32_t code, void *ctx)
{
    struct entry *e = nghttp2_session_get_stream_user_data(ng, stream_id);

    (void)code;
    (void)ctx;
    if (e != NULL)
        entry_free(e);
    return 0;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
                      int len, void *ctx)
{
    struct h2_server *s = ctx;
    struct h2_peer *p = xcalloc(1, sizeof(*p));
    nghttp2_session_callbacks *callbacks;
    nghttp2_settings_entry settings = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, s->streams};

    (void)listener;
    (void)address;
    (void)len;
    s->connections++;
    p->server = s;
    list_init(&p->requests);
    list_init(&p->link);
    list_push(&s->peers, &p->link);
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_server_new(&p->ng, callbacks, p);
    nghttp2_session_callbacks_del(callbacks);
    p->bev = bufferevent_socket_new(loop_base(s->loop), fd, BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(p->bev, on_read, NULL, on_event, p);
    bufferevent_enable(p->bev, EV_READ | EV_WRITE);
    nghttp2_submit_settings(p->ng, NGHTTP2_FLAG_NONE, &settings, 1);
    peer_flush(p);
}

/* ---- server ---------------------------------------------------------------------------------------- */

struct h2_server *h2_server_new(struct loop *loop, uint32_t streams, h2_script_fn script, void *ctx)
{
    struct h2_server *s = xcalloc(1, sizeof(*s));
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);

    s->loop = loop;
    s->script = script;
    s->ctx = ctx;
    s->streams = streams;
    list_init(&s->peers);
    s->listener = evconnlistener_new_bind(loop_base(loop), on_accept, s, LEV_OPT_CLOSE_ON_FREE, 64,
                                          (struct sockaddr *)&at, sizeof(at));
    cr_assert(s->listener != NULL);
    getsockname(evconnlistener_get_fd(s->listener), (struct sockaddr *)&at, &len);
    snprintf(s->host_port, sizeof(s->host_port), "127.0.0.1:%d", ntohs(at.sin_port));
    return s;
}

void h2_server_free(struct h2_server *s)
{
    LIST_FOREACH_SAFE (node, tmp, &s->peers)
        peer_free(container_of(node, struct h2_peer, link));
    evconnlistener_free(s->listener);
    free(s);
}

const char *h2_server_host_port(const struct h2_server *s)
{
    return s->host_port;
}

int h2_server_connections(const struct h2_server *s)
{
    return s->connections;
}

int h2_server_requests(const struct h2_server *s)
{
    return s->requests;
}

int h2_server_pongs(const struct h2_server *s)
{
    return s->pongs;
}

size_t h2_server_held(const struct h2_server *s)
{
    size_t held = 0;

    for (struct list *it = s->peers.next; it != &s->peers; it = it->next) {
        struct h2_peer *p = container_of(it, struct h2_peer, link);
        for (struct list *r = p->requests.next; r != &p->requests; r = r->next)
            held += container_of(r, struct entry, link)->request.out.len;
    }
    return held;
}

/* ---- answers --------------------------------------------------------------------------------------- */

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), NGHTTP2_NV_FLAG_NONE};
}

static size_t status_headers(nghttp2_nv *to, const char *status, const char *message)
{
    size_t n = 0;

    if (status != NULL)
        to[n++] = header("grpc-status", status);
    if (message != NULL)
        to[n++] = header("grpc-message", message);
    return n;
}

static ssize_t provide(nghttp2_session *ng, int32_t stream_id, uint8_t *to, size_t cap,
                       uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    struct h2_request *r = source->ptr;
    size_t n = r->out.len < cap ? r->out.len : cap;
    nghttp2_nv trailers[2];

    (void)ctx;
    if (n > 0) {
        memcpy(to, r->out.data, n);
        buf_drain(&r->out, n);
    }
    if (r->out.len == 0 && r->out_ended) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (r->status != NULL) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            nghttp2_submit_trailer(ng, stream_id, trailers,
                                   status_headers(trailers, r->status, r->message));
        }
    } else if (n == 0) {
        r->waiting = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)n;
}

void h2_reply_head(struct h2_request *r, const char *status, const char *content_type,
                   const char *grpc_status, const char *grpc_message, bool ends)
{
    nghttp2_data_provider provider = {.source.ptr = r, .read_callback = provide};
    nghttp2_nv headers[4] = {header(":status", status)};
    size_t n = 1;

    if (content_type != NULL)
        headers[n++] = header("content-type", content_type);
    n += status_headers(headers + n, grpc_status, grpc_message);
    nghttp2_submit_response(r->peer->ng, r->stream_id, headers, n, ends ? NULL : &provider);
    peer_flush(r->peer);
}

static void go_on(struct h2_request *r)
{
    if (r->waiting) {
        r->waiting = false;
        nghttp2_session_resume_data(r->peer->ng, r->stream_id);
    }
    peer_flush(r->peer);
}

void h2_reply_data(struct h2_request *r, const void *bytes, size_t len)
{
    buf_add(&r->out, bytes, len);
    go_on(r);
}

void h2_reply_end(struct h2_request *r, const char *grpc_status, const char *grpc_message)
{
    r->out_ended = true;
    r->status = grpc_status;
    r->message = grpc_message;
    go_on(r);
}

void h2_reply_message(struct h2_request *r, const void *bytes, size_t len)
{
    uint8_t prefix[5] = {0, (uint8_t)(len >> 24), (uint8_t)(len >> 16), (uint8_t)(len >> 8),
                         (uint8_t)len};

    buf_add(&r->out, prefix, sizeof(prefix));
    h2_reply_data(r, bytes, len);
}

void h2_reset(struct h2_request *r, uint32_t code)
{
    nghttp2_submit_rst_stream(r->peer->ng, NGHTTP2_FLAG_NONE, r->stream_id, code);
    peer_flush(r->peer);
}

void h2_goaway(struct h2_request *r, bool refuse)
{
    int32_t last = refuse ? r->stream_id - 2 : r->stream_id;

    nghttp2_submit_goaway(r->peer->ng, NGHTTP2_FLAG_NONE, last > 0 ? last : 0, NGHTTP2_NO_ERROR,
                          NULL, 0);
    peer_flush(r->peer);
}

void h2_cut(struct h2_request *r)
{
    r->peer->cut = true; /* on_read frees it: scripts run below nghttp2 */
}

void h2_ping(struct h2_request *r)
{
    nghttp2_submit_ping(r->peer->ng, NGHTTP2_FLAG_NONE, NULL);
    peer_flush(r->peer);
}
