/* Inside of the HTTP client: the transport on libcurl, for https and for http through a proxy. The
 * process's multi handle on the loop, and transfers on pooled easy handles. For http_client*.c. */
#pragma once

#include "core/runtime/http_client_transfer.h"

#include <curl/curl.h>

struct watch;

/** What of a body's way decides whether curl can repeat it, and which options it needs. */
enum curl_form {
    CURL_FORM_NONE,
    CURL_FORM_BARE, /* no body */
    CURL_FORM_HEAD,
    CURL_FORM_FIELDS, /* from memory, repeatable */
    CURL_FORM_ONCE,   /* from memory through a callback that cannot rewind: never sent twice */
    CURL_FORM_UPLOAD, /* from the owner */
};

/** The multi handle of a client; made with its first exchange over curl. */
struct curl_multi {
    struct http_client *client;
    CURLM *multi;
    struct timer timer;     /* what curl asked for */
    struct turn_hook kick;  /* curl wants to run at once: everything begun in this turn goes out */
    bool inside;            /* a curl function is on the stack */
    struct watch **watches; /* by descriptor */
    size_t n_watches;
    struct transfer *idle; /* pooled, linked by their next */
    int n_idle;
};

struct curl_transfer {
    struct transfer base;
    CURL *easy;
    size_t body_sent;
    int paused_bits;  /* CURLPAUSE_*: what curl waits for us with */
    struct buf lines; /* header lines, NUL-separated */
    struct curl_slist *nodes;
    size_t cap_nodes;
    struct error open_error;
    char errbuf[CURL_ERROR_SIZE];

    /* what the easy handle is set to */
    enum curl_form form;
    struct buf url, socket_path, custom_method, tls;
    int64_t connect_ms;
};

struct transfer *curl_transfer_take(struct http_client *client);

/** Everything of it, idle transfers too; NULL allowed. */
void curl_multi_free(struct curl_multi *m);

/* ---- http_client_curl.c ----------------------------------------------------------------------- */

/** The client's, made if need be. */
struct curl_multi *curl_multi_of(struct http_client *client);

/** Hand a prepared transfer to curl, or take it back. Taking back an unfinished exchange closes
 * its connection. Never from inside a curl callback. */
void curl_multi_add(struct curl_transfer *t);
void curl_multi_remove(struct curl_transfer *t);

/** Pause as `bitmask` of CURLPAUSE_* says; never from inside a curl callback. */
void curl_multi_pause(struct curl_transfer *t, int bitmask);

/** The socket callbacks that each easy handle needs. */
void curl_multi_equip(struct curl_transfer *t);

/* ---- http_client_curl_transfer.c -------------------------------------------------------------- */

/** Called by the multi glue when curl is done with it. */
void curl_transfer_over(struct curl_transfer *t, CURLcode result);
void curl_transfer_free(struct curl_transfer *t);

/* ---- http_client_curl_request.c --------------------------------------------------------------- */

bool curl_transfer_prepare(struct transfer *t, const struct http_request *request,
                           struct error *err) MUST_CHECK;
