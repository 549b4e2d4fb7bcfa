/* Decoder of chunked request bodies (RFC 9112 section 7.1), in bytes as they arrive, without
 * sockets. Extensions and trailer fields are checked for form and skipped. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CHUNK_LINE_MAX = 1024,     /* one size line, extensions included */
    CHUNK_TRAILERS_MAX = 8192, /* all trailer fields */
};

enum chunked_result {
    CHUNKED_MORE, /* everything given was consumed; the body goes on */
    CHUNKED_DATA, /* *ret_data, *ret_len are body bytes; call again for what follows */
    CHUNKED_END,  /* the body is over; what follows belongs to the next request */
    CHUNKED_BAD,  /* not chunked coding, or beyond the limits above */
};

/** Where the decoder is. All-zero to begin. */
struct chunked {
    int state;
    uint64_t left;     /* bytes of the chunk to come */
    size_t line_bytes; /* of the current size line */
    size_t trailer_bytes;
    bool has_digit;
};

/** Decode up to the next event. `*ret_used` bytes of `bytes` are done with; for CHUNKED_DATA they
 * include the data, which lies within `bytes`. */
enum chunked_result chunked_next(struct chunked *c, const char *bytes, size_t len, size_t *ret_used,
                                 const char **ret_data, size_t *ret_len);
