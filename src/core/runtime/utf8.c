#include "core/runtime/utf8.h"

#include "core/runtime/buf.h"

#include <string.h>

#define REPLACEMENT "\xEF\xBF\xBD"

static bool is_continuation(unsigned char c)
{
    return (c & 0xC0) == 0x80;
}

/* How many bytes a lead byte announces, and the range that its second byte must be in: that range
 * alone excludes overlong forms, surrogates and code points beyond the last. 0: no lead byte. */
static size_t lead_length(unsigned char lead, unsigned char *ret_low, unsigned char *ret_high)
{
    *ret_low = 0x80;
    *ret_high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF)
        return 2;
    if (lead >= 0xE0 && lead <= 0xEF) {
        if (lead == 0xE0)
            *ret_low = 0xA0;
        if (lead == 0xED)
            *ret_high = 0x9F;
        return 3;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
        if (lead == 0xF0)
            *ret_low = 0x90;
        if (lead == 0xF4)
            *ret_high = 0x8F;
        return 4;
    }
    return 0;
}

size_t utf8_next(const char *bytes, size_t len, bool *ret_valid)
{
    const unsigned char *u = (const unsigned char *)bytes;
    unsigned char low, high;
    size_t want, have;

    PRE(len > 0);
    *ret_valid = true;
    if (u[0] < 0x80)
        return 1;
    want = lead_length(u[0], &low, &high);
    *ret_valid = false;
    if (want == 0 || len < 2 || u[1] < low || u[1] > high)
        return 1;
    for (have = 2; have < want; have++) {
        if (have == len || !is_continuation(u[have]))
            return have;
    }
    *ret_valid = true;
    return want;
}

void utf8_add(struct buf *out, const char *bytes, size_t len)
{
    size_t run = 0, at = 0;

    while (at < len) {
        bool valid;
        size_t n = utf8_next(bytes + at, len - at, &valid);
        if (!valid) {
            buf_add(out, bytes + run, at - run);
            buf_add(out, REPLACEMENT, 3);
            run = at + n;
        }
        at += n;
    }
    buf_add(out, bytes + run, len - run);
}

size_t utf8_count(const char *bytes, size_t len)
{
    size_t count = 0;

    for (size_t i = 0; i < len; i++)
        count += !is_continuation((unsigned char)bytes[i]);
    return count;
}
