#include "backends/shellctld/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool pty_resize(int master, int cols, int rows)
{
    const struct winsize size = {.ws_col = (unsigned short)cols, .ws_row = (unsigned short)rows};

    return ioctl(master, TIOCSWINSZ, &size) == 0;
}

bool pty_open(int cols, int rows, int *ret_master, int *ret_slave, struct error *err)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK), slave = -1;

    if (master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0)
        /* by the master, not by name: /dev/pts may be another instance */
        slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0 || !pty_resize(master, cols, rows)) {
        error_set(err, ERR_INTERNAL, "no terminal: %s", strerror(errno));
        if (slave >= 0)
            close(slave);
        if (master >= 0)
            close(master);
        return false;
    }
    *ret_master = master;
    *ret_slave = slave;
    return true;
}
