/* What every ledger promises, over each driver. */
#include "support/ledger_fixture.h"
#include "support/test_postgres.h"

#include <stdlib.h>
#include <string.h>

TEST_POSTGRES
TestSuite(sqlite, .timeout = 60);
TestSuite(postgres, .timeout = 60);

static const struct ledger_cause because = {"test", "because"};

/* ---- claim, activate, abandon ------------------------------------------------------------------- */

CONTRACT(first_claim_is_new_and_second_is_busy_until_active)
{
    struct ledger_claim claim = fixture_claim(f, 1), other = fixture_claim(f, 1);
    struct ledger_claimed first = {0}, second = {0};
    struct ledger_binding *row = NULL;
    struct binding refs = {"ref-1", "wref-1"};

    other.row.id = "b-other";
    other.row.workspace_id = "w-other";
    CALL(f, claim_binding, &claim, &first);
    cr_assert(eq(int, first.outcome, CLAIM_NEW));
    cr_assert(eq(str, (char *)first.row->status, "creating"));
    cr_assert(eq(i64, first.row->attempts, 1));
    CALL(f, claim_binding, &other, &second);
    cr_assert(eq(int, second.outcome, CLAIM_BUSY));
    cr_assert(eq(str, (char *)second.row->id, "b-1"));
    CALL(f, activate_binding, first.row, &refs, &because, &row);
    cr_assert(row != NULL);
    cr_assert(eq(str, (char *)row->status, "active"));
    cr_assert(eq(str, (char *)row->binding_ref, "ref-1"));
    cr_assert(row->claimed_by == NULL);
    CALL(f, claim_binding, &other, &second);
    cr_assert(eq(int, second.outcome, CLAIM_FOUND));
    cr_assert(eq(str, (char *)second.row->binding_ref, "ref-1"));
}

CONTRACT(owner_is_found_by_its_four_parts)
{
    struct ledger_binding *made = fixture_binding(f, 1), *row = NULL;
    struct owner_key key = {"t-1", "conversation", "c-1", "root"};

    CALL(f, find_owner, &key, &row);
    cr_assert(row != NULL);
    cr_assert(eq(str, (char *)row->id, (char *)made->id));
    key.tenant_id = "t-2";
    CALL(f, find_owner, &key, &row);
    cr_assert(row == NULL);
    key = (struct owner_key){"t-1", "conversation", "c-1", "node:1"};
    CALL(f, find_owner, &key, &row);
    cr_assert(row == NULL);
}

CONTRACT(activation_needs_the_claim)
{
    struct ledger_claim claim = fixture_claim(f, 1);
    struct ledger_claimed claimed = {0};
    struct ledger_binding *row = NULL;
    struct binding refs = {"ref-1", "wref-1"};
    bool done = false;

    CALL(f, claim_binding, &claim, &claimed);
    CALL(f, activate_binding, claimed.row, &refs, &because, &row);
    CALL(f, activate_binding, claimed.row, &refs, &because, &row);
    cr_assert(row == NULL, "the claim ended with the first activation");
    CALL(f, abandon_binding, claimed.row, &(struct error){.code = ERR_INTERNAL}, false, &done);
    cr_assert(not(done), "an active row cannot be abandoned");
}

CONTRACT(abandoned_claim_leaves_no_row_and_says_why)
{
    struct ledger_claim claim = fixture_claim(f, 1);
    struct ledger_claimed claimed = {0};
    struct ledger_page page = {0};
    struct error why;
    void *row = NULL;
    bool done = false;

    error_set(&why, ERR_BINDING_CREATE, "no such image");
    CALL(f, claim_binding, &claim, &claimed);
    CALL(f, abandon_binding, claimed.row, &why, false, &done);
    cr_assert(done);
    CALL(f, get, LEDGER_BINDINGS, "b-1", &row);
    cr_assert(row == NULL);
    CALL(f, get, LEDGER_WORKSPACES, "w-1", &row);
    cr_assert(row == NULL);
    CALL(f, list, LEDGER_EVENTS, &(struct ledger_filter){.binding_id = "b-1"}, &page);
    cr_assert(eq(sz, page.n, 2));
    const struct ledger_event *last = page.rows[1];
    cr_assert(eq(str, (char *)last->event, "create_failed"));
    cr_assert(strstr(last->reason, "no such image") != NULL);
    CALL(f, claim_binding, &claim, &claimed);
    cr_assert(eq(int, claimed.outcome, CLAIM_NEW), "the owner is free again");
}

CONTRACT(expired_claim_is_taken_over_once)
{
    struct ledger_claim claim = fixture_claim(f, 1);
    struct ledger_claimed first = {0}, second = {0}, third = {0};

    claim.claim_ms = 0;
    CALL(f, claim_binding, &claim, &first);
    claim.claim_ms = 60000;
    claim.row.id = "b-other";
    CALL(f, claim_binding, &claim, &second);
    cr_assert(eq(int, second.outcome, CLAIM_TAKEN_OVER));
    cr_assert(eq(str, (char *)second.row->id, "b-1"), "the row and its id stay");
    cr_assert(eq(i64, second.row->attempts, 2));
    CALL(f, claim_binding, &claim, &third);
    cr_assert(eq(int, third.outcome, CLAIM_BUSY));
}

CONTRACT(kept_claim_can_be_taken_over_at_once)
{
    struct ledger_claim claim = fixture_claim(f, 1);
    struct ledger_claimed claimed = {0};
    struct error why;
    bool done = false;

    error_set(&why, ERR_BACKEND_OUTCOME_UNKNOWN, "answer lost");
    CALL(f, claim_binding, &claim, &claimed);
    CALL(f, abandon_binding, claimed.row, &why, true, &done);
    cr_assert(done);
    CALL(f, claim_binding, &claim, &claimed);
    cr_assert(eq(int, claimed.outcome, CLAIM_TAKEN_OVER));
    cr_assert(strstr(claimed.row->last_error, "answer lost") != NULL);
}

CONTRACT(renewal_keeps_a_claim)
{
    struct ledger_claim claim = fixture_claim(f, 1);
    struct ledger_claimed claimed = {0};
    const char *ids[] = {"b-1", "b-absent"};

    claim.claim_ms = 0;
    CALL(f, claim_binding, &claim, &claimed);
    CALL(f, renew_claims, ids, 2, 60000);
    /* claimed_until was 0 ms ahead, not ended: a renewal moves it. */
    CALL(f, claim_binding, &claim, &claimed);
    cr_assert(eq(int, claimed.outcome, CLAIM_BUSY));
}

CONTRACT(binding_without_an_owner_is_claimed_by_its_id)
{
    struct ledger_claim claim = fixture_claim(f, 1);
    struct ledger_claimed claimed = {0};
    struct ledger_binding *row = NULL;
    struct binding refs = {"ref-1", "wref-1"};

    claim.row.owner_type = claim.row.owner_id = claim.row.owner_scope_key = NULL;
    claim.row.app_id = NULL;
    claim.row.spec_digest = "digest";
    CALL(f, claim_binding, &claim, &claimed);
    cr_assert(eq(int, claimed.outcome, CLAIM_NEW));
    CALL(f, activate_binding, claimed.row, &refs, &because, &row);
    CALL(f, claim_binding, &claim, &claimed);
    cr_assert(eq(int, claimed.outcome, CLAIM_FOUND));
    cr_assert(eq(str, (char *)claimed.row->spec_digest, "digest"));
    claim.row.id = "b-2"; /* a second one beside it: no owner, no conflict */
    claim.row.workspace_id = "w-2";
    CALL(f, claim_binding, &claim, &claimed);
    cr_assert(eq(int, claimed.outcome, CLAIM_NEW));
}

CONTRACT(limits_of_a_tenant_hold_and_count_what_is_not_gone)
{
    struct ledger_claim claim = fixture_claim(f, 3);
    struct ledger_claimed claimed = {0};
    struct ledger_retired retired;

    fixture_binding(f, 1);
    fixture_binding(f, 2);
    claim.tenant_max = 2;
    CALL(f, claim_binding, &claim, &claimed);
    cr_assert(eq(int, claimed.outcome, CLAIM_OVER_QUOTA));
    cr_assert(claimed.row == NULL);
    CALL(f, retire, &(struct ledger_retire){.binding_id = "b-1"}, &retired);
    CALL(f, claim_binding, &claim, &claimed);
    cr_assert(eq(int, claimed.outcome, CLAIM_OVER_QUOTA), "retired is not gone");
    claim.row.tenant_id = "t-2";
    CALL(f, claim_binding, &claim, &claimed);
    cr_assert(eq(int, claimed.outcome, CLAIM_NEW), "another tenant has its own limit");
    claim = fixture_claim(f, 4);
    claim.row.tenant_id = "t-2";
    claim.tenant_max_creating = 1;
    CALL(f, claim_binding, &claim, &claimed);
    cr_assert(eq(int, claimed.outcome, CLAIM_OVER_CREATING));
}

/* ---- waiting --------------------------------------------------------------------------------------- */

struct watcher {
    struct op op;
    struct ledger_watch watch;
};

static enum op_poll watcher_step(struct op *op)
{
    struct watcher *w = container_of(op, struct watcher, op);

    switch (op->state) {
    case 0:
        AWAIT(op, 1, watch_wait(&w->watch, op, 10000));
    undo:
        watch_end(&w->watch);
        return OP_DONE;
    }
    unreachable_state(op);
}

static const char *const watcher_states[] = {"start", "waiting"};
static const struct op_type watcher_type = {"watcher", watcher_states, 2, watcher_step, NULL};

static struct watcher *watch(struct fixture *f, struct ledger *l, const char *key)
{
    struct watcher *w = OP_ROOT(f->loop, &watcher_type, watcher, f->arena);

    watch_begin(&l->watches, &w->watch, key);
    op_start(&w->op, NULL, NULL);
    return w;
}

CONTRACT(waiters_are_told_of_activation_and_of_the_creators_error)
{
    struct ledger_claim claim = fixture_claim(f, 1);
    struct ledger_claimed claimed = {0};
    struct ledger_binding *row = NULL;
    struct binding refs = {"ref-1", "wref-1"};
    struct watcher *w;
    struct error why;
    bool done;

    error_set(&why, ERR_BINDING_CREATE, "no such image\nreally");
    CALL(f, claim_binding, &claim, &claimed);
    w = watch(f, f->ledger, row_watch_key(f->arena, claimed.row));
    CALL(f, abandon_binding, claimed.row, &why, false, &done);
    fixture_run_until(f, &w->op.done);
    cr_assert(eq(int, w->watch.error.code, ERR_BINDING_CREATE));
    cr_assert(eq(str, w->watch.error.message, "no such image\nreally"));

    CALL(f, claim_binding, &claim, &claimed);
    w = watch(f, f->ledger, row_watch_key(f->arena, claimed.row));
    CALL(f, activate_binding, claimed.row, &refs, &because, &row);
    fixture_run_until(f, &w->op.done);
    cr_assert(eq(int, w->watch.error.code, ERR_NONE));
}

/* ---- an active binding ------------------------------------------------------------------------------- */

CONTRACT(session_is_stored_and_overwritten_whole)
{
    struct ledger_session session = {"{\"a\":\"\xc3\xa9\"}", "form", "call"};
    struct ledger_binding *row = NULL;
    bool done = false;

    fixture_binding(f, 1);
    CALL(f, store_session, "b-1", &session, &done);
    cr_assert(done);
    session = (struct ledger_session){"{}", NULL, NULL};
    CALL(f, get, LEDGER_BINDINGS, "b-1", (void **)&row);
    cr_assert(eq(str, (char *)row->session_snapshot, "{\"a\":\"\xc3\xa9\"}"));
    cr_assert(eq(str, (char *)row->pending_tool_call_id, "call"));
    CALL(f, store_session, "b-1", &session, &done);
    CALL(f, get, LEDGER_BINDINGS, "b-1", (void **)&row);
    cr_assert(row->pending_form_id == NULL && row->pending_tool_call_id == NULL);
    CALL(f, store_session, "b-absent", &session, &done);
    cr_assert(not(done));
}

CONTRACT(loss_is_marked_once)
{
    struct ledger_binding *row = NULL;
    bool done = false;

    fixture_binding(f, 1);
    CALL(f, mark_lost, "b-1", &because, &done);
    cr_assert(done);
    CALL(f, mark_lost, "b-1", &because, &done);
    cr_assert(not(done));
    CALL(f, get, LEDGER_BINDINGS, "b-1", (void **)&row);
    cr_assert(gt(i64, row->lost_at, 0));
    cr_assert(eq(str, (char *)row->status, "active"));
}

CONTRACT(last_use_is_written_in_batches_and_never_goes_back)
{
    struct ledger_use uses[2] = {{"local", "ref-1", 0, 77},
                                 {"local", "ref-2", INT64_C(9999999999999), 0}};
    struct ledger_binding *row = NULL;

    fixture_binding(f, 1);
    fixture_binding(f, 2);
    CALL(f, touch, uses, 2);
    CALL(f, get, LEDGER_BINDINGS, "b-1", (void **)&row);
    cr_assert(gt(i64, row->last_used_at, 0));
    cr_assert(eq(i64, row->leased_until, 77));
    CALL(f, get, LEDGER_BINDINGS, "b-2", (void **)&row);
    cr_assert(eq(i64, row->last_used_at, INT64_C(9999999999999)));
}

/* Whatever was answered before: asked again after a change, with notes in between. */
CONTRACT(guard_follows_what_happens_to_a_binding)
{
    struct ledger_use use = {"local", "ref-1", 0, 77};
    struct ledger_guard guard = {.retired = true};
    struct ledger_retired retired;

    CALL(f, guard_ref, "local", "ref-1", &guard);
    cr_assert(not(guard.retired), "what no row tells of may be leased");
    fixture_binding(f, 1);
    for (int i = 0; i < 3; i++) {
        CALL(f, guard_ref, "local", "ref-1", &guard);
        cr_assert(not(guard.retired));
        CALL(f, touch, &use, 1);
    }
    CALL(f, retire, &(struct ledger_retire){.binding_id = "b-1", .cause = because}, &retired);
    CALL(f, guard_ref, "elsewhere", "ref-1", &guard);
    cr_assert(not(guard.retired));
    CALL(f, guard_ref, "local", "ref-1", &guard);
    cr_assert(guard.retired);
    cr_assert(eq(str, (char *)guard.binding_id, "b-1"));
    cr_assert(eq(str, (char *)guard.reason, "because"));
}

/* ---- retire ------------------------------------------------------------------------------------------- */

CONTRACT(retiring_an_owner_takes_every_scope_and_is_idempotent)
{
    struct ledger_claim node = fixture_claim(f, 1);
    struct ledger_claimed claimed = {0};
    struct ledger_retired retired = {0};
    struct ledger_retire what = {.tenant_id = "t-1",
                                 .app_id = "app-1",
                                 .owner_type = "conversation",
                                 .owner_id = "c-1",
                                 .cause = because};
    struct ledger_binding *row = NULL;
    struct owner_key key = {"t-1", "conversation", "c-1", "root"};

    fixture_binding(f, 1);
    fixture_binding(f, 2);
    node.row.id = "b-node";
    node.row.workspace_id = "w-node";
    node.row.owner_scope_key = "node:1";
    CALL(f, claim_binding, &node, &claimed);
    CALL(f, retire, &what, &retired);
    cr_assert(eq(sz, retired.n_bindings, 2));
    cr_assert(eq(sz, retired.n_workspaces, 2));
    CALL(f, retire, &what, &retired);
    cr_assert(eq(sz, retired.n_bindings, 2), "what is not collected yet is told again");
    CALL(f, find_owner, &key, &row);
    cr_assert(row == NULL);
    CALL(f, get, LEDGER_BINDINGS, "b-2", (void **)&row);
    cr_assert(eq(str, (char *)row->status, "active"));
    what.app_id = "app-2";
    what.owner_id = "c-2";
    CALL(f, retire, &what, &retired);
    cr_assert(eq(sz, retired.n_bindings, 0), "another app's owner is not touched");
}

CONTRACT(workspace_follows_its_last_binding)
{
    struct ledger_claim second = fixture_claim(f, 1);
    struct ledger_claimed claimed = {0};
    struct ledger_retired retired = {0};
    struct ledger_binding *row = NULL;
    struct ledger_workspace *workspace = NULL;
    struct binding refs = {"ref-2", "wref-1"};

    fixture_binding(f, 1);
    second.row.id = "b-2";
    second.row.owner_type = second.row.owner_id = second.row.owner_scope_key = NULL;
    second.workspace_ref = "wref-1";
    CALL(f, claim_binding, &second, &claimed);
    cr_assert(eq(int, claimed.outcome, CLAIM_NEW));
    CALL(f, activate_binding, claimed.row, &refs, &because, &row);
    CALL(f, retire, &(struct ledger_retire){.binding_id = "b-1"}, &retired);
    cr_assert(eq(sz, retired.n_workspaces, 0));
    CALL(f, get, LEDGER_WORKSPACES, "w-1", (void **)&workspace);
    cr_assert(eq(str, (char *)workspace->status, "active"));
    CALL(f, retire, &(struct ledger_retire){.binding_id = "b-2"}, &retired);
    cr_assert(eq(sz, retired.n_workspaces, 1));
    cr_assert(eq(str, (char *)retired.binding_refs[0], "ref-2"));
    claimed = (struct ledger_claimed){0};
    second.row.id = "b-3";
    CALL(f, claim_binding, &second, &claimed);
    cr_assert(eq(int, claimed.outcome, CLAIM_RETIRED), "no new binding in a workspace that goes");
}

CONTRACT(retired_while_creating_takes_the_refs_and_stays_retired)
{
    struct ledger_claim claim = fixture_claim(f, 1);
    struct ledger_claimed claimed = {0};
    struct ledger_retired retired;
    struct ledger_binding *row = NULL;
    struct ledger_works works = {0};
    struct binding refs = {"ref-1", "wref-1"};

    CALL(f, claim_binding, &claim, &claimed);
    CALL(f, retire, &(struct ledger_retire){.workspace_id = "w-1"}, &retired);
    cr_assert(eq(sz, retired.n_bindings, 1));
    cr_assert(retired.binding_refs[0] == NULL);
    CALL(f, claim_work, WORK_WORKSPACE, 10, 60000, 0, &works);
    cr_assert(eq(sz, works.n, 0), "its creator is still at work");
    CALL(f, activate_binding, claimed.row, &refs, &because, &row);
    cr_assert(row != NULL);
    cr_assert(eq(str, (char *)row->status, "retired"));
    cr_assert(eq(str, (char *)row->binding_ref, "ref-1"));
    CALL(f, claim_work, WORK_WORKSPACE, 10, 60000, 0, &works);
    cr_assert(eq(sz, works.n, 1));
    cr_assert(eq(str, (char *)works.items[0].workspace->workspace_ref, "wref-1"));
}

CONTRACT(snapshots_of_an_agent_are_retired_together)
{
    struct ledger_snapshot row = {
        .id = "s-1", .tenant_id = "t-1", .agent_id = "agent-1", .backend = "local"};
    struct ledger_retired retired;
    struct ledger_works works = {0};
    bool done = false;

    CALL(f, claim_snapshot, &row, 60000, &done);
    cr_assert(done);
    CALL(f, claim_snapshot, &row, 60000, &done);
    cr_assert(not(done));
    CALL(f, activate_snapshot, "s-1", "sref-1", &done);
    cr_assert(done);
    row.id = "s-2";
    CALL(f, claim_snapshot, &row, 60000, &done);
    CALL(f, abandon_snapshot, "s-2", &done);
    cr_assert(done);
    CALL(f, retire, &(struct ledger_retire){.tenant_id = "t-1", .agent_id = "agent-1"}, &retired);
    cr_assert(eq(sz, retired.n_snapshots, 1));
    CALL(f, claim_work, WORK_SNAPSHOT, 10, 60000, 0, &works);
    cr_assert(eq(sz, works.n, 1));
    CALL(f, finish_work, &works.items[0], &because, &done);
    cr_assert(done);
}

/* ---- work ----------------------------------------------------------------------------------------------- */

CONTRACT(work_is_claimed_by_one_finished_once_and_leaves_no_row)
{
    struct ledger_retired retired;
    struct ledger_works works = {0}, none = {0};
    struct ledger_page page = {0};
    void *row = NULL;
    bool done = false;

    fixture_binding(f, 1);
    CALL(f, claim_work, WORK_WORKSPACE, 10, 60000, 0, &none);
    cr_assert(eq(sz, none.n, 0));
    CALL(f, retire, &(struct ledger_retire){.binding_id = "b-1", .cause = because}, &retired);
    CALL(f, claim_work, WORK_BINDING, 10, 60000, 0, &none);
    cr_assert(eq(sz, none.n, 0), "it goes with its workspace");
    CALL(f, claim_work, WORK_WORKSPACE, 10, 60000, 0, &works);
    cr_assert(eq(sz, works.n, 1));
    CALL(f, claim_work, WORK_WORKSPACE, 10, 60000, 0, &none);
    cr_assert(eq(sz, none.n, 0));
    CALL(f, finish_work, &works.items[0], &because, &done);
    cr_assert(done);
    CALL(f, finish_work, &works.items[0], &because, &done);
    cr_assert(not(done));
    CALL(f, get, LEDGER_BINDINGS, "b-1", &row);
    cr_assert(row == NULL);
    CALL(f, get, LEDGER_WORKSPACES, "w-1", &row);
    cr_assert(row == NULL);
    CALL(f, list, LEDGER_EVENTS, &(struct ledger_filter){.binding_id = "b-1"}, &page);
    const char *expected[] = {"creating", "active", "retired", "gone"};
    cr_assert(eq(sz, page.n, 4));
    for (size_t i = 0; i < 4; i++)
        cr_assert(
            eq(str, (char *)((struct ledger_event *)page.rows[i])->event, (char *)expected[i]));
}

CONTRACT(failed_work_comes_again_later_with_its_error)
{
    struct ledger_retired retired;
    struct ledger_works works = {0};
    struct ledger_workspace *row = NULL;
    struct error why;

    error_set(&why, ERR_BINDING_DESTROY, "gateway says 500");
    fixture_binding(f, 1);
    CALL(f, retire, &(struct ledger_retire){.workspace_id = "w-1"}, &retired);
    CALL(f, claim_work, WORK_WORKSPACE, 1, 60000, 0, &works);
    CALL(f, retry_work, &works.items[0], &why, 60000);
    CALL(f, claim_work, WORK_WORKSPACE, 1, 60000, 0, &works);
    cr_assert(eq(sz, works.n, 0), "not due");
    CALL(f, get, LEDGER_WORKSPACES, "w-1", (void **)&row);
    cr_assert(eq(i64, row->attempts, 1));
    cr_assert(strstr(row->last_error, "gateway says 500") != NULL);
    cr_assert(row->claimed_by == NULL);
}

CONTRACT(dead_collectors_claim_runs_out)
{
    struct ledger_retired retired;
    struct ledger_works works = {0};

    fixture_binding(f, 1);
    CALL(f, retire, &(struct ledger_retire){.workspace_id = "w-1"}, &retired);
    CALL(f, claim_work, WORK_WORKSPACE, 1, 0, 0, &works);
    cr_assert(eq(sz, works.n, 1));
    CALL(f, claim_work, WORK_WORKSPACE, 1, 60000, 0, &works);
    cr_assert(eq(sz, works.n, 1));
    cr_assert(eq(i64, works.items[0].attempts, 2));
}

CONTRACT(leased_binding_waits_for_the_grace)
{
    struct ledger_use use = {"local", "ref-1", 1, INT64_MAX / 2};
    struct ledger_retired retired;
    struct ledger_works works = {0};

    fixture_binding(f, 1);
    CALL(f, touch, &use, 1);
    CALL(f, retire, &(struct ledger_retire){.workspace_id = "w-1", .grace_ms = 300}, &retired);
    CALL(f, claim_work, WORK_WORKSPACE, 1, 60000, 0, &works);
    cr_assert(eq(sz, works.n, 0));
    fixture_run_ms(f, 320);
    CALL(f, claim_work, WORK_WORKSPACE, 1, 60000, 0, &works);
    cr_assert(eq(sz, works.n, 1));
}

CONTRACT(dead_create_becomes_work)
{
    struct ledger_claim claim = fixture_claim(f, 1);
    struct ledger_claimed claimed = {0};
    struct ledger_works works = {0};

    claim.claim_ms = 0;
    CALL(f, claim_binding, &claim, &claimed);
    CALL(f, claim_work, WORK_CREATING, 1, 60000, 60000, &works);
    cr_assert(eq(sz, works.n, 0), "a caller may come and take it over first");
    CALL(f, claim_work, WORK_CREATING, 1, 60000, 0, &works);
    cr_assert(eq(sz, works.n, 1));
    cr_assert(eq(str, (char *)works.items[0].binding->id, "b-1"));
    CALL(f, claim_binding, &claim, &claimed);
    cr_assert(eq(int, claimed.outcome, CLAIM_BUSY), "the settler holds it");
}

/* ---- orphans, pages, counts ----------------------------------------------------------------------------- */

CONTRACT(orphan_is_recorded_once_destroyed_or_forgotten)
{
    struct ledger_orphan orphan = {.kind = "binding",
                                   .backend = "local",
                                   .ref = "stray",
                                   .workspace_ref = "wstray",
                                   .reason = "no owner"};
    struct ledger_page page = {0};
    struct ledger_works works = {0};
    bool done = false;

    CALL(f, report_orphan, &orphan);
    CALL(f, report_orphan, &orphan);
    CALL(f, list, LEDGER_ORPHANS, &(struct ledger_filter){.status = "reported"}, &page);
    cr_assert(eq(sz, page.n, 1));
    CALL(f, claim_work, WORK_ORPHAN, 1, 60000, 0, &works);
    cr_assert(eq(sz, works.n, 0), "nobody asked for its end");
    CALL(f, settle_orphan, ((struct ledger_orphan *)page.rows[0])->id, false, &done);
    cr_assert(done);
    CALL(f, claim_work, WORK_ORPHAN, 1, 60000, 0, &works);
    cr_assert(eq(sz, works.n, 1));
    CALL(f, finish_work, &works.items[0], &because, &done);
    cr_assert(done);
    orphan = (struct ledger_orphan){.kind = "unknown", .backend = "enterprise"};
    CALL(f, report_orphan, &orphan);
    CALL(f, report_orphan, &orphan);
    CALL(f, list, LEDGER_ORPHANS, &(struct ledger_filter){0}, &page);
    cr_assert(eq(sz, page.n, 2), "without a ref each is one of its own");
    CALL(f, settle_orphan, ((struct ledger_orphan *)page.rows[0])->id, true, &done);
    cr_assert(done);
}

CONTRACT(pages_hold_every_row_once_while_rows_come_and_go)
{
    struct ledger_filter filter = {.tenant_id = "t-1", .limit = 7};
    struct ledger_retired retired;
    struct ledger_page page = {0};
    int seen[40] = {0}, pages = 0;

    for (int i = 10; i < 40; i++)
        fixture_binding(f, i);
    do {
        CALL(f, list, LEDGER_BINDINGS, &filter, &page);
        for (size_t i = 0; i < page.n; i++)
            seen[atoi(((struct ledger_binding *)page.rows[i])->id + 2)]++;
        filter.cursor = page.next;
        CALL(f, retire,
             &(struct ledger_retire){.binding_id = arena_printf(f->arena, "b-%d", 10 + pages)},
             &retired);
        fixture_binding(f, 1000 + pages++); /* sorts before what is still to come, or after */
    } while (page.next != NULL);
    for (int i = 10; i < 40; i++)
        cr_assert(eq(int, seen[i], 1), "row %d", i);
}

CONTRACT(counts_and_filters_tell_states_apart)
{
    struct ledger_count count = {0};
    struct ledger_retired retired;
    struct ledger_page page = {0};

    for (int i = 0; i < 5; i++)
        fixture_binding(f, i);
    CALL(f, retire, &(struct ledger_retire){.binding_id = "b-0"}, &retired);
    CALL(f, count, LEDGER_BINDINGS, "active", NULL, &count);
    cr_assert(eq(i64, count.rows, 4));
    cr_assert(count.cursor == NULL);
    CALL(f, count, LEDGER_WORKSPACES, "retired", NULL, &count);
    cr_assert(eq(i64, count.rows, 1));
    cr_assert(gt(i64, count.oldest_at, 0));
    CALL(f, list, LEDGER_BINDINGS,
         &(struct ledger_filter){.app_id = "app-1", .status = "retired", .agent_id = "agent-1"},
         &page);
    cr_assert(eq(sz, page.n, 1));
    CALL(f, list, LEDGER_WORKSPACES, &(struct ledger_filter){.owner_id = "c-3"}, &page);
    cr_assert(eq(sz, page.n, 1));
}

CONTRACT(revoked_lease_is_known_until_it_would_have_ended)
{
    const char *ids[] = {"l-1", "l-2"};
    int64_t until[] = {INT64_MAX / 2, 1}, n = 0;
    bool revoked = false;

    CALL(f, revoke, ids, until, 2);
    CALL(f, revoke, ids, until, 2);
    CALL(f, is_revoked, "l-1", &revoked);
    cr_assert(revoked);
    CALL(f, is_revoked, "l-3", &revoked);
    cr_assert(not(revoked));
    CALL(f, prune_events, 0, 10, &n);
    CALL(f, is_revoked, "l-1", &revoked);
    cr_assert(revoked);
    CALL(f, is_revoked, "l-2", &revoked);
    cr_assert(not(revoked));
}

CONTRACT(old_events_are_pruned_in_slices)
{
    int64_t n = 0;

    fixture_binding(f, 1);
    CALL(f, add_event, "b-1", "stopped_idle", &because);
    CALL(f, prune_events, INT64_MAX / 2, 2, &n);
    cr_assert(eq(i64, n, 2));
    CALL(f, prune_events, INT64_MAX / 2, 10, &n);
    cr_assert(eq(i64, n, 1));
}

CONTRACT(rows_are_imported_as_they_are)
{
    struct ledger_binding *row = NULL, copy;

    fixture_binding(f, 1);
    CALL(f, get, LEDGER_BINDINGS, "b-1", (void **)&row);
    copy = *row;
    copy.id = "b-9";
    copy.owner_id = "c-9";
    CALL(f, import_row, LEDGER_BINDINGS, &copy);
    CALL(f, get, LEDGER_BINDINGS, "b-9", (void **)&row);
    cr_assert(eq(i64, row->created_at, copy.created_at));
    cr_assert(eq(i64, row->active_guard, 1));
    cr_assert(eq(str, (char *)row->change_id, (char *)copy.change_id));
    copy.id = "b-11"; /* a retired one, without a guard */
    copy.status = "retired";
    copy.active_guard = 0;
    copy.retired_at = 5;
    CALL(f, import_row, LEDGER_BINDINGS, &copy);
    CALL(f, import_row, LEDGER_EVENTS, NULL);
    copy = *row;
    copy.id = "b-10";
    CALL_ON(f, f->ledger, import_row, LEDGER_BINDINGS, &copy);
    cr_assert(eq(int, f->error.code, ERR_LEDGER), "c-9 has a live binding: the guard holds");
}

CONTRACT(many_calls_of_one_turn_keep_their_own_results)
{
    enum { N = 200 };
    struct ledger_claimed claimed[N] = {{0}};
    struct op *ops[N];
    int new = 0, busy = 0;

    for (int i = 0; i < N; i++) {
        struct ledger_claim claim = fixture_claim(f, i / 2);
        ops[i] = fixture_begin(f);
        f->ledger->ops->claim_binding(f->ledger, ops[i], &claim, &claimed[i]);
    }
    for (int i = 0; i < N; i++) {
        fixture_finish(f, ops[i]);
        cr_assert(eq(int, f->error.code, ERR_NONE), "%s", f->error.message);
        new += claimed[i].outcome == CLAIM_NEW;
        busy += claimed[i].outcome == CLAIM_BUSY;
    }
    cr_assert(eq(int, new, N / 2));
    cr_assert(eq(int, busy, N / 2));
}

CONTRACT(cancelled_calls_harm_nobody)
{
    struct ledger_claim claim = fixture_claim(f, 1);
    struct ledger_claimed claimed = {0};
    struct op *gone[20];

    for (int i = 0; i < 20; i++) {
        claim.row.id = arena_printf(f->arena, "b-gone-%d", i);
        claim.row.owner_id = claim.row.id;
        gone[i] = fixture_begin(f);
        f->ledger->ops->claim_binding(f->ledger, gone[i], &claim, &claimed);
        if (i % 2 == 0)
            loop_turn(f->loop, false);
        op_cancel(gone[i], "not wanted");
    }
    for (int i = 0; i < 20; i++)
        fixture_finish(f, gone[i]);
    fixture_binding(f, 2);
}
