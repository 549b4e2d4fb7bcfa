/* The lease token: what a holder shows to use, renew or release one lease, at any replica.
 *
 * It is `blt1.` + base64url(claims ‖ HMAC-SHA256(key, claims)): all that a replica without state
 * needs to serve the lease, signed with the secret that the replicas share (docs/adr/0004). It is
 * not encrypted: a binding ref is no secret. */
#pragma once

#include "core/domain/lease.h"

struct evp_mac_ctx_st; /* openssl/evp.h: EVP_MAC_CTX */

/** Signing key, derived from BINDERY_LEASE_SECRET; end with lease_key_fini. */
struct lease_key {
    struct evp_mac_ctx_st *mac; /* keyed; each signature starts it anew */
};

/** What a token says. Strings are borrowed from the arena it was opened into. */
struct lease_claims {
    char id[LEASE_ID_CHARS + 1];
    const char *backend; /* backend_ops.name */
    const char *binding_ref;
    int64_t acquired_wall_ms, expires_wall_ms, hard_end_wall_ms;
};

/** Derive the key from a secret text of any length. */
void lease_key_derive(struct lease_key *key, const char *secret);
void lease_key_fini(struct lease_key *key);

/** A token for these claims, in the arena. `id` is LEASE_ID_CHARS lower-case hex characters. */
char *lease_token_mint(struct arena *arena, const struct lease_key *key,
                       const struct lease_claims *claims);

/** Could this be a lease token (by its prefix)? */
bool lease_token_looks_like(const char *token);

/** Verify and read. False when it is not a token of this key; its times are the caller's to judge.
 */
bool lease_token_open(struct arena *arena, const struct lease_key *key, const char *token,
                      struct lease_claims *ret) MUST_CHECK;

/** LEASE_ID_CHARS lower-case hex characters? */
bool lease_id_well_formed(const char *id);
