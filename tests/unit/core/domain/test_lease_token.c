/* Lease tokens: round trip, and nothing else opens. */
#include "core/domain/lease_token.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

TestSuite(lease_token, .timeout = 10);

static const struct lease_claims sample = {
    .id = "00112233445566778899aabbccddeeff",
    .backend = "local",
    .binding_ref = "b-1:w-1",
    .acquired_wall_ms = 1700000000123,
    .expires_wall_ms = 1700000300123,
    .hard_end_wall_ms = 1700086400123,
};

Test(lease_token, says_what_was_signed)
{
    struct arena *arena = arena_new();
    struct lease_key key;
    struct lease_claims claims;

    lease_key_derive(&key, "correct horse battery staple");
    cr_assert(lease_token_open(arena, &key, lease_token_mint(arena, &key, &sample), &claims));
    cr_assert_str_eq(claims.id, sample.id);
    cr_assert_str_eq(claims.backend, "local");
    cr_assert_str_eq(claims.binding_ref, "b-1:w-1");
    cr_assert(eq(i64, claims.acquired_wall_ms, sample.acquired_wall_ms));
    cr_assert(eq(i64, claims.expires_wall_ms, sample.expires_wall_ms));
    cr_assert(eq(i64, claims.hard_end_wall_ms, sample.hard_end_wall_ms));
    lease_key_fini(&key);
    arena_free(arena);
}

Test(lease_token, carries_refs_of_every_length)
{
    struct arena *arena = arena_new();
    struct lease_key key;
    struct lease_claims in = sample, out;
    char ref[REF_MAX + 1];

    lease_key_derive(&key, "s");
    for (size_t len = 1; len <= REF_MAX; len++) {
        memset(ref, 'r', len);
        ref[len] = '\0';
        in.binding_ref = ref;
        cr_assert(lease_token_open(arena, &key, lease_token_mint(arena, &key, &in), &out));
        cr_assert_str_eq(out.binding_ref, ref);
    }
    lease_key_fini(&key);
    arena_free(arena);
}

Test(lease_token, any_change_closes_it)
{
    struct arena *arena = arena_new();
    struct lease_key key, other;
    struct lease_claims claims;
    char *token;

    lease_key_derive(&key, "one secret");
    lease_key_derive(&other, "another secret");
    token = lease_token_mint(arena, &key, &sample);
    cr_assert(not(lease_token_open(arena, &other, token, &claims)));
    for (char *at = token; *at != '\0'; at++) {
        char was = *at;

        *at = was == 'A' ? 'B' : 'A';
        cr_assert(not(lease_token_open(arena, &key, token, &claims)), "position %td", at - token);
        *at = was;
        *at ^= 0x20;
        cr_assert(not(lease_token_open(arena, &key, token, &claims)), "position %td", at - token);
        *at = was;
    }
    for (size_t len = strlen(token) - 1; len > 0; len--) {
        token[len] = '\0';
        cr_assert(not(lease_token_open(arena, &key, token, &claims)), "length %zu", len);
    }
    lease_key_fini(&other);
    lease_key_fini(&key);
    arena_free(arena);
}

static const char expected_token[] =
    "blt1.AQARIjNEVWZ3iJmqu8zd7v8AAAGLz-VoewAAAYvP6fxbAAABi9ULxHs"
    "FbG9jYWwHYi0xOnctMbiZ5ydh46eyWCLLnrEmBSK4nTjy-HPTJo9mSZ9DI4kL";

/* The signature is HMAC-SHA256 as anybody computes it, the second time as the first. */
Test(lease_token, signs_alike_each_time)
{
    struct arena *arena = arena_new();
    struct lease_key one, two;
    const char *first;

    lease_key_derive(&one, "a secret");
    lease_key_derive(&two, "a secret");
    first = lease_token_mint(arena, &one, &sample);
    for (int i = 0; i < 3; i++)
        cr_assert_str_eq(lease_token_mint(arena, &one, &sample), first);
    cr_assert_str_eq(lease_token_mint(arena, &two, &sample), first);
    /* python: hmac(hmac(b"a secret", b"bindery lease token v1"), claims) */
    cr_assert_str_eq(first, expected_token);
    lease_key_fini(&one);
    lease_key_fini(&two);
    arena_free(arena);
}

Test(lease_token, garbage_is_no_token)
{
    struct arena *arena = arena_new();
    struct lease_key key;
    struct lease_claims claims;
    char *huge = arena_alloc(arena, 100001);

    lease_key_derive(&key, "s");
    memset(huge, 'A', 100000);
    memcpy(huge, "blt1.", 5);
    cr_assert(not(lease_token_open(arena, &key, "", &claims)));
    cr_assert(not(lease_token_open(arena, &key, "blt1.", &claims)));
    cr_assert(not(lease_token_open(arena, &key, "blt1.====", &claims)));
    cr_assert(not(lease_token_open(arena, &key, "blt1.\x80\xff", &claims)));
    cr_assert(not(lease_token_open(arena, &key, huge, &claims)));
    lease_key_fini(&key);
    arena_free(arena);
}

Test(lease_token, ids_have_one_form)
{
    cr_assert(lease_id_well_formed(sample.id));
    cr_assert(not(lease_id_well_formed("")));
    cr_assert(not(lease_id_well_formed("00112233445566778899aabbccddeef")));
    cr_assert(not(lease_id_well_formed("00112233445566778899aabbccddeeff0")));
    cr_assert(not(lease_id_well_formed("00112233445566778899AABBCCDDEEFF")));
    cr_assert(not(lease_id_well_formed("../../../../../../../../../../../")));
}
