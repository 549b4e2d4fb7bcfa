/* What came of an exchange: curl's results as errors and metrics, the head as a response. */
#include "core/runtime/http_client_transfer.h"

#include <stdio.h>
#include <string.h>

bool transfer_was_sent(const struct transfer *t)
{
    curl_off_t uploaded = 0;
    long head = 0;

    curl_easy_getinfo(t->easy, CURLINFO_REQUEST_SIZE, &head);
    curl_easy_getinfo(t->easy, CURLINFO_SIZE_UPLOAD_T, &uploaded);
    return head > 0 || uploaded > 0;
}

enum err_code transfer_code_of(CURLcode result, bool sent)
{
    switch ((int)result) {
    case CURLE_URL_MALFORMAT:
        return ERR_BAD_REQUEST;
    case CURLE_UNSUPPORTED_PROTOCOL: /* of the URL; or, once sent, an answer that is not HTTP/1 */
        return sent ? ERR_UPSTREAM_PROTOCOL : ERR_BAD_REQUEST;
    case CURLE_OPERATION_TIMEDOUT:
        return ERR_DEADLINE;
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_HTTP2:
    case CURLE_FILESIZE_EXCEEDED:
    case CURLE_BAD_CONTENT_ENCODING:
        return ERR_UPSTREAM_PROTOCOL;
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
        return ERR_UPSTREAM_CONNECT;
    case CURLE_FAILED_INIT:
    case CURLE_OUT_OF_MEMORY:
    case CURLE_BAD_FUNCTION_ARGUMENT:
    case CURLE_UNKNOWN_OPTION:
        return ERR_INTERNAL;
    default: /* send and receive errors, an early end, a body that cannot be sent again */
        return sent ? ERR_UPSTREAM_LOST : ERR_UPSTREAM_CONNECT;
    }
}

void transfer_describe(struct transfer *t, CURLcode result, struct error *ret)
{
    bool sent = transfer_was_sent(t);
    const char *what = t->errbuf[0] != '\0' ? t->errbuf : curl_easy_strerror(result);
    enum err_code code = transfer_code_of(result, sent);

    if (error_is(&t->refused)) {
        code = t->refused.code;
        what = t->refused.message;
    } else if (error_is(&t->open_error) && !sent) {
        code = t->open_error.code;
        what = t->open_error.message;
    } else if (result == CURLE_SEND_FAIL_REWIND) {
        what = "the connection broke after the request had been sent; it was not repeated";
    }
    error_set(ret, code, "%s: %s %.*s: %s", t->peer, t->method, t->url_path_len, t->url_path, what);
    ret->admitted = sent ? ADMITTED_UNKNOWN : ADMITTED_NO;
}

static struct peer_series *series_of(struct http_client *client, const char *peer)
{
    for (int i = 0; i < PEERS_MAX; i++) {
        struct peer_series *s = &client->peers[i];
        if (s->peer == NULL) {
            s->peer = xstrdup(peer);
            s->seconds = metric_series(METRIC_HTTP_CLIENT_SECONDS, LABELS(s->peer));
        }
        if (strcmp(s->peer, peer) == 0)
            return s;
    }
    return &client->peers[PEERS_MAX - 1]; /* the label set is closed: never reached */
}

void transfer_count(struct transfer *t, enum err_code code)
{
    static const char *const classes[OUTCOME_CLASSES] = {"?", "1xx", "2xx", "3xx", "4xx", "5xx"};
    struct peer_series *s = series_of(t->client, t->peer);
    int outcome = OUTCOME_CLASSES + (int)code;

    if (code == ERR_NONE) {
        long status = 0;
        curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
        outcome = status >= 100 && status < 600 ? (int)(status / 100) : 0;
    }
    if (s->outcome[outcome] == NULL)
        s->outcome[outcome] = metric_series(
            METRIC_HTTP_CLIENT_REQUESTS,
            LABELS(s->peer, outcome < OUTCOME_CLASSES ? classes[outcome] : err_wire(code)));
    metric_series_add(s->outcome[outcome], 1);
    metric_series_observe_us(s->seconds, loop_now_us(t->client->loop) - t->started_us);
}

/* ---- the answer ----------------------------------------------------------------------------- */

bool transfer_is_status_line(const char *line, size_t len)
{
    return len >= 5 && memcmp(line, "HTTP/", 5) == 0;
}

static char *next_line(char **cursor)
{
    char *line = *cursor;
    char *end = strchr(line, '\n');

    if (*line == '\0')
        return NULL;
    if (end == NULL)
        end = line + strlen(line);
    *cursor = *end != '\0' ? end + 1 : end;
    while (end > line && (end[-1] == '\r' || end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *end = '\0';
    return line;
}

void transfer_response(struct transfer *t, struct arena *arena, struct http_response *ret)
{
    char *cursor = arena_memdup(arena, buf_text(&t->head), t->head.len);
    struct http_header *headers;
    curl_off_t retry_s = 0;
    size_t lines = 0;
    long status = 0;

    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    *ret = (struct http_response){.status = (int)status, .body = ""};
    for (const char *p = cursor; (p = strchr(p, '\n')) != NULL; p++)
        lines++;
    headers = arena_alloc(arena, (lines + 1) * sizeof(*headers));
    for (char *line; (line = next_line(&cursor)) != NULL;) {
        char *colon = strchr(line, ':');
        if (colon == NULL || transfer_is_status_line(line, strlen(line)))
            continue;
        *colon = '\0';
        for (char *p = line; *p != '\0'; p++)
            *p = (char)(*p >= 'A' && *p <= 'Z' ? *p + 32 : *p);
        headers[ret->n_headers].name = line;
        headers[ret->n_headers++].value = colon + 1 + strspn(colon + 1, " \t");
    }
    ret->headers = headers;
    curl_easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &retry_s);
    if (retry_s > RETRY_AFTER_CAP_MS / 1000)
        retry_s = RETRY_AFTER_CAP_MS / 1000;
    ret->retry_after_ms = retry_s > 0 ? (int64_t)retry_s * 1000 : 0;
}

const char *http_response_header(const struct http_response *response, const char *name)
{
    for (size_t i = 0; i < response->n_headers; i++) {
        if (strcmp(response->headers[i].name, name) == 0)
            return response->headers[i].value;
    }
    return NULL;
}
