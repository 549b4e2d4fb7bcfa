#include "http/reply.h"

#include <string.h>

static const char *status_text(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 201:
        return "Created";
    case 202:
        return "Accepted";
    case 204:
        return "No Content";
    case 206:
        return "Partial Content";
    case 304:
        return "Not Modified";
    case 307:
        return "Temporary Redirect";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 408:
        return "Request Timeout";
    case 409:
        return "Conflict";
    case 410:
        return "Gone";
    case 413:
        return "Content Too Large";
    case 417:
        return "Expectation Failed";
    case 422:
        return "Unprocessable Content";
    case 429:
        return "Too Many Requests";
    case 431:
        return "Request Header Fields Too Large";
    case 499:
        return "Client Closed Request";
    case 500:
        return "Internal Server Error";
    case 501:
        return "Not Implemented";
    case 502:
        return "Bad Gateway";
    case 503:
        return "Service Unavailable";
    case 504:
        return "Gateway Timeout";
    default:
        return status < 400 ? "Status" : "Error";
    }
}

bool reply_is_bodyless(int status)
{
    return status < 200 || status == 204 || status == 304;
}

static void add_number(struct buf *out, uint64_t n)
{
    char digits[20];
    size_t at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    buf_add(out, digits + at, sizeof(digits) - at);
}

static void add_field(struct buf *out, const char *name, const char *value)
{
    buf_adds(out, name);
    buf_add(out, ": ", 2);
    buf_adds(out, value);
    buf_add(out, "\r\n", 2);
}

void reply_head_write(struct buf *out, const struct reply_head *head)
{
    buf_reserve(out, 512);
    buf_adds(out, "HTTP/1.1 ");
    add_number(out, (uint64_t)head->status);
    buf_addc(out, ' ');
    buf_adds(out, status_text(head->status));
    buf_add(out, "\r\n", 2);
    add_field(out, "Date", head->date);
    if (head->content_type != NULL)
        add_field(out, "Content-Type", head->content_type);
    if (head->content_length >= 0) {
        buf_adds(out, "Content-Length: ");
        add_number(out, (uint64_t)head->content_length);
        buf_add(out, "\r\n", 2);
    }
    if (head->chunked)
        add_field(out, "Transfer-Encoding", "chunked");
    if (head->request_id != NULL)
        add_field(out, "X-Request-Id", head->request_id);
    if (!head->keep_alive)
        add_field(out, "Connection", "close");
    else if (head->http_1_0)
        add_field(out, "Connection", "keep-alive");
    if (head->headers != NULL && head->headers->len > 0)
        buf_add(out, head->headers->data, head->headers->len);
    buf_add(out, "\r\n", 2);
}

/* ---- errors ----------------------------------------------------------------------------------- */

int error_retry_after_s(const struct error *err, int status)
{
    if (status != 429 && status != 503)
        return 0;
    return err->retry_after_ms > 0 ? (int)((err->retry_after_ms + 999) / 1000) : 1;
}

static const char *admitted_text(enum err_admitted admitted)
{
    switch (admitted) {
    case ADMITTED_NO:
        return "no";
    case ADMITTED_UNKNOWN:
        return "unknown";
    case ADMITTED_YES:
        return "yes";
    }
    return "unknown";
}

static void error_object_begin(struct json_writer *w, enum route_errors style, const char *code,
                               const struct error *err)
{
    json_object_begin(w);
    if (style != ERRORS_GATEWAY) {
        json_key(w, style == ERRORS_SHELLCTL ? "error" : "detail");
        json_object_begin(w);
    }
    json_member_string(w, style == ERRORS_GATEWAY ? "reason" : "code", code);
    json_member_string(w, "message", err->message);
    if (style == ERRORS_V1) {
        json_member_bool(w, "retryable", err_info(err->code)->retryable);
        json_member_string(w, "admitted", admitted_text(err->admitted));
    }
}

static void error_object_finish(struct json_writer *w, enum route_errors style)
{
    json_object_finish(w);
    if (style != ERRORS_GATEWAY)
        json_object_finish(w);
}

void error_body_write(struct buf *out, enum route_errors style, const struct error *err)
{
    struct json_writer w = {.out = out};

    error_object_begin(&w, style, err_wire(err->code), err);
    error_object_finish(&w, style);
}

void error_body_plain(struct buf *out, enum route_errors style, enum err_code code,
                      const char *text)
{
    struct json_writer w = {.out = out};
    struct error err;

    if (style == ERRORS_DETAIL) {
        json_object_begin(&w);
        json_member_string(&w, "detail", text);
        json_object_finish(&w);
        return;
    }
    error_set(&err, code, "%s", text);
    /* A shellctl client must not take a path that is no route for a job or sandbox that is gone. */
    error_object_begin(&w, style,
                       style == ERRORS_SHELLCTL && code == ERR_NOT_FOUND ? "route_not_found"
                                                                         : err_wire(code),
                       &err);
    error_object_finish(&w, style);
}

static void problem_context(struct json_writer *w, const struct json_problem *p)
{
    bool model_rule = strcmp(p->type, "value_error") == 0;

    if (p->ctx_key == NULL && !model_rule)
        return;
    json_key(w, "ctx");
    json_object_begin(w);
    if (p->ctx_key == NULL) { /* pydantic's exception object, which has no members in JSON */
        json_key(w, "error");
        json_object_begin(w);
        json_object_finish(w);
    } else if (p->ctx_text != NULL) {
        json_member_string(w, p->ctx_key, p->ctx_text);
    } else {
        json_member_int(w, p->ctx_key, p->ctx_value);
    }
    json_object_finish(w);
}

static void problem_write(struct json_writer *w, const struct json_problem *p)
{
    json_object_begin(w);
    json_member_string(w, "type", p->type);
    json_key(w, "loc");
    json_array_begin(w);
    json_string(w, "body");
    for (size_t i = 0; i < sizeof(p->path) / sizeof(p->path[0]) && p->path[i] != NULL; i++)
        json_string(w, p->path[i]);
    json_array_finish(w);
    json_member_string(w, "msg", p->message);
    json_key(w, "input");
    json_value(w, p->input);
    problem_context(w, p);
    json_object_finish(w);
}

static void problem_list(struct json_writer *w, const struct json_reader *r)
{
    json_array_begin(w);
    for (const struct json_problem *p = r->first; p != NULL; p = p->next)
        problem_write(w, p);
    json_array_finish(w);
}

/* The first problem in words. */
static void problem_summary(const struct json_reader *r, struct error *ret)
{
    const struct json_problem *p = r->first;
    const char *last = "body";

    for (size_t i = 0; i < sizeof(p->path) / sizeof(p->path[0]) && p->path[i] != NULL; i++)
        last = p->path[i];
    error_set(ret, ERR_VALIDATION, "%s: %s", last, p->message);
}

void error_body_problems(struct buf *out, enum route_errors style, const struct json_reader *r)
{
    struct json_writer w = {.out = out};
    struct error err;

    PRE(r->first != NULL);
    if (style == ERRORS_DETAIL) {
        json_object_begin(&w);
        json_key(&w, "detail");
        problem_list(&w, r);
        json_object_finish(&w);
        return;
    }
    problem_summary(r, &err);
    error_object_begin(&w, style, err_wire(err.code), &err);
    json_key(&w, "problems");
    problem_list(&w, r);
    error_object_finish(&w, style);
}

void error_body_not_json(struct buf *out, enum route_errors style, size_t position,
                         const struct error *err)
{
    struct json_writer w = {.out = out};

    if (style != ERRORS_DETAIL) {
        error_body_write(out, style, err);
        return;
    }
    json_object_begin(&w);
    json_key(&w, "detail");
    json_array_begin(&w);
    json_object_begin(&w);
    json_member_string(&w, "type", "json_invalid");
    json_key(&w, "loc");
    json_array_begin(&w);
    json_string(&w, "body");
    json_int(&w, (int64_t)position);
    json_array_finish(&w);
    json_member_string(&w, "msg", "JSON decode error");
    json_key(&w, "input");
    json_object_begin(&w);
    json_object_finish(&w);
    json_key(&w, "ctx");
    json_object_begin(&w);
    json_member_string(&w, "error", err->message);
    json_object_finish(&w);
    json_object_finish(&w);
    json_array_finish(&w);
    json_object_finish(&w);
}
