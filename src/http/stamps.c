#include "http/stamps.h"

#include <sys/random.h>
#include <time.h>

void stamps_init(struct stamps *stamps, struct loop *loop)
{
    *stamps = (struct stamps){.loop = loop, .date_s = -1};
    if (getrandom(&stamps->id_base, sizeof(stamps->id_base), 0) != sizeof(stamps->id_base))
        stamps->id_base = (uint64_t)loop_wall_ms(loop);
}

const char *stamps_date(struct stamps *stamps)
{
    int64_t now_s = loop_wall_ms(stamps->loop) / 1000;
    time_t t = (time_t)now_s;
    struct tm tm;

    if (now_s != stamps->date_s) {
        stamps->date_s = now_s;
        gmtime_r(&t, &tm);
        strftime(stamps->date, sizeof(stamps->date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
    }
    return stamps->date;
}

void stamps_request_id(struct stamps *stamps, char ret_id[REQUEST_ID_MAX])
{
    static const char digits[] = "0123456789abcdef";
    uint64_t id = stamps->id_base + ++stamps->id_count * 0x9E3779B97F4A7C15U; /* full period */

    for (int i = 0; i < REQUEST_ID_MAX - 1; i++, id <<= 4)
        ret_id[i] = digits[id >> 60];
    ret_id[REQUEST_ID_MAX - 1] = '\0';
}
