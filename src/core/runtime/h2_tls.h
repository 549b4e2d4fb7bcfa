/* TLS for h2_session.c: the only users of OpenSSL's types there. */
#pragma once

#include "core/runtime/h2_session.h"

#include <openssl/ssl.h>

/** A connection object that verifies `host`; owned by the bufferevent it is given to. */
SSL *h2_tls_connection(struct h2_tls *tls, const char *host);

/** After the handshake: was `h2` negotiated? */
bool h2_tls_check(SSL *ssl, struct error *err);

/** Replace `err` when TLS was what failed; `code` is OpenSSL's, 0 when there is none. */
void h2_tls_explain(SSL *ssl, unsigned long code, struct error *err);
