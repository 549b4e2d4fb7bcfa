#include "core/domain/ledger_rules.h"

#include "core/runtime/backoff.h"
#include "core/runtime/quote.h"

#include <openssl/evp.h>
#include <string.h>

enum { RETRY_BASE_MS = 1000, RETRY_CAP_MS = 300000, DIGEST_BYTES = 32 };

static const char *const state_names[ROW_STATES] = {"gone", "creating", "active", "retired"};

/* Row: from. Column: to. */
static const bool transitions[ROW_STATES][ROW_STATES] = {
    [ROW_GONE] = {[ROW_CREATING] = true},
    [ROW_CREATING] = {[ROW_ACTIVE] = true,  /* the create succeeded */
                      [ROW_RETIRED] = true, /* its owner ended meanwhile */
                      [ROW_GONE] = true},   /* it failed and left nothing */
    [ROW_ACTIVE] = {[ROW_RETIRED] = true},
    [ROW_RETIRED] = {[ROW_GONE] = true}, /* destroyed, and only then */
};

const char *row_state_name(enum row_state state)
{
    PRE(state < ROW_STATES);
    return state_names[state];
}

enum row_state row_state_of(const char *name)
{
    enum row_state state = ROW_GONE;

    while (state < ROW_STATES && (name == NULL || strcmp(state_names[state], name) != 0))
        state++;
    return state;
}

bool row_state_may_become(enum row_state from, enum row_state to)
{
    PRE(from < ROW_STATES && to < ROW_STATES);
    return transitions[from][to];
}

bool owner_type_known(const char *type)
{
    return strcmp(type, "conversation") == 0 || strcmp(type, "build_draft") == 0 ||
           strcmp(type, "workflow_run") == 0;
}

/* Ids hold no control characters: 0x1f keeps the parts apart. */
char *owner_watch_key(struct arena *arena, const struct owner_key *owner)
{
    return arena_printf(arena, "owner\x1f%s\x1f%s\x1f%s\x1f%s", owner->tenant_id, owner->type,
                        owner->id, owner->scope_key);
}

char *binding_watch_key(struct arena *arena, const char *binding_id)
{
    return arena_printf(arena, "binding\x1f%s", binding_id);
}

char *row_watch_key(struct arena *arena, const struct ledger_binding *row)
{
    struct owner_key owner = {row->tenant_id, row->owner_type, row->owner_id, row->owner_scope_key};

    return owner.type != NULL ? owner_watch_key(arena, &owner) : binding_watch_key(arena, row->id);
}

static bool same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

bool generation_check(const struct ledger_binding *row, const struct generation *asked,
                      struct error *err)
{
    const struct {
        const char *field, *have, *want;
    } fields[] = {
        {"agent_id", row->agent_id, asked->agent_id},
        {"home_snapshot_id", row->base_home_snapshot_id, asked->base_home_snapshot_id},
        {"agent_config_version_id", row->agent_config_version_id, asked->config_version_id},
        {"agent_config_version_kind", row->agent_config_version_kind, asked->config_version_kind},
    };

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (same(fields[i].have, fields[i].want))
            continue;
        error_set(err, ERR_GENERATION_MISMATCH,
                  "binding %s was made with %s %s, and %s was asked for: retire it first, or ask "
                  "with the generation it was made for",
                  row->id, fields[i].field, fields[i].have != NULL ? fields[i].have : "null",
                  fields[i].want != NULL ? fields[i].want : "null");
        return false;
    }
    return true;
}

/* Each field is preceded by its presence and length, so that no two specs share an encoding. */
static void digest_field(EVP_MD_CTX *md, const char *value)
{
    uint64_t len = value != NULL ? (uint64_t)strlen(value) : UINT64_MAX;

    PRE(EVP_DigestUpdate(md, &len, sizeof(len)) == 1);
    if (value != NULL)
        PRE(EVP_DigestUpdate(md, value, len) == 1);
}

char *spec_digest(struct arena *arena, const struct binding_spec *spec)
{
    unsigned char digest[DIGEST_BYTES];
    unsigned int len = 0;
    EVP_MD_CTX *md = EVP_MD_CTX_new();

    PRE(md != NULL && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1);
    digest_field(md, spec->tenant_id);
    digest_field(md, spec->agent_id);
    digest_field(md, spec->binding_id);
    digest_field(md, spec->workspace_id);
    digest_field(md, spec->existing_workspace_ref);
    digest_field(md, spec->home_snapshot_ref);
    PRE(EVP_DigestFinal_ex(md, digest, &len) == 1 && len == DIGEST_BYTES);
    EVP_MD_CTX_free(md);
    return quote_hex(arena, digest, DIGEST_BYTES);
}

bool failure_is_shared(const struct error *why)
{
    return why->code != ERR_CANCELLED && why->code != ERR_DRAINING && why->code != ERR_DEADLINE &&
           why->code != ERR_LEDGER;
}

int64_t work_retry_delay_ms(int64_t attempts)
{
    struct backoff backoff = {.base_ms = RETRY_BASE_MS, .cap_ms = RETRY_CAP_MS};

    backoff.attempts = attempts > 1 ? (int)(attempts > 30 ? 30 : attempts - 1) : 0;
    return backoff_next_ms(&backoff);
}
