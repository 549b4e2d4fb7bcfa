/* A job's output: first byte = kind and where the input is cut in two. The text must be valid UTF-8,
 * bounded, and the same however it was cut. */
#include "fuzz.h"

#include "backends/shellctld/output_filter.h"
#include "core/runtime/utf8.h"

#include <string.h>

static void run(enum filter_kind kind, const char *bytes, size_t len, size_t cut, struct buf *out)
{
    struct output_filter f;

    output_filter_init(&f, kind);
    output_filter_feed(&f, bytes, cut, out);
    output_filter_feed(&f, bytes + cut, len - cut, out);
    output_filter_finish(&f, out);
    output_filter_fini(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf whole = {0}, parts = {0};
    bool valid = true;

    if (size == 0)
        return 0;
    enum filter_kind kind = (data[0] & 1) != 0 ? FILTER_TERMINAL : FILTER_PLAIN;
    const char *bytes = (const char *)data + 1;
    size_t len = size - 1, cut = len == 0 ? 0 : (size_t)(data[0] >> 1) % (len + 1);

    run(kind, bytes, len, 0, &whole);
    run(kind, bytes, len, cut, &parts);
    POST(whole.len <= 3 * len && whole.len == parts.len);
    POST(memcmp(buf_text(&whole), buf_text(&parts), whole.len) == 0);
    for (size_t at = 0; at < whole.len;) {
        at += utf8_next(whole.data + at, whole.len - at, &valid);
        POST(valid);
    }
    buf_fini(&whole);
    buf_fini(&parts);
    return 0;
}
