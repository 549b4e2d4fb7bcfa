/* From struct http_request to the options of an easy handle. A handle keeps what it was set to
 * last, and only what differs is set again. */
#include "core/runtime/http_client_transfer.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool is_token(const char *text)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";
    const char *p = text;

    for (; *p != '\0'; p++) {
        bool alnum =
            (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z');
        if (!alnum && strchr(marks, *p) == NULL)
            return false;
    }
    return p != text;
}

static bool is_value(const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        if (((unsigned char)*p < 0x20 && *p != '\t') || *p == 0x7f)
            return false;
    }
    return true;
}

/* Message framing and the connection are ours to say. */
static bool is_own_header(const char *name)
{
    static const char *const own[] = {"content-length",
                                      "transfer-encoding",
                                      "connection",
                                      "keep-alive",
                                      "upgrade",
                                      "expect",
                                      "te",
                                      "trailer",
                                      "proxy-connection"};

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        if (strcasecmp(name, own[i]) == 0)
            return true;
    }
    return false;
}

/* The list that curl reads, in memory of the transfer: nothing is allocated once it has grown. */
bool transfer_set_headers(struct transfer *t, const struct http_request *request, bool no_expect,
                          struct error *err)
{
    bool has_body = t->form == FORM_FIELDS || t->form == FORM_ONCE || t->form == FORM_UPLOAD;
    size_t need = request->n_headers + 2;
    bool has_type = false;
    size_t n = 0, at = 0;

    if (need > t->cap_nodes) {
        t->nodes = xrealloc(t->nodes, need * sizeof(*t->nodes));
        t->cap_nodes = need;
    }
    buf_clear(&t->lines);
    for (size_t i = 0; i < request->n_headers; i++) {
        const struct http_header *h = &request->headers[i];
        if (h->name == NULL || h->value == NULL || !is_token(h->name) || !is_value(h->value)) {
            error_set(err, ERR_BAD_REQUEST,
                      "a header for %s has a name or value that no header may have", request->peer);
            return false;
        }
        if (is_own_header(h->name))
            continue;
        has_type = has_type || strcasecmp(h->name, "content-type") == 0;
        buf_adds(&t->lines, h->name);
        if (h->value[0] == '\0') {
            buf_add(&t->lines, ";", 2); /* curl's way to send an empty value */
        } else {
            buf_add(&t->lines, ": ", 2);
            buf_add(&t->lines, h->value, strlen(h->value) + 1);
        }
        n++;
    }
    for (size_t i = 0; i < n; i++) {
        t->nodes[i].data = t->lines.data + at;
        at += strlen(t->nodes[i].data) + 1;
    }
    if (has_body && !has_type)
        t->nodes[n++].data = (char *)(uintptr_t) "Content-Type:"; /* else curl calls it a form */
    if (no_expect)
        t->nodes[n++].data = (char *)(uintptr_t) "Expect:";
    for (size_t i = 0; i < n; i++)
        t->nodes[i].next = i + 1 < n ? &t->nodes[i + 1] : NULL;
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, n > 0 ? t->nodes : NULL);
    return true;
}

/* Whether `cached` changes by this; `text` may be NULL for none. */
static bool differs(struct buf *cached, const char *text)
{
    size_t len = text != NULL ? strlen(text) : 0;

    if (cached->len == len && (len == 0 || memcmp(cached->data, text, len) == 0))
        return false;
    buf_clear(cached);
    buf_add(cached, text, len);
    return true;
}

void transfer_set_form(struct transfer *t, const struct http_request *request, int64_t upload_len)
{
    const char *natural = "GET";
    bool head = strcmp(request->method, "HEAD") == 0;
    bool post = strcmp(request->method, "POST") == 0;
    enum transfer_form before = t->form;

    t->safe =
        head || strcmp(request->method, "GET") == 0 || strcmp(request->method, "OPTIONS") == 0;
    t->repeatable = t->safe || request->idempotent;
    if (upload_len != UPLOAD_NONE)
        t->form = FORM_UPLOAD;
    else if (head)
        t->form = FORM_HEAD;
    else if (request->body_len == 0 && !post)
        t->form = FORM_BARE;
    else
        t->form = t->repeatable || request->body_len == 0 ? FORM_FIELDS : FORM_ONCE;
    if (before == FORM_UPLOAD && t->form != FORM_UPLOAD)
        curl_easy_setopt(t->easy, CURLOPT_UPLOAD, 0L);
    switch (t->form) {
    case FORM_NONE:
    case FORM_BARE:
        curl_easy_setopt(t->easy, CURLOPT_HTTPGET, 1L);
        break;
    case FORM_HEAD:
        natural = "HEAD";
        curl_easy_setopt(t->easy, CURLOPT_NOBODY, 1L);
        break;
    case FORM_FIELDS:
    case FORM_ONCE:
        natural = "POST";
        curl_easy_setopt(t->easy, CURLOPT_POST, 1L);
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS,
                         t->form == FORM_ONCE    ? NULL
                         : request->body_len > 0 ? request->body
                                                 : "");
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_len);
        break;
    case FORM_UPLOAD:
        natural = "PUT";
        curl_easy_setopt(t->easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(t->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)upload_len);
        break;
    }
    if (strcmp(request->method, natural) == 0)
        natural = NULL;
    else
        natural = request->method;
    if (differs(&t->custom_method, natural))
        curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, natural);
    /* A request without a body gives curl nothing that it cannot rewind. */
    t->fresh =
        request->fresh || (!t->repeatable && request->body_len == 0 && t->form != FORM_UPLOAD);
    curl_easy_setopt(t->easy, CURLOPT_FRESH_CONNECT, (long)t->fresh);
    curl_easy_setopt(t->easy, CURLOPT_FORBID_REUSE,
                     (long)(t->dialer != NULL && t->dialer->one_exchange));
}

/* The part of the URL that messages may show: its path; a query may hold secrets. */
static void note_path(struct transfer *t, const char *url)
{
    const char *p = strstr(url, "://");

    p = p != NULL ? p + 3 : url;
    p += strcspn(p, "/?#");
    t->url_path = p;
    t->url_path_len = (int)strcspn(p, "?#");
}

bool transfer_set_target(struct transfer *t, const struct http_request *request, struct error *err)
{
    const char *path = request->unix_socket;
    char dialer_path[96];

    t->peer = request->peer;
    t->method = request->method;
    note_path(t, request->url);
    if (!is_token(request->method) || !is_value(request->url)) {
        error_set(err, ERR_BAD_REQUEST, "the method or URL of a request to %s is malformed",
                  t->peer);
        return false;
    }
    if (request->dialer != NULL) {
        /* A name of the unix-socket kind keeps the pools apart and needs no name lookup. */
        int n = snprintf(dialer_path, sizeof(dialer_path), "dialer:%s", request->dialer->key);
        if (n < 0 || (size_t)n >= sizeof(dialer_path)) {
            error_set(err, ERR_INTERNAL, "the key of a dialer is too long");
            return false;
        }
        path = dialer_path;
    }
    t->dialer = request->dialer;
    if (differs(&t->socket_path, path))
        curl_easy_setopt(t->easy, CURLOPT_UNIX_SOCKET_PATH, path);
    if (differs(&t->url, request->url))
        curl_easy_setopt(t->easy, CURLOPT_URL, request->url);
    return true;
}

void transfer_set_tls(struct transfer *t, const struct http_tls *tls)
{
    const char *ca = tls != NULL ? tls->ca_path : NULL;
    const char *cert = tls != NULL ? tls->cert_path : NULL;
    const char *key = tls != NULL ? tls->key_path : NULL;
    char all[3072] = "";

    if (tls == NULL && t->tls.len == 0)
        return;
    if (tls != NULL)
        snprintf(all, sizeof(all), "%s\n%s\n%s", ca != NULL ? ca : "", cert != NULL ? cert : "",
                 key != NULL ? key : "");
    if (!differs(&t->tls, all))
        return;
    if (ca != NULL) {
        curl_easy_setopt(t->easy, CURLOPT_CAINFO, ca);
    } else { /* back to curl's own default, which a NULL would not bring */
        const char *fallback = curl_version_info(CURLVERSION_NOW)->cainfo;
        curl_easy_setopt(t->easy, CURLOPT_CAINFO, fallback);
    }
    curl_easy_setopt(t->easy, CURLOPT_SSLCERT, cert);
    curl_easy_setopt(t->easy, CURLOPT_SSLKEY, key);
}
