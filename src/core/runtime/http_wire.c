/* An exchange on its connection.
 *
 * Happy path: ask the pool → connected: send head and body at once → readable: feed the parser →
 *   complete: the connection back to the pool, transfer_attempt_over.
 * A pooled connection that breaks before a byte of the answer: once more on a new connection, if
 *   nothing was taken from us, or the request may be repeated.
 * Failures: what the parser refuses, a break, an end in the middle: the connection is closed.
 *
 * A peer that stops reading may have answered all the same: a failed send ends nothing, what the
 * connection then says does. */
#include "core/runtime/http_wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
    POOL_MAX = 256,           /* idle transfers kept: about 2 KiB each */
    UPLOAD_PIECE = 16 * 1024, /* taken from the owner at a time */
    CHUNK_HEAD = 8,           /* "3fff\r\n" and a little */
};

static struct wire_transfer *of(const struct transfer *t)
{
    return container_of(t, struct wire_transfer, base);
}

/* ---- the end of an attempt ------------------------------------------------------------------- */

static bool request_is_out(const struct wire_transfer *t)
{
    if (t->out_at < t->out.len)
        return false;
    return t->base.form == FORM_UPLOAD ? t->upload_over : t->body_at == t->base.body_len;
}

static void conn_drop(struct wire_transfer *t, bool reusable)
{
    struct wire_conn *c = t->conn;

    t->conn = NULL;
    if (t->write_wanted) {
        event_del(&c->write_event);
        t->write_wanted = false;
    }
    wire_conn_release(c, reusable);
}

static void over(struct wire_transfer *t)
{
    bool once = t->dialer != NULL && t->dialer->one_exchange;

    conn_drop(t, t->reply.keep_alive && !once && request_is_out(t) && !t->write_broken);
    transfer_attempt_over(&t->base, NULL);
}

static void broken(struct wire_transfer *t, enum err_code code, const char *what)
{
    struct error error;

    conn_drop(t, false);
    transfer_describe(&t->base, code, what, &error);
    transfer_attempt_over(&t->base, &error);
}

/* The connection has ended, without a complete answer. */
static void lost(struct wire_transfer *t, const char *what)
{
    const struct error *why =
        t->dialer != NULL && t->dialer->why != NULL ? t->dialer->why(t->dialer->ctx) : NULL;
    bool stale = t->conn->used && !t->reply.started && !t->repeated && !error_is(&t->base.refused);

    if (stale && (!t->sent || (t->base.repeatable && t->base.form != FORM_UPLOAD))) {
        t->repeated = true;
        conn_drop(t, false);
        wire_pool_ask(t);
        return;
    }
    broken(t, t->sent ? ERR_UPSTREAM_LOST : ERR_UPSTREAM_CONNECT,
           why != NULL && error_is(why) ? why->message : what);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void want_write(struct wire_transfer *t, bool wanted)
{
    if (t->write_wanted == wanted)
        return;
    t->write_wanted = wanted;
    if (wanted)
        event_add(&t->conn->write_event, NULL);
    else
        event_del(&t->conn->write_event);
}

/* The body that the head announced is not there: the peer must not take for it what comes later. */
static void upload_too_short(struct wire_transfer *t)
{
    transfer_refuse(&t->base, ERR_INTERNAL, "the request's body ended before its announced length");
    t->write_broken = true;
    shutdown(t->conn->fd, SHUT_RDWR); /* the read event ends the attempt */
}

/* Put a chunk's size before and its line break behind `n` bytes at `at` + CHUNK_HEAD. */
static void frame_chunk(char *at, size_t n)
{
    static const char hex[] = "0123456789abcdef";

    for (int i = 0; i < CHUNK_HEAD - 2; i++) /* with leading zeros: of a fixed length */
        at[i] = hex[n >> (4 * (CHUNK_HEAD - 3 - i)) & 15];
    at[CHUNK_HEAD - 2] = at[CHUNK_HEAD + n] = '\r';
    at[CHUNK_HEAD - 1] = at[CHUNK_HEAD + n + 1] = '\n';
}

/* The next piece of the upload behind what is in `out`; false when there is none now. */
static bool take_upload(struct wire_transfer *t)
{
    bool chunked = t->base.upload_len < 0;
    size_t front = chunked ? CHUNK_HEAD : 0, room = UPLOAD_PIECE, n;
    struct buf *out = &t->out;

    if (t->base.head_complete && t->base.status >= 400)
        return false; /* the peer does not want it */
    if (t->out_at == out->len && t->sent) {
        buf_clear(out);
        t->out_at = 0;
    }
    if (!chunked && (int64_t)room > t->base.upload_len - t->uploaded)
        room = (size_t)(t->base.upload_len - t->uploaded);
    buf_reserve(out, front + room + 8);
    n = room == 0 ? 0
                  : t->base.owner->upload(t->base.owner_ctx, out->data + out->len + front, room);
    if (n == UPLOAD_WAIT)
        return false;
    t->uploaded += (int64_t)n;
    t->upload_over = n == 0;
    if (chunked && n == 0) {
        buf_add(out, "0\r\n\r\n", 5);
    } else if (chunked) {
        frame_chunk(out->data + out->len, n);
        out->len += CHUNK_HEAD + n + 2;
    } else if (n > 0) {
        out->len += n;
    } else if (room > 0) {
        upload_too_short(t);
        return false;
    }
    return true;
}

/* One sendmsg of what is there. False when the connection takes no more now. */
static bool send_some(struct wire_transfer *t)
{
    struct iovec parts[2] = {{t->out.data + t->out_at, t->out.len - t->out_at}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 1};
    size_t body_left = t->base.form == FORM_MEMORY ? t->base.body_len - t->body_at : 0;
    ssize_t n;

    if (body_left > 0) {
        parts[1].iov_base = (char *)(uintptr_t)t->base.body + t->body_at;
        parts[1].iov_len = body_left;
        message.msg_iovlen = 2;
    }
    n = sendmsg(t->conn->fd, &message, MSG_NOSIGNAL);
    if (n < 0) {
        if (errno == EAGAIN || errno == EINTR)
            return false;
        t->write_broken = true;
        return false;
    }
    t->sent = true;
    if ((size_t)n <= parts[0].iov_len) {
        t->out_at += (size_t)n;
    } else {
        t->body_at += (size_t)n - parts[0].iov_len;
        t->out_at = t->out.len;
    }
    return (size_t)n == parts[0].iov_len + body_left;
}

static void push(struct wire_transfer *t)
{
    while (!request_is_out(t)) {
        if (t->out_at == t->out.len && t->base.form == FORM_UPLOAD && !take_upload(t))
            break;
        if (t->out_at == t->out.len && t->upload_over)
            break;
        if (!send_some(t)) {
            want_write(t, !t->write_broken);
            return;
        }
    }
    want_write(t, false);
}

void wire_transfer_writable(struct wire_transfer *t)
{
    transfer_touch(&t->base);
    push(t);
}

void wire_transfer_connected(struct wire_transfer *t, struct wire_conn *conn)
{
    t->conn = conn;
    t->out_at = t->body_at = 0;
    t->write_broken = false;
    http_reply_begin(&t->reply, &t->base);
    transfer_touch(&t->base);
    wire_conn_read(conn, !t->base.holding);
    push(t);
}

/* ---- reading --------------------------------------------------------------------------------- */

void wire_transfer_readable(struct wire_transfer *t)
{
    struct wire *wire = t->base.client->wire;
    ssize_t n = recv(t->conn->fd, wire->read_buffer, sizeof(wire->read_buffer), 0);

    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            lost(t, strerror(errno));
        return;
    }
    if (n == 0) {
        if (http_reply_eof(&t->reply) == REPLY_OVER)
            over(t);
        else
            lost(t, t->reply.started ? "the connection ended in the middle of the answer"
                                     : "the connection ended without an answer");
        return;
    }
    transfer_touch(&t->base);
    switch (http_reply_feed(&t->reply, wire->read_buffer, (size_t)n)) {
    case REPLY_OVER:
        over(t);
        return;
    case REPLY_BAD:
        broken(t, ERR_UPSTREAM_PROTOCOL, t->reply.why);
        return;
    case REPLY_MORE:
        if (t->base.holding)
            wire_conn_read(t->conn, false);
        return;
    }
}

/* ---- as a transport ------------------------------------------------------------------------- */

static void start(struct transfer *base)
{
    struct wire_transfer *t = of(base);

    wire_pool_ask(t); /* `out` is whole: another attempt is only made when nothing was sent */
}

static void stop(struct transfer *base)
{
    struct wire_transfer *t = of(base);

    task_cancel(&t->failed_task);
    if (t->conn != NULL)
        conn_drop(t, false);
    else
        wire_pool_forget(t);
}

static bool was_sent(const struct transfer *t)
{
    return of(t)->sent;
}

static void go_on(struct transfer *t)
{
    if (of(t)->conn != NULL)
        wire_conn_read(of(t)->conn, true);
}

static void more_upload(struct transfer *t)
{
    if (of(t)->conn != NULL && !of(t)->write_wanted && !of(t)->write_broken)
        push(of(t));
}

void wire_transfer_unconnected(struct wire_transfer *t, const struct error *err)
{
    t->failed = *err;
    loop_post(t->base.client->loop, &t->failed_task);
}

static void on_failed(void *ctx)
{
    struct wire_transfer *t = ctx;
    struct error error;

    transfer_describe(&t->base, t->failed.code, t->failed.message, &error);
    error.retry_after_ms = t->failed.retry_after_ms;
    transfer_attempt_over(&t->base, &error);
}

static void transfer_free(struct wire_transfer *t)
{
    transfer_fini(&t->base);
    http_reply_fini(&t->reply);
    buf_fini(&t->out);
    free(t);
}

static void give_back(struct transfer *base)
{
    struct wire_transfer *t = of(base);
    struct wire *wire = base->client->wire;

    if (t->origin != NULL)
        wire_origin_release(wire, t->origin);
    t->origin = NULL;
    if (wire->n_pool >= POOL_MAX) {
        transfer_free(t);
        return;
    }
    base->next = wire->pool;
    wire->pool = base;
    wire->n_pool++;
}

static const struct transport by_wire = {
    .prepare = wire_prepare,
    .start = start,
    .stop = stop,
    .was_sent = was_sent,
    .go_on = go_on,
    .more_upload = more_upload,
    .give_back = give_back,
};

struct transfer *wire_transfer_take(struct http_client *client)
{
    struct wire *wire = client->wire;
    struct transfer *base = wire->pool;
    struct wire_transfer *t;

    if (base != NULL) {
        wire->pool = base->next;
        wire->n_pool--;
        return base;
    }
    t = xcalloc(1, sizeof(*t));
    transfer_init(&t->base, client, &by_wire);
    list_init(&t->waiting);
    task_init(&t->failed_task, on_failed, t);
    return &t->base;
}

struct wire *wire_new(struct http_client *client)
{
    struct wire *wire = xcalloc(1, sizeof(*wire));

    wire->client = client;
    wire->resolver = resolver_new(client->loop);
    wire_pool_init(wire);
    return wire;
}

void wire_free(struct wire *wire)
{
    if (wire == NULL)
        return;
    wire_pool_fini(wire);
    while (wire->pool != NULL) {
        struct wire_transfer *t = of(wire->pool);
        wire->pool = t->base.next;
        transfer_free(t);
    }
    resolver_free(wire->resolver);
    free(wire);
}
