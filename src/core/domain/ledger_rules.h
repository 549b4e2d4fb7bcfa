/* What the ledger allows: pure rules, the same for every driver. */
#pragma once

#include "core/domain/binding.h"
#include "core/domain/ledger_rows.h"
#include "core/runtime/arena.h"
#include "core/runtime/error.h"

#include <stdbool.h>

/** Life of a row. `gone` is the absence of a row; the timeline still tells of it. */
enum row_state {
    ROW_GONE,
    ROW_CREATING, /* claimed: a create is under way, or its process died in it */
    ROW_ACTIVE,
    ROW_RETIRED, /* to be destroyed */
    ROW_STATES
};

/** Word in the `status` column, in filters and answers: `creating`, `active`, `retired`, `gone`. */
const char *row_state_name(enum row_state state);
/** The reverse; ROW_STATES when it is none of the words (NULL included). */
enum row_state row_state_of(const char *name);
/** Whether a row may go from one state to another; SQL holds to the same table. */
bool row_state_may_become(enum row_state from, enum row_state to);

/** Who owns a workspace (protocols "ledger" section 3). Strings are borrowed. */
struct owner_key {
    const char *tenant_id;
    const char *type; /* `conversation`, `build_draft`, `workflow_run` */
    const char *id;
    const char *scope_key; /* `root`, or `<node_id>:<workflow_agent_binding_id>` */
};

/** One of the three owner types. */
bool owner_type_known(const char *type);

/** Names an owner, or a binding made under a caller's own id, for waiting on its row. */
char *owner_watch_key(struct arena *arena, const struct owner_key *owner);
char *binding_watch_key(struct arena *arena, const char *binding_id);
/** The one of the two that fits the row. */
char *row_watch_key(struct arena *arena, const struct ledger_binding *row);

/** What an owner's binding was, or shall be, made for. A config publish or a new Home changes it;
 * the binding of an old conversation does not follow. */
struct generation {
    const char *agent_id;
    const char *base_home_snapshot_id; /* NULL = default Home */
    const char *config_version_id;
    const char *config_version_kind; /* `snapshot`, `draft`, `build_draft` */
};

/** ERR_GENERATION_MISMATCH naming the first field that differs. */
bool generation_check(const struct ledger_binding *row, const struct generation *asked,
                      struct error *err) MUST_CHECK;

/** Hex SHA-256 over every field of a spec: two creates under one binding id are the same exactly
 * when their digests are. Absent and empty differ. */
char *spec_digest(struct arena *arena, const struct binding_spec *spec);

/** Whether those who wait for a creator share its failure: not when only its caller went away, its
 * process stops, or its caller's time was over. Then one of them creates. */
bool failure_is_shared(const struct error *why);

/** When to try again after `attempts` failures: exponential from 1 s to 5 min, with jitter. */
int64_t work_retry_delay_ms(int64_t attempts);
