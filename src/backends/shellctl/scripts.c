#include "backends/shellctl/scripts.h"

#include "core/runtime/quote.h"

const char *script_probe(struct arena *arena, const struct layout *layout)
{
    return ARENA_CONCAT(arena, "test -d ", quote_shell(arena, layout->home_dir), " && test -d ",
                        quote_shell(arena, layout->workspace_dir));
}

const char *script_layout(struct arena *arena, const struct layout *layout, bool keep_workspace_dir)
{
    const char *home = quote_shell(arena, layout->home_dir);
    const char *workspace = quote_shell(arena, layout->workspace_dir);

    if (keep_workspace_dir)
        return arena_printf(arena,
                            "set -eu\nexec 2>&1\nmkdir -p -- %s %s\n"
                            "find %s -mindepth 1 -maxdepth 1 -exec rm -rf -- '{}' +\n"
                            "chmod 700 -- %s %s\n",
                            home, workspace, workspace, home, workspace);
    return arena_printf(arena,
                        "set -eu\nexec 2>&1\nmkdir -p -- %s\nrm -rf -- %s\nmkdir -- %s\n"
                        "chmod 700 -- %s %s\n",
                        home, workspace, workspace, home, workspace);
}
