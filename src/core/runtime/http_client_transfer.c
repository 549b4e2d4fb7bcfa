#include "core/runtime/http_client_transfer.h"

#include <stdlib.h>
#include <string.h>

enum {
    POOL_MAX = 1024, /* idle transfers kept: about 6 KiB each, with their easy handles */
    BUFFER_KEEP = 64 * 1024,
};

static void begin_attempt(void *ctx);
static void on_clock(void *ctx);

/* ---- curl's callbacks: they buffer, nothing else --------------------------------------------- */

static size_t on_header(char *line, size_t size, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    size_t len = size * n;
    long status = 0;

    t->active_us = loop_now_us(t->client->loop);
    if (t->head_complete)
        return len; /* a trailer */
    if (transfer_is_status_line(line, len))
        buf_clear(&t->head);
    if (t->head.len + len > HEAD_MAX) {
        transfer_refuse(t, ERR_UPSTREAM_PROTOCOL, "the head of the answer is too large");
        return 0;
    }
    buf_add(&t->head, line, len);
    if (len > 2 || (len == 2 && line[0] != '\r'))
        return len;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200)
        return len; /* an interim answer */
    t->head_complete = true;
    if (t->owner->head != NULL)
        t->owner->head(t->owner_ctx);
    return len;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    size_t len = size * n;
    size_t taken = t->owner->body(t->owner_ctx, bytes, len);

    t->active_us = loop_now_us(t->client->loop);
    if (taken == len)
        t->received += len;
    return taken;
}

static size_t on_upload(char *to, size_t size, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    size_t room = size * n;

    t->active_us = loop_now_us(t->client->loop);
    if (t->form == FORM_UPLOAD)
        return t->owner->upload(t->owner_ctx, to, room);
    if (room > t->body_len - t->body_sent)
        room = t->body_len - t->body_sent;
    memcpy(to, t->body + t->body_sent, room);
    t->body_sent += room;
    return room;
}

void transfer_refuse(struct transfer *t, enum err_code code, const char *why)
{
    if (!error_is(&t->refused))
        error_set(&t->refused, code, "%s", why);
}

/* ---- pool ----------------------------------------------------------------------------------- */

static struct transfer *transfer_new(struct http_client *client)
{
    struct transfer *t = xcalloc(1, sizeof(*t));
    CURL *easy = curl_easy_init();

    PRE(easy != NULL);
    t->client = client;
    t->easy = easy;
    t->connect_timeout_ms = -1;
    timer_init(&t->clock, on_clock, t);
    timer_init(&t->retry, begin_attempt, t);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, t);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); /* no join of a resolver thread on cancel */
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, t->errbuf);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "bindery/" BINDERY_VERSION);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, client->proxy != NULL ? client->proxy : "");
    curl_easy_setopt(easy, CURLOPT_NOPROXY,
                     client->proxy != NULL ? "localhost,127.0.0.1,::1" : "*");
    curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, client->max_idle_s);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_upload);
    curl_easy_setopt(easy, CURLOPT_READDATA, t);
    client_multi_equip(client, easy, t);
    if (getenv("V"))
        curl_easy_setopt(easy, CURLOPT_VERBOSE, 1L);
    return t;
}

struct transfer *transfer_take(struct http_client *client, const struct transfer_owner *owner,
                               void *owner_ctx)
{
    struct transfer *t = client->idle;

    if (t != NULL) {
        client->idle = t->next;
        client->n_idle--;
    } else {
        t = transfer_new(client);
    }
    client->n_running++;
    t->owner = owner;
    t->owner_ctx = owner_ctx;
    buf_clear(&t->head);
    buf_clear(&t->collected);
    t->head_complete = t->paused = false;
    t->received = t->body_sent = 0;
    t->attempt = 0;
    t->refused.code = t->open_error.code = ERR_NONE;
    t->errbuf[0] = '\0';
    return t;
}

void transfer_release(struct transfer *t)
{
    struct http_client *client = t->client;

    timer_cancel(client->loop, &t->clock);
    timer_cancel(client->loop, &t->retry);
    if (t->added) {
        t->added = false;
        client_multi_remove(client, t);
    }
    client->n_running--;
    t->owner = NULL;
    if (t->collected.cap > BUFFER_KEEP)
        buf_fini(&t->collected);
    if (client->n_idle >= POOL_MAX) {
        transfer_free(t);
        return;
    }
    t->next = client->idle;
    client->idle = t;
    client->n_idle++;
}

void transfer_free(struct transfer *t)
{
    curl_easy_cleanup(t->easy);
    buf_fini(&t->lines);
    buf_fini(&t->head);
    buf_fini(&t->collected);
    buf_fini(&t->url);
    buf_fini(&t->socket_path);
    buf_fini(&t->custom_method);
    buf_fini(&t->tls);
    free(t->nodes);
    free(t);
}

/* ---- begin ---------------------------------------------------------------------------------- */

static void arm_clock(struct transfer *t)
{
    int64_t due_us = t->deadline_us;
    int64_t now_us = loop_now_us(t->client->loop);

    if (t->idle_us > 0 && (due_us == 0 || t->active_us + t->idle_us < due_us))
        due_us = t->active_us + t->idle_us;
    if (due_us != 0)
        timer_set_ms(t->client->loop, &t->clock, (due_us - now_us + 999) / 1000);
}

bool transfer_begin(struct transfer *t, const struct http_request *request, int64_t upload_len,
                    int64_t default_total_ms, struct error *err)
{
    int64_t total_ms = request->total_timeout_ms > 0 ? request->total_timeout_ms : default_total_ms;
    int64_t connect_ms = request->connect_timeout_ms > 0 ? request->connect_timeout_ms : 10000;
    int64_t now_us = loop_now_us(t->client->loop);
    bool no_expect = upload_len != UPLOAD_NONE || request->body_len > 512 * 1024;

    t->body = request->body;
    t->body_len = request->body_len;
    if (!transfer_set_target(t, request, err))
        return false;
    transfer_set_form(t, request, upload_len);
    if (!transfer_set_headers(t, request, no_expect, err))
        return false;
    transfer_set_tls(t, request->tls);
    if (t->connect_timeout_ms != connect_ms) {
        t->connect_timeout_ms = connect_ms;
        curl_easy_setopt(t->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms);
    }
    t->retries_left = request->connect_retries;
    t->started_us = t->active_us = now_us;
    t->deadline_us = total_ms > 0 ? now_us + total_ms * 1000 : 0;
    t->idle_us = request->idle_timeout_ms * 1000;
    arm_clock(t);
    begin_attempt(t);
    return true;
}

static void begin_attempt(void *ctx)
{
    struct transfer *t = ctx;

    t->added = true;
    client_multi_add(t->client, t);
}

/* ---- the end -------------------------------------------------------------------------------- */

static bool retry_later(struct transfer *t, CURLcode result)
{
    static const int pause_ms[] = {0, 500, 1000};
    bool connecting = result != CURLE_OK && !transfer_was_sent(t) && !error_is(&t->refused);
    enum err_code code =
        error_is(&t->open_error) ? t->open_error.code : transfer_code_of(result, false);

    if (!connecting || t->retries_left == 0 ||
        (code != ERR_UPSTREAM_CONNECT && code != ERR_DEADLINE))
        return false;
    t->retries_left--;
    timer_set_ms(t->client->loop, &t->retry, pause_ms[t->attempt < 2 ? t->attempt : 2]);
    t->attempt++;
    t->open_error.code = ERR_NONE;
    t->errbuf[0] = '\0';
    return true;
}

static void finish(struct transfer *t, const struct error *err)
{
    timer_cancel(t->client->loop, &t->clock);
    transfer_count(t, err != NULL ? err->code : ERR_NONE);
    t->owner->over(t->owner_ctx, err);
}

void transfer_over(struct transfer *t, CURLcode result)
{
    struct error error;

    t->added = false;
    client_multi_remove(t->client, t);
    if (result == CURLE_OK && !t->head_complete) /* nothing but interim answers */
        result = CURLE_WEIRD_SERVER_REPLY;
    if (result == CURLE_OK && !error_is(&t->refused)) {
        finish(t, NULL);
        return;
    }
    if (retry_later(t, result))
        return;
    transfer_describe(t, result, &error);
    finish(t, &error);
}

static void on_clock(void *ctx)
{
    struct transfer *t = ctx;
    int64_t now_us = loop_now_us(t->client->loop);
    bool total = t->deadline_us != 0 && now_us >= t->deadline_us;
    struct error error;
    bool sent;

    if (t->paused)
        t->active_us = now_us;
    if (!total && (t->idle_us == 0 || now_us < t->active_us + t->idle_us)) {
        arm_clock(t);
        return;
    }
    timer_cancel(t->client->loop, &t->retry);
    sent = transfer_was_sent(t);
    if (t->added) {
        t->added = false;
        client_multi_remove(t->client, t);
    }
    error_set(&error, ERR_DEADLINE, "%s: %s %.*s: %s", t->peer, t->method, t->url_path_len,
              t->url_path, total ? "no complete answer in time" : "the peer fell silent");
    error.admitted = sent ? ADMITTED_UNKNOWN : ADMITTED_NO;
    finish(t, &error);
}
