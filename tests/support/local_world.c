#include "support/local_world.h"

#include "support/fake_shellctl.h"

#include <criterion/new/assert.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *const local_world_bad_refs[] = {
    "",       "b-1",        ":",         "b-1:",     ":w-1",      "b-1:w-1:x", "../x:w-1",
    "b-1:..", ".:w-1",      ".hid:w-1",  "b/1:w-1",  "b 1:w-1",   "b%2f1:w-1", "b\n1:w-1",
    "b;1:w",  "\xd0\xb1:w", "a?x=1:w-1", "a\\b:w-1", "$(id):w-1", NULL};

struct local_world *local_world_new(struct conformance_world *world)
{
    struct local_world *l = xcalloc(1, sizeof(*l));

    snprintf(l->dir, sizeof(l->dir), "/tmp/bindery-local.XXXXXX");
    cr_assert(mkdtemp(l->dir) != NULL);
    chmod(l->dir, 0755);
    snprintf(l->home_root, sizeof(l->home_root), "%s/homes", l->dir);
    snprintf(l->workspace_root, sizeof(l->workspace_root), "%s/workspaces", l->dir);
    snprintf(l->snapshot_root, sizeof(l->snapshot_root), "%s/homes/.snapshots", l->dir);
    snprintf(l->socket, sizeof(l->socket), "%s/s", l->dir);
    world->ctx = l;
    return l;
}

void local_world_backend(struct conformance_world *world, const char *base_url, bool embedded)
{
    struct local_world *l = world->ctx;
    struct local_options options = {
        .base_url = base_url,
        .unix_socket = embedded ? l->socket : NULL,
        .embedded = embedded,
        .home_root = l->home_root,
        .workspace_root = l->workspace_root,
        .snapshot_root = l->snapshot_root,
    };
    struct error error;

    world->backend = local_backend_new(world->loop, world->http, &options, &error);
    cr_assert(world->backend != NULL, "%s", error.message);
}

void local_world_remove(struct conformance_world *world)
{
    struct local_world *l = world->ctx;
    char command[256];

    snprintf(command, sizeof(command), "chmod -R u+rwX %s; rm -rf %s", l->dir, l->dir);
    cr_assert(eq(int, system(command), 0));
    free(l);
}

int local_world_count(const char *format, ...)
{
    char path[256];
    struct dirent *entry;
    int n = 0;
    va_list args;
    DIR *dir;

    va_start(args, format);
    vsnprintf(path, sizeof(path), format, args);
    va_end(args);
    dir = opendir(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        n += entry->d_name[0] != '.';
    if (dir != NULL)
        closedir(dir);
    return n;
}

int local_world_live(struct conformance_world *world)
{
    struct local_world *l = world->ctx;

    return local_world_count("%s", l->home_root) +
           local_world_count("%s/.bindery/staging", l->home_root);
}

void local_world_lose(struct conformance_world *world, const char *binding_ref)
{
    struct local_world *l = world->ctx;
    char command[256];

    snprintf(command, sizeof(command), "rm -rf %s/%.*s", l->home_root,
             (int)strcspn(binding_ref, ":"), binding_ref);
    cr_assert(eq(int, system(command), 0));
}

void local_world_check_clean(struct conformance_world *world)
{
    struct local_world *l = world->ctx;

    cr_assert(eq(int, local_world_count("%s", l->workspace_root), 0), "a workspace is left");
    cr_assert(eq(int, local_world_count("%s", l->snapshot_root), 0), "a snapshot is left");
    cr_assert(eq(int, local_world_count("%s/.bindery/records", l->home_root), 0));
    cr_assert(eq(int, local_world_count("%s/.bindery/records", l->snapshot_root), 0));
    cr_assert(eq(int, local_world_count("%s/.bindery/staging", l->snapshot_root), 0));
    if (l->fake != NULL && !world->tortured)
        cr_assert(eq(int, l->fake->live_jobs, 0), "a job is left");
}
