/* The multi handle on the loop. curl's callbacks only note what it wants; transfers that are over
 * are collected after curl has returned, so no logic of ours ever runs below a curl frame.
 *
 * A kept-alive connection stays registered with libevent between two exchanges although curl lets
 * go of it: that saves two system calls per exchange. It is unregistered when it becomes readable
 * while nobody wants that (the peer closed it; curl finds out before it reuses it). Descriptors
 * that curl opens for itself, such as the resolver's, or that never got connected are unregistered
 * at once: it closes them without telling. */
#include "core/runtime/http_client_curl.h"

#include "core/runtime/http_client_transfer.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct watch {
    struct event event;
    struct http_client *client;
    int fd;
    short wanted;     /* EV_READ | EV_WRITE as curl wants now */
    short registered; /* as libevent has it */
    bool ours;        /* made by on_open */
    bool established; /* the peer has been heard on it, and on_close will tell its end */
};

/* ---- collecting ----------------------------------------------------------------------------- */

static void collect(struct http_client *client)
{
    int left;

    for (CURLMsg *msg; (msg = curl_multi_info_read(client->multi, &left)) != NULL;) {
        CURLcode result = msg->data.result;
        struct transfer *t = NULL;

        if (msg->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        transfer_over(t, result);
    }
}

static void drive(struct http_client *client, curl_socket_t fd, int what)
{
    int running;

    PRE(!client->inside);
    client->inside = true;
    curl_multi_socket_action(client->multi, fd, what, &running);
    client->inside = false;
    collect(client);
}

/* ---- time ----------------------------------------------------------------------------------- */

static void on_timer(void *ctx)
{
    drive(ctx, CURL_SOCKET_TIMEOUT, 0);
}

static int on_curl_timeout(CURLM *multi, long timeout_ms, void *ctx)
{
    struct http_client *client = ctx;

    (void)multi;
    if (timeout_ms == 0) {
        loop_at_turn_end(client->loop, &client->kick);
        timer_cancel(client->loop, &client->timer);
    } else if (timeout_ms > 0) {
        timer_set_ms(client->loop, &client->timer, timeout_ms);
    } else {
        timer_cancel(client->loop, &client->timer);
    }
    return 0;
}

/* ---- sockets -------------------------------------------------------------------------------- */

static void on_socket_ready(evutil_socket_t fd, short what, void *ctx);

static void watch_register(struct watch *w, short events)
{
    if (w->registered == events)
        return;
    if (w->registered != 0)
        event_del(&w->event);
    w->registered = events;
    if (events == 0)
        return;
    event_assign(&w->event, loop_base(w->client->loop), w->fd, (short)(events | EV_PERSIST),
                 on_socket_ready, w);
    event_add(&w->event, NULL);
}

static void note_established(struct watch *w)
{
    if (w->established || !w->ours)
        return;
    w->established = true;
    metric_set(METRIC_HTTP_CLIENT_CONNECTIONS, NULL, ++w->client->connections);
}

static void on_socket_ready(evutil_socket_t fd, short what, void *ctx)
{
    struct watch *w = ctx;
    struct http_client *client = w->client;
    int mask = 0;

    loop_touch(client->loop);
    if ((what & ~w->wanted & (EV_READ | EV_WRITE)) != 0)
        watch_register(w, w->wanted); /* nobody consumes it: it would fire for ever */
    if ((what & w->wanted & EV_READ) != 0) {
        mask |= CURL_CSELECT_IN;
        note_established(w);
    }
    if ((what & w->wanted & EV_WRITE) != 0)
        mask |= CURL_CSELECT_OUT;
    if (mask != 0)
        drive(client, fd, mask);
}

static struct watch *watch_of(struct http_client *client, int fd)
{
    size_t at = (size_t)fd;
    struct watch *w;

    if (at >= client->n_watches) {
        size_t n = client->n_watches == 0 ? 256 : client->n_watches;
        while (n <= at)
            n *= 2;
        client->watches = xrealloc(client->watches, n * sizeof(struct watch *));
        memset(client->watches + client->n_watches, 0,
               (n - client->n_watches) * sizeof(struct watch *));
        client->n_watches = n;
    }
    if (client->watches[at] == NULL) {
        w = xcalloc(1, sizeof(*w));
        w->client = client;
        w->fd = fd;
        client->watches[at] = w;
    }
    return client->watches[at];
}

static int on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *socket_ctx)
{
    struct watch *w = watch_of(ctx, fd);

    (void)easy;
    (void)socket_ctx;
    if (what == CURL_POLL_REMOVE) {
        w->wanted = 0;
        watch_register(w, w->established ? w->registered & EV_READ : 0);
        return 0;
    }
    w->wanted = (short)(((what & CURL_POLL_IN) != 0 ? EV_READ : 0) |
                        ((what & CURL_POLL_OUT) != 0 ? EV_WRITE : 0));
    watch_register(w, w->wanted);
    return 0;
}

/* curl closes a descriptor that never got connected without on_close, and may open another of the
 * same number at once without a word in between: what libevent has is then of the old one. */
static void note_opened(struct watch *w)
{
    short wanted = w->wanted;

    w->ours = true;
    w->established = false;
    if (w->registered != 0) {
        watch_register(w, 0);
        watch_register(w, wanted);
    }
}

static curl_socket_t on_open(void *ctx, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct transfer *t = ctx;
    struct http_client *client = t->client;
    int fd;

    (void)purpose;
    if (t->dialer != NULL) {
        fd = client_dialer_open(client, t->dialer, address, &t->open_error);
    } else {
        fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
        if (fd < 0)
            error_set(&t->open_error,
                      errno == EMFILE || errno == ENFILE ? ERR_OVERLOADED : ERR_UPSTREAM_CONNECT,
                      "no socket for a connection to a peer: %s", strerror(errno));
    }
    if (fd < 0)
        return CURL_SOCKET_BAD;
    note_opened(watch_of(client, fd));
    return fd;
}

static int on_opened(void *ctx, curl_socket_t fd, curlsocktype purpose)
{
    struct transfer *t = ctx;
    struct http_client *client = t->client;

    (void)fd;
    (void)purpose;
    if (t->dialer == NULL)
        return CURL_SOCKOPT_OK;
    client_dialer_opened(client);
    return CURL_SOCKOPT_ALREADY_CONNECTED;
}

static int on_close(void *ctx, curl_socket_t fd)
{
    struct http_client *client = ctx;
    struct watch *w = watch_of(client, fd);

    watch_register(w, 0);
    if (w->established)
        metric_set(METRIC_HTTP_CLIENT_CONNECTIONS, NULL, --client->connections);
    w->wanted = 0;
    w->ours = w->established = false;
    return close(fd);
}

void client_multi_equip(struct http_client *client, CURL *easy, struct transfer *t)
{
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, t);
    curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_opened);
    curl_easy_setopt(easy, CURLOPT_SOCKOPTDATA, t);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_close);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, client); /* outlives every transfer */
}

/* ---- the multi handle ----------------------------------------------------------------------- */

void client_multi_init(struct http_client *client, const struct http_client_options *options)
{
    long per_host = options->max_connections_per_host > 0 ? options->max_connections_per_host : 512;
    long idle = options->max_idle_connections > 0 ? options->max_idle_connections
                : per_host > 1024                 ? per_host
                                                  : 1024;

    PRE(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
    client->multi = curl_multi_init();
    PRE(client->multi != NULL);
    timer_init(&client->timer, on_timer, client);
    turn_hook_init(&client->kick, on_timer, client);
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket);
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, on_curl_timeout);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
    curl_multi_setopt(client->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
    curl_multi_setopt(client->multi, CURLMOPT_MAX_HOST_CONNECTIONS, per_host);
    /* Unset, the cache shrinks to four times the running transfers and connections are thrown
     * away at the end of every burst. */
    curl_multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, idle);
}

void client_multi_fini(struct http_client *client)
{
    curl_multi_cleanup(client->multi); /* closes the idle connections: the table is needed */
    for (size_t i = 0; i < client->n_watches; i++) {
        if (client->watches[i] != NULL)
            watch_register(client->watches[i], 0);
        free(client->watches[i]);
    }
    free(client->watches);
    client_dialer_fini(client);
    timer_cancel(client->loop, &client->timer);
    turn_hook_cancel(&client->kick);
}

void client_multi_add(struct http_client *client, struct transfer *t)
{
    CURLMcode code;

    PRE(!client->inside);
    client->inside = true;
    code = curl_multi_add_handle(client->multi, t->easy);
    client->inside = false;
    POST(code == CURLM_OK);
}

void client_multi_remove(struct http_client *client, struct transfer *t)
{
    CURLMcode code;

    PRE(!client->inside);
    client->inside = true;
    code = curl_multi_remove_handle(client->multi, t->easy);
    client->inside = false;
    POST(code == CURLM_OK);
}

void client_multi_pause(struct http_client *client, CURL *easy, int bitmask)
{
    PRE(!client->inside);
    client->inside = true;
    curl_easy_pause(easy, bitmask);
    client->inside = false;
}
