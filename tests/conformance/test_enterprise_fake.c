/* The Enterprise backend over the fake gateway: a process of its own, written apart from the driver.
 * Jobs in its sandboxes are canned; that scripts run for real is the facade's test. */
#include "backends/enterprise/enterprise.h"
#include "support/conformance.h"
#include "support/fake_process.h"

#include <stdio.h>
#include <string.h>

static struct fake_process fake; /* one for all worlds of this process */

static void set_up(struct conformance_world *world)
{
    static const char *const args[] = {"--token", "key-1", NULL};
    char url[64];
    struct error err;

    if (fake.port == 0)
        fake_process_start(&fake, "python3", "enterprise_gateway", args);
    else
        fake_process_request(&fake, "PUT", "/__fake/reset", "", NULL, 0);
    snprintf(url, sizeof(url), "http://127.0.0.1:%d", fake.port);
    world->backend = enterprise_backend_new(world->loop, world->http,
                                            &(struct enterprise_options){
                                                .endpoint = url,
                                                .auth_token = "key-1",
                                                .workspace_dir = "/home/dify/workspace",
                                                .gateway_timeout_ms = 5000,
                                                .proxy_timeout_ms = 5000,
                                                .snapshot_timeout_ms = 5000,
                                                .validation_timeout_ms = 5000,
                                                .retry_budget_ms = 1000,
                                                .snapshots = true,
                                            },
                                            &err);
    cr_assert(world->backend != NULL, "%s", err.message);
}

static void tear_down(struct conformance_world *world)
{
    (void)world; /* the next set_up clears the gateway */
}

static int live(struct conformance_world *world)
{
    static char answer[1 << 16];
    const char *list, *end;
    int n = 0;

    (void)world;
    fake_process_request(&fake, "GET", "/__fake/sandboxes", "", answer, sizeof(answer));
    list = strstr(answer, "\"alive\": [");
    cr_assert(list != NULL);
    end = strchr(list, ']');
    for (list = strstr(list, "\"sb-"); list != NULL && list < end; list = strstr(list + 1, "\"sb-"))
        n++;
    return n;
}

static void lose(struct conformance_world *world, const char *binding_ref)
{
    char path[128];

    (void)world;
    snprintf(path, sizeof(path), "/__fake/sandboxes/%s", binding_ref);
    fake_process_request(&fake, "DELETE", path, "", NULL, 0);
}

static const char *const bad_refs[] = {"",          ".",     "..",       "a/b", "a\\b",
                                       "a\r\nX: y", "a\x7f", "\xff\xfe", "\t",  NULL};

static const struct conformance_target target = {
    .set_up = set_up,
    .tear_down = tear_down,
    .live = live,
    .lose = lose,
    .bad_refs = bad_refs,
    .unknown_ref = "sb-never-made",
};

CONFORMANCE(enterprise_fake, target)
