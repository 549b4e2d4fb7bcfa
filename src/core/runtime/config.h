/* Settings: from the process environment, then `.env`, then `dify-agent/.env` of the working
 * directory; names are case-insensitive; unknown ones are ignored. All problems are reported at
 * once, each naming its variable, the bad value (secrets never shown) and what would be right. */
#pragma once

#include "core/runtime/arena.h"
#include "core/runtime/buf.h"

#include <stdbool.h>
#include <stdint.h>

/** Effective settings; see config.def for the fields. Owned by its arena; immutable. */
struct config {
    struct arena *arena;
#define TEXT(field, name, fallback, check, flags, doc)     const char *field;
#define INT(field, name, fallback, min, max, flags, doc)   int64_t field;
#define MS(field, name, fallback_ms, flags, doc)           int64_t field;
#define BOOL(field, name, fallback, flags, doc)            bool field;
#define CHOICE(field, name, fallback, choices, flags, doc) const char *field;
#define ALIAS(name, other)
#include "core/runtime/config.def"
#undef TEXT
#undef INT
#undef MS
#undef BOOL
#undef CHOICE
#undef ALIAS
    bool local_endpoint_given; /* set at all, even to "" (then: no sandbox, 503) */
    bool local_roots_given[3]; /* home, workspace, snapshot roots were set explicitly */
    const char *unknown; /* BINDERY_… names that are no setting, for a warning; NULL = none */
};

/** What is read: `environ`-style NAME=value strings and the texts of .env files, first wins.
 * Files that do not exist are NULL. Pure: touches neither environment nor disk. */
struct config_sources {
    char *const *environment;
    const char *env_files[2];
    const char *env_file_names[2];
};

/** Parse and validate. On problems returns NULL after writing one line for each into `problems`.
 * The config is freed with config_free. */
struct config *config_parse(const struct config_sources *sources, struct buf *problems);

/** config_parse over the real environment and working directory. */
struct config *config_load(struct buf *problems);

void config_free(struct config *config);

/** NAME=value lines of every effective setting, in table order, secrets as `***`. */
void config_print(const struct config *config, struct buf *out);

/** Markdown table of all settings, for docs/settings.md. */
void config_document(struct buf *out);

/** Hand every secret to the log's redaction. */
void config_register_secrets(const struct config *config);
