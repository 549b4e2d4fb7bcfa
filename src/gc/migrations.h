/* The schema, version by version. A version that has been released never changes: add one. */
#pragma once

#include "gc/sql.h"

/** One step from version `n - 1` to `n`. */
struct migration {
    const char *common[8]; /* for both engines, with words in braces (gc/sql.h); NULL ends */
    const char *sqlite;    /* what only this engine needs; run after `common` */
    const char *postgres;
};

/** Newest version that this program knows. */
int migrations_count(void);
/** `version` from 1. */
const struct migration *migration_get(int version);
/** The whole script of one version in a dialect; free() it. */
char *migration_script(const struct sql_dialect *dialect, int version);
