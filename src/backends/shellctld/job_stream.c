#include "backends/shellctld/job_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool job_stream_open(struct job_stream *s, const char *job_dir, const char *name,
                     enum filter_kind kind, int64_t limit, struct error *err)
{
    char path[PATH_MAX];

    *s = (struct job_stream){.source = -1, .limit = limit};
    output_filter_init(&s->filter, kind);
    snprintf(path, sizeof path, "%s/%s", job_dir, name);
    s->file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->file < 0)
        error_set(err, ERR_INTERNAL, "cannot create %s: %s", path, strerror(errno));
    return s->file >= 0;
}

/* Write what the disk takes; the rest is dropped. When space comes back, later output is kept. */
static void store(struct job_stream *s, const char *bytes, size_t len)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = write(s->file, bytes + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    s->kept += (int64_t)done;
    s->dropped += (int64_t)(len - done);
}

static void reach_limit(struct job_stream *s)
{
    char text[96];
    int len =
        snprintf(text, sizeof text,
                 "\n[output limit of %" PRId64 " bytes reached; the rest is dropped]\n", s->limit);

    s->full = true;
    store(s, text, (size_t)len);
}

/* As much of `bytes` as fits, ending at a character. */
static size_t fitting(const struct job_stream *s, const char *bytes, size_t len)
{
    size_t room = s->limit > s->kept ? (size_t)(s->limit - s->kept) : 0;

    if (s->limit == 0 || len <= room)
        return len;
    while (room > 0 && ((unsigned char)bytes[room] & 0xc0) == 0x80)
        room--;
    return room;
}

static void flush(struct job_stream *s)
{
    size_t take = fitting(s, s->ready.data, s->ready.len);
    size_t beyond = s->ready.len - take;

    store(s, s->ready.data, take);
    if (beyond > 0) {
        reach_limit(s);
        s->dropped += (int64_t)beyond;
    }
    buf_clear(&s->ready);
}

bool job_stream_pump(struct job_stream *s)
{
    static char chunk[65536];
    ssize_t n;

    if (s->source < 0)
        return false;
    n = read(s->source, chunk, sizeof chunk);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) { /* a terminal that nobody holds any more reads as EIO */
        close(s->source);
        s->source = -1;
        return false;
    }
    if (s->full) {
        s->dropped += n;
        return true;
    }
    output_filter_feed(&s->filter, chunk, (size_t)n, &s->ready);
    flush(s);
    return true;
}

void job_stream_idle(struct job_stream *s)
{
    if (s->full)
        return;
    output_filter_idle(&s->filter, &s->ready);
    flush(s);
}

void job_stream_finish(struct job_stream *s)
{
    if (s->full)
        return;
    output_filter_finish(&s->filter, &s->ready);
    flush(s);
}

void job_stream_close(struct job_stream *s)
{
    if (s->source >= 0)
        close(s->source);
    if (s->file >= 0)
        close(s->file);
    s->source = s->file = -1;
    output_filter_fini(&s->filter);
    buf_fini(&s->ready);
}
