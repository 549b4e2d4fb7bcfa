/* Byte windows over a job's output file, as text: shellctl protocol section 8.
 *
 * A window is a run of whole characters. Offsets are bytes of the file. What is not UTF-8 is
 * replaced by U+FFFD, one for each maximal ill-formed part (Unicode 15, section 3.9, table 3-8),
 * so that every window with bytes in front of it advances. Read one behind the other, windows of
 * any sizes give the same text as decoding the file in one go.
 *
 * The beginning of a character at the end of the file is held back while the writer may still
 * complete it (`more_to_come`), and is not called truncated: there is nothing to fetch yet. */
#pragma once

#include "core/runtime/buf.h"
#include "core/runtime/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    WINDOW_DEFAULT = 16384,   /* bytes, when the caller names no limit */
    WINDOW_MAX = 1024 * 1024, /* ceiling of one window: what bounds the memory of an answer */
    WINDOW_TAIL_MAX = 524288, /* ceiling that the protocol sets for tails */
};

/** What a window says beside its text. */
struct window {
    int64_t offset; /* behind the last byte taken: the next one to ask for */
    int64_t size;   /* of the file, at read time */
    bool truncated; /* bytes remain behind `offset` that a further read would give */
};

/** Append the window at `offset` of at most `limit` bytes (clamped to 1…WINDOW_MAX), but always at
 * least one character, to `text`. `fd` -1 is a file that does not exist: empty at offset 0. Both
 * the bytes taken and the text made of them stay within the limit. False with the fault
 * INVALID_OFFSET when `offset` is negative or beyond the file, INTERNAL when it cannot be read. */
bool window_read(int fd, int64_t offset, int64_t limit, bool more_to_come, struct buf *text,
                 struct window *ret, struct error *err) MUST_CHECK;

/** Append the last `limit` bytes (clamped to 1…WINDOW_TAIL_MAX), begun at a character, up to the
 * end of the file. Never truncated. */
bool window_read_tail(int fd, int64_t limit, bool more_to_come, struct buf *text,
                      struct window *ret, struct error *err) MUST_CHECK;

/** Size of the file, 0 for `fd` -1, -1 when it cannot be had. */
int64_t window_file_size(int fd);

/** utf8_next of `bytes` (`len` > 0), and whether it is the beginning of a character that `len` cuts
 * short. */
size_t utf8_unit(const unsigned char *bytes, size_t len, bool *ret_valid, bool *ret_partial);
