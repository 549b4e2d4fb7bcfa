/* The Local backend over a shellctl that takes scope headers on a unix socket, as the embedded daemon
 * does (a fake that runs real scripts, unconfined). */
#include "support/fake_shellctl.h"
#include "support/local_world.h"

static void set_up(struct conformance_world *world)
{
    struct local_world *l = local_world_new(world);

    l->fake = fake_shellctl_new(world->loop, l->socket);
    local_world_backend(world, "http://shellctl", true);
}

static void tear_down(struct conformance_world *world)
{
    struct local_world *l = world->ctx;

    fake_shellctl_free(l->fake);
    local_world_remove(world);
}

static const struct conformance_target target = {
    .set_up = set_up,
    .tear_down = tear_down,
    .live = local_world_live,
    .lose = local_world_lose,
    .check_clean = local_world_check_clean,
    .bad_refs = local_world_bad_refs,
    .unknown_ref = "b-9:w-9",
    .runs_scripts = true,
    .names_are_kept = true,
};

CONFORMANCE(local_scoped, target)
