#include "http/handlers_files.h"

#include "core/domain/binding_files.h"
#include "core/runtime/config.h"
#include "core/runtime/json.h"
#include "http/codec.h"
#include "http/handler.h"

#include <string.h>

struct files_call {
    struct handler_call call;
    const char *path;  /* as asked, echoed in the answer */
    int64_t max_bytes; /* read only; 0 = list */
    struct binding_command command;
    struct command_result result;
};

/* The outcomes of section 3: gone, a wrong ref, a wrong path, or not reachable. */
static void files_map_error(struct error *err)
{
    switch ((int)err->code) {
    case ERR_BINDING_LOST:
        err->code = ERR_BINDING_NOT_FOUND;
        break;
    case ERR_INVALID_REF:
        err->code = ERR_INVALID_BINDING_PATH;
        break;
    case ERR_BACKEND_UNAVAILABLE:
    case ERR_INVALID_BINDING_PATH:
    case ERR_OVERLOADED:
    case ERR_RATE_LIMITED:
    case ERR_DRAINING:
    case ERR_CANCELLED:
    case ERR_INTERNAL:
        break;
    default:
        err->code = ERR_BINDING_UNAVAILABLE;
        break;
    }
}

static void files_prepare(void *ctx, struct arena *arena, const struct layout *layout,
                          struct command_spec *spec)
{
    struct files_call *t = ctx;
    const char *path = binding_file_path(arena, layout, t->path);

    spec->script = t->max_bytes > 0 ? binding_files_read_script(arena, path, t->max_bytes)
                                    : binding_files_list_script(arena, path);
    spec->timeout_ms = BINDING_FILES_TIMEOUT_MS;
    spec->max_output = BINDING_FILES_MAX_OUTPUT;
    spec->stdio = true;
}

static void files_start(struct handler_call *call)
{
    struct files_call *t = container_of(call, struct files_call, call);

    t->command.prepare = files_prepare;
    t->command.ctx = t;
    broker_run_on_binding(call->broker, &call->op, &t->command, &t->result);
}

static bool check_path(struct exchange *x, const char *path)
{
    struct error err;

    if (strlen(path) <= BINDING_FILES_MAX_PATH)
        return true;
    error_set(&err, ERR_INVALID_BINDING_PATH, "the path has more than %d bytes",
              BINDING_FILES_MAX_PATH);
    exchange_reply_error(x, &err);
    return false;
}

static void files_run(struct files_call *t, void (*reply)(struct handler_call *call))
{
    t->call.start = files_start;
    t->call.reply = reply;
    t->call.map_error = files_map_error;
    handler_run(&t->call);
}

static void member_optional_int(struct json_writer *w, const char *key, int64_t value)
{
    if (value < 0)
        json_member_null(w, key);
    else
        json_member_int(w, key, value);
}

/* ---- list ------------------------------------------------------------------------------------ */

static void list_write(struct json_writer *w, const char *path,
                       const struct binding_listing *listing)
{
    json_member_string(w, "path", path);
    json_key(w, "entries");
    json_array_begin(w);
    for (size_t i = 0; i < listing->n_entries; i++) {
        const struct binding_file *file = &listing->entries[i];

        json_object_begin(w);
        json_key(w, "name");
        json_string_n(w, file->name, file->name_len);
        json_member_string(w, "type", file->type);
        member_optional_int(w, "size", file->size);
        json_member_int(w, "mtime", file->mtime);
        json_object_finish(w);
    }
    json_array_finish(w);
    json_member_bool(w, "truncated", listing->truncated);
}

static void list_reply(struct handler_call *call)
{
    struct files_call *t = container_of(call, struct files_call, call);
    struct binding_listing listing;
    struct buf out = {0};
    struct json_writer w = {.out = &out};
    struct error err;

    if (!binding_files_parse_list(call->x->arena, &t->result, &listing, &err)) {
        exchange_reply_error(call->x, &err);
        return;
    }
    json_object_begin(&w);
    list_write(&w, t->path, &listing);
    json_object_finish(&w);
    exchange_reply_json(call->x, 200, &out);
    buf_fini(&out);
}

static void handle_list(struct exchange *x)
{
    struct files_call *t = HANDLER_CALL(x, files_call);
    struct json_reader r;

    if (!handler_read(x, &r) || !handler_need_backend(x))
        return;
    t->command.binding_ref = json_read_string(&r, "backend_binding_ref", 1);
    t->path = json_read_string_opt(&r, "path", 0);
    if (t->path == NULL)
        t->path = ".";
    if (handler_accept(x, &r) && check_path(x, t->path))
        files_run(t, list_reply);
}

/* ---- read ------------------------------------------------------------------------------------ */

static void read_reply(struct handler_call *call)
{
    struct files_call *t = container_of(call, struct files_call, call);
    struct binding_content content;
    struct buf out = {0};
    struct json_writer w = {.out = &out};
    struct error err;

    if (!binding_files_parse_read(call->x->arena, &t->result, t->max_bytes, &content, &err)) {
        exchange_reply_error(call->x, &err);
        return;
    }
    json_object_begin(&w);
    json_member_string(&w, "path", t->path);
    json_member_int(&w, "size", content.size);
    json_member_bool(&w, "truncated", content.truncated);
    json_member_bool(&w, "binary", content.binary);
    json_key(&w, "text");
    if (content.binary)
        json_null(&w);
    else
        json_string_n(&w, content.text, content.text_len);
    json_object_finish(&w);
    exchange_reply_json(call->x, 200, &out);
    buf_fini(&out);
}

static void handle_read(struct exchange *x)
{
    struct files_call *t = HANDLER_CALL(x, files_call);
    struct json_reader r;

    if (!handler_read(x, &r) || !handler_need_backend(x))
        return;
    t->command.binding_ref = json_read_string(&r, "backend_binding_ref", 1);
    t->path = json_read_string(&r, "path", 1);
    t->max_bytes =
        json_read_int(&r, "max_bytes", false, BINDING_FILES_MAX_BYTES, 1, BINDING_FILES_MAX_BYTES);
    if (handler_accept(x, &r) && check_path(x, t->path))
        files_run(t, read_reply);
}

/* ---- download: needs an Agent Stub, through which the sandbox uploads the file --------------- */

static void handle_download(struct exchange *x)
{
    const struct config *config = exchange_app(x)->config;
    struct json_reader r;
    struct error err;
    bool has_user;

    if (!handler_read(x, &r) || !handler_need_backend(x))
        return;
    json_read_string(&r, "backend_binding_ref", 1);
    json_read_string(&r, "path", 1);
    has_user = codec_read_execution_context(&r);
    if (!handler_accept(x, &r))
        return;
    if (!has_user)
        error_set(&err, ERR_INVALID_EXECUTION_CONTEXT,
                  "execution_context needs user_id and user_from");
    else if (config->stub_api_base_url == NULL || config->server_secret_key == NULL)
        error_set(&err, ERR_AGENT_STUB_UNAVAILABLE, "no Agent Stub is configured");
    else
        error_set(&err, ERR_NOT_IMPLEMENTED,
                  "file downloads through an Agent Stub are not offered by this version");
    exchange_reply_error(x, &err);
}

/* ---- routes ---------------------------------------------------------------------------------- */

enum { BODY_MAX = 1024 * 1024 };

static const char list_request[] =
    "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"backend_binding_ref\"],"
    "\"properties\":{\"backend_binding_ref\":{\"type\":\"string\",\"minLength\":1},"
    "\"path\":{\"type\":\"string\",\"default\":\".\"}}}";
static const char list_response[] =
    "{\"type\":\"object\",\"required\":[\"path\",\"entries\",\"truncated\"],\"properties\":{"
    "\"path\":{\"type\":\"string\"},\"truncated\":{\"type\":\"boolean\"},\"entries\":{\"type\":"
    "\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},"
    "\"type\":{\"enum\":[\"file\",\"dir\",\"symlink\",\"other\"]},"
    "\"size\":{\"type\":[\"integer\",\"null\"]},\"mtime\":{\"type\":[\"integer\",\"null\"]}}}}}}";
static const char read_request[] =
    "{\"type\":\"object\",\"additionalProperties\":false,"
    "\"required\":[\"backend_binding_ref\",\"path\"],"
    "\"properties\":{\"backend_binding_ref\":{\"type\":\"string\",\"minLength\":1},"
    "\"path\":{\"type\":\"string\",\"minLength\":1},"
    "\"max_bytes\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":262144,\"default\":262144}}}";
static const char read_response[] =
    "{\"type\":\"object\",\"required\":[\"path\",\"size\",\"truncated\",\"binary\",\"text\"],"
    "\"properties\":{\"path\":{\"type\":\"string\"},\"size\":{\"type\":[\"integer\",\"null\"]},"
    "\"truncated\":{\"type\":\"boolean\"},\"binary\":{\"type\":\"boolean\"},"
    "\"text\":{\"type\":[\"string\",\"null\"]}}}";
static const char download_request[] =
    "{\"type\":\"object\",\"additionalProperties\":false,"
    "\"required\":[\"backend_binding_ref\",\"path\",\"execution_context\"],"
    "\"properties\":{\"backend_binding_ref\":{\"type\":\"string\",\"minLength\":1},"
    "\"path\":{\"type\":\"string\",\"minLength\":1},\"execution_context\":{\"type\":\"object\"}}}";

const struct route files_routes[] = {
    {"POST", "/execution-bindings/files/list", AUTH_API, ERRORS_DETAIL, ROUTE_VALIDATION_400,
     BODY_MAX, handle_list, "List a directory of a binding", list_request, list_response},
    {"POST", "/execution-bindings/files/read", AUTH_API, ERRORS_DETAIL, ROUTE_VALIDATION_400,
     BODY_MAX, handle_read, "Read the beginning of a text file of a binding", read_request,
     read_response},
    {"POST", "/execution-bindings/files/download", AUTH_API, ERRORS_DETAIL, 0, BODY_MAX,
     handle_download, "Upload a file of a binding through the Agent Stub", download_request, NULL},
    {0},
};
