#include "core/runtime/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_fini(struct buf *buf)
{
    free(buf->data);
    *buf = (struct buf){0};
}

void buf_clear(struct buf *buf)
{
    buf->len = 0;
    if (buf->data != NULL)
        buf->data[0] = '\0';
}

void buf_reserve(struct buf *buf, size_t more)
{
    size_t need = buf->len + more + 1;

    if (need <= buf->cap)
        return;
    buf->cap = buf->cap < 64 ? 64 : buf->cap * 2;
    if (buf->cap < need)
        buf->cap = need;
    buf->data = xrealloc(buf->data, buf->cap);
    buf->data[buf->len] = '\0';
}

void buf_add(struct buf *buf, const void *bytes, size_t len)
{
    if (len == 0)
        return;
    buf_reserve(buf, len);
    memcpy(buf->data + buf->len, bytes, len);
    buf->len += len;
    buf->data[buf->len] = '\0';
}

void buf_adds(struct buf *buf, const char *text)
{
    buf_add(buf, text, strlen(text));
}

void buf_addc(struct buf *buf, char c)
{
    buf_add(buf, &c, 1);
}

void buf_vaddf(struct buf *buf, const char *format, va_list args)
{
    enum { FIRST_TRY = 64 };
    va_list again;
    size_t room;
    int len;

    buf_reserve(buf, FIRST_TRY);
    room = buf->cap - buf->len;
    va_copy(again, args);
    len = vsnprintf(buf->data + buf->len, room, format, again);
    va_end(again);
    PRE(len >= 0);
    if ((size_t)len >= room) {
        buf_reserve(buf, (size_t)len);
        vsnprintf(buf->data + buf->len, (size_t)len + 1, format, args);
    }
    buf->len += (size_t)len;
}

void buf_addf(struct buf *buf, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    buf_vaddf(buf, format, args);
    va_end(args);
}

void buf_drain(struct buf *buf, size_t len)
{
    PRE(len <= buf->len);
    if (len == 0)
        return;
    memmove(buf->data, buf->data + len, buf->len - len);
    buf->len -= len;
    buf->data[buf->len] = '\0';
}

const char *buf_text(const struct buf *buf)
{
    return buf->len == 0 ? "" : buf->data;
}
