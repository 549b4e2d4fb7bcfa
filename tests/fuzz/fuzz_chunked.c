/* Chunked bodies: cut into reads anywhere, they decode to the same bytes and the same end. The first
 * byte of the input says where to cut. */
#include "fuzz.h"

#include "core/runtime/buf.h"
#include "core/runtime/check.h"
#include "http/chunked.h"

#include <string.h>

/* Decode `bytes` in reads of at most `step`; the last result, and how many bytes were used. */
static enum chunked_result decode(const char *bytes, size_t len, size_t step, struct buf *body,
                                  size_t *ret_used)
{
    struct chunked chunked = {0};
    enum chunked_result result = CHUNKED_MORE;
    size_t at = 0;

    for (size_t until = step < len ? step : len;; until = until + step < len ? until + step : len) {
        do {
            const char *data = NULL;
            size_t used = 0, n = 0;
            result = chunked_next(&chunked, bytes + at, until - at, &used, &data, &n);
            POST(used <= until - at);
            if (result == CHUNKED_DATA) {
                POST(data >= bytes + at && data + n <= bytes + at + used && n > 0);
                buf_add(body, data, n);
            }
            at += used;
        } while (result == CHUNKED_DATA);
        if (result != CHUNKED_MORE)
            break;
        POST(at == until);
        if (until == len)
            break;
    }
    *ret_used = at;
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t len)
{
    struct buf whole = {0}, cut = {0};
    size_t whole_used = 0, cut_used = 0;

    if (len < 2)
        return 0;
    const char *bytes = (const char *)input + 1;
    enum chunked_result first = decode(bytes, len - 1, len, &whole, &whole_used);
    enum chunked_result second = decode(bytes, len - 1, input[0] % 7 + 1U, &cut, &cut_used);
    POST(first == second);
    if (first != CHUNKED_BAD) {
        POST(whole_used == cut_used && whole.len == cut.len);
        POST(whole.len == 0 || memcmp(whole.data, cut.data, whole.len) == 0);
    }
    buf_fini(&whole);
    buf_fini(&cut);
    return 0;
}
