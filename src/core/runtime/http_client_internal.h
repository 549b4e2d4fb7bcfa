/* Inside of the HTTP client: the process's client with its two transports. For http_*.c only. */
#pragma once

#include "core/runtime/http_client.h"
#include "core/runtime/metrics.h"

struct curl_multi;
struct transfer;
struct wire;

enum { PEERS_MAX = 8, OUTCOME_CLASSES = 6 };

/** Metric series of one peer, resolved once. */
struct peer_series {
    const char *peer;
    struct metric_series *seconds;
    struct metric_series *outcome[OUTCOME_CLASSES + ERR_COUNT];
};

struct http_client {
    struct loop *loop;
    int max_per_host, max_idle;
    int64_t max_idle_ms;
    char *proxy;
    bool curl_only;
    struct wire *wire;       /* plain http: http_wire.h */
    struct curl_multi *curl; /* https, and http through a proxy: http_client_curl.h */
    int connections;         /* open, of both */
    int n_running;
    struct peer_series peers[PEERS_MAX];
};

/** A connection of either transport came up (1) or was closed (-1): for the metric. */
void client_note_connection(struct http_client *client, int change);
