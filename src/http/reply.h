/* The bytes of reply heads and of error bodies. Internal to http/. */
#pragma once

#include "core/runtime/buf.h"
#include "core/runtime/error.h"
#include "core/runtime/json.h"
#include "http/router.h"

/** Everything a reply's head says. */
struct reply_head {
    int status;
    const char *date;
    const char *content_type; /* NULL: none */
    int64_t content_length;   /* -1: none */
    bool chunked;
    bool keep_alive, http_1_0;
    const char *request_id;    /* NULL: none */
    const struct buf *headers; /* further lines, each with CRLF; NULL: none */
};

void reply_head_write(struct buf *out, const struct reply_head *head);

/** Whether a status has no body by definition (RFC 9110 sections 15.2, 15.3.5, 15.4.5). */
bool reply_is_bodyless(int status);

/** One error as JSON in the shape of `style`. */
void error_body_write(struct buf *out, enum route_errors style, const struct error *err);
/** `{"detail":"…"}` for ERRORS_DETAIL, else the object shape of `code`. */
void error_body_plain(struct buf *out, enum route_errors style, enum err_code code,
                      const char *text);
/** All problems of a reader: FastAPI's 422 list, or the object shape with a `problems` list. */
void error_body_problems(struct buf *out, enum route_errors style, const struct json_reader *r);
/** The body is not JSON at `position`: FastAPI's `json_invalid`, or the object shape. */
void error_body_not_json(struct buf *out, enum route_errors style, size_t position,
                         const struct error *err);

/** Seconds for Retry-After of a 429 or 503; 0 for other statuses. */
int error_retry_after_s(const struct error *err, int status);
