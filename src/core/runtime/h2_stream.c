#include "core/runtime/h2_internal.h"

#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

/* ---- streams --------------------------------------------------------------------------------- */

static void stream_release(void *ptr)
{
    struct h2_stream *st = ptr;

    evbuffer_free(st->out);
    if (st->held != NULL)
        evbuffer_free(st->held);
    free(st);
}

/* Nothing of nghttp2 points to it any more; memory stays until the end of the turn. */
void h2_stream_forget(struct h2_stream *st)
{
    struct h2_session *s = st->session;

    list_remove(&st->link);
    list_remove(&st->writable_link);
    if (!st->wire_closed)
        s->n_streams--;
    st->session = NULL;
    loop_defer_free(s->loop, stream_release, st);
}

static void stream_over(struct h2_stream *st, enum h2_close reason, uint32_t code)
{
    struct h2_session *s = st->session;

    h2_stream_forget(st);
    st->events.on_close(st->ctx, reason, code);
    if (!s->closed)
        s->events.on_stream_end(s->ctx);
}

/* Give held bytes to the user while it takes them; then the end, if the end is here. */
static void stream_deliver(struct h2_stream *st)
{
    struct h2_session *s = st->session;

    while (st->held != NULL && !st->paused) {
        size_t len = evbuffer_get_contiguous_space(st->held);

        if (len == 0)
            break;
        st->events.on_data(st->ctx, evbuffer_pullup(st->held, (ev_ssize_t)len), len);
        if (st->dead || st->session == NULL)
            return;
        evbuffer_drain(st->held, len);
        if (!st->wire_closed && !s->closed) {
            nghttp2_session_consume_stream(s->ng, st->id, len);
            loop_post(s->loop, &s->flush);
        }
    }
    if (st->wire_closed && !st->paused)
        stream_over(st, st->wire_reason, st->wire_code);
}

static ssize_t read_out(nghttp2_session *ng, int32_t id, uint8_t *bytes, size_t len,
                        uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct h2_stream *st = nghttp2_session_get_stream_user_data(ng, id);
    int taken;

    (void)source;
    (void)user;
    if (st == NULL || st->dead)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    taken = evbuffer_remove(st->out, bytes, len);
    if (evbuffer_get_length(st->out) == 0) {
        if (st->out_end)
            *flags |= NGHTTP2_DATA_FLAG_EOF;
        else if (taken <= 0) {
            st->deferred = true;
            return NGHTTP2_ERR_DEFERRED;
        }
    }
    if (st->was_full && evbuffer_get_length(st->out) < H2_STREAM_OUT_LOW) {
        st->was_full = false;
        list_remove(&st->writable_link);
        list_push(&st->session->writable, &st->writable_link);
    }
    return taken > 0 ? taken : 0;
}

struct h2_stream *h2_stream_open(struct h2_session *session, const struct http_header *headers,
                                 size_t n_headers, const struct h2_stream_events *events, void *ctx)
{
    struct h2_stream *st = xcalloc(1, sizeof(*st));
    nghttp2_nv nv[24];
    nghttp2_data_provider provider = {.read_callback = read_out};

    PRE(h2_session_has_room(session) && n_headers <= 24);
    for (size_t i = 0; i < n_headers; i++)
        nv[i] =
            (nghttp2_nv){(uint8_t *)headers[i].name, (uint8_t *)headers[i].value,
                         strlen(headers[i].name), strlen(headers[i].value), NGHTTP2_NV_FLAG_NONE};
    st->session = session;
    st->events = *events;
    st->ctx = ctx;
    st->out = evbuffer_new();
    PRE(st->out != NULL);
    list_init(&st->writable_link);
    list_push(&session->streams, &st->link);
    session->n_streams++;
    st->id = nghttp2_submit_request(session->ng, NULL, nv, n_headers, &provider, st);
    POST(st->id > 0); /* fails only without memory or after 2^30 streams */
    loop_post(session->loop, &session->flush);
    return st;
}

static void stream_kick(struct h2_stream *st)
{
    if (st->deferred) {
        st->deferred = false;
        nghttp2_session_resume_data(st->session->ng, st->id);
    }
    loop_post(st->session->loop, &st->session->flush);
}

size_t h2_stream_send(struct h2_stream *stream, const void *bytes, size_t len)
{
    size_t queued;

    PRE(!stream->out_end);
    if (len > 0)
        evbuffer_add(stream->out, bytes, len);
    queued = evbuffer_get_length(stream->out);
    if (queued >= H2_STREAM_OUT_LOW)
        stream->was_full = true;
    stream_kick(stream);
    return queued;
}

void h2_stream_send_end(struct h2_stream *stream)
{
    stream->out_end = true;
    stream_kick(stream);
}

void h2_stream_pause(struct h2_stream *stream)
{
    stream->paused = true;
}

void h2_stream_resume(struct h2_stream *stream)
{
    stream->paused = false;
    stream_deliver(stream);
}

/* nghttp2 keeps its pointer until it reports the stream as closed, even for a request that was
 * still queued: until then the struct stays, dead. */
void h2_stream_cancel(struct h2_stream *stream)
{
    struct h2_session *s = stream->session;

    PRE(!stream->dead);
    if (stream->wire_closed || s->closed) {
        h2_stream_forget(stream);
        return;
    }
    stream->dead = true;
    list_remove(&stream->writable_link);
    list_remove(&stream->link);
    list_push(&s->dead, &stream->link);
    nghttp2_submit_rst_stream(s->ng, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_CANCEL);
    loop_post(s->loop, &s->flush);
}

/* ---- frames coming in ------------------------------------------------------------------------ */

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    struct h2_stream *st = nghttp2_session_get_stream_user_data(ng, frame->hd.stream_id);

    (void)name_len; /* nghttp2 puts a NUL behind both and refuses NULs inside */
    (void)value_len;
    (void)flags;
    (void)user;
    if (st != NULL && !st->dead && frame->hd.type == NGHTTP2_HEADERS)
        st->events.on_header(st->ctx, (const char *)name, (const char *)value,
                             frame->headers.cat != NGHTTP2_HCAT_RESPONSE);
    return 0;
}

static int on_data(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *bytes, size_t len,
                   void *user)
{
    struct h2_session *s = user;
    struct h2_stream *st = nghttp2_session_get_stream_user_data(ng, id);

    (void)flags;
    if (st == NULL || st->dead) {
        nghttp2_session_consume(ng, id, len);
        return 0;
    }
    nghttp2_session_consume_connection(ng, len);
    if (st->paused || (st->held != NULL && evbuffer_get_length(st->held) > 0)) {
        if (st->held == NULL)
            st->held = evbuffer_new();
        PRE(st->held != NULL);
        evbuffer_add(st->held, bytes, len); /* bounded by H2_STREAM_WINDOW: it is not given back */
        return 0;
    }
    st->events.on_data(st->ctx, bytes, len);
    nghttp2_session_consume_stream(s->ng, id, len);
    return 0;
}

static int on_stream_close(nghttp2_session *ng, int32_t id, uint32_t code, void *user)
{
    struct h2_stream *st = nghttp2_session_get_stream_user_data(ng, id);
    enum h2_close reason = H2_CLOSE_RESET;

    (void)user;
    if (st == NULL)
        return 0;
    if (st->dead) {
        h2_stream_forget(st);
        return 0;
    }
    if (code == NGHTTP2_NO_ERROR)
        reason = H2_CLOSE_CLEAN;
    else if (code == NGHTTP2_REFUSED_STREAM)
        reason = H2_CLOSE_REFUSED;
    if (st->held != NULL && evbuffer_get_length(st->held) > 0) {
        st->wire_closed = true; /* the end must not overtake the bytes */
        st->wire_reason = reason;
        st->wire_code = code;
        st->session->n_streams--;
        return 0;
    }
    stream_over(st, reason, code);
    return 0;
}

static int on_frame(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    struct h2_session *s = user;

    (void)ng;
    if (frame->hd.type == NGHTTP2_SETTINGS && !(frame->hd.flags & NGHTTP2_FLAG_ACK) && !s->ready) {
        s->ready = true;
        timer_cancel(s->loop, &s->connecting);
        s->events.on_ready(s->ctx);
    } else if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK)) {
        s->ping_pending = false;
    } else if (frame->hd.type == NGHTTP2_GOAWAY && !s->draining) {
        s->draining = true;
        s->events.on_draining(s->ctx);
    }
    return 0;
}

/* ---- installing ------------------------------------------------------------------------------ */

void h2_session_attach(struct h2_session *session)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;

    PRE(nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_option_set_no_auto_window_update(option, 1);
    PRE(nghttp2_session_client_new2(&session->ng, callbacks, session, option) == 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
}

void h2_stream_end_lost(struct h2_stream *stream)
{
    if (!stream->wire_closed) {
        stream_over(stream, H2_CLOSE_LOST, 0);
        return;
    }
    stream->paused = false; /* complete: its user must take the rest now */
    stream_deliver(stream);
}
