/* The parts of the OpenShell driver that need no gateway: names, policy, messages, scripts. */
#include "backends/openshell/backend.h"
#include "backends/openshell/names.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

static struct arena *arena;

static void set_up(void)
{
    arena = arena_new();
}

static void tear_down(void)
{
    arena_free(arena);
}

TestSuite(openshell_parts, .init = set_up, .fini = tear_down, .timeout = 10);

/* ---- names (protocols "runtime backends" 3.1; case A13) ------------------------------------------------- */

Test(openshell_parts, names_are_digests_of_ids)
{
    char digest[NAME_DIGEST_CHARS + 1];
    struct error err;

    name_digest("abc", digest); /* FIPS 180-2, SHA-256 of "abc" */
    cr_assert_str_eq(digest, "ba7816bf8f01cf");
    cr_assert_str_eq(name_sandbox(arena, "abc"), "dify-ba7816bf8f01cf");
    cr_assert(
        name_check_sandbox(name_sandbox(arena, "any id, however long or odd: \xc3\xbc"), &err));
    cr_assert(eq(sz, strlen(name_sandbox(arena, "x")), NAME_SANDBOX_MAX));
    cr_assert(name_is_maintenance(name_maintenance(arena)));
    cr_assert_str_neq(name_maintenance(arena), name_maintenance(arena));
}

Test(openshell_parts, other_peoples_names_are_refused)
{
    static const char *const bad[] = {"",
                                      "dify-",
                                      "dify-ba7816bf8f01c",
                                      "dify-ba7816bf8f01cf0",
                                      "dify-BA7816BF8F01CF",
                                      "dify-ba7816bf8f01cg",
                                      "Dify-ba7816bf8f01cf",
                                      "gc-0123456789abcdef",
                                      "prod-database",
                                      "dify-ba7816bf8f01cf/../x",
                                      " dify-ba7816bf8f01cf"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct error err = {0};
        cr_assert_not(name_check_sandbox(bad[i], &err), "%s", bad[i]);
        cr_assert(eq(int, err.code, ERR_INVALID_REF));
    }
    cr_assert_not(name_is_maintenance("gc-0123456789abcde"));
    cr_assert_not(name_is_maintenance("gc-0123456789abcdeg"));
}

Test(openshell_parts, snapshot_refs_name_one_directory_of_one_tenant)
{
    const char *ref = name_snapshot_ref(arena, "abc", "snap-1"), *root;
    struct error err;

    cr_assert_str_eq(ref, "ba7816bf8f01cf--home-snap-1");
    cr_assert_str_eq(name_snapshot_dir(arena, "/mnt/shared", ref, &root, &err),
                     "/mnt/shared/home-snapshots/ba7816bf8f01cf/home-snap-1");
    cr_assert_str_eq(root, name_tenant_root(arena, "/mnt/shared", "abc"));
}

Test(openshell_parts, snapshot_refs_that_walk_are_refused)
{
    static const char *const bad[] = {"",
                                      "home-x",
                                      "ba7816bf8f01cf--home-",
                                      "ba7816bf8f01cf--home-..",
                                      "ba7816bf8f01cf--home-a/b",
                                      "../ba7816bf8f01--home-x",
                                      "ba7816bf8f01c--home-x",
                                      "ba7816bf8f01cf--home-a\n"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct error err = {0};
        const char *root;
        cr_assert(name_snapshot_dir(arena, "/mnt", bad[i], &root, &err) == NULL, "%s", bad[i]);
        cr_assert(eq(int, err.code, ERR_INVALID_REF));
    }
}

/* ---- policy (3.2) --------------------------------------------------------------------------------------- */

Test(openshell_parts, egress_lists)
{
    struct egress_endpoint *list;
    struct error err;
    size_t n;

    cr_assert(egress_parse(arena, "", &list, &n, &err) && n == 0);
    cr_assert(egress_parse(arena, " api.example:443 ,,[::1]:80,", &list, &n, &err), "%s",
              err.message);
    cr_assert(eq(sz, n, 2));
    cr_assert_str_eq(list[0].host, "api.example");
    cr_assert(eq(int, (int)list[0].port, 443));
    cr_assert(eq(int, (int)list[1].port, 80));
    static const char *const bad[] = {
        "host", "host:", ":80", "host:0", "host:65536", "host:x", "http://host:80/path"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_not(egress_parse(arena, bad[i], &list, &n, &err), "%s", bad[i]);
}

Test(openshell_parts, the_policy_opens_the_tenants_root_and_the_listed_hosts)
{
    struct egress_endpoint list[] = {{"api.example", 443}, {"api.example", 80}};
    const Openshell__SandboxPolicy *open = policy_build(arena, "/mnt/root", list, 2);
    const Openshell__SandboxPolicy *closed = policy_build(arena, "/mnt/root", NULL, 0);
    bool found = false;

    for (size_t i = 0; i < open->filesystem->n_read_write; i++) {
        found |= strcmp(open->filesystem->read_write[i], "/mnt/root") == 0;
        cr_assert_str_neq(open->filesystem->read_write[i], "/");
    }
    cr_assert(found);
    cr_assert(eq(sz, open->n_network_policies, 2));
    cr_assert_str_neq(open->network_policies[0]->key, open->network_policies[1]->key);
    cr_assert_str_eq(open->network_policies[0]->value->endpoints[0]->host, "api.example");
    cr_assert(eq(sz, closed->n_network_policies, 0));
}

/* ---- messages ------------------------------------------------------------------------------------------- */

Test(openshell_parts, a_message_comes_back_as_it_went)
{
    Openshell__SandboxNameRequest request = OPENSHELL__SANDBOX_NAME_REQUEST__INIT, *again;
    const uint8_t *bytes;
    struct error err;
    size_t len;

    request.name = "dify-ba7816bf8f01cf";
    request.workspace = "default";
    bytes = message_pack(arena, &request.base, &len);
    again =
        message_unpack(arena, &openshell__sandbox_name_request__descriptor, bytes, len, "x", &err);
    cr_assert(again != NULL);
    cr_assert_str_eq(again->name, request.name);
    for (size_t cut = 1; cut < len;
         cut++) /* cut anywhere: refused or a shorter message, no crash */
        (void)message_unpack(arena, &openshell__sandbox_name_request__descriptor, bytes, cut, "x",
                             &err);
}

Test(openshell_parts, messages_that_nest_without_end_are_refused)
{
    enum { DEPTH = 5000 };
    static uint8_t bytes[DEPTH * 4];
    size_t at = sizeof(bytes);
    struct error err;

    /* field 1, length-delimited, around what is behind it */
    for (int i = 0; i < 60; i++) {
        size_t inner = sizeof(bytes) - at;
        bytes[--at] = (uint8_t)inner;
        bytes[--at] = 0x0a;
    }
    cr_assert(message_depth_ok(bytes + at, sizeof(bytes) - at));
    for (int i = 0; i < 2000; i++) {
        size_t inner = sizeof(bytes) - at;
        if (inner >= 128) {
            bytes[--at] = (uint8_t)(inner >> 7);
            bytes[--at] = (uint8_t)(inner | 0x80);
        } else {
            bytes[--at] = (uint8_t)inner;
        }
        bytes[--at] = 0x0a;
    }
    cr_assert_not(message_depth_ok(bytes + at, sizeof(bytes) - at));
    cr_assert(message_unpack(arena, &openshell__sandbox_response__descriptor, bytes + at,
                             sizeof(bytes) - at, "answer", &err) == NULL);
    cr_assert(eq(int, err.code, ERR_UPSTREAM_PROTOCOL));
}

Test(openshell_parts, the_driver_config_keeps_its_shape)
{
    struct json_object *json =
        json_tokener_parse("{\"a\":{\"list\":[1,\"two\",true,null,{\"x\":0.5}]},\"n\":-3}");
    Google__Protobuf__Struct *out = message_struct(arena, json), *again;
    const Google__Protobuf__ListValue *list;
    struct error err;
    size_t len;
    const uint8_t *bytes = message_pack(arena, &out->base, &len);

    json_object_put(json);
    again = message_unpack(arena, &google__protobuf__struct__descriptor, bytes, len, "x", &err);
    cr_assert(again != NULL && again->n_fields == 2);
    list = again->fields[0]->value->struct_value->fields[0]->value->list_value;
    cr_assert(eq(sz, list->n_values, 5));
    cr_assert(eq(dbl, list->values[0]->number_value, 1.0));
    cr_assert_str_eq(list->values[1]->string_value, "two");
    cr_assert(list->values[2]->bool_value);
    cr_assert(eq(int, (int)list->values[3]->kind_case, GOOGLE__PROTOBUF__VALUE__KIND_NULL_VALUE));
    cr_assert(eq(dbl, again->fields[1]->value->number_value, -3.0));
}

/* ---- scripts: secrets travel on stdin, quoted ----------------------------------------------------------- */

Test(openshell_parts, the_token_is_one_word_of_the_script)
{
    struct layout layout = {"/home/dify", "/home/dify/workspace"};
    const char *script = openshell_script_bootstrap(arena, &layout, "a'b$(touch /tmp/x)", 5004);

    cr_assert(strstr(script, "'a'\\''b$(touch /tmp/x)'") != NULL, "%s", script);
}
