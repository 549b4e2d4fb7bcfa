/* The nouns of the product: what is asked of a backend and what it gives (design 2,
 * docs/protocol.md; contracts: protocols "runtime backends" section 1). Plain values; strings are
 * borrowed from the caller's arena unless a function says otherwise. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { REF_MAX = 255 }; /* callers store refs in varchar(255) columns */

/** What create_binding is asked for. */
struct binding_spec {
    const char *tenant_id, *agent_id, *binding_id, *workspace_id;
    const char *existing_workspace_ref; /* NULL = new workspace; "" is not NULL */
    const char *home_snapshot_ref;      /* NULL = the deployment's default Home */
};

/** A binding: two opaque refs that only its backend reads; at most REF_MAX bytes each. */
struct binding {
    const char *binding_ref, *workspace_ref;
};

/** What destroy_binding is asked for. */
struct destroy_spec {
    const char *binding_ref;
    const char *workspace_ref; /* required when destroy_workspace */
    bool destroy_workspace;
};

/** What snapshot_create is asked for. */
struct snapshot_spec {
    const char *tenant_id, *agent_id, *home_snapshot_id;
};

/** Where things are inside the sandbox; absolute paths. */
struct layout {
    const char *home_dir, *workspace_dir;
};

/** One shell script to run to completion in a lease. */
struct command_spec {
    const char *script;
    const char *cwd;        /* NULL = workspace; `~`, relative and absolute as shellctl.md 14 */
    const char *const *env; /* NAME, value, NAME, value, …, NULL; may be NULL */
    long timeout_ms;        /* total */
    size_t max_output;      /* bytes kept; beyond, `truncated` */
    bool stdio;             /* pipes instead of a terminal */
};

/** How it went. */
struct command_result {
    const char *status; /* shellctl status: `exited`, `terminated`, `failed`, `lost` */
    int exit_code;      /* meaningful only when status is `exited` */
    const char *output; /* valid UTF-8 */
    size_t output_len;
    const char *stop_reason; /* NULL, "timeout", "output_limit" */
    bool truncated;
};
