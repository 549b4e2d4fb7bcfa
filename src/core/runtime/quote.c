#include "core/runtime/quote.h"

#include "core/runtime/utf8.h"

#include <string.h>

static const char hex_digits[] = "0123456789abcdef";

static bool is_alnum(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

char *quote_shell(struct arena *arena, const char *text)
{
    static const char quoted_quote[] = "'\\''"; /* leave the quotes, an escaped one, enter again */
    size_t quotes = 0;
    char *word, *to;

    for (const char *from = text; *from != '\0'; from++)
        quotes += *from == '\'';
    word = to = arena_alloc(arena, strlen(text) + quotes * (sizeof(quoted_quote) - 2) + 3);
    *to++ = '\'';
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            to = stpcpy(to, quoted_quote);
        else
            *to++ = *text;
    }
    *to = '\'';
    return word;
}

/* RFC 3986 section 2.3 */
static bool is_unreserved(unsigned char c)
{
    return is_alnum(c) || c == '-' || c == '.' || c == '_' || c == '~';
}

char *quote_url_segment(struct arena *arena, const char *text, bool keep_slash)
{
    static const char digits[] = "0123456789ABCDEF"; /* RFC 3986 section 2.1: upper case */
    char *encoded = arena_alloc(arena, strlen(text) * 3 + 1);
    char *to = encoded;

    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (is_unreserved(c) || (c == '/' && keep_slash)) {
            *to++ = (char)c;
        } else {
            *to++ = '%';
            *to++ = digits[c >> 4];
            *to++ = digits[c & 15];
        }
    }
    return encoded;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool quote_url_decode(struct arena *arena, const char *text, size_t len, char **ret_text)
{
    char *decoded = arena_alloc(arena, len + 1);
    char *to = decoded;

    for (size_t i = 0; i < len; i++) {
        int c = (unsigned char)text[i];
        if (c == '%') {
            int high = len - i > 2 ? hex_value(text[i + 1]) : -1;
            int low = len - i > 2 ? hex_value(text[i + 2]) : -1;
            if (high < 0 || low < 0)
                return false;
            c = high << 4 | low;
            i += 2;
        }
        if (c == 0)
            return false;
        *to++ = (char)c;
    }
    *ret_text = decoded;
    return true;
}

bool quote_is_header_safe(const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7F)
            return false;
    }
    return true;
}

bool quote_is_safe_part(const char *text)
{
    size_t len = strnlen(text, 256);

    if (len == 0 || len > 255 || strcmp(text, ".") == 0 || strcmp(text, "..") == 0)
        return false;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (!is_alnum(c) && c != '.' && c != '_' && c != '-')
            return false;
    }
    return true;
}

bool quote_is_utf8(const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        bool valid;
        if (text[at] == '\0')
            return false;
        at += utf8_next(text + at, len - at, &valid);
        if (!valid)
            return false;
    }
    return true;
}

char *quote_hex(struct arena *arena, const void *bytes, size_t len)
{
    const unsigned char *from = bytes;
    char *text = arena_alloc(arena, len * 2 + 1);

    for (size_t i = 0; i < len; i++) {
        text[i * 2] = hex_digits[from[i] >> 4];
        text[i * 2 + 1] = hex_digits[from[i] & 15];
    }
    return text;
}
