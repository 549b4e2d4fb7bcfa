/* States, generations, digests and delays of the ledger. */
#include "core/domain/ledger_rules.h"
#include "core/domain/uuid7.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

static struct arena *arena;

static void set_up(void)
{
    arena = arena_new();
}

static void tear_down(void)
{
    arena_free(arena);
}

TestSuite(ledger_rules, .init = set_up, .fini = tear_down, .timeout = 10);

Test(ledger_rules, only_six_moves_are_legal)
{
    int legal = 0;

    for (int from = 0; from < ROW_STATES; from++) {
        for (int to = 0; to < ROW_STATES; to++)
            legal += row_state_may_become((enum row_state)from, (enum row_state)to);
        cr_assert(not(row_state_may_become((enum row_state)from, (enum row_state)from)));
    }
    cr_assert(eq(int, legal, 6));
    cr_assert(not(row_state_may_become(ROW_ACTIVE, ROW_GONE)), "never without a destroy");
    cr_assert(not(row_state_may_become(ROW_RETIRED, ROW_ACTIVE)), "never back");
}

Test(ledger_rules, names_of_states_are_read_back)
{
    for (int state = 0; state < ROW_STATES; state++)
        cr_assert(eq(int, row_state_of(row_state_name((enum row_state)state)), state));
    cr_assert(eq(int, row_state_of("ACTIVE"), ROW_STATES));
    cr_assert(eq(int, row_state_of(NULL), ROW_STATES));
}

Test(ledger_rules, generation_must_agree_in_every_field)
{
    const struct ledger_binding row = {.id = "b-1",
                                       .agent_id = "a",
                                       .agent_config_version_id = "v",
                                       .agent_config_version_kind = "snapshot"};
    const struct generation same = {"a", NULL, "v", "snapshot"};
    const struct generation others[] = {{"b", NULL, "v", "snapshot"},
                                        {"a", "s", "v", "snapshot"},
                                        {"a", NULL, "w", "snapshot"},
                                        {"a", NULL, "v", "draft"}};
    struct error err;

    cr_assert(generation_check(&row, &same, &err));
    for (size_t i = 0; i < 4; i++) {
        cr_assert(not(generation_check(&row, &others[i], &err)));
        cr_assert(eq(int, err.code, ERR_GENERATION_MISMATCH));
    }
    cr_assert(strstr(err.message, "agent_config_version_kind snapshot") != NULL);
}

Test(ledger_rules, digest_tells_every_field_and_absence_from_emptiness)
{
    struct binding_spec spec = {"t", "a", "b", "w", NULL, NULL};
    struct binding_spec other = spec;

    cr_assert(eq(str, spec_digest(arena, &spec), spec_digest(arena, &other)));
    other.existing_workspace_ref = "";
    cr_assert(ne(str, spec_digest(arena, &spec), spec_digest(arena, &other)));
    other = (struct binding_spec){"ta", "", "b", "w", NULL, NULL};
    cr_assert(ne(str, spec_digest(arena, &spec), spec_digest(arena, &other)));
    other = spec;
    other.home_snapshot_ref = "s";
    cr_assert(ne(str, spec_digest(arena, &spec), spec_digest(arena, &other)));
}

Test(ledger_rules, retries_slow_down_to_a_cap_and_never_stop)
{
    for (int64_t attempts = 1; attempts < 1000; attempts++) {
        int64_t delay_ms = work_retry_delay_ms(attempts);
        cr_assert(ge(i64, delay_ms, 500));
        cr_assert(le(i64, delay_ms, 300000));
        if (attempts >= 10)
            cr_assert(ge(i64, delay_ms, 150000));
    }
    cr_assert(le(i64, work_retry_delay_ms(1), 1000));
}

Test(ledger_rules, watch_keys_keep_owners_apart)
{
    const struct owner_key a = {"t", "conversation", "c", "root"};
    const struct ledger_binding owned = {.id = "b",
                                         .tenant_id = "t",
                                         .owner_type = "conversation",
                                         .owner_id = "c",
                                         .owner_scope_key = "root"};
    const struct ledger_binding ownerless = {.id = "b", .tenant_id = "t"};

    cr_assert(eq(str, row_watch_key(arena, &owned), owner_watch_key(arena, &a)));
    cr_assert(eq(str, row_watch_key(arena, &ownerless), binding_watch_key(arena, "b")));
    cr_assert(owner_type_known("workflow_run"));
    cr_assert(not(owner_type_known("Conversation")));
}

Test(ledger_rules, ids_sort_by_time)
{
    char *early = uuid7_new(arena, 1700000000000), *late = uuid7_new(arena, 1700000000001);

    cr_assert(eq(sz, strlen(early), 36));
    cr_assert(eq(chr, early[14], '7'));
    cr_assert(strchr("89ab", early[19]) != NULL);
    cr_assert(lt(int, strcmp(early, late), 0));
    cr_assert(ne(str, late, uuid7_new(arena, 1700000000001)));
}
