/* UTF-8 as RFC 3629 defines it: no surrogates, no overlong forms, nothing above U+10FFFF. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct buf;

/** The length of what stands at the start of `bytes` (`len` of at least 1): a whole character
 * (1 to 4 bytes, *ret_valid true), or the longest piece that no character can continue, which a
 * reader replaces by one U+FFFD as a whole (Unicode 15, section 3.9, "maximal subpart"). */
size_t utf8_next(const char *bytes, size_t len, bool *ret_valid);

/** Append with every ill-formed piece replaced by U+FFFD. */
void utf8_add(struct buf *out, const char *bytes, size_t len);

/** Characters of well-formed text; each ill-formed byte may count as one. */
size_t utf8_count(const char *bytes, size_t len);
