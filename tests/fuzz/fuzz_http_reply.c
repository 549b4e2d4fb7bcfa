/* Answers of a peer: cut into reads anywhere, they give the same status, headers, body and end; and
 * a connection is only reused behind an answer that used up all that came. The first byte of the input
 * says where to cut, its top bit whether the request was a HEAD. */
#include "fuzz.h"

#include "core/runtime/http_reply.h"

#include <stdlib.h>
#include <string.h>

struct reading {
    struct transfer transfer;
    struct buf body;
    int heads;
};

static void on_head(void *ctx)
{
    struct reading *reading = ctx;

    reading->heads++;
}

static bool on_body(void *ctx, const char *bytes, size_t len)
{
    struct reading *reading = ctx;

    POST(len > 0 && reading->transfer.head_complete);
    buf_add(&reading->body, bytes, len);
    return true;
}

static const struct transfer_owner owner = {.head = on_head, .body = on_body};

/* Each piece in memory of its own, so that a sanitizer sees a look beyond it. */
static enum reply_result feed_piece(struct http_reply *reply, const char *bytes, size_t len)
{
    char *piece = malloc(len);
    enum reply_result result;

    memcpy(piece, bytes, len);
    result = http_reply_feed(reply, piece, len);
    free(piece);
    return result;
}

static enum reply_result read_all(struct reading *reading, const char *bytes, size_t len,
                                  size_t step, bool head_request, bool *ret_keep)
{
    struct http_reply reply = {0};
    enum reply_result result = REPLY_MORE;

    reading->transfer.owner = &owner;
    reading->transfer.owner_ctx = reading;
    reading->transfer.head_request = head_request;
    http_reply_begin(&reply, &reading->transfer);
    for (size_t at = 0; at < len && result == REPLY_MORE; at += step) {
        size_t n = len - at < step ? len - at : step;
        result = feed_piece(&reply, bytes + at, n);
        if (result == REPLY_OVER && at + n < len)
            reply.keep_alive = false; /* the rest would come as excess */
    }
    if (result == REPLY_MORE)
        result = http_reply_eof(&reply);
    *ret_keep = reply.keep_alive;
    POST(result != REPLY_BAD || reply.why != NULL);
    POST(result != REPLY_OVER || (reading->heads == 1 && reading->transfer.status >= 200));
    http_reply_fini(&reply);
    return result;
}

static void reading_fini(struct reading *reading)
{
    buf_fini(&reading->body);
    buf_fini(&reading->transfer.head);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t len)
{
    struct reading whole = {0}, cut = {0};
    bool whole_keeps = false, cut_keeps = false;
    enum reply_result first, second;

    if (len < 2)
        return 0;
    const char *bytes = (const char *)input + 1;
    bool head_request = input[0] > 127;
    first = read_all(&whole, bytes, len - 1, len, head_request, &whole_keeps);
    second = read_all(&cut, bytes, len - 1, input[0] % 7 + 1U, head_request, &cut_keeps);
    POST(first == second && whole.heads == cut.heads);
    if (first == REPLY_OVER) {
        POST(whole_keeps == cut_keeps && whole.body.len == cut.body.len);
        POST(whole.body.len == 0 || memcmp(whole.body.data, cut.body.data, cut.body.len) == 0);
        POST(whole.transfer.n_headers == cut.transfer.n_headers);
        POST(whole.transfer.head.len == cut.transfer.head.len);
        POST(whole.transfer.head.len == 0 ||
             memcmp(whole.transfer.head.data, cut.transfer.head.data, cut.transfer.head.len) == 0);
    }
    reading_fini(&whole);
    reading_fini(&cut);
    return 0;
}
