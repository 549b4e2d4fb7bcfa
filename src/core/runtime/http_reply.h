/* An HTTP/1 answer in bytes as they arrive, without sockets: http_parser's state machine, and the
 * strictness that it lacks. What it has understood goes to a struct transfer.
 *
 * Refused, as the next answer on the connection could be misread: Content-Length repeated or beside
 * Transfer-Encoding, any Transfer-Encoding but one `chunked` of HTTP/1.1, blanks between a header's
 * name and its colon, folded headers, NUL and other control characters, chunk sizes that are none,
 * an upgrade that nobody asked for, versions that are not 1.x, a head above HEAD_MAX in all its
 * interim parts (RFC 9112 §5.1, §5.2, §6.3, §7.1). */
#pragma once

#include "core/runtime/http_client_transfer.h"

#include <http_parser.h>

enum reply_result {
    REPLY_MORE, /* goes on */
    REPLY_OVER, /* complete */
    REPLY_BAD,  /* not HTTP/1, or refused: `why` says it; or the owner refused its body */
};

struct http_reply {
    struct http_parser parser;
    struct transfer *transfer;
    const char *why;
    const char *piece_end;  /* of the bytes being read */
    struct buf name, value; /* of the header being read, while it comes in parts */
    enum reply_part { REPLY_NOTHING, REPLY_NAME, REPLY_VALUE } part;
    const char *name_at, *value_at; /* into the bytes being read, or the two buffers */
    size_t name_len, value_len;
    size_t interim_bytes;
    bool value_cut; /* the value went up to the end of the bytes */
    bool started;   /* a byte of an answer has arrived */
    bool chunked, bad_coding, over;
    bool keep_alive; /* once over: the connection may serve again */
};

/** Begin an answer to `t`; memory of an earlier one is kept. All-zero before the first. */
void http_reply_begin(struct http_reply *reply, struct transfer *t);
void http_reply_fini(struct http_reply *reply);

/** The next `len` > 0 bytes. Bytes behind the end of the answer make `keep_alive` false. */
enum reply_result http_reply_feed(struct http_reply *reply, const char *bytes, size_t len);

/** The peer has closed: REPLY_OVER when the close was the body's end, else REPLY_MORE. */
enum reply_result http_reply_eof(struct http_reply *reply);
