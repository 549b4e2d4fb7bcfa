/* The bearer check (docs/protocol.md; Dify Agent's control plane, section 1.2). */
#pragma once

#include <stdbool.h>

/** Compare the Authorization header's value with `token`. NULL when it may pass, else what is
 * wrong, as static text. `token` NULL, empty or blank switches the check off. */
const char *auth_check_bearer(const char *token, const char *authorization);

/** The token of a `Bearer` header, with blanks around it removed: points into `authorization`, its
 * length in *ret_len. NULL when it is no bearer header. */
const char *auth_bearer_token(const char *authorization, unsigned long *ret_len);

/** For `struct http_auth`: `ctx` is the token. */
const char *auth_bearer_callback(void *ctx, const char *authorization);

/** Compare a presented secret in a time that tells nothing of the right one but its length. */
bool auth_equal(const char *given, const char *secret);
