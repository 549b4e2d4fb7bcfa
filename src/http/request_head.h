/* The head of an HTTP/1.x request: found and checked in bytes as they arrive, without sockets.
 *
 * Stricter than libevhtp's parser, which this check guards: whatever is accepted here has one
 * reading only, so that we and a proxy in front of us can never disagree about where a request
 * ends (RFC 9112 sections 2.2, 3, 5, 6; no request smuggling). */
#pragma once

#include "core/runtime/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HEAD_TARGET_MAX = 8000, /* request target and single header value: libevhtp cuts at 8191 */
    HEAD_FIELDS_MAX = 128,  /* header fields */
};

/** Bytes of the request, not terminated. `at` is NULL when absent. */
struct slice {
    const char *at;
    size_t len;
};

/** What the edge needs to know of a head. Slices point into the checked bytes. */
struct request_head {
    size_t start;  /* first byte of the request line: empty lines in front are skipped */
    size_t length; /* bytes from offset 0 to behind the empty line */
    struct slice method, path, query;
    struct slice authorization, request_id, traceparent, host;
    struct slice fields;      /* all field lines, each with its CRLF, without the empty line */
    struct slice left_out[4]; /* field lines about framing, which the gate deals with itself */
    int n_left_out;
    int64_t content_length; /* 0 when there is no body, -1 when chunked */
    bool http_1_0, keep_alive, expect_continue, chunked;
    bool canonical; /* origin form without query, nothing to leave out */
};

/** How far a search has come, between calls on the same growing bytes. All-zero to begin. */
struct head_search {
    size_t line;    /* offset of the current line */
    size_t scanned; /* bytes looked at */
    bool begun;     /* the request line has begun */
};

/** Look for the end of a head in `len` bytes that grow from call to call. Returns its length (with
 * the empty line), 0 when more is needed, -1 for a line that does not end in CRLF. */
long request_head_search(struct head_search *search, const char *bytes, size_t len);

/** Check a complete head. False with `err` (ERR_BAD_REQUEST, ERR_HEADERS_TOO_LARGE,
 * ERR_EXPECTATION_FAILED) when it must be refused. */
bool request_head_check(const char *bytes, size_t len, struct request_head *ret,
                        struct error *err) MUST_CHECK;
