/* Text from outside on its way into shells, URLs and headers, and checks on ids. */
#pragma once

#include "core/runtime/arena.h"

#include <stdbool.h>

/** A POSIX shell word: single-quoted. */
char *quote_shell(struct arena *arena, const char *text);

/** Percent-encode everything but RFC 3986 unreserved characters; `keep_slash` leaves `/` alone.
 * The result is a safe path segment except for `.` and `..`, which no encoding makes safe. */
char *quote_url_segment(struct arena *arena, const char *text, bool keep_slash);

/** Decode %XX; false on a malformed escape or on %00. */
bool quote_url_decode(struct arena *arena, const char *text, size_t len, char **ret_text);

/** No CR, LF, NUL or other control character, so usable in a header value (RFC 9110 §5.5). */
bool quote_is_header_safe(const char *text);

/** `^[A-Za-z0-9._-]+$`, not `.` or `..`, at most 255 bytes (protocols: part rule of Local refs). */
bool quote_is_safe_part(const char *text);

/** Valid UTF-8 (RFC 3629), no NUL within `len`. */
bool quote_is_utf8(const char *text, size_t len);

/** Lower-case hex of `len` bytes. */
char *quote_hex(struct arena *arena, const void *bytes, size_t len);
