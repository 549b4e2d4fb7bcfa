/* What the edge puts on replies by itself: the date and request ids. Internal to http/. */
#pragma once

#include "core/runtime/loop.h"

enum { REQUEST_ID_MAX = 17 }; /* with its NUL */

struct stamps {
    struct loop *loop;
    int64_t date_s;
    char date[40];
    uint64_t id_base, id_count;
};

void stamps_init(struct stamps *stamps, struct loop *loop);

/** Now as `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 section 5.6.7); made once a second. */
const char *stamps_date(struct stamps *stamps);

/** Sixteen hex digits: unique in this process, and unlikely to meet another's. */
void stamps_request_id(struct stamps *stamps, char ret_id[REQUEST_ID_MAX]);
