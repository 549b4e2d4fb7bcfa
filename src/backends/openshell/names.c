#include "backends/openshell/names.h"

#include "core/runtime/quote.h"

#include <openssl/evp.h>
#include <openssl/rand.h>
#include <string.h>

static void hex_of(const unsigned char *bytes, size_t len, char *ret)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < len; i++) {
        ret[2 * i] = digits[bytes[i] >> 4];
        ret[2 * i + 1] = digits[bytes[i] & 15];
    }
    ret[2 * len] = '\0';
}

void name_digest(const char *id, char ret[NAME_DIGEST_CHARS + 1])
{
    unsigned char sha[EVP_MAX_MD_SIZE];

    PRE(EVP_Digest(id, strlen(id), sha, NULL, EVP_sha256(), NULL) == 1);
    hex_of(sha, NAME_DIGEST_CHARS / 2, ret);
}

const char *name_sandbox(struct arena *arena, const char *binding_id)
{
    char digest[NAME_DIGEST_CHARS + 1];

    name_digest(binding_id, digest);
    return arena_printf(arena, "dify-%s", digest);
}

const char *name_maintenance(struct arena *arena)
{
    unsigned char random[8];
    char hex[2 * sizeof(random) + 1];

    PRE(RAND_bytes(random, sizeof(random)) == 1);
    hex_of(random, sizeof(random), hex);
    return arena_printf(arena, "gc-%s", hex);
}

bool name_check_id(const char *id, const char *what, enum err_code code, struct error *err)
{
    if (quote_is_safe_part(id))
        return true;
    error_set(err, code, "%s must be 1 to 255 of A-Z a-z 0-9 . _ - and no dot segment", what);
    return false;
}

static bool is_prefix_and_hex(const char *name, const char *prefix, size_t hex_chars)
{
    size_t prefix_len = strlen(prefix);

    return strncmp(name, prefix, prefix_len) == 0 &&
           strspn(name + prefix_len, "0123456789abcdef") == hex_chars &&
           name[prefix_len + hex_chars] == '\0';
}

bool name_check_sandbox(const char *name, struct error *err)
{
    if (is_prefix_and_hex(name, "dify-", NAME_DIGEST_CHARS))
        return true;
    error_set(err, ERR_INVALID_REF, "an OpenShell binding_ref is dify- and 14 hex digits");
    return false;
}

bool name_is_maintenance(const char *name)
{
    return is_prefix_and_hex(name, "gc-", 16);
}

const char *name_snapshot_ref(struct arena *arena, const char *tenant_id,
                              const char *home_snapshot_id)
{
    char digest[NAME_DIGEST_CHARS + 1];

    name_digest(tenant_id, digest);
    return arena_printf(arena, "%s--home-%s", digest, home_snapshot_id);
}

static int mount_len(const char *mount)
{
    size_t len = strlen(mount);

    while (len > 0 && mount[len - 1] == '/')
        len--;
    return (int)len;
}

const char *name_snapshot_dir(struct arena *arena, const char *mount, const char *snapshot_ref,
                              const char **ret_root, struct error *err)
{
    static const char between[] = "--home-";
    const size_t front = NAME_DIGEST_CHARS + sizeof(between) - 1;
    char *tenant;

    if (strspn(snapshot_ref, "0123456789abcdef") != NAME_DIGEST_CHARS ||
        strncmp(snapshot_ref + NAME_DIGEST_CHARS, between, sizeof(between) - 1) != 0 ||
        !quote_is_safe_part(snapshot_ref + front)) {
        error_set(err, ERR_INVALID_REF, "not a home snapshot reference of OpenShell");
        return NULL;
    }
    tenant = arena_memdup(arena, snapshot_ref, NAME_DIGEST_CHARS);
    *ret_root = arena_printf(arena, "%.*s/home-snapshots/%s", mount_len(mount), mount, tenant);
    return arena_printf(arena, "%s/home-%s", *ret_root, snapshot_ref + front);
}

const char *name_tenant_root(struct arena *arena, const char *mount, const char *tenant_id)
{
    char digest[NAME_DIGEST_CHARS + 1];

    name_digest(tenant_id, digest);
    return arena_printf(arena, "%.*s/home-snapshots/%s", mount_len(mount), mount, digest);
}
