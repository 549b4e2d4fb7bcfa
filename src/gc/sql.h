/* The ledger's SQL, written once for both engines.
 *
 * Texts use the common ground of SQLite 3.35 and PostgreSQL 12; what differs stands in braces:
 *   {bindings}, {workspaces}, …  the columns of a table
 *   {serial}                     type of a key that numbers itself
 *   {for_update}, {skip_locked}  row locks (SQLite has one writer and needs none)
 * Parameters are $1, $2, …, each of a stated type. */
#pragma once

#include <stdbool.h>

enum sql {
#define SQL(name, mode, types, text) SQL_##name,
#include "gc/sql.def"
#undef SQL
    SQL_COUNT
};

struct sql_info {
    const char *name;
    bool writes;
    bool changes;      /* … more than notes, which decide nothing: last use, ended leases */
    const char *types; /* `t` text, `i` 64-bit integer, one for each parameter */
    const char *text;
};

const struct sql_info *sql_info(enum sql sql);

struct sql_dialect {
    const char *name;
    bool dollar_params; /* $1; otherwise ?1 */
    const char *serial, *for_update, *skip_locked;
};

extern const struct sql_dialect sql_sqlite, sql_postgres;

/** The text in a dialect; free() it. */
char *sql_render(const struct sql_dialect *dialect, const char *text);
