#include "core/runtime/http_client.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

bool http_dialer_pair(int ret_pair[2], struct error *err)
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ret_pair) == 0)
        return true;
    error_set(err, ERR_OVERLOADED, "no socket for a tunnelled connection: %s", strerror(errno));
    return false;
}
