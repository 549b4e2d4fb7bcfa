/* The ledger's records. Each table is one list of columns, from which the struct, the SQL, the
 * decoding of results and the lossless export all come.
 *
 * Columns: TEXT may be NULL; INT is a 64-bit number, 0 when there is nothing to say (times are UTC
 * milliseconds since the epoch); GUARD is 1 while the row is live and NULL (read as 0) afterwards,
 * so that a unique index holds live rows apart and ignores the others (protocols "ledger" 2.2).
 *
 * The columns of work: `claimed_by` is the process that works on the row until `claimed_until`;
 * `attempts`, `next_attempt_at` and `last_error` tell how that went. `change_id` names the
 * transaction that changed the row last: statements behind the change find by it what was changed.
 */
#pragma once

#include "core/runtime/arena.h"

#include <stddef.h>
#include <stdint.h>

/** agent_workspace_bindings of the protocol page, plus what it lists as gaps. */
#define LEDGER_BINDING_COLUMNS(TEXT, INT, GUARD)                                                   \
    TEXT(id)                                                                                       \
    TEXT(tenant_id)                                                                                \
    TEXT(app_id)                                                                                   \
    TEXT(agent_id)                                                                                 \
    TEXT(workspace_id)                                                                             \
    TEXT(backend)                                                                                  \
    TEXT(owner_type)                                                                               \
    TEXT(owner_id)                                                                                 \
    TEXT(owner_scope_key)                                                                          \
    TEXT(base_home_snapshot_id)                                                                    \
    TEXT(home_snapshot_ref)                                                                        \
    TEXT(agent_config_version_id)                                                                  \
    TEXT(agent_config_version_kind)                                                                \
    TEXT(spec_digest)                                                                              \
    INT(generation)                                                                                \
    TEXT(binding_ref)                                                                              \
    TEXT(workspace_ref)                                                                            \
    TEXT(session_snapshot)                                                                         \
    TEXT(pending_form_id)                                                                          \
    TEXT(pending_tool_call_id)                                                                     \
    TEXT(status)                                                                                   \
    GUARD(active_guard)                                                                            \
    INT(lost_at)                                                                                   \
    TEXT(lost_reason)                                                                              \
    INT(retired_at)                                                                                \
    TEXT(retired_reason)                                                                           \
    TEXT(claimed_by)                                                                               \
    INT(claimed_until)                                                                             \
    INT(attempts)                                                                                  \
    INT(next_attempt_at)                                                                           \
    TEXT(last_error)                                                                               \
    INT(last_used_at)                                                                              \
    INT(leased_until)                                                                              \
    INT(created_at)                                                                                \
    INT(updated_at)                                                                                \
    TEXT(change_id)

/** agent_workspaces. */
#define LEDGER_WORKSPACE_COLUMNS(TEXT, INT, GUARD)                                                 \
    TEXT(id)                                                                                       \
    TEXT(tenant_id)                                                                                \
    TEXT(app_id)                                                                                   \
    TEXT(backend)                                                                                  \
    TEXT(owner_type)                                                                               \
    TEXT(owner_id)                                                                                 \
    TEXT(owner_scope_key)                                                                          \
    TEXT(workspace_ref)                                                                            \
    TEXT(status)                                                                                   \
    GUARD(active_guard)                                                                            \
    INT(retired_at)                                                                                \
    TEXT(claimed_by)                                                                               \
    INT(claimed_until)                                                                             \
    INT(attempts)                                                                                  \
    INT(next_attempt_at)                                                                           \
    TEXT(last_error)                                                                               \
    INT(created_at)                                                                                \
    INT(updated_at)                                                                                \
    TEXT(change_id)

/** agent_home_snapshots. */
#define LEDGER_SNAPSHOT_COLUMNS(TEXT, INT, GUARD)                                                  \
    TEXT(id)                                                                                       \
    TEXT(tenant_id)                                                                                \
    TEXT(agent_id)                                                                                 \
    TEXT(backend)                                                                                  \
    TEXT(snapshot_ref)                                                                             \
    TEXT(status)                                                                                   \
    INT(retired_at)                                                                                \
    TEXT(claimed_by)                                                                               \
    INT(claimed_until)                                                                             \
    INT(attempts)                                                                                  \
    INT(next_attempt_at)                                                                           \
    TEXT(last_error)                                                                               \
    INT(created_at)                                                                                \
    INT(updated_at)                                                                                \
    TEXT(change_id)

/** What exists, or may exist, without an owner. `status` is `reported` or `retired` (its
 * destruction was asked for). `kind` is `binding`, `unknown` (no ref: an answer was lost) or
 * `snapshot`. */
#define LEDGER_ORPHAN_COLUMNS(TEXT, INT, GUARD)                                                    \
    TEXT(id)                                                                                       \
    TEXT(kind)                                                                                     \
    TEXT(backend)                                                                                  \
    TEXT(ref)                                                                                      \
    TEXT(workspace_ref)                                                                            \
    TEXT(tenant_id)                                                                                \
    TEXT(agent_id)                                                                                 \
    TEXT(binding_id)                                                                               \
    TEXT(reason)                                                                                   \
    TEXT(status)                                                                                   \
    INT(seen_at)                                                                                   \
    TEXT(claimed_by)                                                                               \
    INT(claimed_until)                                                                             \
    INT(attempts)                                                                                  \
    INT(next_attempt_at)                                                                           \
    TEXT(last_error)                                                                               \
    INT(created_at)                                                                                \
    INT(updated_at)                                                                                \
    TEXT(change_id)

/** One state change of a binding. `id` grows; `event` is a word of docs/operations.md. */
#define LEDGER_EVENT_COLUMNS(TEXT, INT, GUARD)                                                     \
    INT(id)                                                                                        \
    TEXT(binding_id)                                                                               \
    INT(at)                                                                                        \
    TEXT(event)                                                                                    \
    TEXT(actor)                                                                                    \
    TEXT(reason)

/** A lease that ended before its time, until when it would have lived. */
#define LEDGER_REVOCATION_COLUMNS(TEXT, INT, GUARD)                                                \
    TEXT(id)                                                                                       \
    INT(until)

#define LEDGER_TEXT_FIELD(name) const char *name;
#define LEDGER_INT_FIELD(name)  int64_t name;

struct ledger_binding {
    LEDGER_BINDING_COLUMNS(LEDGER_TEXT_FIELD, LEDGER_INT_FIELD, LEDGER_INT_FIELD)
};
struct ledger_workspace {
    LEDGER_WORKSPACE_COLUMNS(LEDGER_TEXT_FIELD, LEDGER_INT_FIELD, LEDGER_INT_FIELD)
};
struct ledger_snapshot {
    LEDGER_SNAPSHOT_COLUMNS(LEDGER_TEXT_FIELD, LEDGER_INT_FIELD, LEDGER_INT_FIELD)
};
struct ledger_orphan {
    LEDGER_ORPHAN_COLUMNS(LEDGER_TEXT_FIELD, LEDGER_INT_FIELD, LEDGER_INT_FIELD)
};
struct ledger_event {
    LEDGER_EVENT_COLUMNS(LEDGER_TEXT_FIELD, LEDGER_INT_FIELD, LEDGER_INT_FIELD)
};

struct ledger_revocation {
    LEDGER_REVOCATION_COLUMNS(LEDGER_TEXT_FIELD, LEDGER_INT_FIELD, LEDGER_INT_FIELD)
};

/** The tables, by number. */
enum ledger_kind {
    LEDGER_BINDINGS,
    LEDGER_WORKSPACES,
    LEDGER_SNAPSHOTS,
    LEDGER_ORPHANS,
    LEDGER_EVENTS,
    LEDGER_REVOCATIONS,
    LEDGER_KINDS
};

/** How a column is stored, and where its value is in the struct. */
enum ledger_column_type { COLUMN_TEXT, COLUMN_INT, COLUMN_GUARD };
struct ledger_column {
    const char *name;
    enum ledger_column_type type;
    size_t offset;
};

/** One table: its name in SQL and exports, and its columns, the key (`id`) first. Static. */
struct ledger_table {
    const char *name;
    size_t row_size;
    const struct ledger_column *columns;
    size_t n_columns;
};

const struct ledger_table *ledger_table(enum ledger_kind kind);

/** Read a column of a row: the text, or the number through *ret_number (then NULL). */
const char *ledger_row_get(const void *row, const struct ledger_column *column,
                           int64_t *ret_number);
/** A copy of a row, texts and all. */
void *ledger_row_copy(struct arena *arena, enum ledger_kind kind, const void *row);
/** Write one; `text` is borrowed. */
void ledger_row_set(void *row, const struct ledger_column *column, const char *text,
                    int64_t number);
