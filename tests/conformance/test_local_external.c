/* The Local backend over an external shellctl (a fake that runs real scripts). */
#include "support/fake_shellctl.h"
#include "support/local_world.h"

static void set_up(struct conformance_world *world)
{
    struct local_world *l = local_world_new(world);

    l->fake = fake_shellctl_new(world->loop, NULL);
    local_world_backend(world, fake_shellctl_url(l->fake), false);
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

CONFORMANCE(local_external, target)
