/* The multi handle on the loop. curl's callbacks only note what it wants; transfers that are over
 * are collected after curl has returned, so no logic of ours ever runs below a curl frame.
 *
 * A kept-alive connection stays registered with libevent between two exchanges although curl lets
 * go of it: that saves two system calls per exchange. It is unregistered when it becomes readable
 * while nobody wants that (the peer closed it; curl finds out before it reuses it). Descriptors
 * that curl opens for itself, such as the resolver's, or that never got connected are unregistered
 * at once: it closes them without telling. */
#include "core/runtime/http_client_curl.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct watch {
    struct event event;
    struct curl_multi *owner;
    int fd;
    short wanted;     /* EV_READ | EV_WRITE as curl wants now */
    short registered; /* as libevent has it */
    bool ours;        /* made by on_open */
    bool established; /* the peer has been heard on it, and on_close will tell its end */
};

/* ---- collecting ----------------------------------------------------------------------------- */

static void collect(struct curl_multi *m)
{
    int left;

    for (CURLMsg *msg; (msg = curl_multi_info_read(m->multi, &left)) != NULL;) {
        CURLcode result = msg->data.result;
        struct curl_transfer *t = NULL;

        if (msg->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        curl_transfer_over(t, result);
    }
}

static void drive(struct curl_multi *m, curl_socket_t fd, int what)
{
    int running;

    PRE(!m->inside);
    m->inside = true;
    curl_multi_socket_action(m->multi, fd, what, &running);
    m->inside = false;
    collect(m);
}

/* ---- time ----------------------------------------------------------------------------------- */

static void on_timer(void *ctx)
{
    drive(ctx, CURL_SOCKET_TIMEOUT, 0);
}

static int on_curl_timeout(CURLM *multi, long timeout_ms, void *ctx)
{
    struct curl_multi *m = ctx;
    struct loop *loop = m->client->loop;

    (void)multi;
    if (timeout_ms == 0) {
        loop_at_turn_end(loop, &m->kick);
        timer_cancel(loop, &m->timer);
    } else if (timeout_ms > 0) {
        timer_set_ms(loop, &m->timer, timeout_ms);
    } else {
        timer_cancel(loop, &m->timer);
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
    event_assign(&w->event, loop_base(w->owner->client->loop), w->fd, (short)(events | EV_PERSIST),
                 on_socket_ready, w);
    event_add(&w->event, NULL);
}

static void note_established(struct watch *w)
{
    if (w->established || !w->ours)
        return;
    w->established = true;
    client_note_connection(w->owner->client, 1);
}

static void on_socket_ready(evutil_socket_t fd, short what, void *ctx)
{
    struct watch *w = ctx;
    struct curl_multi *m = w->owner;
    int mask = 0;

    loop_touch(m->client->loop);
    if ((what & ~w->wanted & (EV_READ | EV_WRITE)) != 0)
        watch_register(w, w->wanted); /* nobody consumes it: it would fire for ever */
    if ((what & w->wanted & EV_READ) != 0) {
        mask |= CURL_CSELECT_IN;
        note_established(w);
    }
    if ((what & w->wanted & EV_WRITE) != 0)
        mask |= CURL_CSELECT_OUT;
    if (mask != 0)
        drive(m, fd, mask);
}

static struct watch *watch_of(struct curl_multi *m, int fd)
{
    size_t at = (size_t)fd;
    struct watch *w;

    if (at >= m->n_watches) {
        size_t n = m->n_watches == 0 ? 256 : m->n_watches;
        while (n <= at)
            n *= 2;
        m->watches = xrealloc(m->watches, n * sizeof(struct watch *));
        memset(m->watches + m->n_watches, 0, (n - m->n_watches) * sizeof(struct watch *));
        m->n_watches = n;
    }
    if (m->watches[at] == NULL) {
        w = xcalloc(1, sizeof(*w));
        w->owner = m;
        w->fd = fd;
        m->watches[at] = w;
    }
    return m->watches[at];
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
    struct curl_transfer *t = ctx;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);

    (void)purpose;
    if (fd < 0) {
        error_set(&t->open_error,
                  errno == EMFILE || errno == ENFILE ? ERR_OVERLOADED : ERR_UPSTREAM_CONNECT,
                  "no socket for a connection to a peer: %s", strerror(errno));
        return CURL_SOCKET_BAD;
    }
    note_opened(watch_of(t->base.client->curl, fd));
    return fd;
}

static int on_close(void *ctx, curl_socket_t fd)
{
    struct curl_multi *m = ctx;
    struct watch *w = watch_of(m, fd);

    watch_register(w, 0);
    if (w->established)
        client_note_connection(m->client, -1);
    w->wanted = 0;
    w->ours = w->established = false;
    return close(fd);
}

void curl_multi_equip(struct curl_transfer *t)
{
    curl_easy_setopt(t->easy, CURLOPT_OPENSOCKETFUNCTION, on_open);
    curl_easy_setopt(t->easy, CURLOPT_OPENSOCKETDATA, t);
    curl_easy_setopt(t->easy, CURLOPT_CLOSESOCKETFUNCTION, on_close);
    curl_easy_setopt(t->easy, CURLOPT_CLOSESOCKETDATA, t->base.client->curl); /* outlives it */
}

/* ---- the multi handle ----------------------------------------------------------------------- */

struct curl_multi *curl_multi_of(struct http_client *client)
{
    struct curl_multi *m = client->curl;

    if (m != NULL)
        return m;
    m = xcalloc(1, sizeof(*m));
    client->curl = m;
    m->client = client;
    PRE(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
    m->multi = curl_multi_init();
    PRE(m->multi != NULL);
    timer_init(&m->timer, on_timer, m);
    turn_hook_init(&m->kick, on_timer, m);
    curl_multi_setopt(m->multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket);
    curl_multi_setopt(m->multi, CURLMOPT_SOCKETDATA, m);
    curl_multi_setopt(m->multi, CURLMOPT_TIMERFUNCTION, on_curl_timeout);
    curl_multi_setopt(m->multi, CURLMOPT_TIMERDATA, m);
    curl_multi_setopt(m->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
    curl_multi_setopt(m->multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)client->max_per_host);
    /* Unset, the cache shrinks to four times the running transfers and connections are thrown
     * away at the end of every burst. */
    curl_multi_setopt(m->multi, CURLMOPT_MAXCONNECTS, (long)client->max_idle);
    return m;
}

void curl_multi_free(struct curl_multi *m)
{
    if (m == NULL)
        return;
    while (m->idle != NULL) {
        struct curl_transfer *t = container_of(m->idle, struct curl_transfer, base);
        m->idle = t->base.next;
        curl_transfer_free(t);
    }
    curl_multi_cleanup(m->multi); /* closes the idle connections: the table is needed */
    for (size_t i = 0; i < m->n_watches; i++) {
        if (m->watches[i] != NULL)
            watch_register(m->watches[i], 0);
        free(m->watches[i]);
    }
    free(m->watches);
    timer_cancel(m->client->loop, &m->timer);
    turn_hook_cancel(&m->kick);
    free(m);
}

void curl_multi_add(struct curl_transfer *t)
{
    struct curl_multi *m = t->base.client->curl;
    CURLMcode code;

    PRE(!m->inside);
    m->inside = true;
    code = curl_multi_add_handle(m->multi, t->easy);
    m->inside = false;
    POST(code == CURLM_OK);
}

void curl_multi_remove(struct curl_transfer *t)
{
    struct curl_multi *m = t->base.client->curl;
    CURLMcode code;

    PRE(!m->inside);
    m->inside = true;
    code = curl_multi_remove_handle(m->multi, t->easy);
    m->inside = false;
    POST(code == CURLM_OK);
}

void curl_multi_pause(struct curl_transfer *t, int bitmask)
{
    struct curl_multi *m = t->base.client->curl;

    PRE(!m->inside);
    m->inside = true;
    curl_easy_pause(t->easy, bitmask);
    m->inside = false;
}
