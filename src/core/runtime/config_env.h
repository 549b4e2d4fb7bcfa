/* Where settings come from: the process environment and .env files. Private to config*.c.
 *
 * A .env file is read as python-dotenv reads it: NAME=value lines, `export` in front allowed, `#`
 * comments, 'single' and "double" quoted values that may span lines, ${NAME} and
 * ${NAME:-fallback} filled in from earlier lines, then from the environment. Unlike there, single
 * quotes keep `${` as it is. Lines that make no sense are skipped, but reported by env_find
 * when they give the setting that is asked for. */
#pragma once

#include "core/runtime/arena.h"
#include "core/runtime/config.h"

#include <stdbool.h>

/** One NAME=value of a source. */
struct env_entry {
    const char *name;
    const char *value; /* NULL: malformed, `why` says how */
    const char *why;
    int line; /* in the file, from 1; 0 in the environment */
};

/** One source. Memory of the arena, or borrowed from config_sources. */
struct env_source {
    const char *where; /* "the environment", ".env" */
    struct env_entry *entries;
    size_t n_entries;
};

enum { ENV_SOURCES = 3 };

/** All sources, most important first. */
struct env_sources {
    struct env_source source[ENV_SOURCES];
    size_t n_sources;
};

/** A value found, with what a message needs to say about it. */
struct env_value {
    const char *name; /* as it was written */
    const char *value;
    const char *where;
    const char *why; /* set when value is NULL: it is there, but malformed */
};

/** Split all sources. They must outlive the result. */
void env_sources_init(struct env_sources *env, struct arena *arena,
                      const struct config_sources *sources);

/** Look the `n_names` names of one setting up, most important source first, within a source in the
 * order of names; any case, the exact one preferred. The last of equal lines wins. False when no
 * source has it. */
bool env_find(const struct env_sources *env, const char *const *names, size_t n_names,
              struct env_value *ret);

/** The value of exactly `name` in the process environment, or NULL. */
const char *env_process(const struct env_sources *env, const char *name);

/** Split the text of one .env file; `process` (may be NULL) serves ${NAME}. For fuzzing, too. */
void env_file_parse(struct env_source *ret, struct arena *arena, const char *text,
                    const struct env_source *process);
