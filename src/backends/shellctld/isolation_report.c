/* The probe's result in words and as JSON. */
#include "backends/shellctld/isolation.h"

#include "core/runtime/json.h"

static const char *const policies[] = {"auto", "landlock", "none"};

static bool has(const struct isolation *iso, enum isolation_layer layer)
{
    return (iso->layers & layer) != 0;
}

static const char *network_word(const struct isolation *iso)
{
    if (iso->network || iso->policy == ISOLATION_NONE)
        return "host";
    return has(iso, LAYER_NETNS) ? "none (own namespace)" : "none (sockets refused)";
}

/* Do signals and /proc stop at the job? */
static const char *process_word(const struct isolation *iso)
{
    if (has(iso, LAYER_BWRAP))
        return "own namespace";
    if (has(iso, LAYER_UID))
        return "own uid";
    return iso->landlock_abi >= 6 ? "visible, signals refused" : "visible, signals possible";
}

static void part(struct buf *out, bool there, const char *name)
{
    if (!there)
        return;
    if (out->len > 0)
        buf_addc(out, '+');
    buf_adds(out, name);
}

static void missing(struct buf *out, const char *name, const char *note)
{
    if (note[0] != '\0')
        buf_addf(out, "; no %s: %s", name, note);
}

void isolation_summary(const struct isolation *iso, struct buf *out)
{
    struct buf layers = {0};

    part(&layers, has(iso, LAYER_BWRAP), "bubblewrap");
    part(&layers, has(iso, LAYER_LANDLOCK), "landlock");
    part(&layers, has(iso, LAYER_SECCOMP), "seccomp");
    part(&layers, has(iso, LAYER_UID), "uid");
    part(&layers, has(iso, LAYER_MEMORY), "memory-cgroup");
    part(&layers, has(iso, LAYER_PIDS), "pids-cgroup");
    part(&layers, has(iso, LAYER_CGKILL), "cgroup-kill");
    if (iso->layers == 0)
        buf_adds(&layers, "none, jobs have the daemon's rights");
    buf_addf(out, "%s; network %s", buf_text(&layers), network_word(iso));
    if (iso->layers != 0)
        buf_addf(out, "; processes %s", process_word(iso));
    buf_fini(&layers);
    missing(out, "bubblewrap", iso->note_bwrap);
    missing(out, "Landlock", iso->note_landlock);
    missing(out, "seccomp", iso->note_seccomp);
    missing(out, "own uid", iso->note_uid);
    missing(out, "cgroup", iso->note_cgroup);
}

static void note(struct json_writer *w, const char *key, const char *text)
{
    if (text[0] != '\0')
        json_member_string(w, key, text);
}

void isolation_describe(const struct isolation *iso, struct json_writer *w)
{
    json_object_begin(w);
    json_member_string(w, "policy", policies[iso->policy]);
    json_member_bool(w, "isolated", iso->layers != 0);
    json_member_bool(w, "bubblewrap", has(iso, LAYER_BWRAP));
    json_member_int(w, "landlock_abi", has(iso, LAYER_LANDLOCK) ? iso->landlock_abi : 0);
    json_member_bool(w, "seccomp", has(iso, LAYER_SECCOMP));
    json_member_bool(w, "own_uid", has(iso, LAYER_UID));
    json_member_bool(w, "memory_cgroup", has(iso, LAYER_MEMORY));
    json_member_bool(w, "pids_cgroup", has(iso, LAYER_PIDS));
    json_member_bool(w, "cgroup_kill", has(iso, LAYER_CGKILL));
    json_member_string(w, "network", network_word(iso));
    json_member_string(w, "processes", iso->layers == 0 ? "shared" : process_word(iso));
    json_key(w, "missing");
    json_object_begin(w);
    note(w, "bubblewrap", iso->note_bwrap);
    note(w, "landlock", iso->note_landlock);
    note(w, "seccomp", iso->note_seccomp);
    note(w, "own_uid", iso->note_uid);
    note(w, "cgroup", iso->note_cgroup);
    json_object_finish(w);
    json_object_finish(w);
}
