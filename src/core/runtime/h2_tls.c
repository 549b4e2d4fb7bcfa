#include "core/runtime/h2_tls.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

struct h2_tls {
    SSL_CTX *ctx;
};

static const char *openssl_reason(void)
{
    unsigned long code = ERR_get_error();
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;

    ERR_clear_error();
    return reason != NULL ? reason : "unknown reason";
}

static bool load_files(SSL_CTX *ctx, const char *ca_path, const char *cert_path,
                       const char *key_path, struct error *err)
{
    int ok = ca_path != NULL ? SSL_CTX_load_verify_locations(ctx, ca_path, NULL)
                             : SSL_CTX_set_default_verify_paths(ctx);

    if (ok != 1) {
        error_set(err, ERR_BAD_REQUEST, "the CA file %s cannot be used: %s",
                  ca_path != NULL ? ca_path : "(system)", openssl_reason());
        return false;
    }
    if (cert_path == NULL)
        return true;
    if (SSL_CTX_use_certificate_chain_file(ctx, cert_path) != 1) {
        error_set(err, ERR_BAD_REQUEST, "the client certificate %s cannot be used: %s", cert_path,
                  openssl_reason());
        return false;
    }
    if (SSL_CTX_use_PrivateKey_file(ctx, key_path, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(ctx) != 1) {
        error_set(err, ERR_BAD_REQUEST,
                  "the client key %s cannot be used or does not fit the certificate: %s", key_path,
                  openssl_reason());
        return false;
    }
    return true;
}

struct h2_tls *h2_tls_new(const char *ca_path, const char *cert_path, const char *key_path,
                          struct error *err)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    struct h2_tls *tls;

    PRE(ctx != NULL && (cert_path == NULL) == (key_path == NULL));
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_alpn_protos(ctx, (const unsigned char *)"\x02h2", 3);
    if (!load_files(ctx, ca_path, cert_path, key_path, err)) {
        SSL_CTX_free(ctx);
        return NULL;
    }
    tls = xcalloc(1, sizeof(*tls));
    tls->ctx = ctx;
    return tls;
}

void h2_tls_free(struct h2_tls *tls)
{
    if (tls == NULL)
        return;
    SSL_CTX_free(tls->ctx);
    free(tls);
}

SSL *h2_tls_connection(struct h2_tls *tls, const char *host)
{
    ASN1_OCTET_STRING *address = a2i_IPADDRESS(host);
    SSL *ssl = SSL_new(tls->ctx);

    PRE(ssl != NULL);
    /* RFC 6066 section 3: no address literals in SNI; they are matched as IP alternative names. */
    if (address != NULL) {
        ASN1_OCTET_STRING_free(address);
        X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host);
    } else {
        ERR_clear_error();
        SSL_set_tlsext_host_name(ssl, host);
        SSL_set1_host(ssl, host);
    }
    return ssl;
}

bool h2_tls_check(SSL *ssl, struct error *err)
{
    const unsigned char *protocol = NULL;
    unsigned len = 0;

    SSL_get0_alpn_selected(ssl, &protocol, &len);
    if (len == 2 && memcmp(protocol, "h2", 2) == 0)
        return true;
    error_set(err, ERR_UPSTREAM_PROTOCOL,
              "the peer did not negotiate HTTP/2 in the TLS handshake: is this a gRPC port?");
    return false;
}

/* Alerts by which a server refuses our certificate, or the want of one. With TLS 1.3 they come only
 * after the handshake is complete on our side. */
static bool reason_is_about_us(int reason)
{
    switch (reason) {
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
        return true;
    default:
        return false;
    }
}

/* Our write may have failed before the alert that explains it was read: it still lies there. */
static unsigned long pending_alert(SSL *ssl)
{
    char byte;
    unsigned long code;

    ERR_clear_error();
    code = SSL_read(ssl, &byte, 1) <= 0 ? ERR_peek_error() : 0;
    ERR_clear_error();
    return code;
}

void h2_tls_explain(SSL *ssl, unsigned long code, struct error *err)
{
    long verify = SSL_get_verify_result(ssl);
    const char *reason;

    if (code == 0 && SSL_is_init_finished(ssl))
        code = pending_alert(ssl);
    reason = code != 0 ? ERR_reason_error_string(code) : NULL;

    if (verify != X509_V_OK)
        error_set(err, ERR_UPSTREAM_CONNECT, "the peer's certificate is not accepted: %s",
                  X509_verify_cert_error_string(verify));
    else if (ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER)
        error_set(err, ERR_UPSTREAM_CONNECT,
                  "the peer does not speak TLS: is it a plaintext port?");
    else if (reason != NULL && reason_is_about_us(ERR_GET_REASON(code)))
        error_set(err, ERR_UPSTREAM_CONNECT,
                  "the peer refuses our client certificate, or wants one: %s", reason);
    else if (reason != NULL && ERR_GET_REASON(code) != SSL_R_UNEXPECTED_EOF_WHILE_READING)
        error_set(err, ERR_UPSTREAM_CONNECT, "TLS: %s", reason);
}
