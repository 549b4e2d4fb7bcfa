#include "core/runtime/http_client_transfer.h"

#include "core/runtime/http_client_curl.h"
#include "core/runtime/http_wire.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFER_KEEP = 16 * 1024 }; /* of an answer's body, in an idle transfer */

static void on_clock(void *ctx);
static void on_retry(void *ctx);

void transfer_init(struct transfer *t, struct http_client *client, const struct transport *via)
{
    t->client = client;
    t->via = via;
    timer_init(&t->clock, on_clock, t);
    timer_init(&t->retry, on_retry, t);
}

void transfer_fini(struct transfer *t)
{
    buf_fini(&t->head);
    buf_fini(&t->collected);
}

struct transfer *transfer_take(struct http_client *client, const struct http_request *request,
                               const struct transfer_owner *owner, void *owner_ctx)
{
    struct transfer *t =
        wire_carries(client, request) ? wire_transfer_take(client) : curl_transfer_take(client);

    client->n_running++;
    t->owner = owner;
    t->owner_ctx = owner_ctx;
    t->holding = false;
    t->attempt = 0;
    t->refused.code = ERR_NONE;
    buf_clear(&t->collected);
    transfer_head_restart(t);
    return t;
}

void transfer_release(struct transfer *t)
{
    struct http_client *client = t->client;

    timer_cancel(client->loop, &t->clock);
    timer_cancel(client->loop, &t->retry);
    if (t->attempting) {
        t->attempting = false;
        t->via->stop(t);
    }
    client->n_running--;
    t->owner = NULL;
    if (t->collected.cap > BUFFER_KEEP)
        buf_fini(&t->collected);
    if (t->head.cap > BUFFER_KEEP)
        buf_fini(&t->head);
    t->via->give_back(t);
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

/* The part of the URL that messages may show: its path; a query may hold secrets. */
static void note_path(struct transfer *t, const char *url)
{
    const char *p = strchr(url, ':');

    p = p != NULL && p[1] == '/' && p[2] == '/' ? p + 3 : url;
    while (*p != '/' && *p != '?' && *p != '#' && *p != '\0')
        p++;
    t->url_path = p;
    while (*p != '?' && *p != '#' && *p != '\0')
        p++;
    t->url_path_len = (int)(p - t->url_path);
}

static void note_form(struct transfer *t, const struct http_request *request, int64_t upload_len)
{
    const char *method = request->method;
    bool takes_body =
        strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0 || strcmp(method, "PATCH") == 0;

    t->head_request = strcmp(method, "HEAD") == 0;
    t->safe = t->head_request || strcmp(method, "GET") == 0 || strcmp(method, "OPTIONS") == 0;
    t->repeatable = t->safe || request->idempotent;
    t->body = request->body;
    t->body_len = request->body_len;
    t->upload_len = upload_len;
    if (upload_len != UPLOAD_NONE)
        t->form = FORM_UPLOAD;
    else
        t->form = request->body_len > 0 || takes_body ? FORM_MEMORY : FORM_BARE;
}

bool transfer_begin(struct transfer *t, const struct http_request *request, int64_t upload_len,
                    int64_t default_total_ms, struct error *err)
{
    int64_t total_ms = request->total_timeout_ms > 0 ? request->total_timeout_ms : default_total_ms;
    int64_t now_us = loop_now_us(t->client->loop);

    t->peer = request->peer;
    t->method = request->method;
    note_path(t, request->url);
    note_form(t, request, upload_len);
    if (!http_is_token(request->method) || !http_is_value(request->url)) {
        error_set(err, ERR_BAD_REQUEST, "the method or URL of a request to %s is malformed",
                  t->peer);
        return false;
    }
    t->connect_ms = request->connect_timeout_ms > 0 ? request->connect_timeout_ms : 10000;
    t->retries_left = request->connect_retries;
    t->started_us = t->active_us = now_us;
    t->deadline_us = total_ms > 0 ? now_us + total_ms * 1000 : 0;
    t->idle_us = request->idle_timeout_ms * 1000;
    if (!t->via->prepare(t, request, err))
        return false;
    arm_clock(t);
    t->attempting = true;
    t->via->start(t);
    return true;
}

static void on_retry(void *ctx)
{
    struct transfer *t = ctx;

    t->attempting = true;
    t->via->start(t);
}

/* ---- while it runs -------------------------------------------------------------------------- */

void transfer_hold(struct transfer *t)
{
    t->holding = true;
}

void transfer_go_on(struct transfer *t)
{
    if (!t->holding)
        return;
    t->holding = false;
    t->active_us = loop_now_us(t->client->loop);
    if (t->attempting)
        t->via->go_on(t);
}

void transfer_more_upload(struct transfer *t)
{
    if (t->attempting)
        t->via->more_upload(t);
}

void transfer_touch(struct transfer *t)
{
    t->active_us = loop_now_us(t->client->loop);
}

void transfer_refuse(struct transfer *t, enum err_code code, const char *why)
{
    if (!error_is(&t->refused))
        error_set(&t->refused, code, "%s", why);
}

bool transfer_was_sent(const struct transfer *t)
{
    return t->via->was_sent(t);
}

/* ---- the end -------------------------------------------------------------------------------- */

static bool retry_later(struct transfer *t, const struct error *err)
{
    static const int pause_ms[] = {0, 500, 1000};

    if (t->retries_left == 0 || error_is(&t->refused) || transfer_was_sent(t) ||
        (err->code != ERR_UPSTREAM_CONNECT && err->code != ERR_DEADLINE))
        return false;
    t->retries_left--;
    timer_set_ms(t->client->loop, &t->retry, pause_ms[t->attempt < 2 ? t->attempt : 2]);
    t->attempt++;
    return true;
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

static void count(const struct transfer *t, enum err_code code)
{
    static const char *const classes[OUTCOME_CLASSES] = {"?", "1xx", "2xx", "3xx", "4xx", "5xx"};
    struct peer_series *s = series_of(t->client, t->peer);
    int outcome = OUTCOME_CLASSES + (int)code;

    if (code == ERR_NONE)
        outcome = t->status >= 100 && t->status < 600 ? t->status / 100 : 0;
    if (s->outcome[outcome] == NULL)
        s->outcome[outcome] = metric_series(
            METRIC_HTTP_CLIENT_REQUESTS,
            LABELS(s->peer, outcome < OUTCOME_CLASSES ? classes[outcome] : err_wire(code)));
    metric_series_add(s->outcome[outcome], 1);
    metric_series_observe_us(s->seconds, loop_now_us(t->client->loop) - t->started_us);
}

static void finish(struct transfer *t, const struct error *err)
{
    timer_cancel(t->client->loop, &t->clock);
    count(t, err != NULL ? err->code : ERR_NONE);
    t->owner->over(t->owner_ctx, err);
}

void transfer_describe(const struct transfer *t, enum err_code code, const char *what,
                       struct error *ret)
{
    error_set(ret, code, "%s: %s %.*s: %s", t->peer, t->method, t->url_path_len, t->url_path, what);
    ret->admitted = transfer_was_sent(t) ? ADMITTED_UNKNOWN : ADMITTED_NO;
}

void transfer_attempt_over(struct transfer *t, const struct error *err)
{
    struct error refused;

    t->attempting = false;
    if (error_is(&t->refused)) {
        transfer_describe(t, t->refused.code, t->refused.message, &refused);
        err = &refused;
    }
    if (err == NULL || !retry_later(t, err))
        finish(t, err);
}

static void on_clock(void *ctx)
{
    struct transfer *t = ctx;
    int64_t now_us = loop_now_us(t->client->loop);
    bool total = t->deadline_us != 0 && now_us >= t->deadline_us;
    struct error error;

    if (t->holding)
        t->active_us = now_us;
    if (!total && (t->idle_us == 0 || now_us < t->active_us + t->idle_us)) {
        arm_clock(t);
        return;
    }
    timer_cancel(t->client->loop, &t->retry);
    transfer_describe(t, ERR_DEADLINE,
                      total ? "no complete answer in time" : "the peer fell silent", &error);
    if (t->attempting) {
        t->attempting = false;
        t->via->stop(t);
    }
    finish(t, &error);
}
