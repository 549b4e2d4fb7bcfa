#include "core/domain/lease_token.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/params.h>
#include <string.h>

/* Claims on the wire: version, id (16), three times (8 each, big endian), length and bytes of the
 * backend's name and of the ref. */
enum {
    TOKEN_VERSION = 1,
    ID_BYTES = LEASE_ID_CHARS / 2,
    MAC_BYTES = 32,
    BACKEND_MAX = 32,
    CLAIMS_MAX = 1 + ID_BYTES + 3 * 8 + 1 + BACKEND_MAX + 1 + REF_MAX,
    RAW_MAX = CLAIMS_MAX + MAC_BYTES,
    TEXT_MAX = (RAW_MAX + 2) / 3 * 4,
};

static const char prefix[] = "blt1.";
static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void lease_key_derive(struct lease_key *key, const char *secret)
{
    static const char purpose[] = "bindery lease token v1";
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                           OSSL_PARAM_construct_end()};
    unsigned char derived[MAC_BYTES];
    unsigned int len = MAC_BYTES;
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    int ok;

    HMAC(EVP_sha256(), secret, (int)strlen(secret), (const unsigned char *)purpose,
         sizeof(purpose) - 1, derived, &len);
    key->mac = EVP_MAC_CTX_new(hmac);
    ok = EVP_MAC_init(key->mac, derived, len, params);
    POST(len == MAC_BYTES && ok == 1);
    EVP_MAC_free(hmac);
    OPENSSL_cleanse(derived, sizeof(derived));
}

void lease_key_fini(struct lease_key *key)
{
    EVP_MAC_CTX_free(key->mac);
    key->mac = NULL;
}

static void sign(const struct lease_key *key, const unsigned char *claims, size_t len,
                 unsigned char ret_mac[MAC_BYTES])
{
    size_t mac_len = 0;
    /* without a key the context starts again with the one that it has, its pads hashed already */
    int ok = EVP_MAC_init(key->mac, NULL, 0, NULL) && EVP_MAC_update(key->mac, claims, len) &&
             EVP_MAC_final(key->mac, ret_mac, &mac_len, MAC_BYTES);

    POST(ok && mac_len == MAC_BYTES);
}

/* ---- base64url without padding (RFC 4648 section 5) ------------------------------------------ */

static size_t base64url_encode(const unsigned char *in, size_t len, char *out)
{
    char *to = out;

    for (; len >= 3; len -= 3, in += 3) {
        unsigned group = (unsigned)in[0] << 16 | (unsigned)in[1] << 8 | in[2];

        *to++ = alphabet[group >> 18];
        *to++ = alphabet[group >> 12 & 63];
        *to++ = alphabet[group >> 6 & 63];
        *to++ = alphabet[group & 63];
    }
    if (len > 0) {
        unsigned group = (unsigned)in[0] << 16 | (len > 1 ? (unsigned)in[1] << 8 : 0);

        *to++ = alphabet[group >> 18];
        *to++ = alphabet[group >> 12 & 63];
        if (len > 1)
            *to++ = alphabet[group >> 6 & 63];
    }
    *to = '\0';
    return (size_t)(to - out);
}

static int sextet(char c)
{
    const char *at = c == '\0' ? NULL : strchr(alphabet, c);

    return at == NULL ? -1 : (int)(at - alphabet);
}

/* False on a foreign character, an impossible length, or bits left over that are not zero: one
 * token has one spelling. */
static bool base64url_decode(const char *in, size_t len, unsigned char *out, size_t *ret_len)
{
    unsigned group = 0;
    int bits = 0;
    size_t n = 0;

    if (len % 4 == 1)
        return false;
    for (size_t i = 0; i < len; i++) {
        int value = sextet(in[i]);

        if (value < 0)
            return false;
        group = group << 6 | (unsigned)value;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            out[n++] = (unsigned char)(group >> bits);
            group &= (1U << bits) - 1;
        }
    }
    *ret_len = n;
    return group == 0;
}

/* ---- claims ---------------------------------------------------------------------------------- */

static unsigned hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return (unsigned)(c - '0');
    return (unsigned)(c - 'a' + 10) & 15;
}

bool lease_id_well_formed(const char *id)
{
    return strspn(id, "0123456789abcdef") == LEASE_ID_CHARS && id[LEASE_ID_CHARS] == '\0';
}

static unsigned char *put_time(unsigned char *at, int64_t ms)
{
    for (int shift = 56; shift >= 0; shift -= 8)
        *at++ = (unsigned char)((uint64_t)ms >> shift);
    return at;
}

static unsigned char *put_text(unsigned char *at, const char *text, size_t max)
{
    size_t len = strlen(text);

    PRE(len <= max);
    *at++ = (unsigned char)len;
    while (*text != '\0')
        *at++ = (unsigned char)*text++;
    return at;
}

char *lease_token_mint(struct arena *arena, const struct lease_key *key,
                       const struct lease_claims *claims)
{
    unsigned char raw[RAW_MAX];
    unsigned char *at = raw;
    char *text = arena_alloc(arena, sizeof(prefix) + TEXT_MAX);

    PRE(lease_id_well_formed(claims->id));
    *at++ = TOKEN_VERSION;
    for (size_t i = 0; i < ID_BYTES; i++)
        *at++ =
            (unsigned char)(hex_value(claims->id[2 * i]) << 4 | hex_value(claims->id[2 * i + 1]));
    at = put_time(at, claims->acquired_wall_ms);
    at = put_time(at, claims->expires_wall_ms);
    at = put_time(at, claims->hard_end_wall_ms);
    at = put_text(at, claims->backend, BACKEND_MAX);
    at = put_text(at, claims->binding_ref, REF_MAX);
    sign(key, raw, (size_t)(at - raw), at);
    memcpy(text, prefix, sizeof(prefix) - 1);
    base64url_encode(raw, (size_t)(at - raw) + MAC_BYTES, text + sizeof(prefix) - 1);
    return text;
}

bool lease_token_looks_like(const char *token)
{
    return strncmp(token, prefix, sizeof(prefix) - 1) == 0;
}

/* A cursor over signed claims; `bad` once anything was missing. */
struct reader {
    const unsigned char *at, *end;
    bool bad;
};

static int64_t take_time(struct reader *r)
{
    uint64_t value = 0;

    if (r->end - r->at < 8) {
        r->bad = true;
        return 0;
    }
    for (int i = 0; i < 8; i++)
        value = value << 8 | *r->at++;
    return (int64_t)value;
}

static const char *take_text(struct reader *r, struct arena *arena)
{
    size_t len;
    const char *text;

    if (r->at == r->end || r->end - r->at - 1 < r->at[0]) {
        r->bad = true;
        return "";
    }
    len = *r->at++;
    text = arena_memdup(arena, r->at, len);
    r->at += len;
    return text;
}

static void take_id(struct reader *r, char ret_id[LEASE_ID_CHARS + 1])
{
    static const char hex[] = "0123456789abcdef";

    if (r->end - r->at < ID_BYTES) {
        r->bad = true;
        return;
    }
    for (size_t i = 0; i < ID_BYTES; i++) {
        ret_id[2 * i] = hex[*r->at >> 4];
        ret_id[2 * i + 1] = hex[*r->at++ & 15];
    }
    ret_id[LEASE_ID_CHARS] = '\0';
}

bool lease_token_open(struct arena *arena, const struct lease_key *key, const char *token,
                      struct lease_claims *ret)
{
    unsigned char raw[TEXT_MAX / 4 * 3];
    unsigned char mac[MAC_BYTES];
    struct lease_claims claims = {0};
    struct reader r;
    size_t len, text_len;

    if (!lease_token_looks_like(token))
        return false;
    token += sizeof(prefix) - 1;
    text_len = strlen(token);
    if (text_len > TEXT_MAX || !base64url_decode(token, text_len, raw, &len) || len <= MAC_BYTES)
        return false;
    len -= MAC_BYTES;
    sign(key, raw, len, mac);
    if (CRYPTO_memcmp(mac, raw + len, MAC_BYTES) != 0)
        return false;
    r = (struct reader){raw, raw + len, false};
    if (*r.at++ != TOKEN_VERSION)
        return false;
    take_id(&r, claims.id);
    claims.acquired_wall_ms = take_time(&r);
    claims.expires_wall_ms = take_time(&r);
    claims.hard_end_wall_ms = take_time(&r);
    claims.backend = take_text(&r, arena);
    claims.binding_ref = take_text(&r, arena);
    if (r.bad || r.at != r.end)
        return false;
    *ret = claims;
    return true;
}
