#include "backends/shellctld/runner_control.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct head {
    uint32_t type, len;
};

static bool fail(struct error *err)
{
    switch (errno) {
    case ENXIO: /* nobody reads */
    case ENOENT:
    case EPIPE:
        error_set(err, ERR_CONFLICT, "the job's runner is gone");
        break;
    case EAGAIN:
        error_set(err, ERR_OVERLOADED, "the job's runner does not keep up with its commands");
        break;
    default:
        error_set(err, ERR_INTERNAL, "cannot reach the job's runner: %s", strerror(errno));
    }
    return false;
}

bool control_send(const char *job_dir, uint32_t type, const void *payload, size_t len,
                  struct error *err)
{
    char path[PATH_MAX], frame[PIPE_BUF];
    const struct head head = {.type = type, .len = (uint32_t)len};
    bool ok;

    PRE(sizeof head + len <= sizeof frame);
    snprintf(path, sizeof path, "%s/control", job_dir);
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return fail(err);
    memcpy(frame, &head, sizeof head);
    memcpy(frame + sizeof head, payload, len);
    ok = write(fd, frame, sizeof head + len) == (ssize_t)(sizeof head + len) || fail(err);
    close(fd);
    return ok;
}

bool control_next(struct buf *received, size_t *at, struct control_frame *ret)
{
    struct head head;
    size_t left = received->len - *at;

    if (left < sizeof head)
        return false;
    memcpy(&head, received->data + *at, sizeof head);
    if (head.len > PIPE_BUF - sizeof head) {
        buf_clear(received);
        *at = 0;
        return false;
    }
    if (left < sizeof head + head.len)
        return false;
    *ret = (struct control_frame){
        .type = head.type,
        .len = head.len,
        .payload = received->data + *at + sizeof head,
    };
    *at += sizeof head + head.len;
    return true;
}
