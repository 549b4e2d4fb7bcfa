/* What JSON (RFC 8259) forbids and json-c 0.16 accepts even in strict mode. Private to json_parse.c.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/** False when `text` holds ill-formed UTF-8, a raw control character in a string, NaN or Infinity,
 * a number like `1.`, an integer that does not fit 64 bits (json-c saturates), or an object key
 * with an embedded NUL (json-c cuts it): `*ret_position` is the byte and `*ret_why` says what, in
 * static text. True promises nothing about the rest of the grammar. */
bool json_scan(const char *text, size_t len, size_t *ret_position, const char **ret_why);

/** How many bytes at the start of `bytes` stand for themselves in a JSON string: ASCII without
 * quotes, backslashes and control characters. */
size_t json_plain_prefix(const char *bytes, size_t len);
