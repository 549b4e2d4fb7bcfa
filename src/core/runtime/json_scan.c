#include "core/runtime/json_scan.h"

#include "core/runtime/utf8.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Non-zero when one of eight bytes is a control character, a quote, a backslash or not ASCII. */
static uint64_t has_special(uint64_t word)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t tops = UINT64_C(0x8080808080808080);
    uint64_t quotes = word ^ (ones * '"');
    uint64_t slashes = word ^ (ones * '\\');

    return (word | (word - ones * 0x20) | (quotes - ones) | (slashes - ones)) & tops;
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

size_t json_plain_prefix(const char *bytes, size_t len)
{
    size_t at = 0;

    while (at + 8 <= len) {
        uint64_t word;
        memcpy(&word, bytes + at, 8);
        if (has_special(word) != 0)
            break;
        at += 8;
    }
    while (at < len && is_plain((unsigned char)bytes[at]))
        at++;
    return at;
}

struct scan {
    const char *text;
    size_t len, at;
    const char *why; /* set = refused, at `at` */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool next_is(const struct scan *s, size_t at, char c)
{
    return at < s->len && s->text[at] == c;
}

/* A key stands in front of a colon. */
static bool colon_follows(const struct scan *s)
{
    size_t at = s->at;

    while (at < s->len && is_space(s->text[at]))
        at++;
    return next_is(s, at, ':');
}

/* From the opening quote to behind the closing one. */
static void scan_string(struct scan *s)
{
    size_t nul_at = 0; /* of an escaped NUL; 0 = none: the quote is in front of it */

    for (s->at++; s->at < s->len;) {
        unsigned char c;
        bool valid;
        s->at += json_plain_prefix(s->text + s->at, s->len - s->at);
        if (s->at == s->len)
            return; /* json-c misses the end */
        c = (unsigned char)s->text[s->at];
        if (c == '"') {
            s->at++;
            if (nul_at != 0 && colon_follows(s)) {
                s->at = nul_at;
                s->why = "a NUL character in a key";
            }
            return;
        }
        if (c == '\\') {
            if (s->len - s->at >= 6 && memcmp(s->text + s->at + 1, "u0000", 5) == 0)
                nul_at = s->at;
            s->at += s->len - s->at >= 2 && (unsigned char)s->text[s->at + 1] < 0x80 ? 2 : 1;
        } else if (c < 0x20) {
            s->why = "a control character in a string";
            return;
        } else {
            size_t n = utf8_next(s->text + s->at, s->len - s->at, &valid);
            if (!valid) {
                s->why = "ill-formed UTF-8";
                return;
            }
            s->at += n;
        }
    }
}

/* Digits, signs, point and exponent in a row; whether they make a number is json-c's business. */
static void scan_number(struct scan *s)
{
    size_t start = s->at;
    bool integer = true;
    char digits[24];

    for (; s->at < s->len; s->at++) {
        char c = s->text[s->at];
        if (c == '.' || c == 'e' || c == 'E')
            integer = false;
        else if (!is_digit(c) && c != '-' && c != '+')
            break;
        if (c == '.' && (s->at + 1 == s->len || !is_digit(s->text[s->at + 1]))) {
            s->why = "a number that ends in its point";
            return;
        }
    }
    if (!integer || s->at - start < 19)
        return;
    errno = ERANGE;
    if (s->at - start < sizeof(digits)) {
        memcpy(digits, s->text + start, s->at - start);
        digits[s->at - start] = '\0';
        errno = 0;
        if (digits[0] == '-')
            (void)strtoll(digits, NULL, 10);
        else
            (void)strtoull(digits, NULL, 10);
    }
    if (errno == ERANGE) {
        s->at = start;
        s->why = "an integer beyond 64 bits";
    }
}

bool json_scan(const char *text, size_t len, size_t *ret_position, const char **ret_why)
{
    struct scan s = {.text = text, .len = len};

    while (s.at < len && s.why == NULL) {
        char c = text[s.at];
        if (c == '"')
            scan_string(&s);
        else if (c == '-' && next_is(&s, s.at + 1, 'I'))
            s.why = "Infinity is not JSON";
        else if (is_digit(c) || c == '-')
            scan_number(&s);
        else if (c == 'N' || c == 'I')
            s.why = c == 'N' ? "NaN is not JSON" : "Infinity is not JSON";
        else
            s.at++;
    }
    *ret_position = s.at;
    *ret_why = s.why;
    return s.why == NULL;
}
