/* `bindery health`: one GET /healthz to the server that BINDERY_LISTEN names, over a plain blocking
 * socket. A process of its own for container health checks and scripts; it shares nothing with the
 * server and needs no library. */
#include "commands.h"

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define HEALTH_TIMEOUT_S 4
#define DEFAULT_LISTEN   "127.0.0.1:5050"

/* Every wait on the socket, connecting included, ends after HEALTH_TIMEOUT_S. */
static int socket_new(int family)
{
    const struct timeval limit = {.tv_sec = HEALTH_TIMEOUT_S};
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    }
    return fd;
}

static int connect_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);

    if (length >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, length + 1);
    int fd = socket_new(AF_UNIX);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int connect_tcp(const char *host, const char *port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int fd = -1;

    /* a server on every address is asked on loopback */
    if (host[0] == '\0' || strcmp(host, "0.0.0.0") == 0)
        host = "127.0.0.1";
    else if (strcmp(host, "::") == 0)
        host = "::1";
    if (getaddrinfo(host, port, &hints, &found) != 0) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    for (const struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next) {
        fd = socket_new(at->ai_family);
        if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return fd;
}

/* `address` is one BINDERY_LISTEN entry: host:port, [v6]:port or unix:/path. It is cut up. */
static int connect_listener(char *address)
{
    if (strncmp(address, "unix:", 5) == 0)
        return connect_unix(address + 5);

    char *colon = strrchr(address, ':');
    if (colon == NULL) {
        errno = EINVAL;
        return -1;
    }
    *colon = '\0';
    char *host = address;
    if (host[0] == '[') {
        host++;
        host[strcspn(host, "]")] = '\0';
    }
    return connect_tcp(host, colon + 1);
}

/* Send the request and read the status line; the status, or -1 with errno set. */
static int ask(int fd, const char *path)
{
    char text[256];
    int length = snprintf(text, sizeof text,
                          "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);

    if (send(fd, text, (size_t)length, MSG_NOSIGNAL) != length)
        return -1;
    size_t have = 0;
    while (have < sizeof text - 1) {
        ssize_t got = recv(fd, text + have, sizeof text - 1 - have, 0);
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        have += (size_t)got;
    }
    text[have] = '\0';
    /* "HTTP/1.1 200 …" */
    long status = strncmp(text, "HTTP/1.", 7) == 0 && have > 12 ? strtol(text + 8, NULL, 10) : 0;
    if (status < 100 || status > 599) {
        errno = EPROTO;
        return -1;
    }
    return (int)status;
}

int health_main(int argc, char **argv)
{
    bool ready = argc == 2 && strcmp(argv[1], "--ready") == 0;
    if (argc > 1 && !ready) {
        fprintf(stderr, "usage: bindery health [--ready]\n");
        return EXIT_USAGE;
    }
    const char *path = ready ? "/readyz" : "/healthz";
    const char *listen = getenv("BINDERY_LISTEN");
    if (listen == NULL || listen[0] == '\0')
        listen = DEFAULT_LISTEN;

    char address[256];
    snprintf(address, sizeof address, "%.*s", (int)strcspn(listen, ","), listen);
    int fd = connect_listener(address);
    if (fd < 0) {
        fprintf(stderr, "bindery health: no server at %s: %s\n", listen, strerror(errno));
        return 1;
    }
    int status = ask(fd, path);
    if (status < 0)
        fprintf(stderr, "bindery health: no answer from %s: %s\n", listen, strerror(errno));
    else
        printf("%s %d\n", path, status);
    close(fd);
    return status == 200 ? 0 : 1;
}
