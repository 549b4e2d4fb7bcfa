/* Request heads: however the bytes are cut into reads, the end of the head is found at the same place;
 * what the check accepts lies inside the head and has one body length. */
#include "fuzz.h"

#include "core/runtime/check.h"
#include "http/request_head.h"

/* Byte by byte, as from the slowest client. */
static long search_slowly(const char *bytes, size_t len)
{
    struct head_search search = {0};
    long found = 0;

    for (size_t have = 1; have <= len && found == 0; have++)
        found = request_head_search(&search, bytes, have);
    return found;
}

static void check_slice(const struct slice *slice, const char *bytes, size_t len)
{
    if (slice->at != NULL)
        POST(slice->at >= bytes && slice->at + slice->len <= bytes + len);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t len)
{
    const char *bytes = (const char *)input;
    struct head_search search = {0};
    long found = request_head_search(&search, bytes, len);
    struct request_head head;
    struct error error = {0};

    POST(found <= (long)len);
    POST(search_slowly(bytes, len) == found);
    if (found <= 0)
        return 0;
    size_t length = (size_t)found;
    if (!request_head_check(bytes, length, &head, &error)) {
        POST(error_is(&error));
        return 0;
    }
    POST(head.length == length);
    check_slice(&head.method, bytes, length);
    check_slice(&head.path, bytes, length);
    check_slice(&head.query, bytes, length);
    check_slice(&head.host, bytes, length);
    check_slice(&head.authorization, bytes, length);
    check_slice(&head.fields, bytes, length);
    for (int i = 0; i < head.n_left_out; i++)
        check_slice(&head.left_out[i], bytes, length);
    POST(head.chunked == (head.content_length == -1));
    return 0;
}
