/* JSON from outside: what parses is written again and must parse to the same text; the reader must
 * bear any object. */
#include "fuzz.h"

#include "core/runtime/check.h"
#include "core/runtime/json.h"

#include <string.h>

static void read_as_a_request(struct arena *arena, struct json_object *root)
{
    struct json_reader reader, inner;
    bool inner_good = true;

    json_reader_init(&reader, arena, root);
    json_read_string(&reader, "tenant_id", 1);
    json_read_string_opt(&reader, "home_snapshot_ref", 1);
    json_read_int(&reader, "max_bytes", false, 262144, 1, 262144);
    json_read_bool(&reader, "destroy_workspace", true, false, true);
    if (json_read_object(&reader, "execution_context", true, &inner)) {
        json_read_string(&inner, "tenant_id", 0);
        inner_good = json_reader_finish(&inner, false, NULL);
    }
    bool good = json_reader_finish(&reader, false, NULL);
    POST(inner_good || !good);
    POST(good == (reader.count == 0));
}

static void write_again(struct arena *arena, struct json_object *root)
{
    struct buf first = {0}, second = {0};
    struct json_object *again = NULL;
    struct error error;

    json_value(&(struct json_writer){.out = &first}, root);
    POST(json_parse(arena, first.data, first.len, &again, NULL, &error));
    json_value(&(struct json_writer){.out = &second}, again);
    POST(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    buf_fini(&first);
    buf_fini(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct arena *arena = arena_new();
    struct json_object *root = NULL;
    struct error error;

    if (json_parse(arena, (const char *)bytes, len, &root, NULL, &error)) {
        read_as_a_request(arena, root);
        write_again(arena, root);
    }
    arena_free(arena);
    return 0;
}
