/* Bytes between the near end of a socket pair and a ForwardTcp stream, both ways, with
 * back-pressure and half-close: when the HTTP client has closed, the stream's request side is ended
 * and the answer to that is awaited for a while, because an abandoned forward keeps its slot. */
#include "backends/openshell/tunnel_internal.h"
#include "core/runtime/buf.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BUFFER_HIGH = 256 << 10,
    BUFFER_LOW = 64 << 10,
    CLOSING_MS = 5000, /* for the gateway's end after ours */
    FRAME_MAX = 64 << 10,
    KEPT_MAX = 64 << 10,         /* of what was sent, until the first byte comes back */
    FRAME_DATA_TAG = 2 << 3 | 2, /* TcpForwardFrame.data: field 2, length-delimited */
};

struct pump {
    struct tunnel *tunnel;
    struct list link;
    struct bufferevent *bev;
    struct grpc_call *call;
    struct tunnel_token *token;
    bool poll;
    bool local_closed, remote_closed, over;
    bool heard, restarted;
    bool kept_cut;   /* more was sent than is kept */
    struct buf kept; /* to be sent again when the gateway refuses the token */
    struct timer closing;
};

bool pump_is_poll(const struct pump *pump)
{
    return pump->poll;
}

struct pump *pump_of(struct list *link)
{
    return container_of(link, struct pump, link);
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void pump_release(void *ptr)
{
    struct pump *p = ptr;

    bufferevent_free(p->bev);
    buf_fini(&p->kept);
    free(p);
}

static void pump_leave_slot(struct pump *p)
{
    struct tunnel *t = p->tunnel;

    if (p->token == NULL)
        return;
    p->token->streams--;
    p->token = NULL;
    t->n_streams--;
    t->n_poll_streams -= p->poll;
}

static void pump_retire(struct pump *p)
{
    struct tunnel *t = p->tunnel;

    if (p->over)
        return;
    p->over = true;
    list_remove(&p->link);
    timer_cancel(t->loop, &p->closing);
    bufferevent_disable(p->bev, EV_READ | EV_WRITE);
    bufferevent_setcb(p->bev, NULL, NULL, NULL, NULL);
    if (p->call != NULL)
        grpc_call_cancel(p->call);
    p->call = NULL;
    pump_leave_slot(p);
    loop_defer_free(t->loop, pump_release, p);
    tunnel_dispatch(t);
}

void pump_abort(struct pump *pump, const struct error *why)
{
    if (why != NULL)
        pump->tunnel->last_error = *why;
    pump_retire(pump);
}

static void on_closing_over(void *ctx)
{
    pump_retire(ctx);
}

/* ---- stream → socket ------------------------------------------------------------------------- */

/* The bytes of a data frame without a copy; NULL when the frame is of another kind or broken. */
static const uint8_t *frame_data(const uint8_t *frame, size_t len, size_t *ret_len)
{
    size_t at = 1, n = 0;

    if (len < 2 || frame[0] != FRAME_DATA_TAG)
        return NULL;
    for (int shift = 0; at < len && shift < 35; shift += 7) {
        uint8_t byte = frame[at++];
        n |= (size_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *ret_len = n;
            return n == len - at ? frame + at : NULL;
        }
    }
    return NULL;
}

static void on_message(void *ctx, const uint8_t *message, size_t len)
{
    struct pump *p = ctx;
    size_t n = 0;
    ssize_t sent = 0;
    const uint8_t *bytes = frame_data(message, len, &n);

    error_clear(&p->tunnel->last_error);
    p->heard = true;
    buf_fini(&p->kept);
    if (bytes == NULL || n == 0) /* an empty frame, or a kind of a newer gateway: nothing for us */
        return;
    if (evbuffer_get_length(bufferevent_get_output(p->bev)) == 0)
        sent = send(bufferevent_getfd(p->bev), bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0)
        sent = 0; /* full, or over: the bufferevent finds out */
    if ((size_t)sent < n)
        bufferevent_write(p->bev, bytes + sent, n - (size_t)sent);
    if (evbuffer_get_length(bufferevent_get_output(p->bev)) > BUFFER_HIGH)
        grpc_call_pause(p->call);
}

static void on_socket_drained(struct bufferevent *bev, void *ctx)
{
    struct pump *p = ctx;

    loop_touch(p->tunnel->loop);
    if (p->remote_closed) {
        if (evbuffer_get_length(bufferevent_get_output(bev)) == 0)
            pump_retire(p);
        return;
    }
    if (p->call != NULL)
        grpc_call_resume(p->call);
}

/* The gateway knows our token no more: its sandbox was stopped and started by another, or its
 * sessions were lost. This is decided before the target is reached (protocols "OpenShell gateway"
 * 8.12), so the same bytes may go again, with a new token. It says nothing about our own
 * credentials: when they are bad too, making that token fails. */
static void pump_refused(struct pump *p, const struct error *err)
{
    struct tunnel *t = p->tunnel;
    struct error why;

    pump_leave_slot(p);
    tunnel_tokens_gone(t);
    if (p->heard || p->restarted || p->kept_cut || p->local_closed) {
        error_set(&why, ERR_UPSTREAM_LOST, "the gateway refused a new session of sandbox %s: %s",
                  t->sandbox_name, err->message);
        pump_abort(p, &why);
        return;
    }
    p->restarted = true;
    list_remove(&p->link);
    list_push(&t->waiting, &p->link);
    tunnel_dispatch(t);
}

static void on_end(void *ctx, const struct error *err)
{
    struct pump *p = ctx;

    p->call = NULL;
    if (err != NULL && rpc_is(err, GRPC_UNAUTHENTICATED)) {
        pump_refused(p, err);
        return;
    }
    p->remote_closed = true;
    if (err != NULL)
        p->tunnel->last_error = *err;
    if (err != NULL || p->local_closed || evbuffer_get_length(bufferevent_get_output(p->bev)) == 0)
        pump_retire(p);
    else
        bufferevent_setwatermark(p->bev, EV_WRITE, 0, 0); /* on_socket_drained ends it */
}

/* ---- socket → stream ------------------------------------------------------------------------- */

static void send_frame(struct pump *p, const uint8_t *bytes, size_t len, size_t *ret_queued)
{
    uint8_t head[8];
    size_t n = 0, rest = len;

    head[n++] = FRAME_DATA_TAG;
    do {
        head[n++] = (uint8_t)((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
        rest >>= 7;
    } while (rest > 0);
    *ret_queued = grpc_call_send_parts(p->call, head, n, bytes, len);
}

/* Before the first byte back, what was sent is kept as long as it is little. */
static void keep(struct pump *p, const uint8_t *bytes, size_t len)
{
    if (p->heard || p->kept_cut)
        return;
    if (p->kept.len + len > KEPT_MAX) {
        p->kept_cut = true;
        buf_fini(&p->kept);
        return;
    }
    buf_add(&p->kept, bytes, len);
}

/* What more the socket has, past the bufferevent: that reads 4 KiB a turn (libevent 2.1). */
static void read_on(struct pump *p, size_t *queued)
{
    static uint8_t bytes[FRAME_MAX]; /* nothing of it outlives a round */
    ssize_t len = FRAME_MAX;

    while (len == FRAME_MAX && *queued <= BUFFER_HIGH) {
        len = recv(bufferevent_getfd(p->bev), bytes, sizeof(bytes), MSG_DONTWAIT);
        if (len <= 0)
            return;
        keep(p, bytes, (size_t)len);
        send_frame(p, bytes, (size_t)len, queued);
    }
}

static void on_socket_readable(struct bufferevent *bev, void *ctx)
{
    struct pump *p = ctx;
    struct evbuffer *input = bufferevent_get_input(bev);
    size_t len, queued = 0;

    loop_touch(p->tunnel->loop);
    if (p->call == NULL) /* waits for its slot: the bytes stay, bounded by the watermark */
        return;
    while ((len = evbuffer_get_contiguous_space(input)) > 0) {
        const uint8_t *bytes = evbuffer_pullup(input, (ev_ssize_t)len);
        keep(p, bytes, len);
        send_frame(p, bytes, len, &queued);
        evbuffer_drain(input, len);
    }
    read_on(p, &queued);
    if (queued > BUFFER_HIGH)
        bufferevent_disable(bev, EV_READ);
}

static void on_stream_writable(void *ctx)
{
    struct pump *p = ctx;

    if (!p->local_closed)
        bufferevent_enable(p->bev, EV_READ);
}

static void on_socket_event(struct bufferevent *bev, short what, void *ctx)
{
    struct pump *p = ctx;

    loop_touch(p->tunnel->loop);
    (void)what; /* the HTTP client closes a connection as a whole */
    p->local_closed = true;
    if (p->call == NULL) {
        pump_retire(p);
        return;
    }
    if (evbuffer_get_length(bufferevent_get_input(bev)) > 0)
        on_socket_readable(bev, p);
    grpc_call_send_end(p->call);
    grpc_call_resume(p->call);
    timer_set_ms(p->tunnel->loop, &p->closing, CLOSING_MS);
}

/* ---- opening --------------------------------------------------------------------------------- */

int pump_open(struct tunnel *tunnel, bool poll, struct error *err)
{
    struct pump *p;
    int pair[2];

    if (!http_dialer_pair(pair, err))
        return -1;
    p = xcalloc(1, sizeof(*p));
    p->tunnel = tunnel;
    p->poll = poll;
    timer_init(&p->closing, on_closing_over, p);
    p->bev = bufferevent_socket_new(loop_base(tunnel->loop), pair[1],
                                    BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
    PRE(p->bev != NULL);
    bufferevent_setcb(p->bev, on_socket_readable, on_socket_drained, on_socket_event, p);
    bufferevent_setwatermark(p->bev, EV_WRITE, BUFFER_LOW, 0);
    bufferevent_set_max_single_write(p->bev, BUFFER_HIGH); /* 16 KiB a turn otherwise */
    bufferevent_setwatermark(p->bev, EV_READ, 0, BUFFER_HIGH);
    bufferevent_enable(p->bev, EV_READ | EV_WRITE);
    list_push(&tunnel->waiting, &p->link);
    tunnel_dispatch(tunnel);
    return pair[0];
}

void pump_start(struct pump *pump, struct tunnel_token *token)
{
    static const struct grpc_call_events events = {on_message, on_stream_writable, on_end};
    struct tunnel *t = pump->tunnel;
    struct arena *arena = arena_new();
    Openshell__TcpForwardFrame frame = OPENSHELL__TCP_FORWARD_FRAME__INIT;
    Openshell__TcpForwardInit init = OPENSHELL__TCP_FORWARD_INIT__INIT;
    Openshell__TcpRelayTarget target = OPENSHELL__TCP_RELAY_TARGET__INIT;
    const uint8_t *bytes;
    size_t len, queued;

    target.host = (char *)"127.0.0.1";
    target.port = (uint32_t)t->port;
    init.sandbox_id = t->sandbox_id;
    init.service_id = (char *)"bindery";
    init.target_case = OPENSHELL__TCP_FORWARD_INIT__TARGET_TCP;
    init.tcp = &target;
    init.authorization_token = token->text;
    frame.payload_case = OPENSHELL__TCP_FORWARD_FRAME__PAYLOAD_INIT;
    frame.init = &init;
    bytes = message_pack(arena, &frame.base, &len);
    list_remove(&pump->link);
    list_push(&t->pumps, &pump->link);
    pump->token = token;
    token->streams++;
    t->n_streams++;
    t->n_poll_streams += pump->poll;
    pump->call =
        grpc_call_open(t->rpc->channel, "/openshell.v1.OpenShell/ForwardTcp", 0, &events, pump);
    grpc_call_send(pump->call, bytes, len);
    arena_free(arena);
    if (pump->kept.len > 0)
        send_frame(pump, (const uint8_t *)pump->kept.data, pump->kept.len, &queued);
    bufferevent_enable(pump->bev, EV_READ);
    on_socket_readable(pump->bev, pump); /* what came while it waited */
}
