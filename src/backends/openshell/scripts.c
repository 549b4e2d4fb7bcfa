/* Scripts for `/bin/sh -s` in a sandbox. They travel on stdin, never in argv, which the gateway
 * logs; the token in the bootstrap script therefore stays out of sight. */
#include "backends/openshell/backend.h"

#include "core/runtime/quote.h"

const char *openshell_script_init(struct arena *arena, const struct layout *layout,
                                  const char *snapshot_dir, bool adopt)
{
    const char *home = quote_shell(arena, layout->home_dir);
    const char *workspace = quote_shell(arena, layout->workspace_dir);
    const char *copy = "";

    if (snapshot_dir != NULL) {
        const char *from = quote_shell(arena, snapshot_dir);
        copy = arena_printf(arena,
                            "test -d %s || { echo 'the home snapshot does not exist'; exit 1; }\n"
                            "cp -a %s/. %s/\n"
                            "rm -rf %s/.local/share/shellctl\n",
                            from, from, home, home);
    }
    return arena_printf(arena,
                        "exec 2>&1\nset -eu\n"
                        "test -d %s || { echo 'the image has no Home'; exit 1; }\n"
                        "%s%s"
                        "rm -rf %s\nmkdir -p %s\nchmod 700 %s %s\n",
                        home, adopt ? arena_printf(arena, "test -d %s && exit 0\n", workspace) : "",
                        copy, workspace, workspace, home, workspace);
}

/* One exec does what acquire needs: the layout is there, and a shellctl that answers. Reading
 * /healthz uses whatever the image has; bash's /dev/tcp is there because the gateway's exec needs
 * bash itself. */
const char *openshell_script_bootstrap(struct arena *arena, const struct layout *layout,
                                       const char *token, int port)
{
    return arena_printf(
        arena,
        "exec 2>&1\n"
        "test -d %s && test -d %s || exit %d\n"
        "HOME=%s\nSHELLCTL_AUTH_TOKEN=%s\nSHELLCTL_ENABLE_PATH_ISOLATION=false\n"
        "export HOME SHELLCTL_AUTH_TOKEN SHELLCTL_ENABLE_PATH_ISOLATION\n"
        "healthy() {\n"
        "  timeout 2 /bin/bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d && printf \"GET /healthz "
        "HTTP/1.0\\r\\nHost: 127.0.0.1\\r\\n\\r\\n\" >&3 && head -n 1 <&3' 2>/dev/null | "
        "grep -q ' 200'\n"
        "}\n"
        "healthy && exit 0\n"
        "setsid /usr/local/bin/shellctl serve --listen 127.0.0.1:%d >/tmp/shellctl.log 2>&1 "
        "</dev/null &\n"
        "for pause in 0.05 0.1 0.2 0.4 1 1 1 1 1 1 1 1 1; do\n"
        "  sleep $pause\n  healthy && exit 0\ndone\n"
        "echo 'shellctl did not answer:'\ntail -n 5 /tmp/shellctl.log\nexit 1\n",
        quote_shell(arena, layout->home_dir), quote_shell(arena, layout->workspace_dir),
        OPENSHELL_EXIT_NO_LAYOUT, quote_shell(arena, layout->home_dir), quote_shell(arena, token),
        port, port);
}

const char *openshell_script_snapshot(struct arena *arena, const struct layout *layout,
                                      const char *snapshot_dir)
{
    const char *to = quote_shell(arena, snapshot_dir);
    const char *home = quote_shell(arena, layout->home_dir);

    return arena_printf(arena,
                        "exec 2>&1\nset -eu\n"
                        "test -d %s || { echo 'the Home does not exist'; exit 1; }\n"
                        "test ! -e %s || { echo 'the home snapshot exists already'; exit 1; }\n"
                        "trap 'test $? -eq 0 || rm -rf %s' EXIT\n"
                        "mkdir -p %s\ncp -a %s/. %s/\nrm -rf %s/.local/share/shellctl\n"
                        "chmod 700 %s\n",
                        home, to, to, to, home, to, to, to);
}

const char *openshell_script_snapshot_delete(struct arena *arena, const char *snapshot_dir)
{
    return arena_printf(arena, "exec 2>&1\nset -eu\nrm -rf %s\n", quote_shell(arena, snapshot_dir));
}
