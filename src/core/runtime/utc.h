/* Wall time as text: UTC, RFC 3339 with milliseconds. */
#pragma once

#include <stdint.h>

enum { UTC_TEXT_MAX = 40 };

/** Write `YYYY-MM-DDTHH:MM:SS.mmmZ` and return the number of characters. Times outside the years
 * 0 to 9999 read as the nearest end of that range. */
int utc_format_ms(int64_t wall_ms, char ret_text[UTC_TEXT_MAX]);
