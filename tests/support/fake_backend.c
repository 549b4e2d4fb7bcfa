#include "support/fake_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_thing {
    struct list link;
    char ref[64], other[32];
    char binding_id[64]; /* "" = not known */
    bool hidden;
};

struct fake_plane {
    struct plane plane; /* first */
    struct list link;
};

/* ---- things that exist ----------------------------------------------------------------------- */

static struct fake_thing *find_thing(struct list *head, const char *ref)
{
    for (struct list *it = head->next; it != head; it = it->next) {
        struct fake_thing *thing = container_of(it, struct fake_thing, link);

        if (strcmp(thing->ref, ref) == 0)
            return thing;
    }
    return NULL;
}

static struct fake_thing *add_thing(struct fake_backend *fake, struct list *head, char kind,
                                    int *live)
{
    struct fake_thing *thing = xcalloc(1, sizeof(*thing));

    fake->made++;
    snprintf(thing->ref, sizeof(thing->ref), "%c%d", kind, fake->made);
    snprintf(thing->other, sizeof(thing->other), "w%d", fake->made);
    list_push(head, &thing->link);
    (*live)++;
    return thing;
}

static void drop_thing(struct list *head, const char *ref, int *live)
{
    struct fake_thing *thing = find_thing(head, ref);

    if (thing == NULL)
        return;
    list_remove(&thing->link);
    free(thing);
    (*live)--;
}

const char *fake_backend_add(struct fake_backend *fake)
{
    return add_thing(fake, &fake->bindings, 'b', &fake->live_bindings)->ref;
}

void fake_backend_add_snapshot(struct fake_backend *fake, const char *ref)
{
    struct fake_thing *thing = add_thing(fake, &fake->snapshots, 's', &fake->live_snapshots);

    snprintf(thing->ref, sizeof(thing->ref), "%s", ref);
}

void fake_backend_lose(struct fake_backend *fake, const char *binding_ref)
{
    drop_thing(&fake->bindings, binding_ref, &fake->live_bindings);
}

void fake_backend_hide(struct fake_backend *fake, const char *binding_ref)
{
    find_thing(&fake->bindings, binding_ref)->hidden = true;
}

static struct plane *new_plane(struct fake_backend *fake, const char *ref)
{
    struct fake_plane *p = xcalloc(1, sizeof(*p));

    p->plane.backend = &fake->backend;
    p->plane.binding_ref = xstrdup(ref);
    p->plane.endpoint = fake->endpoint;
    p->plane.layout = (struct layout){"/home/fake", "/workspace/fake"};
    list_push(&fake->planes, &p->link);
    fake->live_planes++;
    return &p->plane;
}

static void drop_plane(struct fake_backend *fake, struct plane *plane)
{
    struct fake_plane *p = container_of(plane, struct fake_plane, plane);

    list_remove(&p->link);
    free(plane->binding_ref);
    free(p);
    fake->live_planes--;
}

static struct binding find_by_id(struct fake_backend *fake, struct arena *arena, const char *id)
{
    LIST_FOREACH_SAFE (it, next, &fake->bindings) {
        struct fake_thing *thing = container_of(it, struct fake_thing, link);
        if (strcmp(thing->binding_id, id) == 0)
            return (struct binding){arena_strdup(arena, thing->ref),
                                    arena_strdup(arena, thing->other)};
    }
    return (struct binding){0};
}

static void list_all(struct fake_backend *fake, struct arena *arena, struct backend_item **ret,
                     size_t *ret_n)
{
    *ret = arena_alloc(arena, (size_t)(fake->live_bindings + 1) * sizeof(**ret));
    *ret_n = 0;
    LIST_FOREACH_SAFE (it, next, &fake->bindings) {
        struct fake_thing *thing = container_of(it, struct fake_thing, link);
        if (thing->hidden)
            continue;
        (*ret)[(*ret_n)++] = (struct backend_item){
            .binding_ref = arena_strdup(arena, thing->ref),
            .workspace_ref = arena_strdup(arena, thing->other),
            .binding_id =
                thing->binding_id[0] != '\0' ? arena_strdup(arena, thing->binding_id) : NULL,
            .binding_id_is_digest = fake->names_bindings};
    }
}

/* ---- one operation for every kind of call ---------------------------------------------------- */

struct fake_op {
    struct op op;
    struct fake_backend *fake;
    enum fake_call call;
    struct binding made;
    void *in, *out; /* per kind */
    const char *ref;
};

enum fake_state { FAKE_START, FAKE_WAITING, FAKE_UNDOING };
static const char *const fake_states[] = {"start", "waiting", "undoing"};

static void act(struct fake_op *t)
{
    struct fake_backend *fake = t->fake;
    struct op *op = &t->op;
    struct command_result *result = t->out;
    struct fake_thing *thing;

    switch (t->call) {
    case FAKE_CREATE:
        thing = add_thing(fake, &fake->bindings, 'b', &fake->live_bindings);
        snprintf(thing->binding_id, sizeof(thing->binding_id), "%s", t->ref);
        if (fake->names_bindings)
            snprintf(thing->ref, sizeof(thing->ref), "n-%s", t->ref);
        *(struct binding *)t->out = (struct binding){arena_strdup(op->arena, thing->ref),
                                                     arena_strdup(op->arena, thing->other)};
        break;
    case FAKE_ACQUIRE:
    case FAKE_REOPEN:
        if (find_thing(&fake->bindings, t->ref) == NULL)
            op_fail(op, ERR_BINDING_LOST, "%s does not exist", t->ref);
        else
            *(struct plane **)t->out = new_plane(fake, t->ref);
        break;
    case FAKE_RELEASE:
        break;
    case FAKE_DESTROY:
        if (fake->poisoned != NULL && strcmp(fake->poisoned, t->ref) == 0)
            op_fail(op, ERR_BINDING_DESTROY, "%s is poisoned", t->ref);
        else
            drop_thing(&fake->bindings, t->ref, &fake->live_bindings);
        break;
    case FAKE_SNAPSHOT_CREATE:
        thing = add_thing(fake, &fake->snapshots, 's', &fake->live_snapshots);
        if (fake->names_snapshots)
            snprintf(thing->ref, sizeof(thing->ref), "s-%s", t->ref);
        *(const char **)t->out = arena_strdup(op->arena, thing->ref);
        break;
    case FAKE_SNAPSHOT_DELETE:
        drop_thing(&fake->snapshots, t->ref, &fake->live_snapshots);
        break;
    case FAKE_RUN:
        *result = (struct command_result){
            .status = "exited",
            .exit_code = fake->exit_code,
            .output = fake->output,
            .output_len = strlen(fake->output),
        };
        break;
    case FAKE_FIND:
        *(struct binding *)t->out = find_by_id(fake, op->arena, t->ref);
        break;
    case FAKE_LIST:
        list_all(fake, op->arena, t->in, t->out);
        break;
    case FAKE_CALLS:
        break;
    }
}

static enum op_poll fake_step(struct op *op)
{
    struct fake_op *t = container_of(op, struct fake_op, op);
    struct fake_script *script = &t->fake->script[t->call];

    switch ((enum fake_state)op->state) {
    case FAKE_START:
        if (t->call == FAKE_ACQUIRE && ++t->fake->running > t->fake->most_running)
            t->fake->most_running = t->fake->running;
        script->calls++;
        AWAIT(op, FAKE_WAITING,
              op_sleep(op, script->delay_ms < 0 ? INT64_MAX / 2000000 : script->delay_ms));
        if (script->fail_times > 0) {
            script->fail_times--;
            if (script->answer_lost) {
                act(t);
                if (t->out != NULL)
                    memset(t->out, 0, sizeof(struct binding));
            }
            op_fail(op, script->fail_code, "scripted failure");
            if (script->answer_lost)
                op_error_edit(op)->admitted = ADMITTED_UNKNOWN;
        } else {
            act(t);
        }
    undo:
        if (t->call == FAKE_ACQUIRE)
            t->fake->running--;
        if (t->call == FAKE_RELEASE)
            drop_plane(t->fake, t->in);
        return OP_DONE;
    case FAKE_UNDOING:
        break;
    }
    unreachable_state(op);
}

static const struct op_type fake_type = {"fake_backend", fake_states, 3, fake_step, NULL};

static void begin(struct backend *b, struct op *op, enum fake_call call, const char *ref, void *in,
                  void *out)
{
    struct fake_op *t = OP_CHILD(op, &fake_type, fake_op);

    t->fake = container_of(b, struct fake_backend, backend);
    t->call = call;
    t->ref = ref;
    t->in = in;
    t->out = out;
    op_await_child(op, &t->op);
}

/* ---- the table ------------------------------------------------------------------------------- */

static void fake_create(struct backend *b, struct op *op, const struct binding_spec *spec,
                        struct binding *ret)
{
    begin(b, op, FAKE_CREATE, spec->binding_id, NULL, ret);
}

static void fake_acquire(struct backend *b, struct op *op, const char *ref, struct plane **ret)
{
    begin(b, op, FAKE_ACQUIRE, ref, NULL, ret);
}

static void fake_reopen(struct backend *b, struct op *op, const char *ref, struct plane **ret)
{
    begin(b, op, FAKE_REOPEN, ref, NULL, ret);
}

static void fake_release(struct backend *b, struct op *op, struct plane *plane)
{
    begin(b, op, FAKE_RELEASE, NULL, plane, NULL);
}

static void fake_destroy(struct backend *b, struct op *op, const struct destroy_spec *spec)
{
    begin(b, op, FAKE_DESTROY, spec->binding_ref, NULL, NULL);
}

static void fake_snapshot_create(struct backend *b, struct op *op, const struct snapshot_spec *spec,
                                 struct plane *plane, const char **ret)
{
    (void)plane;
    begin(b, op, FAKE_SNAPSHOT_CREATE, spec->home_snapshot_id, NULL, ret);
}

static const char *fake_snapshot_ref_of(struct backend *b, struct arena *arena,
                                        const struct snapshot_spec *spec)
{
    if (!container_of(b, struct fake_backend, backend)->names_snapshots)
        return NULL;
    return arena_printf(arena, "s-%s", spec->home_snapshot_id);
}

static void fake_snapshot_delete(struct backend *b, struct op *op, const char *ref)
{
    begin(b, op, FAKE_SNAPSHOT_DELETE, ref, NULL, NULL);
}

static void fake_run(struct backend *b, struct op *op, struct plane *plane,
                     const struct command_spec *spec, struct command_result *ret)
{
    (void)spec;
    (void)plane;
    begin(b, op, FAKE_RUN, NULL, NULL, ret);
}

static void fake_find(struct backend *b, struct op *op, const struct binding_spec *spec,
                      struct binding *ret)
{
    begin(b, op, FAKE_FIND, spec->binding_id, NULL, ret);
}

static const char *fake_binding_ref_of(struct backend *b, struct arena *arena,
                                       const struct binding_spec *spec)
{
    if (!container_of(b, struct fake_backend, backend)->names_bindings)
        return NULL;
    return arena_printf(arena, "n-%s", spec->binding_id);
}

static void fake_list(struct backend *b, struct op *op, const char **cursor,
                      struct backend_item **ret, size_t *ret_n)
{
    *cursor = NULL;
    begin(b, op, FAKE_LIST, NULL, ret, ret_n);
}

static bool fake_check_ref(struct backend *b, const char *ref, struct error *err)
{
    (void)b;
    if (strchr(ref, '/') == NULL)
        return true;
    error_set(err, ERR_INVALID_REF, "no ref of ours holds a slash");
    return false;
}

static bool fake_answer_means_lost(struct backend *b, int status, const char *body, size_t len)
{
    (void)b;
    (void)len;
    return status == 404 && strstr(body, "sandbox_not_found") != NULL;
}

static bool fake_ready(struct backend *b, struct error *err)
{
    (void)b;
    (void)err;
    return true;
}

static void fake_free(struct backend *b)
{
    fake_backend_free(container_of(b, struct fake_backend, backend));
}

static const struct backend_ops fake_ops = {
    .name = "fake",
    .create_binding = fake_create,
    .acquire = fake_acquire,
    .reopen = fake_reopen,
    .release = fake_release,
    .destroy_binding = fake_destroy,
    .snapshot_create = fake_snapshot_create,
    .snapshot_ref_of = fake_snapshot_ref_of,
    .binding_ref_of = fake_binding_ref_of,
    .snapshot_delete = fake_snapshot_delete,
    .run_command = fake_run,
    .find = fake_find,
    .list = fake_list,
    .answer_means_lost = fake_answer_means_lost,
    .check_binding_ref = fake_check_ref,
    .check_snapshot_ref = fake_check_ref,
    .ready = fake_ready,
    .free = fake_free,
};

static void count_orphan(void *ctx, const struct backend *b, enum orphan_kind kind, const char *ref,
                         const struct binding_spec *spec, const struct error *why)
{
    struct fake_backend *fake = ctx;

    (void)b;
    (void)kind;
    (void)ref;
    (void)spec;
    (void)why;
    fake->orphans++;
}

struct fake_backend *fake_backend_new(struct loop *loop, unsigned caps)
{
    struct fake_backend *fake = xcalloc(1, sizeof(*fake));

    fake->backend.ops = &fake_ops;
    fake->backend.caps = caps;
    fake->backend.loop = loop;
    fake->backend.orphans = (struct orphan_sink){count_orphan, fake};
    fake->output = "";
    fake->endpoint =
        (struct endpoint){.base_url = "http://127.0.0.1:1", .token = "inner", .peer = "fake"};
    list_init(&fake->bindings);
    list_init(&fake->snapshots);
    list_init(&fake->planes);
    return fake;
}

void fake_backend_free(struct fake_backend *fake)
{
    LIST_FOREACH_SAFE (it, tmp, &fake->bindings)
        free(container_of(it, struct fake_thing, link));
    LIST_FOREACH_SAFE (it, tmp, &fake->snapshots)
        free(container_of(it, struct fake_thing, link));
    LIST_FOREACH_SAFE (it, tmp, &fake->planes) {
        struct fake_plane *p = container_of(it, struct fake_plane, link);

        free(p->plane.binding_ref);
        free(p);
    }
    free(fake);
}

void fake_backend_fail(struct fake_backend *fake, enum fake_call call, int times,
                       enum err_code code)
{
    fake->script[call].fail_times = times;
    fake->script[call].fail_code = code;
}
