#include "backends/shellctl/reply.h"

#include "core/runtime/json.h"
#include "core/runtime/quote.h"

#include <ctype.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { SNIPPET_MAX = 160 };

/* ---- errors --------------------------------------------------------------------------------- */

static void not_understood(const char *peer, const char *why, struct error *err)
{
    error_set(err, ERR_UPSTREAM_PROTOCOL, "%s: the answer is not what shellctl's protocol says: %s",
              peer, why);
    if (err != NULL)
        err->admitted = ADMITTED_YES;
}

/* A foreign text for a message: one line, cut. */
static const char *snippet(struct arena *arena, const char *text, size_t max)
{
    size_t len = strnlen(text, max);
    char *copy;

    if (len == max) {
        while (len > 0 && ((unsigned char)text[len] & 0xC0) == 0x80)
            len--;
    }
    copy = arena_memdup(arena, text, len);
    for (char *p = copy; *p != '\0'; p++)
        *p = (char)((unsigned char)*p < 0x20 || *p == 0x7f ? ' ' : *p);
    return quote_is_utf8(copy, len) ? copy : "(not text)";
}

static const char *text_member(struct json_object *object, const char *key)
{
    struct json_object *value;

    if (!json_object_object_get_ex(object, key, &value) ||
        !json_object_is_type(value, json_type_string))
        return NULL;
    return json_object_get_string(value);
}

static struct json_object *envelope(struct json_object *root)
{
    struct json_object *error;

    if (!json_object_is_type(root, json_type_object) ||
        !json_object_object_get_ex(root, "error", &error) ||
        !json_object_is_type(error, json_type_object))
        return NULL;
    return error;
}

const char *shellctl_error_code(struct arena *arena, const char *body, size_t len)
{
    struct json_object *root;

    if (!json_parse(arena, body, len, &root, NULL, NULL) || envelope(root) == NULL)
        return NULL;
    return text_member(envelope(root), "code");
}

bool shellctl_code_says_gone(const char *code)
{
    return code != NULL &&
           (strcasecmp(code, "not_found") == 0 || strcasecmp(code, "sandbox_expired") == 0 ||
            strcasecmp(code, "sandbox_not_found") == 0);
}

bool shellctl_says_gone(const struct error *err)
{
    return err->code == ERR_UPSTREAM_STATUS && shellctl_code_says_gone(err->upstream_code);
}

void shellctl_wrap_error(struct error *err, enum err_code code)
{
    if (err->code == ERR_UPSTREAM_STATUS &&
        (err->upstream_status == 401 || err->upstream_status == 403))
        err->code = ERR_BACKEND_AUTH;
    else if (err->code == ERR_UPSTREAM_STATUS && err->upstream_status == 429)
        err->code = ERR_RATE_LIMITED;
    else if (err->code == ERR_UPSTREAM_STATUS || err->code == ERR_UPSTREAM_PROTOCOL ||
             err->code == ERR_UPSTREAM_CONNECT || err->code == ERR_UPSTREAM_LOST)
        err->code = code;
}

static void refused(struct arena *arena, const char *peer, const struct http_response *response,
                    struct error *err)
{
    const char *code = "invalid_json", *message = response->body;
    struct json_object *root, *error;

    if (json_parse(arena, response->body, response->body_len, &root, NULL, NULL)) {
        error = envelope(root);
        code = error != NULL ? text_member(error, "code") : NULL;
        message = error != NULL ? text_member(error, "message") : NULL;
        code = code != NULL ? code : "request_failed";
        message = message != NULL ? message : response->body;
    }
    error_set(err, ERR_UPSTREAM_STATUS, "%s: %s (%d): %s", peer, snippet(arena, code, SNIPPET_MAX),
              response->status, snippet(arena, message, SNIPPET_MAX));
    if (err == NULL)
        return;
    err->upstream_status = response->status;
    err->retry_after_ms = response->retry_after_ms;
    err->admitted = response->status >= 500 ? ADMITTED_UNKNOWN : ADMITTED_NO;
    snprintf(err->upstream_code, sizeof(err->upstream_code), "%s",
             snippet(arena, code, sizeof(err->upstream_code) - 1));
}

/* The object of a successful answer as a reader. */
static bool begin(struct arena *arena, const char *peer, const struct http_response *response,
                  struct json_reader *ret, struct error *err)
{
    struct json_object *root;
    struct error why;

    if (response->status < 200 || response->status > 299) {
        refused(arena, peer, response, err);
        return false;
    }
    if (!json_parse(arena, response->body, response->body_len, &root, NULL, &why)) {
        not_understood(peer, why.message, err);
        return false;
    }
    json_reader_init(ret, arena, root);
    return true;
}

static bool finish(struct json_reader *r, const char *peer, struct error *err)
{
    struct error why;

    if (json_reader_finish(r, true, &why))
        return true;
    not_understood(peer, why.message, err);
    return false;
}

/* ---- fields --------------------------------------------------------------------------------- */

static const char *read_job_id(struct json_reader *r)
{
    const char *id = json_read_string(r, "job_id", 1);

    if (id != NULL && *id != '\0' && !quote_is_safe_part(id))
        json_reader_problem(r, "job_id", "value_error", "not usable in a path");
    return id;
}

static int64_t read_int(struct json_reader *r, const char *key, int64_t min, int64_t max)
{
    struct json_object *value = json_read_any(r, key);

    if (value != NULL && !json_object_is_type(value, json_type_int)) {
        json_reader_problem(r, key, "int_type", "Input should be a valid integer");
        return 0;
    }
    return json_read_int(r, key, true, 0, min, max);
}

static void read_exit_code(struct json_reader *r, bool *ret_has, int *ret_code)
{
    *ret_has = json_read_any(r, "exit_code") != NULL;
    *ret_code = 0;
    if (*ret_has)
        *ret_code = (int)read_int(r, "exit_code", INT_MIN, INT_MAX);
}

/* Output may hold NULs, which other texts must not. */
static void read_output(struct json_reader *r, struct shellctl_job *ret)
{
    struct json_object *value = json_read_any(r, "output");

    ret->output = "";
    if (!json_object_is_type(value, json_type_string)) {
        json_reader_problem(r, "output", "string_type", "Input should be a valid string");
        return;
    }
    ret->output_len = (size_t)json_object_get_string_len(value);
    ret->output = arena_memdup(r->arena, json_object_get_string(value), ret->output_len);
}

/* ---- answers -------------------------------------------------------------------------------- */

bool shellctl_read_job(struct arena *arena, const char *peer, const struct http_response *response,
                       struct shellctl_job *ret, struct error *err)
{
    struct json_reader r;

    *ret = (struct shellctl_job){0};
    if (!begin(arena, peer, response, &r, err))
        return false;
    ret->job_id = read_job_id(&r);
    ret->status = json_read_string(&r, "status", 1);
    ret->done = json_read_bool(&r, "done", true, false, false);
    read_exit_code(&r, &ret->has_exit_code, &ret->exit_code);
    ret->output_path = json_read_string_opt(&r, "output_path", 0);
    read_output(&r, ret);
    ret->offset = read_int(&r, "offset", 0, INT64_MAX);
    ret->truncated = json_read_bool(&r, "truncated", true, false, false);
    return finish(&r, peer, err);
}

bool shellctl_read_view(struct arena *arena, const char *peer, const struct http_response *response,
                        struct shellctl_view *ret, struct error *err)
{
    struct json_reader r;

    *ret = (struct shellctl_view){0};
    if (!begin(arena, peer, response, &r, err))
        return false;
    ret->job_id = read_job_id(&r);
    ret->status = json_read_string(&r, "status", 1);
    ret->done = json_read_bool(&r, "done", true, false, false);
    read_exit_code(&r, &ret->has_exit_code, &ret->exit_code);
    ret->offset = read_int(&r, "offset", 0, INT64_MAX);
    return finish(&r, peer, err);
}

static bool read_info(struct arena *arena, const char *peer, struct json_object *object,
                      struct shellctl_info *ret, struct error *err)
{
    struct json_reader r;

    json_reader_init(&r, arena, object);
    ret->job_id = read_job_id(&r);
    ret->status = json_read_string(&r, "status", 1);
    ret->created_at = json_read_string(&r, "created_at", 1);
    return finish(&r, peer, err);
}

bool shellctl_read_list(struct arena *arena, const char *peer, const struct http_response *response,
                        struct shellctl_list *ret, struct error *err)
{
    struct json_object *jobs;
    struct json_reader r;

    *ret = (struct shellctl_list){0};
    if (!begin(arena, peer, response, &r, err))
        return false;
    jobs = json_read_any(&r, "jobs"); /* an empty list may come as null */
    if (jobs != NULL && !json_object_is_type(jobs, json_type_array))
        json_reader_problem(&r, "jobs", "list_type", "Input should be a valid list");
    if (!finish(&r, peer, err))
        return false;
    if (jobs == NULL)
        return true;
    ret->n_jobs = json_object_array_length(jobs);
    ret->jobs = arena_alloc(arena, (ret->n_jobs + 1) * sizeof(*ret->jobs));
    for (size_t i = 0; i < ret->n_jobs; i++) {
        if (!read_info(arena, peer, json_object_array_get_idx(jobs, i), &ret->jobs[i], err))
            return false;
    }
    return true;
}

/* The answer as shellctl spells it, whatever the id. Every lease ends with one: it is not worth a tree. */
static bool says_deleted(const struct http_response *response)
{
    static const char front[] = "{\"job_id\":\"", back[] = "\",\"deleted\":true}";
    const size_t frame = sizeof(front) - 1 + sizeof(back) - 1;
    const char *id = response->body + sizeof(front) - 1;
    size_t id_len = response->body_len - frame;

    if (response->status != 200 || response->body_len <= frame ||
        memcmp(response->body, front, sizeof(front) - 1) != 0 ||
        memcmp(id + id_len, back, sizeof(back) - 1) != 0)
        return false;
    for (size_t i = 0; i < id_len; i++) {
        if (!isalnum((unsigned char)id[i]) && id[i] != '-' && id[i] != '_')
            return false;
    }
    return true;
}

bool shellctl_read_deleted(struct arena *arena, const char *peer,
                           const struct http_response *response, struct error *err)
{
    struct json_reader r;

    if (says_deleted(response))
        return true;
    if (!begin(arena, peer, response, &r, err))
        return false;
    read_job_id(&r);
    if (!json_read_bool(&r, "deleted", true, false, false) && r.count == 0)
        json_reader_problem(&r, "deleted", "value_error", "should be true");
    return finish(&r, peer, err);
}

bool shellctl_read_health(struct arena *arena, const char *peer,
                          const struct http_response *response, struct error *err)
{
    struct json_reader r;
    const char *status;

    if (!begin(arena, peer, response, &r, err))
        return false;
    status = json_read_string(&r, "status", 1);
    if (r.count == 0 && strcmp(status, "ok") != 0)
        json_reader_problem(&r, "status", "value_error", "should be ok");
    return finish(&r, peer, err);
}
