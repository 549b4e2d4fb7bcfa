/* config.def as data. Private to config*.c. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum setting_kind { SETTING_TEXT, SETTING_INT, SETTING_MS, SETTING_BOOL, SETTING_CHOICE };

/** What a text must look like; the names are config.def's. */
enum setting_check {
    CHECK_ANY,
    CHECK_NOT_BLANK,
    CHECK_URL,
    CHECK_ABS_PATH,
    CHECK_HOST_PORT,
    CHECK_JSON_OBJECT,
    CHECK_JSON_STRINGS,
    CHECK_LISTEN,
    CHECK_EGRESS,
    CHECK_LEDGER_URL,
};

enum setting_flag {
    SETTING_SECRET = 1 << 0,
    SETTING_STRIP = 1 << 1,
    SETTING_BLANK_UNSET = 1 << 2,
    SETTING_REQUIRED = 1 << 3,
    SETTING_FOR_LOCAL = 1 << 4,
    SETTING_FOR_ENTERPRISE = 1 << 5,
    SETTING_FOR_OPENSHELL = 1 << 6,
    SETTING_FOR_E2B = 1 << 7,
    SETTING_FOR_ANY_BACKEND =
        SETTING_FOR_LOCAL | SETTING_FOR_ENTERPRISE | SETTING_FOR_OPENSHELL | SETTING_FOR_E2B,
};

enum { SETTING_NAMES_MAX = 4 };

/** One row. */
struct setting {
    enum setting_kind kind;
    const char *name;
    size_t offset; /* of its field in struct config */
    const char *text_default;
    int64_t number_default; /* INT, MS in milliseconds, BOOL as 0 or 1 */
    int64_t min, max;       /* INT; MS in milliseconds */
    enum setting_check check;
    const char *choices; /* CHOICE: a|b|c */
    unsigned flags;
    const char *doc;
};

extern const struct setting settings[];
extern const size_t n_settings;

/** The setting's own name and its aliases; returns how many. */
size_t setting_names(const struct setting *setting, const char *ret_names[SETTING_NAMES_MAX]);

/** The flag of a value of DIFY_AGENT_RUNTIME_BACKEND, 0 for none. */
unsigned setting_backend_flag(const char *backend);

/** Words for what a value must be, e.g. "an integer from 1 to 65535"; into `text`. */
void setting_expects(const struct setting *setting, char *text, size_t size);
