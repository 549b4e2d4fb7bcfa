#include "core/runtime/json.h"
#include "core/runtime/json_scan.h"

#include <json-c/json.h>
#include <string.h>

static bool refuse(struct error *err, size_t *ret_position, size_t position, const char *why)
{
    error_set(err, ERR_BAD_REQUEST, "not valid JSON at byte %zu: %s", position, why);
    if (ret_position != NULL)
        *ret_position = position;
    return false;
}

static void release(void *object)
{
    json_object_put(object);
}

/* One for the process: it holds a stack of JSON_DEPTH_MAX levels and no text between uses. */
static struct json_tokener *tokener(void)
{
    static struct json_tokener *shared;

    if (shared == NULL) {
        shared = json_tokener_new_ex(JSON_DEPTH_MAX);
        PRE(shared != NULL);
        json_tokener_set_flags(shared, JSON_TOKENER_STRICT);
    }
    json_tokener_reset(shared);
    return shared;
}

bool json_parse(struct arena *arena, const char *text, size_t len, struct json_object **ret,
                size_t *ret_position, struct error *err)
{
    struct json_tokener *tok = tokener();
    enum json_tokener_error status;
    struct json_object *object;
    const char *why;
    size_t end;

    *ret = NULL;
    if (len > INT32_MAX / 2)
        return refuse(err, ret_position, 0, "the text is too long");
    if (!json_scan(text, len, &end, &why))
        return refuse(err, ret_position, end, why);
    object = json_tokener_parse_ex(tok, text, (int)len);
    status = json_tokener_get_error(tok);
    end = json_tokener_get_parse_end(tok);
    if (status == json_tokener_continue) { /* a bare number or word ends with what follows it */
        object = json_tokener_parse_ex(tok, " ", 1);
        status = json_tokener_get_error(tok);
        end = len;
        if (status == json_tokener_continue)
            return refuse(err, ret_position, len, len == 0 ? "the text is empty" : "it ends early");
    }
    if (status != json_tokener_success)
        return refuse(err, ret_position, end, json_tokener_error_desc(status));
    if (object != NULL)
        arena_on_free(arena, release, object);
    while (end < len && strchr(" \t\r\n", text[end]) != NULL && text[end] != '\0')
        end++;
    if (end < len)
        return refuse(err, ret_position, end, "something follows the value");
    *ret = object;
    return true;
}
