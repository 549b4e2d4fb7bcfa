#include "core/domain/ledger_rows.h"

#include "core/runtime/check.h"

#define TEXT_COLUMN(field)  {#field, COLUMN_TEXT, offsetof(struct ROW, field)},
#define INT_COLUMN(field)   {#field, COLUMN_INT, offsetof(struct ROW, field)},
#define GUARD_COLUMN(field) {#field, COLUMN_GUARD, offsetof(struct ROW, field)},

#define ROW ledger_binding
static const struct ledger_column binding_columns[] = {
    LEDGER_BINDING_COLUMNS(TEXT_COLUMN, INT_COLUMN, GUARD_COLUMN)};
#undef ROW
#define ROW ledger_workspace
static const struct ledger_column workspace_columns[] = {
    LEDGER_WORKSPACE_COLUMNS(TEXT_COLUMN, INT_COLUMN, GUARD_COLUMN)};
#undef ROW
#define ROW ledger_snapshot
static const struct ledger_column snapshot_columns[] = {
    LEDGER_SNAPSHOT_COLUMNS(TEXT_COLUMN, INT_COLUMN, GUARD_COLUMN)};
#undef ROW
#define ROW ledger_orphan
static const struct ledger_column orphan_columns[] = {
    LEDGER_ORPHAN_COLUMNS(TEXT_COLUMN, INT_COLUMN, GUARD_COLUMN)};
#undef ROW
#define ROW ledger_event
static const struct ledger_column event_columns[] = {
    LEDGER_EVENT_COLUMNS(TEXT_COLUMN, INT_COLUMN, GUARD_COLUMN)};
#undef ROW
#define ROW ledger_revocation
static const struct ledger_column revocation_columns[] = {
    LEDGER_REVOCATION_COLUMNS(TEXT_COLUMN, INT_COLUMN, GUARD_COLUMN)};
#undef ROW

#define TABLE(name, row, columns)                                                                  \
    {                                                                                              \
        name, sizeof(struct row), columns, sizeof(columns) / sizeof((columns)[0])                  \
    }

static const struct ledger_table tables[LEDGER_KINDS] = {
    [LEDGER_BINDINGS] = TABLE("bindings", ledger_binding, binding_columns),
    [LEDGER_WORKSPACES] = TABLE("workspaces", ledger_workspace, workspace_columns),
    [LEDGER_SNAPSHOTS] = TABLE("home_snapshots", ledger_snapshot, snapshot_columns),
    [LEDGER_ORPHANS] = TABLE("orphans", ledger_orphan, orphan_columns),
    [LEDGER_EVENTS] = TABLE("events", ledger_event, event_columns),
    [LEDGER_REVOCATIONS] = TABLE("revocations", ledger_revocation, revocation_columns),
};

const struct ledger_table *ledger_table(enum ledger_kind kind)
{
    PRE(kind < LEDGER_KINDS);
    return &tables[kind];
}

const char *ledger_row_get(const void *row, const struct ledger_column *column, int64_t *ret_number)
{
    const char *at = (const char *)row + column->offset;

    *ret_number = 0;
    if (column->type == COLUMN_TEXT)
        return *(const char *const *)(const void *)at;
    *ret_number = *(const int64_t *)(const void *)at;
    return NULL;
}

void ledger_row_set(void *row, const struct ledger_column *column, const char *text, int64_t number)
{
    char *at = (char *)row + column->offset;

    if (column->type == COLUMN_TEXT)
        *(const char **)(void *)at = text;
    else
        *(int64_t *)(void *)at = number;
}

void *ledger_row_copy(struct arena *arena, enum ledger_kind kind, const void *row)
{
    const struct ledger_table *table = ledger_table(kind);
    void *copy = arena_alloc(arena, table->row_size);

    for (size_t i = 0; i < table->n_columns; i++) {
        int64_t number;
        const char *text = ledger_row_get(row, &table->columns[i], &number);
        ledger_row_set(copy, &table->columns[i], arena_strdup(arena, text), number);
    }
    return copy;
}
