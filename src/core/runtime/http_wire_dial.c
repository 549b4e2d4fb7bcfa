/* A new connection: the dialer's own, or a unix socket, or the addresses of the host.
 *
 * Happy path: name → addresses → connect → wire_dialled. A second address is tried beside the first
 * when that has not answered after a quarter of a second (RFC 8305 §5), or at once when it has
 * failed; the first to connect wins.
 * Failures: wire_undialled with the latest address's reason; after connect_ms with ERR_DEADLINE. */
#include "core/runtime/http_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum { NEXT_ADDRESS_MS = 250, FULL_QUEUE_MS = 5 };

static void on_connect(evutil_socket_t fd, short what, void *ctx);
static void on_timer(void *ctx);
static void on_lookup(void *ctx, const struct addresses *addresses, const struct error *err);

static struct loop *loop_of(const struct wire_transfer *t)
{
    return t->base.client->loop;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void try_close(struct dial_try *try)
{
    if (try->fd < 0)
        return;
    event_del(&try->event);
    close(try->fd);
    try->fd = -1;
}

static void dial_free(struct wire_transfer *t)
{
    struct wire_dial *d = t->dial;

    lookup_cancel(&d->lookup);
    timer_cancel(loop_of(t), &d->timer);
    for (int i = 0; i < RESOLVER_ADDRESSES_MAX; i++)
        try_close(&d->tries[i]);
    free(d);
    t->dial = NULL;
}

void wire_dial_stop(struct wire_transfer *t)
{
    dial_free(t);
}

static void fail(struct wire_transfer *t, const struct error *why)
{
    struct error error = *why;

    dial_free(t);
    wire_undialled(t, &error);
}

static void succeed(struct wire_transfer *t, struct dial_try *try)
{
    int fd = try->fd;

    event_del(&try->event);
    try->fd = -1;
    dial_free(t);
    wire_dialled(t, fd);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void name_address(const struct addresses *all, int i, char *ret, size_t size)
{
    const struct sockaddr_storage *address = &all->at[i];
    char host[INET6_ADDRSTRLEN] = "?";

    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        snprintf(ret, size, "%s port %d", host, ntohs(in->sin_port));
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        snprintf(ret, size, "%s port %d", host, ntohs(in6->sin6_port));
    } else {
        snprintf(ret, size, "%s", ((const struct sockaddr_un *)address)->sun_path);
    }
}

static void note_failure(struct wire_dial *d, int address, int errnum)
{
    char where[sizeof(struct sockaddr_un)];

    name_address(&d->addresses, address, where, sizeof(where));
    error_set(&d->error, ERR_UPSTREAM_CONNECT, "no connection to %s: %s", where, strerror(errnum));
}

static bool any_trying(const struct wire_dial *d)
{
    for (int i = 0; i < RESOLVER_ADDRESSES_MAX; i++) {
        if (d->tries[i].fd >= 0)
            return true;
    }
    return false;
}

enum try_result { TRY_CONNECTED, TRY_PENDING, TRY_FAILED, TRY_HOPELESS };

static enum try_result try_address(struct wire_transfer *t, int address)
{
    struct wire_dial *d = t->dial;
    struct dial_try *try = &d->tries[address];
    const struct sockaddr *to = (const struct sockaddr *)&d->addresses.at[address];
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int one = 1;

    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
        error_set(&d->error, ERR_OVERLOADED, "no socket for a connection to a peer: %s",
                  strerror(errno));
        return TRY_HOPELESS;
    }
    if (fd < 0) { /* this machine does not speak that protocol */
        note_failure(d, address, errno);
        return TRY_FAILED;
    }
    if (to->sa_family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    try->fd = fd;
    event_assign(&try->event, loop_base(loop_of(t)), fd, EV_WRITE, on_connect, try);
    if (connect(fd, to, d->addresses.len[address]) == 0)
        return TRY_CONNECTED;
    if (errno == EINPROGRESS) {
        event_add(&try->event, NULL);
        return TRY_PENDING;
    }
    note_failure(d, address, errno);
    d->again = to->sa_family == AF_UNIX && errno == EAGAIN; /* its queue is full for now */
    try_close(try);
    return TRY_FAILED;
}

static void arm(struct wire_transfer *t, int64_t next_ms)
{
    struct wire_dial *d = t->dial;
    int64_t left_ms = (d->until_us - loop_now_us(loop_of(t)) + 999) / 1000;

    timer_set_ms(loop_of(t), &d->timer, next_ms < left_ms ? next_ms : left_ms);
}

/* Go on with the next address, or wait, or give up. */
static void advance(struct wire_transfer *t)
{
    struct wire_dial *d = t->dial;

    while (d->next < d->addresses.n) {
        int address = d->next++;
        switch (try_address(t, address)) {
        case TRY_CONNECTED:
            succeed(t, &d->tries[address]);
            return;
        case TRY_PENDING:
            arm(t, d->next < d->addresses.n ? NEXT_ADDRESS_MS : INT64_MAX);
            return;
        case TRY_HOPELESS:
            fail(t, &d->error);
            return;
        case TRY_FAILED:
            break;
        }
    }
    if (d->again) {
        d->again = false;
        d->next = 0;
        arm(t, FULL_QUEUE_MS);
    } else if (any_trying(d)) {
        arm(t, INT64_MAX);
    } else {
        fail(t, &d->error);
    }
}

static void on_connect(evutil_socket_t fd, short what, void *ctx)
{
    struct dial_try *try = ctx;
    struct wire_transfer *t = try->dial->transfer;
    socklen_t len = sizeof(int);
    int errnum = 0;

    (void)what;
    loop_touch(loop_of(t));
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &len) != 0)
        errnum = errno;
    if (errnum == 0) {
        succeed(t, try);
        return;
    }
    note_failure(try->dial, (int)(try - try->dial->tries), errnum);
    try_close(try);
    advance(t);
}

static void on_timer(void *ctx)
{
    struct wire_transfer *t = ctx;
    struct wire_dial *d = t->dial;
    struct error error;

    if (loop_now_us(loop_of(t)) < d->until_us) {
        advance(t);
        return;
    }
    error_set(&error, ERR_DEADLINE, "no connection within %lld ms", (long long)t->base.connect_ms);
    fail(t, &error);
}

/* ---- where to -------------------------------------------------------------------------------- */

static bool add_unix(struct wire_dial *d, const char *path)
{
    struct sockaddr_un *un = (struct sockaddr_un *)&d->addresses.at[0];

    if (strlen(path) >= sizeof(un->sun_path))
        return false;
    *un = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(un->sun_path, path, strlen(path) + 1);
    d->addresses.len[0] = sizeof(*un);
    d->addresses.n = 1;
    return true;
}

static bool add_numeric(struct wire_dial *d, const char *host)
{
    struct sockaddr_in *in = (struct sockaddr_in *)&d->addresses.at[0];
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&d->addresses.at[0];

    memset(&d->addresses.at[0], 0, sizeof(d->addresses.at[0]));
    if (inet_pton(AF_INET, host, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        d->addresses.len[0] = sizeof(*in);
    } else if (inet_pton(AF_INET6, host, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        d->addresses.len[0] = sizeof(*in6);
    } else {
        return false;
    }
    d->addresses.n = 1;
    return true;
}

static void set_ports(struct addresses *all, uint16_t port)
{
    for (int i = 0; i < all->n; i++) {
        if (all->at[i].ss_family == AF_INET)
            ((struct sockaddr_in *)&all->at[i])->sin_port = htons(port);
        else if (all->at[i].ss_family == AF_INET6)
            ((struct sockaddr_in6 *)&all->at[i])->sin6_port = htons(port);
    }
}

static void on_lookup(void *ctx, const struct addresses *addresses, const struct error *err)
{
    struct wire_transfer *t = ctx;

    if (err != NULL) {
        fail(t, err);
        return;
    }
    t->dial->addresses = *addresses;
    set_ports(&t->dial->addresses, t->port);
    advance(t);
}

static void look_up(struct wire_transfer *t, const char *host)
{
    struct wire_dial *d = t->dial;
    const struct addresses *known;
    struct error error;

    switch (resolver_find(t->base.client->wire->resolver, host, &d->lookup, &known, &error)) {
    case RESOLVER_KNOWN:
        on_lookup(t, known, NULL);
        return;
    case RESOLVER_LATER:
        arm(t, INT64_MAX);
        return;
    case RESOLVER_FAILED:
        fail(t, &error);
        return;
    }
}

static void dial_dialer(struct wire_transfer *t)
{
    struct error error = {0};
    int fd = t->dialer->open(t->dialer->ctx, &error);

    if (fd >= 0)
        wire_dialled(t, fd);
    else
        wire_undialled(t, &error);
}

void wire_dial_start(struct wire_transfer *t)
{
    char host[WIRE_HOST_MAX + 1];
    struct wire_dial *d;
    struct error error;

    if (t->dialer != NULL) {
        dial_dialer(t);
        return;
    }
    t->dial = d = xcalloc(1, sizeof(*d));
    d->until_us = loop_now_us(loop_of(t)) + t->base.connect_ms * 1000;
    d->transfer = t;
    timer_init(&d->timer, on_timer, t);
    lookup_init(&d->lookup, on_lookup, t);
    for (int i = 0; i < RESOLVER_ADDRESSES_MAX; i++) {
        d->tries[i].dial = d;
        d->tries[i].fd = -1;
    }
    if (t->unix_socket != NULL) {
        if (add_unix(d, t->unix_socket)) {
            advance(t);
            return;
        }
        error_set(&error, ERR_BAD_REQUEST, "the path of a unix socket is too long: %s",
                  t->unix_socket);
        fail(t, &error);
        return;
    }
    memcpy(host, t->host, t->host_len);
    host[t->host_len] = '\0';
    if (add_numeric(d, host)) {
        set_ports(&d->addresses, t->port);
        advance(t);
    } else {
        look_up(t, host);
    }
}
