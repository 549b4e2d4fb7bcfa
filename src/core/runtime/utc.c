#include "core/runtime/utc.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* 0000-01-01T00:00:00.000Z and 9999-12-31T23:59:59.999Z in milliseconds since the epoch. */
static const int64_t first_ms = INT64_C(-62167219200000);
static const int64_t last_ms = INT64_C(253402300799999);

/* Everything up to the fraction; kept, as most calls are about the second of the call before. */
static const char *format_second(time_t second)
{
    static char text[UTC_TEXT_MAX];
    static time_t of = -1;
    struct tm tm;

    if (second == of && text[0] != '\0')
        return text;
    gmtime_r(&second, &tm);
    (void)snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d", tm.tm_year + 1900,
                   tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
    of = second;
    return text;
}

int utc_format_ms(int64_t wall_ms, char ret_text[UTC_TEXT_MAX])
{
    int64_t ms = wall_ms < first_ms ? first_ms : wall_ms > last_ms ? last_ms : wall_ms;
    int second_ms = (int)(((ms % 1000) + 1000) % 1000); /* also right before the epoch */
    char *at = stpcpy(ret_text, format_second((time_t)((ms - second_ms) / 1000)));

    *at++ = '.';
    *at++ = (char)('0' + second_ms / 100);
    *at++ = (char)('0' + second_ms / 10 % 10);
    *at++ = (char)('0' + second_ms % 10);
    *at++ = 'Z';
    *at = '\0';
    return (int)(at - ret_text);
}
