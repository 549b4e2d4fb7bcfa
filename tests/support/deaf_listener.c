#include "support/deaf_listener.h"

#include "core/runtime/check.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FILLERS = 4 }; /* a backlog of 0 takes one or two */

static void listen_full(struct deaf_listener *d, struct sockaddr *at, socklen_t len)
{
    d->listener = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    PRE(d->listener >= 0 && bind(d->listener, at, len) == 0 && listen(d->listener, 0) == 0);
    PRE(getsockname(d->listener, at, &len) == 0);
    for (int i = 0; i < FILLERS; i++) {
        d->fillers[i] = socket(at->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(d->fillers[i], at, len);
    }
}

int deaf_listener_tcp(struct deaf_listener *d, const char *host, int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    PRE(inet_pton(AF_INET, host, &at.sin_addr) == 1);
    listen_full(d, (struct sockaddr *)&at, sizeof(at));
    return ntohs(at.sin_port);
}

void deaf_listener_unix(struct deaf_listener *d, const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    listen_full(d, (struct sockaddr *)&at, sizeof(at));
}

void deaf_listener_close(struct deaf_listener *d)
{
    for (int i = 0; i < FILLERS; i++)
        close(d->fillers[i]);
    close(d->listener);
}
