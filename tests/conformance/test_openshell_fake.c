/* The OpenShell backend over the fake gateway: an independent gRPC peer (grpcio with the official SDK's
 * messages) whose sandboxes are namespaces with a real shell and a real shellctl in them. Needs root,
 * bubblewrap and nsenter, as a gateway's driver does. */
#include "backends/openshell/messages.h"
#include "backends/openshell/openshell.h"
#include "support/conformance.h"
#include "support/fake_process.h"

#include <criterion/new/assert.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct fake_process fake; /* one for all worlds of this process */

static bool on_path(const char *program)
{
    char command[64];

    snprintf(command, sizeof(command), "command -v %s >/dev/null", program);
    return system(command) == 0;
}

static const char *what_is_missing(void)
{
    if (geteuid() != 0)
        return "root";
    if (!on_path("bwrap") || !on_path("nsenter"))
        return "bubblewrap or nsenter";
    return NULL;
}

static void needs(void)
{
    if (what_is_missing() != NULL)
        cr_skip_test("the fake gateway's sandboxes need %s", what_is_missing());
}

static void start_fake(void)
{
    const char *args[] = {"--bindery", getenv("BINDERY_BIN"), "--ready-delay", "0", NULL};
    const char *python = getenv("BINDERY_TEST_PYTHON");

    cr_assert(args[1] != NULL, "BINDERY_BIN names the program");
    fake_process_start(&fake, python != NULL ? python : "python3", "openshell_gateway", args);
}

static void set_up(struct conformance_world *world)
{
    char endpoint[64];
    struct error err;

    if (fake.port == 0)
        start_fake();
    else
        fake_process_request(&fake, "POST", "/reset", "{}", NULL, 0);
    snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", fake.port);
    world->backend = openshell_backend_new(
        world->loop, world->http,
        &(struct openshell_options){
            .endpoint = endpoint,
            .workspace = "",
            .insecure = true,
            .image = "sandbox:test",
            .driver_config = "{\"docker\":{\"mounts\":[{\"type\":\"volume\",\"source\":\"s\","
                             "\"target\":\"/mnt/dify-agent-shared\"}]}}",
            .shared_mount_path = "/mnt/dify-agent-shared",
            .egress_allow = "",
            .shellctl_token = "shellctl-token",
            .shellctl_port = 5004,
            .ready_timeout_ms = 20000,
            .exec_timeout_s = 20,
            .validation_timeout_ms = 5000,
            .instance_id = "conformance",
        },
        &err);
    cr_assert(world->backend != NULL, "%s", err.message);
}

static void tear_down(struct conformance_world *world)
{
    (void)world; /* the next set_up clears the gateway */
}

static struct json_object *state(void)
{
    static char answer[1 << 20];
    struct json_object *root;

    fake_process_request(&fake, "GET", "/state", "", answer, sizeof(answer));
    root = json_tokener_parse(answer);
    cr_assert(root != NULL);
    return root;
}

/* A record that is being deleted is on its way out, whatever anybody does. */
static int live(struct conformance_world *world)
{
    struct json_object *root = state();
    int n = 0;

    (void)world;
    json_object_object_foreach(json_object_object_get(root, "sandboxes"), name, sandbox)
    {
        (void)name;
        n += json_object_get_int(json_object_object_get(sandbox, "phase")) !=
             OPENSHELL__SANDBOX_PHASE__PHASE_DELETING;
    }
    json_object_put(root);
    return n;
}

static void lose(struct conformance_world *world, const char *binding_ref)
{
    char body[128];

    (void)world;
    snprintf(body, sizeof(body), "{\"name\":\"%s\"}", binding_ref);
    fake_process_request(&fake, "POST", "/vanish", body, NULL, 0);
}

/* No lease is open: no SSH session may be either. They are revoked in the background. */
static void check_clean(struct conformance_world *world)
{
    int sessions = -1;

    for (int i = 0; i < 500 && sessions != 0; i++) {
        struct json_object *root = state();

        sessions = json_object_get_int(json_object_object_get(root, "sessions"));
        json_object_put(root);
        if (sessions != 0)
            loop_turn(world->loop, false);
        if (sessions != 0)
            usleep(10000);
    }
    cr_assert(eq(int, sessions, 0), "SSH sessions are left");
}

static const char *const bad_refs[] = {"",     "dify-",         "dify-0123456789abcg",  "b-9:w-9",
                                       "../x", "gc-0123456789", "dify-0123456789abcd/", NULL};

static const struct conformance_target target = {
    .set_up = set_up,
    .tear_down = tear_down,
    .live = live,
    .lose = lose,
    .check_clean = check_clean,
    .bad_refs = bad_refs,
    .unknown_ref = "dify-0123456789abcd",
    .runs_scripts = true,
    .names_are_adopted = true,
};

CONFORMANCE_IN(openshell_fake, target, .init = needs)

/* Where the rest is skipped, something says so. */
Test(openshell_needs, are_told)
{
    if (what_is_missing() != NULL)
        fprintf(stderr, "SKIPPED: conformance over the fake OpenShell gateway needs %s\n",
                what_is_missing());
}
