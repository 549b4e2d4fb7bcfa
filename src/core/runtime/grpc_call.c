#include "core/runtime/grpc_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *grpc_code_name(int code)
{
    static const char *const names[] = {
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    };

    return code >= 0 && code < (int)(sizeof(names) / sizeof(names[0])) ? names[code] : "UNKNOWN";
}

/* ---- the end of a call ----------------------------------------------------------------------- */

static void call_release(void *ptr)
{
    struct grpc_call *call = ptr;

    buf_fini(&call->unsent);
    buf_fini(&call->partial);
    free(call->method);
    free(call);
}

static void call_retire(struct grpc_call *call)
{
    call->over = true;
    call->stream = NULL;
    list_remove(&call->link);
    timer_cancel(call->channel->loop, &call->deadline);
    loop_defer_free(call->channel->loop, call_release, call);
}

static void call_end(struct grpc_call *call, const struct error *err)
{
    call_retire(call);
    call->events.on_end(call->ctx, err);
}

void grpc_call_fail(struct grpc_call *call, const struct error *err)
{
    PRE(call->stream == NULL && !call->over);
    call_end(call, err);
}

void grpc_call_cancel(struct grpc_call *call)
{
    PRE(!call->over);
    if (call->stream != NULL)
        h2_stream_cancel(call->stream);
    call_retire(call);
}

static void on_deadline(void *ctx)
{
    struct grpc_call *call = ctx;
    struct error err;

    error_set(&err, ERR_DEADLINE, "%s was not answered in time", call->method);
    err.admitted = call->stream != NULL ? ADMITTED_UNKNOWN : ADMITTED_NO;
    if (call->stream != NULL)
        h2_stream_cancel(call->stream);
    call_end(call, &err);
}

/* ---- status ---------------------------------------------------------------------------------- */

/* The status of an answer that is not gRPC (gRPC over HTTP2, "HTTP to gRPC status code mapping"). */
static int code_of_http(int status)
{
    switch (status) {
    case 400:
        return GRPC_INTERNAL;
    case 401:
        return GRPC_UNAUTHENTICATED;
    case 403:
        return GRPC_PERMISSION_DENIED;
    case 404:
        return GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return GRPC_UNAVAILABLE;
    default:
        return GRPC_UNKNOWN;
    }
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* grpc-message is percent-encoded UTF-8; control characters would end up in logs. */
static void decode_message(const char *in, char *out, size_t cap)
{
    size_t n = 0;

    for (; *in != '\0' && n + 1 < cap; in++) {
        char c = *in;
        if (c == '%' && hex_digit(in[1]) >= 0 && hex_digit(in[2]) >= 0) {
            c = (char)(hex_digit(in[1]) * 16 + hex_digit(in[2]));
            in += 2;
        }
        out[n++] = (unsigned char)c < 0x20 || c == 0x7f ? ' ' : c;
    }
    out[n] = '\0';
}

/* A small decimal number; -1 for anything else. */
static int parse_code(const char *text)
{
    char *end = NULL;
    long value = strtol(text, &end, 10);

    return end != text && *end == '\0' && value >= 0 && value <= 999 ? (int)value : -1;
}

static void on_header(void *ctx, const char *name, const char *value, bool trailer)
{
    struct grpc_call *call = ctx;

    (void)trailer; /* trailers-only errors have their status among the headers */
    if (strcmp(name, ":status") == 0)
        call->http_status = parse_code(value);
    else if (strcmp(name, "content-type") == 0)
        call->is_grpc = strncmp(value, "application/grpc", 16) == 0;
    else if (strcmp(name, "grpc-status") == 0)
        call->grpc_status = parse_code(value);
    else if (strcmp(name, "grpc-message") == 0)
        decode_message(value, call->message, sizeof(call->message));
}

static void status_error(const struct grpc_call *call, int code, const char *message,
                         struct error *err)
{
    error_set(err, ERR_UPSTREAM_STATUS, "%s: %s%s%s", call->method, grpc_code_name(code),
              message[0] != '\0' ? ": " : "", message);
    err->upstream_status = code;
    snprintf(err->upstream_code, sizeof(err->upstream_code), "%s", grpc_code_name(code));
}

static void on_close(void *ctx, enum h2_close reason, uint32_t code)
{
    struct grpc_call *call = ctx;
    struct error err = {0};

    call->stream = NULL;
    if (call->grpc_status >= 0) { /* said before the stream went down: it counts */
        if (call->grpc_status != GRPC_OK)
            status_error(call, call->grpc_status, call->message, &err);
        else if (call->partial.len > 0)
            error_set(&err, ERR_UPSTREAM_PROTOCOL, "%s: the answer ends inside a message",
                      call->method);
    } else if (reason == H2_CLOSE_REFUSED) {
        error_set(&err, ERR_UPSTREAM_LOST, "%s: the peer refused the stream", call->method);
        snprintf(err.upstream_code, sizeof(err.upstream_code), "REFUSED_STREAM");
    } else if (reason == H2_CLOSE_LOST || reason == H2_CLOSE_RESET) {
        error_set(&err, ERR_UPSTREAM_LOST, "%s: the %s (HTTP/2 error %u)", call->method,
                  reason == H2_CLOSE_LOST ? "connection broke" : "peer reset the stream", code);
        err.admitted = ADMITTED_UNKNOWN;
    } else if (!call->is_grpc || call->http_status != 200) {
        status_error(call, code_of_http(call->http_status),
                     "the answer is not gRPC: is this a gRPC port?", &err);
        err.admitted = ADMITTED_UNKNOWN;
    } else {
        error_set(&err, ERR_UPSTREAM_PROTOCOL, "%s: the answer has no grpc-status", call->method);
        err.admitted = ADMITTED_UNKNOWN;
    }
    call_end(call, error_is(&err) ? &err : NULL);
}

/* ---- messages in ------------------------------------------------------------------------------ */

static size_t message_length(const uint8_t *prefix)
{
    return (size_t)prefix[1] << 24 | (size_t)prefix[2] << 16 | (size_t)prefix[3] << 8 | prefix[4];
}

/* False, with the call ended, when the message must not be read. */
static bool prefix_ok(struct grpc_call *call, const uint8_t *prefix)
{
    struct error err;

    if (prefix[0] == 0 && message_length(prefix) <= call->channel->max_message)
        return true;
    error_set(&err, ERR_UPSTREAM_PROTOCOL,
              prefix[0] != 0 ? "%s: the peer sent a compressed message"
                             : "%s: the peer sent a message beyond the limit",
              call->method);
    err.admitted = ADMITTED_UNKNOWN;
    h2_stream_cancel(call->stream);
    call_end(call, &err);
    return false;
}

/* Complete the message whose head is in `partial`; returns how many bytes it took. */
static size_t partial_feed(struct grpc_call *call, const uint8_t *bytes, size_t len)
{
    size_t used = 0, want;

    while (call->partial.len < GRPC_PREFIX_BYTES && used < len)
        buf_add(&call->partial, bytes + used++, 1);
    if (call->partial.len < GRPC_PREFIX_BYTES ||
        !prefix_ok(call, (const uint8_t *)call->partial.data))
        return len;
    want =
        GRPC_PREFIX_BYTES + message_length((const uint8_t *)call->partial.data) - call->partial.len;
    if (want > len - used)
        want = len - used;
    buf_add(&call->partial, bytes + used, want);
    used += want;
    if (call->partial.len ==
        GRPC_PREFIX_BYTES + message_length((const uint8_t *)call->partial.data)) {
        size_t message_len = call->partial.len - GRPC_PREFIX_BYTES;
        call->partial.len = 0; /* before the callback: an end in it must not see half a message */
        call->events.on_message(call->ctx, (const uint8_t *)call->partial.data + GRPC_PREFIX_BYTES,
                                message_len);
    }
    return used;
}

static void on_data(void *ctx, const void *data, size_t len)
{
    struct grpc_call *call = ctx;
    const uint8_t *bytes = data;

    if (!call->is_grpc || call->http_status != 200) /* some proxy's page: its status tells */
        return;
    while (len > 0 && !call->over) {
        size_t used;
        if (call->partial.len > 0 || len < GRPC_PREFIX_BYTES ||
            len - GRPC_PREFIX_BYTES < message_length(bytes)) {
            used = partial_feed(call, bytes, len);
        } else { /* whole in what has arrived: no copy */
            if (!prefix_ok(call, bytes))
                return;
            used = GRPC_PREFIX_BYTES + message_length(bytes);
            call->events.on_message(call->ctx, bytes + GRPC_PREFIX_BYTES, used - GRPC_PREFIX_BYTES);
        }
        bytes += used;
        len -= used;
    }
}

/* ---- messages out ----------------------------------------------------------------------------- */

static void on_writable(void *ctx)
{
    struct grpc_call *call = ctx;

    if (call->events.on_writable != NULL)
        call->events.on_writable(call->ctx);
}

size_t grpc_call_send_parts(struct grpc_call *call, const void *head, size_t head_len,
                            const void *rest, size_t rest_len)
{
    size_t len = head_len + rest_len;
    uint8_t prefix[GRPC_PREFIX_BYTES] = {0, (uint8_t)(len >> 24), (uint8_t)(len >> 16),
                                         (uint8_t)(len >> 8), (uint8_t)len};

    PRE(!call->over && !call->unsent_end && len <= UINT32_MAX);
    if (call->stream == NULL) {
        buf_add(&call->unsent, prefix, sizeof(prefix));
        buf_add(&call->unsent, head, head_len);
        buf_add(&call->unsent, rest, rest_len);
        return call->unsent.len;
    }
    h2_stream_send(call->stream, prefix, sizeof(prefix));
    h2_stream_send(call->stream, head, head_len);
    return h2_stream_send(call->stream, rest, rest_len);
}

size_t grpc_call_send(struct grpc_call *call, const void *message, size_t len)
{
    return grpc_call_send_parts(call, message, len, NULL, 0);
}

void grpc_call_send_end(struct grpc_call *call)
{
    PRE(!call->over);
    if (call->unsent_end)
        return;
    call->unsent_end = true;
    if (call->stream != NULL)
        h2_stream_send_end(call->stream);
}

void grpc_call_pause(struct grpc_call *call)
{
    call->paused = true;
    if (call->stream != NULL)
        h2_stream_pause(call->stream);
}

void grpc_call_resume(struct grpc_call *call)
{
    call->paused = false;
    if (call->stream != NULL)
        h2_stream_resume(call->stream);
}

/* ---- start ------------------------------------------------------------------------------------ */

static const struct h2_stream_events stream_events = {on_header, on_data, on_writable, on_close};

void grpc_call_start(struct grpc_call *call, struct h2_session *session)
{
    const struct grpc_channel *channel = call->channel;
    struct http_header headers[8] = {
        {":method", "POST"},
        {":scheme", channel->tls != NULL ? "https" : "http"},
        {":path", call->method},
        {":authority", channel->authority},
        {"content-type", "application/grpc"},
        {"te", "trailers"},
        {"user-agent", "bindery/" BINDERY_VERSION},
    };
    size_t n = 7;

    if (channel->authorization != NULL)
        headers[n++] = (struct http_header){"authorization", channel->authorization};
    call->stream = h2_stream_open(session, headers, n, &stream_events, call);
    if (call->paused)
        h2_stream_pause(call->stream);
    if (call->unsent.len > 0)
        h2_stream_send(call->stream, call->unsent.data, call->unsent.len);
    buf_fini(&call->unsent);
    if (call->unsent_end)
        h2_stream_send_end(call->stream);
}

struct grpc_call *grpc_call_open(struct grpc_channel *channel, const char *method,
                                 int64_t timeout_ms, const struct grpc_call_events *events,
                                 void *ctx)
{
    struct grpc_call *call = xcalloc(1, sizeof(*call));

    call->channel = channel;
    call->method = xstrdup(method);
    call->events = *events;
    call->ctx = ctx;
    call->grpc_status = -1;
    list_init(&call->link);
    timer_init(&call->deadline, on_deadline, call);
    if (timeout_ms > 0)
        timer_set_ms(channel->loop, &call->deadline, timeout_ms);
    grpc_channel_enqueue(channel, call);
    return call;
}
