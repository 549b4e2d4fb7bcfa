#include "backends/shellctld/window.h"

#include "backends/shellctld/fault.h"
#include "core/runtime/utf8.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CHAR_MAX_BYTES = 4,
    LOOK_BACK = CHAR_MAX_BYTES - 1, /* a character that covers the offset begins at most here */
};

static const char REPLACEMENT[] = "\xEF\xBF\xBD";

size_t utf8_unit(const unsigned char *bytes, size_t len, bool *ret_valid, bool *ret_partial)
{
    size_t unit = utf8_next((const char *)bytes, len, ret_valid);

    /* A piece that reaches the end was not refused by a byte behind it. */
    *ret_partial = !*ret_valid && unit == len && bytes[0] >= 0xC2 && bytes[0] <= 0xF4;
    return unit;
}

/* How many bytes at `at` belong to a unit that began before it. */
static size_t covered_by_earlier(const unsigned char *bytes, size_t at, size_t len)
{
    bool valid, partial;

    for (size_t back = 1; back <= LOOK_BACK && back <= at; back++) {
        const unsigned char *start = bytes + at - back;
        if ((*start & 0xC0) == 0x80)
            continue;
        size_t unit = utf8_unit(start, len - (at - back), &valid, &partial);
        return unit > back ? unit - back : 0;
    }
    return 0;
}

/* How much one window takes. */
struct budget {
    int64_t bytes;     /* of the file */
    int64_t text;      /* of the text made of them */
    bool at_end;       /* what was read reaches the end of the file */
    bool more_to_come; /* … and its writer may go on there */
};

struct decoded {
    size_t taken;
    bool held_back;
};

/* The text of whole units at `bytes`, within the budget, but at least one unit. */
static struct decoded decode(const unsigned char *bytes, size_t len, const struct budget *budget,
                             struct buf *text)
{
    struct decoded d = {0};
    size_t copied = 0, written = 0; /* of `bytes`, and of text */

    while (d.taken < len) {
        bool valid, partial;
        size_t unit = utf8_unit(bytes + d.taken, len - d.taken, &valid, &partial);
        size_t out = valid ? unit : sizeof(REPLACEMENT) - 1;

        if (partial && (!budget->at_end || budget->more_to_come)) {
            d.held_back = budget->at_end; /* else only our read ends there */
            break;
        }
        if (d.taken > 0 &&
            ((int64_t)(d.taken + unit) > budget->bytes || (int64_t)(written + out) > budget->text))
            break;
        if (!valid) {
            buf_add(text, bytes + copied, d.taken - copied);
            buf_add(text, REPLACEMENT, sizeof(REPLACEMENT) - 1);
            copied = d.taken + unit;
        }
        d.taken += unit;
        written += out;
    }
    buf_add(text, bytes + copied, d.taken - copied);
    return d;
}

int64_t window_file_size(int fd)
{
    struct stat st;

    if (fd < 0)
        return 0;
    return fstat(fd, &st) == 0 ? (int64_t)st.st_size : -1;
}

/* Read [from, to) of the file; false on an I/O error. Short only if the file shrank. */
static bool read_range(int fd, int64_t from, int64_t to, struct buf *ret, struct error *err)
{
    size_t want = (size_t)(to - from);

    buf_reserve(ret, want);
    while (ret->len < want) {
        ssize_t n = pread(fd, ret->data + ret->len, want - ret->len, from + (int64_t)ret->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            fault_set(err, FAULT_INTERNAL, "cannot read the job's output: %s", strerror(errno));
            return false;
        }
        if (n == 0)
            break;
        ret->len += (size_t)n;
    }
    return true;
}

/* The window that begins at `offset`, which lies before the end of the file. */
static bool read_inside(int fd, int64_t offset, struct budget budget, struct buf *text,
                        struct window *ret, struct error *err)
{
    /* Whole characters for the budget, behind what an earlier character may cover. */
    int64_t wanted = budget.bytes + LOOK_BACK + CHAR_MAX_BYTES;
    int64_t before = offset < LOOK_BACK ? offset : LOOK_BACK;
    int64_t end = ret->size - offset < wanted ? ret->size : offset + wanted;
    struct buf raw = {0};

    if (!read_range(fd, offset - before, end, &raw, err)) {
        buf_fini(&raw);
        return false;
    }
    if (raw.len > (size_t)before) {
        const unsigned char *bytes = (const unsigned char *)raw.data;
        size_t skipped = covered_by_earlier(bytes, (size_t)before, raw.len);
        size_t start = (size_t)before + skipped;
        struct decoded d;

        budget.bytes -= (int64_t)skipped;
        budget.at_end = end == ret->size;
        d = decode(bytes + start, raw.len - start, &budget, text);
        ret->offset = offset + (int64_t)(skipped + d.taken);
        ret->truncated = ret->offset < ret->size && !d.held_back;
    }
    buf_fini(&raw);
    return true;
}

static int64_t clamp(int64_t value, int64_t max)
{
    return value < 1 ? 1 : value > max ? max : value;
}

static bool file_size(int fd, struct window *ret, struct error *err)
{
    *ret = (struct window){.size = window_file_size(fd)};
    if (ret->size < 0)
        fault_set(err, FAULT_INTERNAL, "cannot look at the job's output: %s", strerror(errno));
    return ret->size >= 0;
}

bool window_read(int fd, int64_t offset, int64_t limit, bool more_to_come, struct buf *text,
                 struct window *ret, struct error *err)
{
    if (!file_size(fd, ret, err))
        return false;
    if (offset < 0 || offset > ret->size) {
        fault_set(err, FAULT_INVALID_OFFSET, "offset %lld is outside the output of %lld bytes",
                  (long long)offset, (long long)ret->size);
        return false;
    }
    ret->offset = offset;
    if (offset == ret->size)
        return true;
    limit = clamp(limit, WINDOW_MAX);
    return read_inside(fd, offset,
                       (struct budget){.bytes = limit, .text = limit, .more_to_come = more_to_come},
                       text, ret, err);
}

bool window_read_tail(int fd, int64_t limit, bool more_to_come, struct buf *text,
                      struct window *ret, struct error *err)
{
    int64_t start;

    if (!file_size(fd, ret, err))
        return false;
    limit = clamp(limit, WINDOW_TAIL_MAX);
    start = ret->size > limit ? ret->size - limit : 0;
    ret->offset = start;
    if (start == ret->size)
        return true;
    if (!read_inside(
            fd, start,
            (struct budget){.bytes = limit, .text = INT64_MAX, .more_to_come = more_to_come}, text,
            ret, err))
        return false;
    ret->truncated = false;
    return true;
}
