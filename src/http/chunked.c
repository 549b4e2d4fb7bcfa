#include "http/chunked.h"

enum {
    IN_SIZE,
    IN_SPACE, /* blanks between the size and an extension or the end of the line */
    IN_EXTENSION,
    IN_SIZE_LF,
    IN_DATA,
    IN_DATA_CR,
    IN_DATA_LF,
    IN_TRAILER_START,
    IN_TRAILER,
    IN_TRAILER_LF,
    IN_END_LF,
};

/* A chunk larger than this is no chunk but an attack on whoever adds lengths up. */
static const uint64_t CHUNK_MAX = (uint64_t)1 << 40;

static int hex_value(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_line_char(unsigned char c)
{
    return c == '\t' || (c >= ' ' && c != 0x7F);
}

static bool size_digit(struct chunked *c, unsigned char byte)
{
    int digit = hex_value(byte);

    if (digit < 0)
        return false;
    c->left = c->left * 16 + (uint64_t)digit;
    c->has_digit = true;
    return c->left <= CHUNK_MAX;
}

/* One byte of a size line, including its CRLF. */
static bool size_line_byte(struct chunked *c, unsigned char byte)
{
    if (++c->line_bytes > CHUNK_LINE_MAX)
        return false;
    if (c->state == IN_SIZE_LF) {
        if (byte != '\n')
            return false;
        c->state = c->left > 0 ? IN_DATA : IN_TRAILER_START;
        c->line_bytes = 0;
        c->has_digit = false;
        return true;
    }
    if (c->state == IN_SIZE && size_digit(c, byte))
        return true;
    if (!c->has_digit || c->left > CHUNK_MAX)
        return false;
    if (byte == '\r')
        c->state = IN_SIZE_LF;
    else if (c->state == IN_EXTENSION)
        return is_line_char(byte);
    else if (byte == ';')
        c->state = IN_EXTENSION;
    else if (byte == ' ' || byte == '\t')
        c->state = IN_SPACE;
    else
        return false;
    return true;
}

/* One byte of the trailer section or of the empty line behind it. */
static bool trailer_byte(struct chunked *c, unsigned char byte)
{
    if (++c->trailer_bytes > CHUNK_TRAILERS_MAX)
        return false;
    switch (c->state) {
    case IN_TRAILER_START:
        if (byte == '\r')
            c->state = IN_END_LF;
        else if (is_line_char(byte) && byte != ' ' && byte != '\t' && byte != ':')
            c->state = IN_TRAILER;
        else
            return false;
        return true;
    case IN_TRAILER:
        if (byte == '\r')
            c->state = IN_TRAILER_LF;
        else
            return is_line_char(byte);
        return true;
    default: /* IN_TRAILER_LF */
        c->state = IN_TRAILER_START;
        return byte == '\n';
    }
}

static bool framing_byte(struct chunked *c, unsigned char byte)
{
    switch (c->state) {
    case IN_DATA_CR:
        c->state = IN_DATA_LF;
        return byte == '\r';
    case IN_DATA_LF:
        c->state = IN_SIZE;
        return byte == '\n';
    case IN_TRAILER_START:
    case IN_TRAILER:
    case IN_TRAILER_LF:
        return trailer_byte(c, byte);
    default:
        return size_line_byte(c, byte);
    }
}

enum chunked_result chunked_next(struct chunked *c, const char *bytes, size_t len, size_t *ret_used,
                                 const char **ret_data, size_t *ret_len)
{
    for (size_t i = 0; i < len; i++) {
        if (c->state == IN_DATA) {
            size_t here = c->left < len - i ? (size_t)c->left : len - i;
            *ret_data = bytes + i;
            *ret_len = here;
            *ret_used = i + here;
            c->left -= here;
            if (c->left == 0)
                c->state = IN_DATA_CR;
            return CHUNKED_DATA;
        }
        if (c->state == IN_END_LF) {
            *ret_used = i + 1;
            return bytes[i] == '\n' ? CHUNKED_END : CHUNKED_BAD;
        }
        if (!framing_byte(c, (unsigned char)bytes[i])) {
            *ret_used = i;
            return CHUNKED_BAD;
        }
    }
    *ret_used = len;
    return CHUNKED_MORE;
}
