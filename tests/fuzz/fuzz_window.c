/* Windows over output of any bytes: every window advances, stays within its limit, is valid UTF-8,
 * and windows of one size add up to the same text as those of another. */
#include "fuzz.h"

#include "backends/shellctld/window.h"
#include "core/runtime/check.h"
#include "core/runtime/quote.h"
#include "core/runtime/utf8.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void read_all(int fd, int64_t offset, int64_t limit, struct buf *text)
{
    struct window window;
    struct error err = {0};

    do {
        size_t before = text->len;
        POST(window_read(fd, offset, limit, false, text, &window, &err));
        POST(!window.truncated || window.offset > offset);
        POST(text->len - before <= (size_t)limit || text->len - before <= 4);
        offset = window.offset;
    } while (window.truncated);
    POST(offset == window.size);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct buf whole = {0}, cut = {0}, decoded = {0};
    int64_t limit = len > 0 ? 1 + bytes[0] % 40 : 1;
    int fd = memfd_create("output", MFD_CLOEXEC);

    if (len > 4096)
        len = 4096;
    POST(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    read_all(fd, 0, 1 << 20, &whole);
    read_all(fd, 0, limit, &cut);
    utf8_add(&decoded, (const char *)bytes, len);
    POST(whole.len == decoded.len && memcmp(buf_text(&whole), buf_text(&decoded), whole.len) == 0);
    POST(cut.len == whole.len && memcmp(buf_text(&cut), buf_text(&whole), cut.len) == 0);
    for (size_t offset = 0; offset < len; offset += 1 + len / 16) {
        buf_clear(&cut);
        read_all(fd, (int64_t)offset, limit, &cut);
        POST(cut.len <= whole.len);
        POST(memcmp(buf_text(&cut), whole.data + whole.len - cut.len, cut.len) == 0);
    }
    buf_fini(&whole);
    buf_fini(&cut);
    buf_fini(&decoded);
    close(fd);
    return 0;
}
