#include "http/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

/* ---- addresses -------------------------------------------------------------------------------- */

static bool bad_address(struct error *err, const char *spec, const char *why)
{
    error_set(err, ERR_BAD_REQUEST, "cannot listen on \"%s\": %s", spec, why);
    return false;
}

static bool parse_port(const char *spec, const char *text, in_port_t *ret, struct error *err)
{
    char *end;
    unsigned long port = strtoul(text, &end, 10);

    if (text[0] < '0' || text[0] > '9' || *end != '\0' || port > 65535)
        return bad_address(err, spec, "the port must be a number up to 65535");
    *ret = htons((in_port_t)port);
    return true;
}

static bool parse_unix(const char *spec, const char *path, struct sockaddr_storage *ret,
                       socklen_t *ret_len, struct error *err)
{
    struct sockaddr_un *un = (struct sockaddr_un *)ret;
    size_t size = strlen(path) + 1;

    if (path[0] != '/')
        return bad_address(err, spec, "the path of a unix socket must be absolute");
    if (size > sizeof(un->sun_path))
        return bad_address(err, spec, "the path of a unix socket has at most 107 bytes");
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path, size);
    *ret_len = sizeof(*un);
    return true;
}

static bool parse_inet(const char *spec, struct sockaddr_storage *ret, socklen_t *ret_len,
                       struct error *err)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
    const char *colon = strrchr(spec, ':');
    char host[64];
    size_t len;

    if (colon == NULL)
        return bad_address(err, spec, "it must be host:port, [v6]:port or unix:/path");
    len = (size_t)(colon - spec);
    if (len >= 2 && spec[0] == '[' && spec[len - 1] == ']') {
        snprintf(host, sizeof(host), "%.*s", (int)(len - 2), spec + 1);
        v6->sin6_family = AF_INET6;
        *ret_len = sizeof(*v6);
        if (inet_pton(AF_INET6, host, &v6->sin6_addr) != 1)
            return bad_address(err, spec, "what is in brackets is no IPv6 address");
        return parse_port(spec, colon + 1, &v6->sin6_port, err);
    }
    snprintf(host, sizeof(host), "%.*s", (int)len, spec);
    v4->sin_family = AF_INET;
    *ret_len = sizeof(*v4);
    if (len == 0 || strcmp(host, "*") == 0)
        snprintf(host, sizeof(host), "0.0.0.0");
    else if (strcmp(host, "localhost") == 0)
        snprintf(host, sizeof(host), "127.0.0.1");
    if (inet_pton(AF_INET, host, &v4->sin_addr) != 1)
        return bad_address(err, spec, "the host must be a numeric address");
    return parse_port(spec, colon + 1, &v4->sin_port, err);
}

/* ---- binding ---------------------------------------------------------------------------------- */

/* A socket file that a dead process left behind may be replaced; a living one not. */
static bool is_stale_socket(const struct sockaddr *address, socklen_t len)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool stale;

    if (fd < 0)
        return false;
    stale = connect(fd, address, len) < 0 && errno == ECONNREFUSED;
    close(fd);
    return stale;
}

/* Socket files are for their owner and group. */
static int bind_unix(int fd, const struct sockaddr *address, socklen_t len)
{
    mode_t before = umask(0117);
    int rc = bind(fd, address, len);

    int why = errno;

    if (rc < 0 && why == EADDRINUSE && is_stale_socket(address, len)) {
        unlink(((const struct sockaddr_un *)address)->sun_path);
        rc = bind(fd, address, len);
        why = errno;
    }
    umask(before);
    errno = why;
    return rc;
}

static int bind_address(int fd, const struct sockaddr *address, socklen_t len)
{
    return address->sa_family == AF_UNIX ? bind_unix(fd, address, len) : bind(fd, address, len);
}

/* Accepted sockets inherit them. Keep-alive probes find clients that vanished without a word while
 * their request was being worked on: after a minute and four lost probes. */
static void set_options(int fd, int family)
{
    int on = 1, idle_s = 60, interval_s = 15, probes = 4;

    if (family == AF_UNIX)
        return;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
}

static void write_address(int fd, char ret_address[LISTENER_ADDRESS_MAX])
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un local;
    } bound = {0};
    socklen_t len = sizeof(bound);
    char host[64] = "?";

    getsockname(fd, &bound.any, &len);
    listener_peer_name(&bound.any, host, sizeof(host));
    if (bound.any.sa_family == AF_UNIX)
        snprintf(ret_address, LISTENER_ADDRESS_MAX, "unix:%s", bound.local.sun_path);
    else if (bound.any.sa_family == AF_INET6)
        snprintf(ret_address, LISTENER_ADDRESS_MAX, "[%s]:%d", host, ntohs(bound.v6.sin6_port));
    else
        snprintf(ret_address, LISTENER_ADDRESS_MAX, "%s:%d", host, ntohs(bound.v4.sin_port));
}

int listener_bind(const char *spec, size_t spec_len, char ret_address[LISTENER_ADDRESS_MAX],
                  struct error *err)
{
    struct sockaddr_storage address = {0};
    char text[LISTENER_ADDRESS_MAX];
    socklen_t len = 0;
    int fd;

    if (spec_len >= sizeof(text)) {
        bad_address(err, "…", "the address is too long");
        return -1;
    }
    memcpy(text, spec, spec_len);
    text[spec_len] = '\0';
    if (strncmp(text, "unix:", 5) == 0 ? !parse_unix(text, text + 5, &address, &len, err)
                                       : !parse_inet(text, &address, &len, err))
        return -1;
    fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        set_options(fd, address.ss_family);
    if (fd < 0 || bind_address(fd, (struct sockaddr *)&address, len) < 0 ||
        listen(fd, BACKLOG) < 0) {
        error_set(err, ERR_INTERNAL, "cannot listen on %s: %s", text, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    write_address(fd, ret_address);
    return fd;
}

const char *listener_unix_path(const char *address)
{
    return strncmp(address, "unix:", 5) == 0 ? address + 5 : NULL;
}

void listener_peer_name(const struct sockaddr *address, char *ret_name, size_t size)
{
    const char *name = NULL;

    if (address->sa_family == AF_INET)
        name = inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, ret_name,
                         (socklen_t)size);
    else if (address->sa_family == AF_INET6)
        name = inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)address)->sin6_addr, ret_name,
                         (socklen_t)size);
    if (name == NULL)
        snprintf(ret_name, size, "%s", "unix");
}

long listener_raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 1024;
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
        getrlimit(RLIMIT_NOFILE, &limit);
    }
    return limit.rlim_cur > 1000000000 ? 1000000000 : (long)limit.rlim_cur;
}

int listener_open_files(void)
{
    int open_files = 0;

    for (int fd = 0; fd < 256; fd++)
        open_files += fcntl(fd, F_GETFD) >= 0;
    return open_files;
}
