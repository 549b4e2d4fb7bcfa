#include "http/auth.h"

#include <openssl/crypto.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static const char *strip(const char *text, size_t *len)
{
    while (*len > 0 && is_blank(text[0])) {
        text++;
        (*len)--;
    }
    while (*len > 0 && is_blank(text[*len - 1]))
        (*len)--;
    return text;
}

const char *auth_bearer_token(const char *authorization, unsigned long *ret_len)
{
    const char *space = authorization != NULL ? strchr(authorization, ' ') : NULL;
    const char *token;

    if (space == NULL || space - authorization != 6 || strncasecmp(authorization, "bearer", 6) != 0)
        return NULL;
    *ret_len = strlen(space);
    token = strip(space, ret_len);
    return *ret_len > 0 ? token : NULL;
}

/* Its time tells the length of the secret at most. */
static bool same_secret(const char *a, size_t a_len, const char *b, size_t b_len)
{
    return a_len == b_len && CRYPTO_memcmp(a, b, a_len) == 0;
}

bool auth_equal(const char *given, const char *secret)
{
    return same_secret(given, strlen(given), secret, strlen(secret));
}

const char *auth_check_bearer(const char *token, const char *authorization)
{
    size_t expected_len = token != NULL ? strlen(token) : 0;
    const char *expected = token != NULL ? strip(token, &expected_len) : NULL;
    const char *given;
    size_t given_len = 0;

    if (expected_len == 0)
        return NULL;
    if (authorization == NULL)
        return "missing authorization header";
    given = auth_bearer_token(authorization, &given_len);
    if (given == NULL)
        return "invalid authorization scheme";
    return same_secret(given, given_len, expected, expected_len) ? NULL : "invalid bearer token";
}

const char *auth_bearer_callback(void *ctx, const char *authorization)
{
    return auth_check_bearer(ctx, authorization);
}
