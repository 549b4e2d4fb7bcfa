/* One exchange on a pooled easy handle: curl's callbacks, and its results as errors. */
#include "core/runtime/http_client_curl.h"

#include <stdlib.h>
#include <string.h>

enum { POOL_MAX = 1024 }; /* idle transfers kept: about 6 KiB each, with their easy handles */

static struct curl_transfer *of(const struct transfer *t)
{
    return container_of(t, struct curl_transfer, base);
}

/* ---- curl's callbacks: they buffer, nothing else --------------------------------------------- */

static size_t head_line_over(struct curl_transfer *t, size_t len)
{
    long status = 0;

    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200) /* an interim answer */
        return len;
    t->base.status = (int)status;
    transfer_head_over(&t->base);
    return len;
}

static size_t on_header(char *line, size_t size, size_t n, void *ctx)
{
    struct curl_transfer *t = ctx;
    size_t len = size * n, text_len = len;
    const char *colon;

    transfer_touch(&t->base);
    if (t->base.head_complete)
        return len; /* a trailer */
    if (len >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        transfer_head_restart(&t->base);
        return len;
    }
    while (text_len > 0 && (line[text_len - 1] == '\n' || line[text_len - 1] == '\r'))
        text_len--;
    if (text_len == 0)
        return head_line_over(t, len);
    colon = memchr(line, ':', text_len);
    if (colon == NULL)
        return len;
    if (!transfer_add_header(&t->base, line, (size_t)(colon - line), colon + 1,
                             text_len - (size_t)(colon - line) - 1))
        return 0;
    return len;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *ctx)
{
    struct curl_transfer *t = ctx;
    size_t len = size * n;

    transfer_touch(&t->base);
    if (t->base.holding) {
        t->paused_bits |= CURLPAUSE_RECV;
        return CURL_WRITEFUNC_PAUSE;
    }
    return t->base.owner->body(t->base.owner_ctx, bytes, len) ? len : 0;
}

static size_t on_upload(char *to, size_t size, size_t n, void *ctx)
{
    struct curl_transfer *t = ctx;
    size_t room = size * n, given;

    transfer_touch(&t->base);
    if (t->form == CURL_FORM_UPLOAD) {
        given = t->base.owner->upload(t->base.owner_ctx, to, room);
        if (given != UPLOAD_WAIT)
            return given;
        t->paused_bits |= CURLPAUSE_SEND;
        return CURL_READFUNC_PAUSE;
    }
    if (room > t->base.body_len - t->body_sent)
        room = t->base.body_len - t->body_sent;
    memcpy(to, t->base.body + t->body_sent, room);
    t->body_sent += room;
    return room;
}

/* ---- as a transport ------------------------------------------------------------------------- */

static void start(struct transfer *t)
{
    of(t)->open_error.code = ERR_NONE;
    of(t)->errbuf[0] = '\0';
    curl_multi_add(of(t));
}

static void stop(struct transfer *t)
{
    curl_multi_remove(of(t));
}

static bool was_sent(const struct transfer *t)
{
    curl_off_t uploaded = 0;
    long head = 0;

    curl_easy_getinfo(of(t)->easy, CURLINFO_REQUEST_SIZE, &head);
    curl_easy_getinfo(of(t)->easy, CURLINFO_SIZE_UPLOAD_T, &uploaded);
    return head > 0 || uploaded > 0;
}

static void unpause(struct transfer *t, int bit)
{
    if ((of(t)->paused_bits & bit) == 0)
        return;
    of(t)->paused_bits &= ~bit;
    curl_multi_pause(of(t), of(t)->paused_bits);
}

static void go_on(struct transfer *t)
{
    unpause(t, CURLPAUSE_RECV);
}

static void more_upload(struct transfer *t)
{
    unpause(t, CURLPAUSE_SEND);
}

static void give_back(struct transfer *t)
{
    struct curl_multi *m = t->client->curl;

    if (m->n_idle >= POOL_MAX) {
        curl_transfer_free(of(t));
        return;
    }
    t->next = m->idle;
    m->idle = t;
    m->n_idle++;
}

static const struct transport by_curl = {
    .prepare = curl_transfer_prepare,
    .start = start,
    .stop = stop,
    .was_sent = was_sent,
    .go_on = go_on,
    .more_upload = more_upload,
    .give_back = give_back,
};

static struct curl_transfer *transfer_new(struct http_client *client)
{
    struct curl_transfer *t = xcalloc(1, sizeof(*t));
    CURL *easy = curl_easy_init();

    PRE(easy != NULL);
    transfer_init(&t->base, client, &by_curl);
    t->easy = easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, t);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, t->errbuf);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); /* no join of a resolver thread on cancel */
    curl_easy_setopt(easy, CURLOPT_USERAGENT, HTTP_USER_AGENT);
    curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_HTTP09_ALLOWED, 0L);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_PROXY, client->proxy != NULL ? client->proxy : "");
    curl_easy_setopt(easy, CURLOPT_NOPROXY,
                     client->proxy != NULL ? "localhost,127.0.0.1,::1" : "*");
    curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, (long)((client->max_idle_ms + 999) / 1000));
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_upload);
    curl_easy_setopt(easy, CURLOPT_READDATA, t);
    curl_multi_equip(t);
    return t;
}

struct transfer *curl_transfer_take(struct http_client *client)
{
    struct curl_multi *m = curl_multi_of(client);
    struct transfer *t = m->idle;

    if (t == NULL)
        return &transfer_new(client)->base;
    m->idle = t->next;
    m->n_idle--;
    return t;
}

void curl_transfer_free(struct curl_transfer *t)
{
    curl_easy_cleanup(t->easy);
    transfer_fini(&t->base);
    buf_fini(&t->lines);
    buf_fini(&t->url);
    buf_fini(&t->socket_path);
    buf_fini(&t->custom_method);
    buf_fini(&t->tls);
    free(t->nodes);
    free(t);
}

/* ---- the end -------------------------------------------------------------------------------- */

static enum err_code code_of(CURLcode result, bool sent)
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

static void describe(const struct curl_transfer *t, CURLcode result, struct error *ret)
{
    bool sent = transfer_was_sent(&t->base);
    const char *what = t->errbuf[0] != '\0' ? t->errbuf : curl_easy_strerror(result);
    enum err_code code = code_of(result, sent);

    if (error_is(&t->open_error) && !sent) {
        code = t->open_error.code;
        what = t->open_error.message;
    } else if (result == CURLE_SEND_FAIL_REWIND) {
        what = "the connection broke after the request had been sent; it was not repeated";
    }
    transfer_describe(&t->base, code, what, ret);
}

void curl_transfer_over(struct curl_transfer *t, CURLcode result)
{
    struct error error;

    curl_multi_remove(t);
    if (result == CURLE_OK && !t->base.head_complete) /* nothing but interim answers */
        result = CURLE_WEIRD_SERVER_REPLY;
    if (result == CURLE_OK) {
        transfer_attempt_over(&t->base, NULL);
        return;
    }
    describe(t, result, &error);
    transfer_attempt_over(&t->base, &error);
}
