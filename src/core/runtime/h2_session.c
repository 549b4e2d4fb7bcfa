#include "core/runtime/h2_session.h"

#include "core/runtime/h2_internal.h"
#include "core/runtime/h2_tls.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    READ_BYTES = 128 << 10,
    READS_A_TURN = 4,          /* other connections want their turn too */
    PEER_STREAMS_UNSAID = 100, /* RFC 9113 section 6.5.2: no limit unless said; ours until then */
};

static void session_fail(struct h2_session *s, enum err_code code, const char *why);

/* ---- the socket ------------------------------------------------------------------------------ */

static void session_flush(void *ctx)
{
    struct h2_session *s = ctx;
    struct evbuffer *output;
    struct list *node;

    if (s->closed || s->ng == NULL)
        return;
    output = bufferevent_get_output(s->bev);
    while (evbuffer_get_length(output) < H2_OUTPUT_HIGH) {
        const uint8_t *bytes;
        ssize_t len = nghttp2_session_mem_send(s->ng, &bytes);
        if (len < 0) {
            session_fail(s, ERR_UPSTREAM_PROTOCOL, nghttp2_strerror((int)len));
            return;
        }
        if (len == 0)
            break;
        evbuffer_add(output, bytes, (size_t)len);
    }
    while ((node = list_pop(&s->writable)) != NULL) {
        struct h2_stream *st = container_of(node, struct h2_stream, writable_link);
        st->events.on_writable(st->ctx);
    }
    if (!nghttp2_session_want_read(s->ng) && !nghttp2_session_want_write(s->ng))
        session_fail(s, ERR_UPSTREAM_LOST, "the peer ended the connection");
}

/* False when the peer broke the protocol: then the session has failed. */
static bool session_take(struct h2_session *s, const uint8_t *bytes, size_t len)
{
    ssize_t used = nghttp2_session_mem_recv(s->ng, bytes, len);

    if (used < 0)
        session_fail(s, ERR_UPSTREAM_PROTOCOL, nghttp2_strerror((int)used));
    return used >= 0;
}

/* What more the socket has, past the bufferevent: that reads 4 KiB a turn (libevent 2.1). An end or an
 * error is left to it. */
static void session_read_on(struct h2_session *s)
{
    static uint8_t bytes[READ_BYTES]; /* nothing of it outlives a round */
    ssize_t len = READ_BYTES;

    for (int i = 0; i < READS_A_TURN && len == READ_BYTES && !s->closed; i++) {
        len = recv(bufferevent_getfd(s->bev), bytes, sizeof(bytes), MSG_DONTWAIT);
        if (len <= 0 || !session_take(s, bytes, (size_t)len))
            return;
    }
}

static void on_readable(struct bufferevent *bev, void *ctx)
{
    struct h2_session *s = ctx;
    struct evbuffer *input = bufferevent_get_input(bev);
    size_t len;

    loop_touch(s->loop);
    s->heard = true;
    while (!s->closed && (len = evbuffer_get_contiguous_space(input)) > 0) {
        if (!session_take(s, evbuffer_pullup(input, (ev_ssize_t)len), len))
            return;
        evbuffer_drain(input, len);
    }
    if (!s->closed && s->ssl == NULL)
        session_read_on(s);
    if (!s->closed)
        loop_post(s->loop, &s->flush);
}

static void on_drained(struct bufferevent *bev, void *ctx)
{
    struct h2_session *s = ctx;

    (void)bev;
    loop_touch(s->loop);
    loop_post(s->loop, &s->flush);
}

static void session_greet(struct h2_session *s)
{
    nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_STREAM_WINDOW},
    };

    h2_session_attach(s);
    nghttp2_submit_settings(s->ng, NGHTTP2_FLAG_NONE, settings, 2);
    nghttp2_session_set_local_window_size(s->ng, NGHTTP2_FLAG_NONE, 0, H2_CONNECTION_WINDOW);
    loop_post(s->loop, &s->flush);
}

static void on_connected(struct h2_session *s)
{
    int fd = bufferevent_getfd(s->bev), on = 1;
    struct error err;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (s->ssl != NULL && !h2_tls_check(s->ssl, &err)) {
        session_fail(s, err.code, err.message);
        return;
    }
    session_greet(s);
    if (s->ping_interval_ms > 0)
        timer_set_ms(s->loop, &s->ping, s->ping_interval_ms);
}

static void on_event(struct bufferevent *bev, short what, void *ctx)
{
    struct h2_session *s = ctx;
    struct error err;
    int dns_error;

    loop_touch(s->loop);
    if (what & BEV_EVENT_CONNECTED) {
        on_connected(s);
        return;
    }
    error_set(&err, s->ready ? ERR_UPSTREAM_LOST : ERR_UPSTREAM_CONNECT, "%s%s",
              what & BEV_EVENT_EOF ? "the peer closed the connection"
                                   : evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()),
              s->ready || s->ng == NULL ? ""
              : s->ssl != NULL ? " before it spoke HTTP/2: does it want another client certificate?"
                               : " before it spoke HTTP/2: does it expect TLS?");
    dns_error = bufferevent_socket_get_dns_error(bev);
    if (dns_error != 0)
        error_set(&err, ERR_UPSTREAM_CONNECT, "looking up %s: %s", s->host,
                  evutil_gai_strerror(dns_error));
    else if (s->ssl != NULL && !s->ready)
        h2_tls_explain(s->ssl, bufferevent_get_openssl_error(bev), &err);
    session_fail(s, err.code, err.message);
}

static void on_connect_timeout(void *ctx)
{
    struct h2_session *s = ctx;

    session_fail(s, ERR_UPSTREAM_CONNECT, "no HTTP/2 connection within the connect timeout");
}

/* A peer that is silent for two intervals, one of them after our PING, is gone. */
static void on_ping_due(void *ctx)
{
    struct h2_session *s = ctx;

    if (s->ping_pending && !s->heard) {
        session_fail(s, ERR_UPSTREAM_LOST, "the peer does not answer PING");
        return;
    }
    if (!s->heard && !s->ping_pending) {
        s->ping_pending = true;
        nghttp2_submit_ping(s->ng, NGHTTP2_FLAG_NONE, NULL);
        loop_post(s->loop, &s->flush);
    }
    s->heard = false;
    timer_set_ms(s->loop, &s->ping, s->ping_interval_ms);
}

/* ---- life ------------------------------------------------------------------------------------ */

struct h2_session *h2_session_new(struct loop *loop, const struct h2_options *options,
                                  const struct h2_session_events *events, void *ctx)
{
    struct h2_session *s = xcalloc(1, sizeof(*s));
    const int flags = BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS;

    s->loop = loop;
    s->events = *events;
    s->ctx = ctx;
    s->host = xstrdup(options->host);
    s->authority = xstrdup(options->authority);
    s->ping_interval_ms = options->ping_interval_ms;
    list_init(&s->streams);
    list_init(&s->writable);
    list_init(&s->dead);
    task_init(&s->flush, session_flush, s);
    timer_init(&s->connecting, on_connect_timeout, s);
    timer_init(&s->ping, on_ping_due, s);
    if (options->tls != NULL) {
        s->ssl = h2_tls_connection(options->tls, options->host);
        s->bev = bufferevent_openssl_socket_new(loop_base(loop), -1, s->ssl,
                                                BUFFEREVENT_SSL_CONNECTING, flags);
    } else {
        s->bev = bufferevent_socket_new(loop_base(loop), -1, flags);
    }
    PRE(s->bev != NULL);
    if (s->ssl != NULL)
        bufferevent_openssl_set_allow_dirty_shutdown(s->bev, 1);
    bufferevent_setcb(s->bev, on_readable, on_drained, on_event, s);
    bufferevent_setwatermark(s->bev, EV_WRITE, H2_OUTPUT_LOW, 0);
    bufferevent_set_max_single_write(s->bev, H2_OUTPUT_HIGH); /* 16 KiB a turn otherwise */
    bufferevent_enable(s->bev, EV_READ | EV_WRITE);
    timer_set_ms(loop, &s->connecting, options->connect_timeout_ms);
    bufferevent_socket_connect_hostname(s->bev, options->dns, AF_UNSPEC, options->host,
                                        options->port); /* failures come as an event */
    return s;
}

static void session_quiet(struct h2_session *s)
{
    s->closed = true;
    task_cancel(&s->flush);
    timer_cancel(s->loop, &s->connecting);
    timer_cancel(s->loop, &s->ping);
    bufferevent_disable(s->bev, EV_READ | EV_WRITE);
    bufferevent_setcb(s->bev, NULL, NULL, NULL, NULL);
}

/* The connection is over: every stream ends, then the owner is told. */
static void session_fail(struct h2_session *s, enum err_code code, const char *why)
{
    struct error err;

    if (s->closed)
        return;
    error_set(&err, code, "gRPC peer %s: %s", s->authority, why);
    session_quiet(s);
    while (!list_empty(&s->streams)) {
        h2_stream_end_lost(container_of(s->streams.next, struct h2_stream, link));
    }
    s->events.on_closed(s->ctx, &err);
}

void h2_session_free(struct h2_session *session)
{
    if (session == NULL)
        return;
    session_quiet(session);
    list_splice(&session->streams, &session->dead);
    while (!list_empty(&session->streams))
        h2_stream_forget(container_of(session->streams.next, struct h2_stream, link));
    if (session->ng != NULL)
        nghttp2_session_del(session->ng);
    bufferevent_free(session->bev);
    free(session->host);
    free(session->authority);
    free(session);
}

bool h2_session_is_ready(const struct h2_session *session)
{
    return session->ready && !session->closed;
}

bool h2_session_is_draining(const struct h2_session *session)
{
    return session->draining || session->closed;
}

int h2_session_streams(const struct h2_session *session)
{
    return session->n_streams;
}

bool h2_session_has_room(const struct h2_session *session)
{
    uint32_t limit;

    if (!session->ready || session->draining || session->closed)
        return false;
    limit =
        nghttp2_session_get_remote_settings(session->ng, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
    if (limit > INT32_MAX)
        limit = PEER_STREAMS_UNSAID;
    return (uint32_t)session->n_streams < limit;
}
