#include "core/runtime/utc.h"

#include <stdio.h>
#include <time.h>

/* 0000-01-01T00:00:00.000Z and 9999-12-31T23:59:59.999Z in milliseconds since the epoch. */
static const int64_t first_ms = INT64_C(-62167219200000);
static const int64_t last_ms = INT64_C(253402300799999);

int utc_format_ms(int64_t wall_ms, char ret_text[UTC_TEXT_MAX])
{
    int64_t ms = wall_ms < first_ms ? first_ms : wall_ms > last_ms ? last_ms : wall_ms;
    int64_t second_ms = ((ms % 1000) + 1000) % 1000; /* also right before the epoch */
    time_t seconds = (time_t)((ms - second_ms) / 1000);
    struct tm tm;

    gmtime_r(&seconds, &tm);
    return snprintf(ret_text, UTC_TEXT_MAX, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ",
                    tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                    (int)second_ms);
}
