/* Inside of the HTTP client: the process's curl multi handle on the loop, and the table of its
 * sockets. For http_client*.c and http_stream.c only. */
#pragma once

#include "core/runtime/http_client.h"
#include "core/runtime/metrics.h"

#include <curl/curl.h>

struct dialer_aid;
struct transfer;
struct watch;

enum { PEERS_MAX = 8, OUTCOME_CLASSES = 6 };

/** Metric series of one peer, resolved once. */
struct peer_series {
    const char *peer;
    struct metric_series *seconds;
    struct metric_series *outcome[OUTCOME_CLASSES + ERR_COUNT];
};

struct http_client {
    struct loop *loop;
    CURLM *multi;
    struct timer timer;     /* what curl asked for */
    struct turn_hook kick;  /* curl wants to run at once: everything begun in this turn goes out */
    bool inside;            /* a curl function is on the stack */
    struct watch **watches; /* by descriptor */
    size_t n_watches;
    int connections;
    struct dialer_aid *dialer_aid; /* NULL until a dialer is used */
    struct transfer *idle;         /* pooled, linked by their next */
    int n_idle;
    int n_running;
    char *proxy;
    long max_idle_s;
    struct peer_series peers[PEERS_MAX];
};

/** Sets up the multi handle with its callbacks; http_client_new's first step. */
void client_multi_init(struct http_client *client, const struct http_client_options *options);
void client_multi_fini(struct http_client *client);

/** Hand a prepared transfer to curl, or take it back. Taking back an unfinished exchange closes
 * its connection. Never from inside a curl callback. */
void client_multi_add(struct http_client *client, struct transfer *t);
void client_multi_remove(struct http_client *client, struct transfer *t);

/** Unpause as `bitmask` of CURLPAUSE_* says; never from inside a curl callback. */
void client_multi_pause(struct http_client *client, CURL *easy, int bitmask);

/** The socket callbacks that each easy handle needs. */
void client_multi_equip(struct http_client *client, CURL *easy, struct transfer *t);

/* ---- http_client_dialer.c --------------------------------------------------------------------- */

/** A dialer's descriptor for curl; the two are called from the open and the sockopt callback. */
int client_dialer_open(struct http_client *client, const struct http_dialer *dialer,
                       struct curl_sockaddr *address, struct error *err);
void client_dialer_opened(struct http_client *client);
void client_dialer_fini(struct http_client *client);
