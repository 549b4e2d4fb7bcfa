/* JSON in and out.
 *
 * In: json-c in strict mode (nothing behind the value, nesting at most 32) behind a scan that
 * refuses what json-c lets pass (ill-formed UTF-8, raw control characters, NaN and alike, integers
 * beyond 64 bits, NUL in a key), then a reader that checks one object against what a route or a
 * protocol declares, collecting every problem with the path of the bad value. Out: a small writer
 * into a buffer; it escapes, replaces ill-formed UTF-8 by U+FFFD, and never builds a tree. */
#pragma once

#include "core/runtime/arena.h"
#include "core/runtime/buf.h"
#include "core/runtime/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_object; /* json-c */

enum { JSON_DEPTH_MAX = 32 };

/** Parse exactly one value. The object belongs to `arena` (put at its end). On failure returns
 * NULL with ERR_BAD_REQUEST and, if `ret_position` is not NULL, the byte offset of the trouble. A
 * JSON null parses to NULL with success: look at the return value of json_parse. */
bool json_parse(struct arena *arena, const char *text, size_t len, struct json_object **ret,
                size_t *ret_position, struct error *err) MUST_CHECK;

/* ---- reading: one object, all problems ---------------------------------------------------------
 */

/** One problem: the vocabulary of FastAPI/pydantic (docs/protocol.md), so that the HTTP edge can
 * answer Dify's 422 list from it. */
struct json_problem {
    struct json_problem *next;
    const char *type;     /* `missing`, `string_type`, `extra_forbidden`, … */
    const char *path[8];  /* keys from the root; NULL ends it */
    const char *message;  /* "Field required" */
    const char *ctx_key;  /* e.g. `min_length`, or NULL */
    const char *ctx_text; /* the value of ctx_key, or NULL: then it is ctx_value */
    int64_t ctx_value;
    struct json_object *input; /* the offending value; the containing object for `missing` */
};

/** Reads one object. Problems collect in order of reading; the arena owns them. A reader must stay
 * where it is while readers of its inner objects are in use. */
struct json_reader {
    struct arena *arena;
    struct json_reader *outer;  /* NULL for the root, which holds the list of problems */
    struct json_object *object; /* NULL after a root that is no object */
    const char *prefix[4];      /* where the object is, for paths */
    struct json_problem *first; /* of this object and what is inside it */
    struct json_problem **next; /* root only */
    int count;
    const char *seen[40]; /* keys asked for, for json_reader_finish */
    int n_seen;
};

void json_reader_init(struct json_reader *r, struct arena *arena, struct json_object *root);

/** Each looks a key up, checks it, and returns its value, or the default after noting a problem. A
 * null in place of a value that is not required counts as absent. Strings are copied into the
 * arena; one with an embedded NUL is a `string_nul` problem. `min_chars` counts code points. */
const char *json_read_string(struct json_reader *r, const char *key, size_t min_chars);
/** Absent or null gives NULL; present must have `min_chars`. */
const char *json_read_string_opt(struct json_reader *r, const char *key, size_t min_chars);
/** Also takes a number without a fraction (5.0) and a string of digits, as pydantic does. */
int64_t json_read_int(struct json_reader *r, const char *key, bool required, int64_t fallback,
                      int64_t min, int64_t max);
double json_read_double(struct json_reader *r, const char *key, bool required, double fallback);
/** `lax` also takes 0/1 and the strings that pydantic takes ("true", "yes", "on", "off", …). */
bool json_read_bool(struct json_reader *r, const char *key, bool required, bool fallback, bool lax);
/** One of `choices` (NULL-terminated); NULL when absent and not required. */
const char *json_read_choice(struct json_reader *r, const char *key, bool required,
                             const char *const *choices);
/** The raw value (borrowed) or NULL; marks the key as known. */
struct json_object *json_read_any(struct json_reader *r, const char *key);
/** Enter the object at `key` as a reader of its own whose problems go to `r`; false when absent
 * (a problem if required) or not an object. */
bool json_read_object(struct json_reader *r, const char *key, bool required,
                      struct json_reader *ret);

/** Note a problem of the caller's own (model-level rule); `key` NULL for the object itself. */
void json_reader_problem(struct json_reader *r, const char *key, const char *type,
                         const char *message);

/** Report each key that was never asked for as `extra_forbidden` unless `extras_allowed`; then
 * true if there were no problems. Otherwise `err` (may be NULL) names the first in words. */
bool json_reader_finish(struct json_reader *r, bool extras_allowed, struct error *err) MUST_CHECK;

/* ---- writing -----------------------------------------------------------------------------------
 */

/** Writes one value into `out`; commas and nesting are the writer's. All-zero except `out`. */
struct json_writer {
    struct buf *out;
    uint64_t has_member; /* bit per depth */
    int depth;
};

void json_object_begin(struct json_writer *w);
void json_object_finish(struct json_writer *w);
void json_array_begin(struct json_writer *w);
void json_array_finish(struct json_writer *w);
/** In an object: the key of the next value. Keys are literals of ours; they are not escaped. */
void json_key(struct json_writer *w, const char *key);
/** A key from outside: escaped as a string is. */
void json_key_text(struct json_writer *w, const char *key);
void json_string(struct json_writer *w, const char *text); /* NULL writes null */
void json_string_n(struct json_writer *w, const char *bytes, size_t len);
void json_int(struct json_writer *w, int64_t value);
void json_double(struct json_writer *w, double value);
void json_boolean(struct json_writer *w, bool value);
void json_null(struct json_writer *w);
/** Already encoded JSON, copied as it is. */
void json_raw(struct json_writer *w, const char *json, size_t len);
/** A json-c value (NULL writes null). */
void json_value(struct json_writer *w, struct json_object *value);
/** UTC `YYYY-MM-DDTHH:MM:SS.mmmZ`. */
void json_time_ms(struct json_writer *w, int64_t wall_ms);

/* Key and value in one call. */
void json_member_string(struct json_writer *w, const char *key, const char *text);
void json_member_int(struct json_writer *w, const char *key, int64_t value);
void json_member_bool(struct json_writer *w, const char *key, bool value);
void json_member_null(struct json_writer *w, const char *key);
