/* From struct http_request to the options of an easy handle. A handle keeps what it was set to
 * last, and only what differs is set again. */
#include "core/runtime/http_client_curl.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* The list that curl reads, in memory of the transfer: nothing is allocated once it has grown. */
static bool set_headers(struct curl_transfer *t, const struct http_request *request,
                        struct error *err)
{
    bool has_body = t->form == CURL_FORM_FIELDS || t->form == CURL_FORM_ONCE;
    bool no_expect = t->form == CURL_FORM_UPLOAD || request->body_len > 512 * 1024;
    size_t need = request->n_headers + 2;
    bool has_type = false;
    size_t n = 0, at = 0;

    has_body = has_body || t->form == CURL_FORM_UPLOAD;
    if (need > t->cap_nodes) {
        t->nodes = xrealloc(t->nodes, need * sizeof(*t->nodes));
        t->cap_nodes = need;
    }
    buf_clear(&t->lines);
    for (size_t i = 0; i < request->n_headers; i++) {
        struct http_header_text h;
        if (!http_header_read(request, i, &h, err))
            return false;
        if (http_is_own_header(h.name))
            continue;
        has_type = has_type || strcasecmp(h.name, "content-type") == 0;
        buf_add(&t->lines, h.name, h.name_len);
        if (h.value_len == 0) {
            buf_add(&t->lines, ";", 2); /* curl's way to send an empty value */
        } else {
            buf_add(&t->lines, ": ", 2);
            buf_add(&t->lines, h.value, h.value_len + 1);
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

static const char *natural_method(enum curl_form form)
{
    return form == CURL_FORM_HEAD                               ? "HEAD"
           : form == CURL_FORM_FIELDS || form == CURL_FORM_ONCE ? "POST"
           : form == CURL_FORM_UPLOAD                           ? "PUT"
                                                                : "GET";
}

/* How the body goes out, and which method curl would name. Before set_headers. */
static void set_form(struct curl_transfer *t, const struct http_request *request)
{
    bool post = strcmp(request->method, "POST") == 0;
    enum curl_form before = t->form;
    const char *natural;
    bool fresh;

    if (t->base.form == FORM_UPLOAD)
        t->form = CURL_FORM_UPLOAD;
    else if (t->base.head_request)
        t->form = CURL_FORM_HEAD;
    else if (request->body_len == 0 && !post)
        t->form = CURL_FORM_BARE;
    else
        t->form = t->base.repeatable || request->body_len == 0 ? CURL_FORM_FIELDS : CURL_FORM_ONCE;
    if (before == CURL_FORM_UPLOAD && t->form != CURL_FORM_UPLOAD)
        curl_easy_setopt(t->easy, CURLOPT_UPLOAD, 0L);
    switch (t->form) {
    case CURL_FORM_NONE:
    case CURL_FORM_BARE:
        curl_easy_setopt(t->easy, CURLOPT_HTTPGET, 1L);
        break;
    case CURL_FORM_HEAD:
        curl_easy_setopt(t->easy, CURLOPT_NOBODY, 1L);
        break;
    case CURL_FORM_FIELDS:
    case CURL_FORM_ONCE:
        curl_easy_setopt(t->easy, CURLOPT_POST, 1L);
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS,
                         t->form == CURL_FORM_ONCE ? NULL
                         : request->body_len > 0   ? request->body
                                                   : "");
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_len);
        break;
    case CURL_FORM_UPLOAD:
        curl_easy_setopt(t->easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(t->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)t->base.upload_len);
        break;
    }
    natural = natural_method(t->form);
    if (strcmp(request->method, natural) == 0)
        natural = NULL;
    else
        natural = request->method;
    if (differs(&t->custom_method, natural))
        curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, natural);
    /* A request without a body gives curl nothing that it cannot rewind. */
    fresh = request->fresh ||
            (!t->base.repeatable && request->body_len == 0 && t->form != CURL_FORM_UPLOAD);
    curl_easy_setopt(t->easy, CURLOPT_FRESH_CONNECT, (long)fresh);
}

static void set_tls(struct curl_transfer *t, const struct http_tls *tls)
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

bool curl_transfer_prepare(struct transfer *base, const struct http_request *request,
                           struct error *err)
{
    struct curl_transfer *t = container_of(base, struct curl_transfer, base);

    if (request->dialer != NULL) {
        error_set(err, ERR_BAD_REQUEST, "a request to %s through a tunnel must be plain http",
                  base->peer);
        return false;
    }
    if (differs(&t->socket_path, request->unix_socket))
        curl_easy_setopt(t->easy, CURLOPT_UNIX_SOCKET_PATH, request->unix_socket);
    if (differs(&t->url, request->url))
        curl_easy_setopt(t->easy, CURLOPT_URL, request->url);
    set_form(t, request);
    if (!set_headers(t, request, err))
        return false;
    set_tls(t, request->tls);
    if (t->connect_ms != base->connect_ms) {
        t->connect_ms = base->connect_ms;
        curl_easy_setopt(t->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)base->connect_ms);
    }
    t->body_sent = 0;
    t->paused_bits = 0;
    return true;
}
