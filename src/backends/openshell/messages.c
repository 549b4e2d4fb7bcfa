#include "backends/openshell/messages.h"

#include <json-c/json.h>
#include <string.h>

const uint8_t *message_pack(struct arena *arena, const ProtobufCMessage *message, size_t *ret_len)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = arena_alloc(arena, len);

    POST(protobuf_c_message_pack(message, bytes) == len);
    *ret_len = len;
    return bytes;
}

/* ---- depth ----------------------------------------------------------------------------------- */

static bool read_varint(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
    *ret = 0;
    for (int shift = 0; shift < 64 && *p < end; shift += 7) {
        uint8_t byte = *(*p)++;
        *ret |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

/* Skip one field. A length-delimited one comes back as [*ret_start, *p). */
static bool next_field(const uint8_t **p, const uint8_t *end, const uint8_t **ret_start)
{
    uint64_t tag, len;

    *ret_start = NULL;
    if (!read_varint(p, end, &tag) || tag >> 3 == 0)
        return false;
    switch (tag & 7) {
    case 0:
        return read_varint(p, end, &len);
    case 1:
        len = 8;
        break;
    case 2:
        if (!read_varint(p, end, &len))
            return false;
        *ret_start = *p;
        break;
    case 5:
        len = 4;
        break;
    default:
        return false;
    }
    if (len > (uint64_t)(end - *p))
        return false;
    *p += len;
    return true;
}

/* Follows the deepest chain only by a bounded explicit stack: the ends of the enclosing fields. A
 * field that does not parse as a message is a string; its frame is dropped without judgement. */
bool message_depth_ok(const uint8_t *bytes, size_t len)
{
    const uint8_t *ends[MESSAGE_DEPTH_MAX + 1];
    const uint8_t *p = bytes, *start;
    int depth = 0;

    ends[0] = bytes + len;
    while (depth >= 0) {
        if (p >= ends[depth]) {
            p = ends[depth];
            depth--;
            continue;
        }
        if (!next_field(&p, ends[depth], &start)) {
            p = ends[depth]; /* not a message after all */
            depth--;
            continue;
        }
        if (start != NULL && p > start) {
            if (depth == MESSAGE_DEPTH_MAX)
                return false;
            ends[++depth] = p;
            p = start;
        }
    }
    return true;
}

/* ---- unpacking ------------------------------------------------------------------------------- */

static void *arena_provider_alloc(void *arena, size_t size)
{
    return arena_alloc(arena, size);
}

static void arena_provider_free(void *arena, void *ptr)
{
    (void)arena;
    (void)ptr;
}

void *message_unpack(struct arena *arena, const ProtobufCMessageDescriptor *type,
                     const uint8_t *bytes, size_t len, const char *what, struct error *err)
{
    ProtobufCAllocator allocator = {arena_provider_alloc, arena_provider_free, arena};
    ProtobufCMessage *message = NULL;

    if (message_depth_ok(bytes, len))
        message = protobuf_c_message_unpack(type, &allocator, len, bytes);
    if (message == NULL)
        error_set(err, ERR_UPSTREAM_PROTOCOL, "the gateway's %s cannot be read", what);
    return message;
}

/* ---- JSON → Struct --------------------------------------------------------------------------- */

static Google__Protobuf__Value *value_of(struct arena *arena, struct json_object *json);

static Google__Protobuf__ListValue *list_of(struct arena *arena, struct json_object *json)
{
    Google__Protobuf__ListValue *list = ARENA_NEW(arena, Google__Protobuf__ListValue);
    size_t n = json_object_array_length(json);

    google__protobuf__list_value__init(list);
    list->values = arena_alloc(arena, n * sizeof(Google__Protobuf__Value *));
    list->n_values = n;
    for (size_t i = 0; i < n; i++)
        list->values[i] = value_of(arena, json_object_array_get_idx(json, i));
    return list;
}

/* Recursion is bounded by the JSON parser's own depth limit. */
static Google__Protobuf__Value *value_of(struct arena *arena, struct json_object *json)
{
    Google__Protobuf__Value *value = ARENA_NEW(arena, Google__Protobuf__Value);

    google__protobuf__value__init(value);
    switch (json_object_get_type(json)) {
    case json_type_boolean:
        value->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_BOOL_VALUE;
        value->bool_value = json_object_get_boolean(json);
        break;
    case json_type_int:
    case json_type_double:
        value->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_NUMBER_VALUE;
        value->number_value = json_object_get_double(json);
        break;
    case json_type_string:
        value->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_STRING_VALUE;
        value->string_value = arena_strdup(arena, json_object_get_string(json));
        break;
    case json_type_object:
        value->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_STRUCT_VALUE;
        value->struct_value = message_struct(arena, json);
        break;
    case json_type_array:
        value->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_LIST_VALUE;
        value->list_value = list_of(arena, json);
        break;
    case json_type_null:
    default:
        value->kind_case = GOOGLE__PROTOBUF__VALUE__KIND_NULL_VALUE;
        break;
    }
    return value;
}

Google__Protobuf__Struct *message_struct(struct arena *arena, struct json_object *object)
{
    Google__Protobuf__Struct *out = ARENA_NEW(arena, Google__Protobuf__Struct);
    size_t n = (size_t)json_object_object_length(object), i = 0;

    google__protobuf__struct__init(out);
    out->fields = arena_alloc(arena, n * sizeof(out->fields[0]));
    out->n_fields = n;
    json_object_object_foreach(object, key, value)
    {
        Google__Protobuf__Struct__FieldsEntry *entry =
            ARENA_NEW(arena, Google__Protobuf__Struct__FieldsEntry);
        google__protobuf__struct__fields_entry__init(entry);
        entry->key = arena_strdup(arena, key);
        entry->value = value_of(arena, value);
        out->fields[i++] = entry;
    }
    return out;
}
