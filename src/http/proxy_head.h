/* The heads of a proxied exchange: what is passed on and what is not. Pure. */
#pragma once

#include "core/domain/backend.h"
#include "http/exchange.h"

/** A path as it came, behind the route: no `.` or `..` segment in any spelling, no encoded slash, no
 * backslash, no control character. ERR_BAD_REQUEST otherwise. */
bool proxy_check_path(const char *rest, struct error *err) MUST_CHECK;

/** Is this one of the calls that shellctl may answer after minutes (shellctl.md 3: run, wait, input,
 * terminate)? */
bool proxy_may_wait(const char *rest);

/** endpoint's base URL + `/` + rest + query, byte for byte. */
const char *proxy_url(struct arena *arena, const struct endpoint *endpoint, const char *rest,
                      const char *query);

/** Request headers to send: the caller's without the hop-by-hop ones (RFC 9110 section 7.6.1), its
 * credentials, and those that the endpoint sets; then the endpoint's. */
void proxy_request_headers(const struct exchange *x, const struct endpoint *endpoint,
                           const struct http_header **ret, size_t *ret_n);

/** Reply headers to send on; *ret_length is Content-Length or -1. */
void proxy_reply_headers(struct arena *arena, const struct http_response *head,
                         const struct http_header **ret, size_t *ret_n, int64_t *ret_length);
