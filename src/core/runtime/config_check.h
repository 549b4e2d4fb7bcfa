/* Is a setting's value what config.def says? Pure functions; private to config*.c. */
#pragma once

#include "core/runtime/arena.h"
#include "core/runtime/config_table.h"

#include <stdbool.h>

/** NULL when `value` passes the setting's check; otherwise what is wrong with it ("the port is
 * missing"), static text, never a part of the value. TEXT and CHOICE only. */
const char *config_check_text(const struct setting *setting, const char *value);

/** Read an INT, MS or BOOL; likewise. */
const char *config_check_number(const struct setting *setting, const char *value, int64_t *ret);

/** The value without what must not be seen: `***` for a secret and for user:password in a URL. */
const char *config_masked(const struct setting *setting, const char *value, struct arena *arena);

/** config_masked for a message: control characters escaped, cut when it is long. */
const char *config_shown(const struct setting *setting, const char *value, struct arena *arena);
