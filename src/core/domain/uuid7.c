#include "core/domain/uuid7.h"

#include <openssl/rand.h>

char *uuid7_new(struct arena *arena, int64_t wall_ms)
{
    unsigned char b[16];

    PRE(RAND_bytes(b, sizeof(b)) == 1);
    for (int i = 0; i < 6; i++)
        b[i] = (unsigned char)((uint64_t)wall_ms >> (40 - 8 * i));
    b[6] = (unsigned char)(0x70 | (b[6] & 0x0f)); /* version 7 */
    b[8] = (unsigned char)(0x80 | (b[8] & 0x3f)); /* the RFC's variant */
    return arena_printf(
        arena, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
        b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}
