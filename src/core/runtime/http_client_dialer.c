/* Connections that a dialer makes. curl 7.88.1 has two faults with descriptors that come connected:
 *
 *  - It calls connect although it was told CURL_SOCKOPT_ALREADY_CONNECTED, and takes any error but
 *    "in progress" or "try again" for a failure. The descriptor is therefore aimed at a listener of
 *    ours whose queue is full: the kernel answers "try again" without touching the connection, and
 *    curl goes on when the descriptor is writable. Later versions make no such call.
 *  - It never reuses a connection whose peer has no printable address, which is so for the ends of
 *    a socketpair. http_dialer_pair gives the far end a name, and removes it from the file system
 *    at once. */
#include "core/runtime/http_client_curl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct dialer_aid {
    struct sockaddr name; /* of the listener; abstract names of the kernel's choice are short */
    socklen_t name_len;
    int listener, filler;
    struct curl_sockaddr *dialled; /* curl's own, between open and opened */
};

static int unix_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static bool aid_setup(struct dialer_aid *aid)
{
    struct sockaddr *name = &aid->name;

    aid->name.sa_family = AF_UNIX;
    aid->name_len = sizeof(aid->name);
    return aid->listener >= 0 && aid->filler >= 0 &&
           bind(aid->listener, name, sizeof(sa_family_t)) == 0 && listen(aid->listener, 0) == 0 &&
           getsockname(aid->listener, name, &aid->name_len) == 0 &&
           aid->name_len <= sizeof(aid->name) && connect(aid->filler, name, aid->name_len) == 0;
}

int client_dialer_open(struct http_client *client, const struct http_dialer *dialer,
                       struct curl_sockaddr *address, struct error *err)
{
    struct dialer_aid *aid = client->dialer_aid;

    if (aid == NULL) {
        aid = xcalloc(1, sizeof(*aid));
        client->dialer_aid = aid;
        aid->listener = unix_socket();
        aid->filler = unix_socket();
        if (!aid_setup(aid)) {
            error_set(err, ERR_OVERLOADED, "no socket for a tunnelled connection: %s",
                      strerror(errno));
            client_dialer_fini(client);
            return -1;
        }
    }
    aid->dialled = address;
    return dialer->open(dialer->ctx, err);
}

/* Not earlier: curl takes the printable address from the original first. */
void client_dialer_opened(struct http_client *client)
{
    struct dialer_aid *aid = client->dialer_aid;

    memcpy(&aid->dialled->addr, &aid->name, aid->name_len);
    aid->dialled->addrlen = aid->name_len;
}

void client_dialer_fini(struct http_client *client)
{
    struct dialer_aid *aid = client->dialer_aid;

    if (aid == NULL)
        return;
    if (aid->listener >= 0)
        close(aid->listener);
    if (aid->filler >= 0)
        close(aid->filler);
    free(aid);
    client->dialer_aid = NULL;
}

static bool name_end(int fd)
{
    const char *tmp = getenv("TMPDIR");
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    char dir[sizeof(name.sun_path) - 4];
    bool named;

    snprintf(dir, sizeof(dir), "%s/bindery.XXXXXX", tmp != NULL && *tmp != '\0' ? tmp : P_tmpdir);
    if (mkdtemp(dir) == NULL)
        return false;
    snprintf(name.sun_path, sizeof(name.sun_path), "%s/s", dir);
    named = bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0;
    unlink(name.sun_path);
    rmdir(dir);
    return named;
}

bool http_dialer_pair(int ret_pair[2], struct error *err)
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ret_pair) != 0) {
        error_set(err, ERR_OVERLOADED, "no socket for a tunnelled connection: %s", strerror(errno));
        return false;
    }
    if (!name_end(ret_pair[1])) {
        error_set(err, ERR_INTERNAL,
                  "a tunnelled connection needs a writable temporary directory: %s",
                  strerror(errno));
        close(ret_pair[0]);
        close(ret_pair[1]);
        return false;
    }
    return true;
}
