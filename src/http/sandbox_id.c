#include "http/sandbox_id.h"

#include "core/runtime/buf.h"
#include "core/runtime/quote.h"

#include <string.h>

static void add_ref(struct buf *out, const char *ref)
{
    for (; *ref != '\0'; ref++) {
        if (*ref == '~')
            buf_adds(out, "%7E");
        else if (*ref == '%')
            buf_adds(out, "%25");
        else
            buf_addc(out, *ref);
    }
}

const char *sandbox_id_of(struct arena *arena, const struct binding *binding)
{
    struct buf out = {0};
    const char *id;

    add_ref(&out, binding->binding_ref);
    if (strcmp(binding->binding_ref, binding->workspace_ref) != 0) {
        buf_addc(&out, '~');
        add_ref(&out, binding->workspace_ref);
    }
    id = arena_strdup(arena, buf_text(&out));
    buf_fini(&out);
    return id;
}

bool sandbox_id_split(struct arena *arena, const char *id, struct binding *ret)
{
    const char *split = strchr(id, '~');
    size_t len = split != NULL ? (size_t)(split - id) : strlen(id);
    char *binding_ref, *workspace_ref;

    if (len == 0 || !quote_url_decode(arena, id, len, &binding_ref))
        return false;
    workspace_ref = binding_ref;
    if (split != NULL && (split[1] == '\0' || strchr(split + 1, '~') != NULL ||
                          !quote_url_decode(arena, split + 1, strlen(split + 1), &workspace_ref)))
        return false;
    ret->binding_ref = binding_ref;
    ret->workspace_ref = workspace_ref;
    return true;
}
