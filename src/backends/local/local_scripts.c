/* Under each root, `.bindery` holds
 *     locks/<hash>     one script at a time works on an id; a dead one holds nothing
 *     records/<id>     one line for each folder of ours, whose attempt it was among the fields
 *     staging/<id>     the folder while it is built
 *     given-up/<token> attempts that were given up: they must not begin any more
 * Ids never begin with a dot, so none can meet it. */
#include "backends/local/local_scripts.h"

#include "core/runtime/quote.h"

#include <stddef.h>
#include <stdint.h>

enum { LOCKS = 256, LOCK_WAIT_S = 20, GIVEN_UP_KEEP_MIN = 60 };

static unsigned lock_of(const char *id)
{
    uint32_t hash = 2166136261U;

    for (const char *p = id; *p != '\0'; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619U;
    return hash % LOCKS;
}

/* Variables that every script starts with. */
static const char *preamble(struct arena *arena, const char *root, const char *id)
{
    return arena_printf(arena,
                        "exec 2>&1\numask 077\nLC_ALL=C\nexport LC_ALL\n"
                        "root=%s\nid=%s\n"
                        "meta=\"$root/.bindery\"\ntarget=\"$root/$id\"\n"
                        "record=\"$meta/records/$id\"\nstage=\"$meta/staging/$id\"\n",
                        quote_shell(arena, root), quote_shell(arena, id));
}

/* The lock is this shell's descriptor 9 and its children's: it ends with them. */
static const char *take_lock(struct arena *arena, const char *id)
{
    return arena_printf(arena,
                        "mkdir -p -- \"$meta/locks\" || exit 1\nexec 9>\"$meta/locks/%02x\"\n"
                        "flock -w %d 9 || { echo 'another script works on this id'; exit %d; }\n",
                        lock_of(id), LOCK_WAIT_S, LOCAL_EXIT_BUSY);
}

static const char *workspace_path(struct arena *arena, const struct local_make *make)
{
    if (make->workspace_id == NULL)
        return "''";
    return quote_shell(arena,
                       arena_printf(arena, "%s/%s", make->workspace_root, make->workspace_id));
}

/* A copied Home must not carry the state of the shellctl that it was used with. `.local` may be a
 * link that points anywhere. */
static const char *copy_source(struct arena *arena, const char *source)
{
    if (source == NULL)
        return "";
    return arena_printf(arena,
                        "cp -a -- %s/. \"$stage\"/\n"
                        "if [ ! -L \"$stage/.local\" ] && [ ! -L \"$stage/.local/share\" ]; then\n"
                        "    rm -rf -- \"$stage/.local/share/shellctl\"\nfi\n",
                        quote_shell(arena, source));
}

static const char *check_source(struct arena *arena, const char *source)
{
    const char *quoted = source != NULL ? quote_shell(arena, source) : NULL;

    if (source == NULL)
        return "";
    return arena_printf(arena,
                        "if [ ! -d %s ] || [ -L %s ]; then\n"
                        "    echo 'the folder to copy from does not exist'\n    exit %d\nfi\n",
                        quoted, quoted, LOCAL_EXIT_NO_SOURCE);
}

static const char *take_workspace(struct arena *arena, const struct local_make *make)
{
    if (make->workspace_id == NULL)
        return "";
    if (make->attach)
        return arena_printf(arena,
                            "if [ ! -d \"$workspace\" ] || [ -L \"$workspace\" ]; then\n"
                            "    echo 'the workspace does not exist'\n    exit %d\nfi\n",
                            LOCAL_EXIT_NO_WORKSPACE);
    return arena_printf(arena,
                        "if ! mkdir -- \"$workspace\"; then\n"
                        "    [ -e \"$workspace\" ] || exit 1\n"
                        "    echo 'a workspace of this id exists; attach to it by its ref'\n"
                        "    exit %d\nfi\nmade_workspace=1\n",
                        LOCAL_EXIT_WORKSPACE_EXISTS);
}

const char *local_script_make(struct arena *arena, const struct local_make *make)
{
    const char *workspaces =
        make->workspace_root != NULL ? quote_shell(arena, make->workspace_root) : "";

    return arena_printf(
        arena,
        "set -eu\n%s"
        "workspace=%s\ntoken=%s\nmade_workspace=\n"
        "mkdir -p -- \"$root\" \"$meta/records\" \"$meta/staging\" %s\n"
        "%s"
        "if [ -e \"$meta/given-up/$token\" ]; then exit %d; fi\n"
        "if [ -e \"$target\" ] || [ -L \"$target\" ]; then echo 'it exists already'; exit %d; fi\n"
        "%s"
        "rm -rf -- \"$stage\"\n"
        /* the empty workspace of an attempt that died */
        "if [ -e \"$record\" ] && [ -n \"$workspace\" ]; then\n"
        "    rmdir -- \"$workspace\" 2>/dev/null || :\nfi\n"
        "undo() {\n"
        "    rm -rf -- \"$stage\"\n"
        "    [ -z \"$made_workspace\" ] || rm -rf -- \"$workspace\"\n"
        "    rm -f -- \"$record\"\n}\n"
        "trap undo EXIT\ntrap 'exit 143' HUP INT TERM\n"
        "printf '%%s %%s %%s %%s\\n' %s \"$token\" %s \"$(date +%%s)\" >\"$record\"\n"
        "%s"
        "mkdir -- \"$stage\"\n"
        "%s"
        "chmod 700 -- \"$stage\"\n"
        "mv -T -- \"$stage\" \"$target\"\n"
        "trap - EXIT\n",
        preamble(arena, make->root, make->id), workspace_path(arena, make),
        quote_shell(arena, make->token), workspaces, take_lock(arena, make->id),
        LOCAL_EXIT_GIVEN_UP, LOCAL_EXIT_EXISTS, check_source(arena, make->source),
        quote_shell(arena, make->workspace_id != NULL ? make->workspace_id : "-"),
        quote_shell(arena, make->instance_id), take_workspace(arena, make),
        copy_source(arena, make->source));
}

/* Stubborn folders inside (no write permission) only stop those who are not root. */
static const char drop[] = "drop() {\n"
                           "    [ -e \"$1\" ] || [ -L \"$1\" ] || return 0\n"
                           "    rm -rf -- \"$1\" 2>/dev/null && return 0\n"
                           "    chmod -R u+rwx -- \"$1\" 2>/dev/null\n"
                           "    rm -rf -- \"$1\"\n}\n";

const char *local_script_unmake(struct arena *arena, const struct local_make *make)
{
    bool made_workspace = make->workspace_id != NULL && !make->attach;

    /* The mark first: an attempt that takes the lock after us must find it. */
    return arena_printf(arena,
                        "set -u\n%s%sworkspace=%s\ntoken=%s\n"
                        "mkdir -p -- \"$meta/given-up\" || exit 1\n"
                        "find \"$meta/given-up\" -type f -mmin +%d -exec rm -f -- '{}' +\n"
                        ": >\"$meta/given-up/$token\" || exit 1\n"
                        "%s"
                        "[ -e \"$record\" ] || exit 0\n"
                        "read -r of_workspace of_token rest <\"$record\" || exit 1\n"
                        "[ \"$of_token\" = \"$token\" ] || exit 0\n"
                        "drop \"$stage\" && drop \"$target\" %s && rm -f -- \"$record\"\n",
                        preamble(arena, make->root, make->id), drop, workspace_path(arena, make),
                        quote_shell(arena, make->token), GIVEN_UP_KEEP_MIN,
                        take_lock(arena, make->id), made_workspace ? "&& drop \"$workspace\"" : "");
}

const char *local_script_remove(struct arena *arena, const char *root, const char *id,
                                const char *workspace)
{
    return arena_printf(arena,
                        "set -u\n%s%s%s"
                        "drop \"$stage\" && drop \"$target\" %s%s && rm -f -- \"$record\"\n",
                        preamble(arena, root, id), drop, take_lock(arena, id),
                        workspace != NULL ? "&& drop " : "",
                        workspace != NULL ? quote_shell(arena, workspace) : "");
}

const char *local_script_list(struct arena *arena, const char *root, const char *after, int max)
{
    return arena_printf(arena,
                        "%sls -- \"$meta/records\" 2>/dev/null | sort |\n"
                        "awk -v after=%s '($0 \"\") > (after \"\")' | head -n %d |\n"
                        "while read -r name; do\n"
                        "    read -r fields <\"$meta/records/$name\" && echo \"$name $fields\"\n"
                        "done\nexit 0\n",
                        preamble(arena, root, ""), quote_shell(arena, after), max);
}

const char *local_script_find(struct arena *arena, const char *root, const char *id,
                              const char *workspace_id)
{
    return arena_printf(arena,
                        "set -eu\n%s"
                        "if [ ! -d \"$target\" ] || [ ! -f \"$record\" ]; then exit %d; fi\n"
                        "read -r of_workspace rest <\"$record\"\n"
                        "[ \"$of_workspace\" = %s ] || exit %d\n",
                        preamble(arena, root, id), LOCAL_EXIT_ABSENT,
                        quote_shell(arena, workspace_id), LOCAL_EXIT_ABSENT);
}
