/* Streamed exchanges. The transport's callbacks fill a buffer and post; everything reaches the user from the
 * ready queue: head, data, room for more, end, in this order within a turn.
 *
 * Down: at 64 KiB unread the exchange pauses, so that TCP holds the peer; it goes on when the user
 * has taken the data. Up: what http_stream_send queues is handed to the transport as it asks; with nothing
 * queued the upload pauses until more is sent.
 * Failures: data that arrived before a break is delivered before on_end says so. */
#include "core/runtime/http_client_transfer.h"

#include <stdlib.h>
#include <string.h>

enum {
    HOLD_MAX = 64 * 1024,     /* unread bytes at which the peer is paused */
    UPLOAD_LOW = 16 * 1024,   /* queued upload at which the user is asked for more */
    COMPACT_MIN = 256 * 1024, /* consumed upload bytes kept in front before moving the rest */
};

struct http_stream {
    struct http_client *client;
    struct transfer *transfer;
    const struct http_stream_events *events;
    void *ctx;
    struct arena *arena; /* the copied request, and the head given to on_head */
    struct task task;

    struct buf data; /* arrived, not delivered */
    struct buf out;  /* queued upload, from out_at */
    size_t out_at;
    uint64_t max_body, arrived;
    bool head_due, user_paused, upload_ended, upload_full, writable_due, over, cancelled;
    struct error error;
};

/* ---- below the transport -------------------------------------------------------------------- */

static void stream_post(struct http_stream *s)
{
    loop_post(s->client->loop, &s->task);
}

static void stream_head(void *ctx)
{
    struct http_stream *s = ctx;

    s->head_due = true;
    stream_post(s);
}

static bool stream_body(void *ctx, const char *bytes, size_t len)
{
    struct http_stream *s = ctx;

    if (s->max_body > 0 && s->arrived + len > s->max_body) {
        transfer_refuse(s->transfer, ERR_UPSTREAM_PROTOCOL, "the answer is larger than is taken");
        return false;
    }
    s->arrived += len;
    buf_add(&s->data, bytes, len);
    if (s->data.len >= HOLD_MAX)
        transfer_hold(s->transfer);
    if (!s->user_paused)
        stream_post(s);
    return true;
}

static size_t stream_queued(const struct http_stream *s)
{
    return s->out.len - s->out_at;
}

static size_t stream_upload(void *ctx, char *to, size_t room)
{
    struct http_stream *s = ctx;
    size_t queued = stream_queued(s);
    size_t n = queued < room ? queued : room;

    if (n == 0) {
        if (s->upload_ended)
            return 0;
        s->writable_due = true;
        stream_post(s);
        return UPLOAD_WAIT;
    }
    memcpy(to, s->out.data + s->out_at, n);
    s->out_at += n;
    if (s->out_at == s->out.len || s->out_at >= COMPACT_MIN) {
        buf_drain(&s->out, s->out_at);
        s->out_at = 0;
    }
    if (s->upload_full && stream_queued(s) <= UPLOAD_LOW) {
        s->upload_full = false;
        s->writable_due = true;
        stream_post(s);
    }
    return n;
}

static void stream_over(void *ctx, const struct error *err)
{
    struct http_stream *s = ctx;

    s->over = true;
    if (err != NULL)
        s->error = *err;
    stream_post(s);
}

static const struct transfer_owner stream_owner = {
    .head = stream_head,
    .body = stream_body,
    .upload = stream_upload,
    .over = stream_over,
};

/* ---- delivery ------------------------------------------------------------------------------- */

static void stream_free(void *ptr)
{
    struct http_stream *s = ptr;

    buf_fini(&s->data);
    buf_fini(&s->out);
    arena_free(s->arena);
    free(s);
}

static void stream_dispose(struct http_stream *s)
{
    s->cancelled = true;
    task_cancel(&s->task);
    if (s->transfer != NULL)
        transfer_release(s->transfer);
    s->transfer = NULL;
    loop_defer_free(s->client->loop, stream_free, s);
}

/* Room again for what the transport holds back. */
static void stream_go_on(struct http_stream *s)
{
    if (!s->over)
        transfer_go_on(s->transfer);
}

static void stream_more_upload(struct http_stream *s)
{
    if (!s->over)
        transfer_more_upload(s->transfer);
}

static void deliver_head(struct http_stream *s)
{
    struct http_response head;

    s->head_due = false;
    transfer_response(s->transfer, s->arena, &head);
    s->events->on_head(s->ctx, &head);
    /* After an error curl drops the rest of the upload, but a paused one keeps it waiting. */
    if (!s->cancelled && head.status >= 400)
        stream_more_upload(s);
}

static void deliver_data(struct http_stream *s)
{
    s->events->on_data(s->ctx, s->data.data, s->data.len);
    if (s->cancelled)
        return;
    buf_clear(&s->data);
    if (!s->user_paused)
        stream_go_on(s);
}

static void deliver_end(struct http_stream *s)
{
    const struct http_stream_events *events = s->events;
    struct error error = s->error;
    void *ctx = s->ctx;

    stream_dispose(s);
    events->on_end(ctx, error_is(&error) ? &error : NULL);
}

static void stream_run(void *ctx)
{
    struct http_stream *s = ctx;

    if (s->head_due)
        deliver_head(s);
    if (!s->cancelled && s->data.len > 0 && !s->user_paused)
        deliver_data(s);
    if (!s->cancelled && s->writable_due && !s->over) {
        s->writable_due = false;
        s->events->on_writable(s->ctx);
    }
    if (!s->cancelled && s->over && s->data.len == 0)
        deliver_end(s);
}

/* ---- for the user --------------------------------------------------------------------------- */

static struct http_request *copy_request(struct arena *arena, const struct http_request *from)
{
    struct http_request *to = ARENA_NEW(arena, struct http_request);
    struct http_header *headers = arena_alloc(arena, (from->n_headers + 1) * sizeof(*headers));

    *to = *from;
    for (size_t i = 0; i < from->n_headers; i++)
        headers[i] = (struct http_header){arena_strdup(arena, from->headers[i].name),
                                          arena_strdup(arena, from->headers[i].value)};
    to->headers = headers;
    to->peer = arena_strdup(arena, from->peer);
    to->method = arena_strdup(arena, from->method);
    to->url = arena_strdup(arena, from->url);
    to->unix_socket = arena_strdup(arena, from->unix_socket);
    if (from->body_len > 0)
        to->body = arena_memdup(arena, from->body, from->body_len);
    return to;
}

struct http_stream *http_stream_open(struct http_client *client, const struct http_request *request,
                                     bool upload, int64_t upload_len,
                                     const struct http_stream_events *events, void *ctx)
{
    struct http_stream *s = xcalloc(1, sizeof(*s));
    const struct http_request *copy;

    s->client = client;
    s->events = events;
    s->ctx = ctx;
    s->arena = arena_new();
    s->max_body = request->max_body;
    task_init(&s->task, stream_run, s);
    copy = copy_request(s->arena, request);
    s->transfer = transfer_take(client, copy, &stream_owner, s);
    if (!transfer_begin(s->transfer, copy, upload ? upload_len : UPLOAD_NONE, 0, &s->error)) {
        s->over = true;
        stream_post(s);
    }
    return s;
}

size_t http_stream_send(struct http_stream *s, const void *bytes, size_t len)
{
    size_t queued;

    PRE(!s->cancelled && !s->upload_ended);
    if (s->over)
        return 0;
    buf_add(&s->out, bytes, len);
    queued = stream_queued(s);
    if (queued > HOLD_MAX)
        s->upload_full = true;
    if (queued > 0)
        stream_more_upload(s);
    return queued;
}

void http_stream_send_end(struct http_stream *s)
{
    PRE(!s->cancelled);
    s->upload_ended = true;
    s->writable_due = false;
    stream_more_upload(s);
}

void http_stream_pause(struct http_stream *s)
{
    s->user_paused = true;
}

void http_stream_resume(struct http_stream *s)
{
    if (s->cancelled || !s->user_paused)
        return;
    s->user_paused = false;
    if (s->data.len == 0)
        stream_go_on(s);
    stream_post(s);
}

void http_stream_cancel(struct http_stream *s)
{
    if (!s->cancelled)
        stream_dispose(s);
}
