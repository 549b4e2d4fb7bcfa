/* The CreateSandbox request. */
#include "backends/openshell/backend.h"

#include <string.h>

static Openshell__CreateSandboxRequest__LabelsEntry **
label_entries(struct arena *arena, const char *const *labels, size_t *ret_n)
{
    Openshell__CreateSandboxRequest__LabelsEntry **entries;
    size_t n = 0;

    while (labels[2 * n] != NULL)
        n++;
    entries = arena_alloc(arena, n * sizeof(*entries));
    for (size_t i = 0; i < n; i++) {
        entries[i] = ARENA_NEW(arena, Openshell__CreateSandboxRequest__LabelsEntry);
        openshell__create_sandbox_request__labels_entry__init(entries[i]);
        entries[i]->key = arena_strdup(arena, labels[2 * i]);
        entries[i]->value = arena_strdup(arena, labels[2 * i + 1]);
    }
    *ret_n = n;
    return entries;
}

const Openshell__CreateSandboxRequest *
openshell_create_request(struct openshell_backend *b, struct arena *arena, const char *name,
                         const char *const *labels, const char *marker, const char *writable_root)
{
    Openshell__CreateSandboxRequest *r = ARENA_NEW(arena, Openshell__CreateSandboxRequest);
    Openshell__SandboxSpec *spec = ARENA_NEW(arena, Openshell__SandboxSpec);
    Openshell__SandboxTemplate *template = ARENA_NEW(arena, Openshell__SandboxTemplate);
    Openshell__CreateSandboxRequest__AnnotationsEntry *mark =
        ARENA_NEW(arena, Openshell__CreateSandboxRequest__AnnotationsEntry);

    openshell__create_sandbox_request__init(r);
    openshell__sandbox_spec__init(spec);
    openshell__sandbox_template__init(template);
    openshell__create_sandbox_request__annotations_entry__init(mark);
    template->image = (char *)b->image;
    template->driver_config = b->driver_config;
    spec->template_ = template;
    spec->policy = policy_build(arena, writable_root, b->egress, b->n_egress);
    mark->key = arena_strdup(arena, "bindery.create");
    mark->value = arena_strdup(arena, marker);
    r->spec = spec;
    r->name = (char *)name;
    r->workspace = (char *)b->rpc.workspace;
    r->labels = label_entries(arena, labels, &r->n_labels);
    r->annotations = arena_alloc(arena, sizeof(*r->annotations));
    r->annotations[0] = mark;
    r->n_annotations = 1;
    return r;
}
