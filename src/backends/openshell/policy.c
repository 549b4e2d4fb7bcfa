#include "backends/openshell/policy.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static char **paths(struct arena *arena, const char *const *list, size_t n, const char *more)
{
    char **out = arena_alloc(arena, (n + 1) * sizeof(char *));

    for (size_t i = 0; i < n; i++)
        out[i] = arena_strdup(arena, list[i]);
    if (more != NULL)
        out[n] = arena_strdup(arena, more);
    return out;
}

static bool egress_item(struct arena *arena, char *item, struct egress_endpoint *ret)
{
    char *colon = strrchr(item, ':'), *end = NULL;
    unsigned long port;

    if (colon == NULL || colon == item || strchr(item, '/') != NULL ||
        !isdigit((unsigned char)colon[1]))
        return false;
    port = strtoul(colon + 1, &end, 10);
    if (*end != '\0' || port < 1 || port > 65535)
        return false;
    ret->host = arena_memdup(arena, item, (size_t)(colon - item));
    ret->port = (uint32_t)port;
    return true;
}

bool egress_parse(struct arena *arena, const char *text, struct egress_endpoint **ret,
                  size_t *ret_n, struct error *err)
{
    char *copy = arena_strdup(arena, text), *rest = copy, *item;
    size_t n = 0, cap = 1;

    for (const char *c = text; *c != '\0'; c++)
        cap += *c == ',';
    *ret = arena_alloc(arena, cap * sizeof(**ret));
    while ((item = strsep(&rest, ",")) != NULL) {
        item += strspn(item, " \t");
        item[strcspn(item, " \t")] = '\0';
        if (item[0] == '\0')
            continue;
        if (!egress_item(arena, item, &(*ret)[n++])) {
            error_set(err, ERR_BAD_REQUEST,
                      "DIFY_AGENT_OPENSHELL_EGRESS_ALLOW: \"%s\" is not host:port", item);
            return false;
        }
    }
    *ret_n = n;
    return true;
}

/* `allow_<index>_<host_port with everything but letters and digits as _>`. */
static char *rule_name(struct arena *arena, size_t index, const struct egress_endpoint *e)
{
    char *name = arena_printf(arena, "allow_%zu_%s_%u", index, e->host, e->port);

    for (char *c = name; *c != '\0'; c++) {
        if (!isalnum((unsigned char)*c))
            *c = '_';
    }
    return name;
}

/* Any method and path of one endpoint, from any binary. */
static Openshell__NetworkPolicyRule *network_rule(struct arena *arena, char *name,
                                                  const struct egress_endpoint *e)
{
    Openshell__NetworkPolicyRule *rule = ARENA_NEW(arena, Openshell__NetworkPolicyRule);
    Openshell__NetworkEndpoint *endpoint = ARENA_NEW(arena, Openshell__NetworkEndpoint);
    Openshell__NetworkBinary *binary = ARENA_NEW(arena, Openshell__NetworkBinary);
    Openshell__L7Rule *l7 = ARENA_NEW(arena, Openshell__L7Rule);
    Openshell__L7Allow *allow = ARENA_NEW(arena, Openshell__L7Allow);

    openshell__network_policy_rule__init(rule);
    openshell__network_endpoint__init(endpoint);
    openshell__network_binary__init(binary);
    openshell__l7_rule__init(l7);
    openshell__l7_allow__init(allow);
    allow->method = arena_strdup(arena, "*");
    allow->path = arena_strdup(arena, "/**");
    l7->allow = allow;
    endpoint->host = arena_strdup(arena, e->host);
    endpoint->port = e->port;
    endpoint->protocol = arena_strdup(arena, "rest");
    endpoint->enforcement = arena_strdup(arena, "enforce");
    endpoint->rules = (void *)arena_memdup(arena, &l7, sizeof(l7));
    endpoint->n_rules = 1;
    binary->path = arena_strdup(arena, "/**");
    rule->name = name;
    rule->endpoints = (void *)arena_memdup(arena, &endpoint, sizeof(endpoint));
    rule->n_endpoints = 1;
    rule->binaries = (void *)arena_memdup(arena, &binary, sizeof(binary));
    rule->n_binaries = 1;
    return rule;
}

Openshell__SandboxPolicy *policy_build(struct arena *arena, const char *writable_root,
                                       const struct egress_endpoint *egress, size_t n_egress)
{
    static const char *const read_only[] = {"/usr", "/lib", "/proc",   "/dev/urandom",
                                            "/app", "/etc", "/var/log"};
    static const char *const read_write[] = {"/tmp", "/dev/null", "/dev/pts"};
    Openshell__SandboxPolicy *policy = ARENA_NEW(arena, Openshell__SandboxPolicy);
    Openshell__FilesystemPolicy *files = ARENA_NEW(arena, Openshell__FilesystemPolicy);
    Openshell__LandlockPolicy *landlock = ARENA_NEW(arena, Openshell__LandlockPolicy);

    openshell__sandbox_policy__init(policy);
    openshell__filesystem_policy__init(files);
    openshell__landlock_policy__init(landlock);
    files->include_workdir = 1;
    files->read_only = paths(arena, read_only, 7, NULL);
    files->n_read_only = 7;
    files->read_write = paths(arena, read_write, 3, writable_root);
    files->n_read_write = 4;
    landlock->compatibility = arena_strdup(arena, "best_effort");
    policy->version = 1;
    policy->filesystem = files;
    policy->landlock = landlock;
    policy->n_network_policies = n_egress;
    policy->network_policies = arena_alloc(arena, n_egress * sizeof(policy->network_policies[0]));
    for (size_t i = 0; i < n_egress; i++) {
        Openshell__SandboxPolicy__NetworkPoliciesEntry *entry =
            ARENA_NEW(arena, Openshell__SandboxPolicy__NetworkPoliciesEntry);
        openshell__sandbox_policy__network_policies_entry__init(entry);
        entry->key = rule_name(arena, i, &egress[i]);
        entry->value = network_rule(arena, entry->key, &egress[i]);
        policy->network_policies[i] = entry;
    }
    return policy;
}
