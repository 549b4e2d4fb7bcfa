#include "core/runtime/grpc.h"

#include "core/runtime/grpc_internal.h"
#include "core/runtime/quote.h"

#include <event2/dns.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONNECT_TIMEOUT_MS = 10000,
    PING_INTERVAL_MS = 20000,
    MAX_CONNECTIONS = 64,
    RECONNECT_MS = 500
};

static void connection_drop(struct grpc_connection *c);

static void connection_release(void *ptr)
{
    struct grpc_connection *c = ptr;

    h2_session_free(c->session);
    free(c);
}

static void on_ready(void *ctx)
{
    struct grpc_connection *c = ctx;

    c->came_up = true;
    loop_post(c->channel->loop, &c->channel->dispatch);
}

static void on_draining(void *ctx)
{
    struct grpc_connection *c = ctx;

    c->retired = true;
    loop_post(c->channel->loop, &c->channel->dispatch);
}

static void on_stream_end(void *ctx)
{
    struct grpc_connection *c = ctx;

    loop_post(c->channel->loop, &c->channel->dispatch);
}

static void on_reconnect_due(void *ctx)
{
    struct grpc_channel *channel = ctx;

    loop_post(channel->loop, &channel->dispatch);
}

/* A connection that never came up fails the calls that wait, unless others stand: then they wait
 * for room there, or for the next attempt. */
static void on_closed(void *ctx, const struct error *why)
{
    struct grpc_connection *c = ctx;
    struct grpc_channel *channel = c->channel;
    struct list failed = LIST_INIT(failed);
    struct list *node;

    if (c->dropped)
        return;
    connection_drop(c);
    if (!c->came_up) {
        if (list_empty(&channel->connections))
            list_splice(&failed, &channel->waiting);
        else
            timer_set_ms(channel->loop, &channel->reconnect, RECONNECT_MS);
    }
    while ((node = list_pop(&failed)) != NULL)
        grpc_call_fail(container_of(node, struct grpc_call, link), why);
    loop_post(channel->loop, &channel->dispatch);
}

static const struct h2_session_events session_events = {on_ready, on_draining, on_stream_end,
                                                        on_closed};

static void connection_open(struct grpc_channel *channel)
{
    struct grpc_connection *c = xcalloc(1, sizeof(*c));
    struct h2_options options = {
        .host = channel->host,
        .port = channel->port,
        .authority = channel->authority,
        .tls = channel->tls,
        .dns = channel->dns,
        .connect_timeout_ms = channel->connect_timeout_ms,
        .ping_interval_ms = channel->ping_interval_ms,
    };

    c->channel = channel;
    list_push(&channel->connections, &c->link);
    channel->n_connections++;
    c->session = h2_session_new(channel->loop, &options, &session_events, c);
}

static void connection_drop(struct grpc_connection *c)
{
    c->dropped = true;
    list_remove(&c->link);
    c->channel->n_connections--;
    loop_defer_free(c->channel->loop, connection_release, c);
}

/* Close retired connections without streams, hand waiting calls to those with room, and open one
 * more when calls are left over and none is on its way. */
static void dispatch(void *ctx)
{
    struct grpc_channel *channel = ctx;
    bool connecting = false;

    LIST_FOREACH_SAFE (node, tmp, &channel->connections) {
        struct grpc_connection *c = container_of(node, struct grpc_connection, link);
        if (c->retired && h2_session_streams(c->session) == 0) {
            connection_drop(c);
            continue;
        }
        while (!c->retired && h2_session_has_room(c->session) && !list_empty(&channel->waiting))
            grpc_call_start(container_of(list_pop(&channel->waiting), struct grpc_call, link),
                            c->session);
        connecting |= !c->retired && !h2_session_is_ready(c->session);
    }
    if (!list_empty(&channel->waiting) && !connecting && !timer_armed(&channel->reconnect) &&
        channel->n_connections < channel->max_connections)
        connection_open(channel);
}

void grpc_channel_enqueue(struct grpc_channel *channel, struct grpc_call *call)
{
    list_push(&channel->waiting, &call->link);
    loop_post(channel->loop, &channel->dispatch);
}

void grpc_channel_renew(struct grpc_channel *channel)
{
    LIST_FOREACH_SAFE (node, tmp, &channel->connections) {
        struct grpc_connection *c = container_of(node, struct grpc_connection, link);
        if (h2_session_is_ready(c->session))
            c->retired = true;
    }
    loop_post(channel->loop, &channel->dispatch);
}

/* "host:port", "[v6]:port". */
static bool split_host_port(const char *text, char **ret_host, int *ret_port)
{
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    long port;

    if (colon == NULL || colon == text)
        return false;
    port = strtol(colon + 1, &end, 10);
    if (*end != '\0' || end == colon + 1 || port < 1 || port > 65535)
        return false;
    if (text[0] == '[' && colon[-1] == ']')
        *ret_host = xstrndup(text + 1, (size_t)(colon - text) - 2);
    else if (memchr(text, ':', (size_t)(colon - text)) == NULL)
        *ret_host = xstrndup(text, (size_t)(colon - text));
    else
        return false;
    *ret_port = (int)port;
    return true;
}

struct grpc_channel *grpc_channel_new(struct loop *loop, const struct grpc_options *options,
                                      struct error *err)
{
    struct grpc_channel *channel = xcalloc(1, sizeof(*channel));

    channel->loop = loop;
    list_init(&channel->connections);
    list_init(&channel->waiting);
    task_init(&channel->dispatch, dispatch, channel);
    timer_init(&channel->reconnect, on_reconnect_due, channel);
    channel->connect_timeout_ms =
        options->connect_timeout_ms > 0 ? options->connect_timeout_ms : CONNECT_TIMEOUT_MS;
    channel->ping_interval_ms =
        options->ping_interval_ms > 0 ? options->ping_interval_ms : PING_INTERVAL_MS;
    channel->max_message = options->max_message > 0 ? options->max_message : 16 << 20;
    channel->max_connections =
        options->max_connections > 0 ? options->max_connections : MAX_CONNECTIONS;
    if (!split_host_port(options->host_port, &channel->host, &channel->port)) {
        error_set(err, ERR_BAD_REQUEST, "the gRPC endpoint is not host:port");
        grpc_channel_free(channel);
        return NULL;
    }
    channel->authority = xstrdup(options->host_port);
    if (options->bearer != NULL && options->bearer[0] != '\0') {
        if (!quote_is_header_safe(options->bearer)) {
            error_set(err, ERR_BAD_REQUEST, "the gRPC bearer token holds control characters");
            grpc_channel_free(channel);
            return NULL;
        }
        channel->authorization = xmalloc(strlen(options->bearer) + 8);
        memcpy(channel->authorization, "Bearer ", 7);
        memcpy(channel->authorization + 7, options->bearer, strlen(options->bearer) + 1);
    }
    if (!options->insecure) {
        channel->tls = h2_tls_new(options->ca_path, options->cert_path, options->key_path, err);
        if (channel->tls == NULL) {
            grpc_channel_free(channel);
            return NULL;
        }
    }
    channel->dns = evdns_base_new(loop_base(loop), EVDNS_BASE_INITIALIZE_NAMESERVERS |
                                                       EVDNS_BASE_DISABLE_WHEN_INACTIVE);
    if (channel->dns == NULL) /* no usable resolv.conf: addresses and /etc/hosts still work */
        channel->dns = evdns_base_new(loop_base(loop), EVDNS_BASE_DISABLE_WHEN_INACTIVE);
    PRE(channel->dns != NULL);
    evdns_base_load_hosts(channel->dns, "/etc/hosts");
    return channel;
}

void grpc_channel_free(struct grpc_channel *channel)
{
    if (channel == NULL)
        return;
    PRE(list_empty(&channel->waiting));
    task_cancel(&channel->dispatch);
    timer_cancel(channel->loop, &channel->reconnect);
    LIST_FOREACH_SAFE (node, tmp, &channel->connections) {
        struct grpc_connection *c = container_of(node, struct grpc_connection, link);
        list_remove(&c->link);
        connection_release(c);
    }
    if (channel->dns != NULL)
        evdns_base_free(channel->dns, 0);
    h2_tls_free(channel->tls);
    free(channel->host);
    free(channel->authority);
    free(channel->authorization);
    free(channel);
}

int grpc_channel_connections(const struct grpc_channel *channel)
{
    return channel->n_connections;
}

int grpc_channel_streams(const struct grpc_channel *channel)
{
    int n = 0;

    LIST_FOREACH_SAFE (node, tmp, &channel->connections)
        n += h2_session_streams(container_of(node, struct grpc_connection, link)->session);
    return n;
}
