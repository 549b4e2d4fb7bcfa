#include "core/runtime/config_table.h"

#include "core/runtime/check.h"
#include "core/runtime/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The words of config.def. */
enum {
    SECRET = SETTING_SECRET,
    STRIP = SETTING_STRIP,
    BLANK_UNSET = SETTING_BLANK_UNSET,
    REQUIRED = SETTING_REQUIRED,
    FOR_LOCAL = SETTING_FOR_LOCAL,
    FOR_ENTERPRISE = SETTING_FOR_ENTERPRISE,
    FOR_OPENSHELL = SETTING_FOR_OPENSHELL,
    FOR_E2B = SETTING_FOR_E2B,
};

/* No duration is longer than ten years; one whose default is 0 may be 0, which means never. */
static const int64_t longest_ms = INT64_C(315360000000);

#define AT(field) offsetof(struct config, field)

const struct setting settings[] = {
#define TEXT(field, name_, fallback, check_, flags_, doc_)                                         \
    {.kind = SETTING_TEXT,                                                                         \
     .name = name_,                                                                                \
     .offset = AT(field),                                                                          \
     .text_default = fallback,                                                                     \
     .check = CHECK_##check_,                                                                      \
     .flags = flags_,                                                                              \
     .doc = doc_},
#define INT(field, name_, fallback, min_, max_, flags_, doc_)                                      \
    {.kind = SETTING_INT,                                                                          \
     .name = name_,                                                                                \
     .offset = AT(field),                                                                          \
     .number_default = fallback,                                                                   \
     .min = min_,                                                                                  \
     .max = max_,                                                                                  \
     .flags = flags_,                                                                              \
     .doc = doc_},
#define MS(field, name_, fallback_ms, flags_, doc_)                                                \
    {.kind = SETTING_MS,                                                                           \
     .name = name_,                                                                                \
     .offset = AT(field),                                                                          \
     .number_default = fallback_ms,                                                                \
     .min = (fallback_ms) != 0,                                                                    \
     .max = longest_ms,                                                                            \
     .flags = flags_,                                                                              \
     .doc = doc_},
#define BOOL(field, name_, fallback, flags_, doc_)                                                 \
    {.kind = SETTING_BOOL,                                                                         \
     .name = name_,                                                                                \
     .offset = AT(field),                                                                          \
     .number_default = fallback,                                                                   \
     .flags = flags_,                                                                              \
     .doc = doc_},
#define CHOICE(field, name_, fallback, choices_, flags_, doc_)                                     \
    {.kind = SETTING_CHOICE,                                                                       \
     .name = name_,                                                                                \
     .offset = AT(field),                                                                          \
     .text_default = fallback,                                                                     \
     .choices = choices_,                                                                          \
     .flags = flags_,                                                                              \
     .doc = doc_},
#define ALIAS(name, other)
#include "core/runtime/config.def"
#undef TEXT
#undef INT
#undef MS
#undef BOOL
#undef CHOICE
#undef ALIAS
};

const size_t n_settings = sizeof(settings) / sizeof(*settings);

static const struct {
    const char *name, *other;
} aliases[] = {
#define TEXT(field, name, fallback, check, flags, doc)
#define INT(field, name, fallback, min, max, flags, doc)
#define MS(field, name, fallback_ms, flags, doc)
#define BOOL(field, name, fallback, flags, doc)
#define CHOICE(field, name, fallback, choices, flags, doc)
#define ALIAS(name, other) {name, other},
#include "core/runtime/config.def"
#undef TEXT
#undef INT
#undef MS
#undef BOOL
#undef CHOICE
#undef ALIAS
};

size_t setting_names(const struct setting *setting, const char *ret_names[SETTING_NAMES_MAX])
{
    size_t n = 0;

    ret_names[n++] = setting->name;
    for (size_t i = 0; i < sizeof(aliases) / sizeof(*aliases); i++) {
        if (strcmp(aliases[i].name, setting->name) == 0) {
            PRE(n < SETTING_NAMES_MAX);
            ret_names[n++] = aliases[i].other;
        }
    }
    return n;
}

unsigned setting_backend_flag(const char *backend)
{
    static const struct {
        const char *name;
        unsigned flag;
    } backends[] = {{"local", SETTING_FOR_LOCAL},
                    {"enterprise", SETTING_FOR_ENTERPRISE},
                    {"openshell", SETTING_FOR_OPENSHELL},
                    {"e2b", SETTING_FOR_E2B}};

    for (size_t i = 0; i < sizeof(backends) / sizeof(*backends); i++) {
        if (strcmp(backends[i].name, backend) == 0)
            return backends[i].flag;
    }
    return 0;
}

static const char *const check_words[] = {
    [CHECK_ANY] = "text",
    [CHECK_NOT_BLANK] = "text that is not blank",
    [CHECK_URL] = "an http:// or https:// URL without query or fragment",
    [CHECK_ABS_PATH] = "an absolute path",
    [CHECK_HOST_PORT] = "host:port, without a scheme",
    [CHECK_JSON_OBJECT] = "a JSON object that is not empty",
    [CHECK_JSON_STRINGS] = "a JSON array of strings",
    [CHECK_LISTEN] = "host:port, [v6]:port or unix:/path, several separated by commas",
    [CHECK_EGRESS] = "host:port items separated by commas",
    [CHECK_LEDGER_URL] = "postgresql://… or sqlite:/path",
};

void setting_expects(const struct setting *setting, char *text, size_t size)
{
    switch (setting->kind) {
    case SETTING_TEXT:
        snprintf(text, size, "%s", check_words[setting->check]);
        return;
    case SETTING_INT:
        snprintf(text, size, "an integer from %" PRId64 " to %" PRId64, setting->min, setting->max);
        return;
    case SETTING_MS:
        snprintf(text, size, "seconds, %s, at most %" PRId64,
                 setting->min == 0 ? "0 or more" : "more than 0", setting->max / 1000);
        return;
    case SETTING_BOOL:
        snprintf(text, size, "true or false");
        return;
    case SETTING_CHOICE:
        snprintf(text, size, "one of %s", setting->choices);
        return;
    }
    UNREACHABLE("setting kind");
}
