/* `bindery shellctl …`. */
#pragma once

/** `bindery shellctl serve [--listen ADDRESS] [--state-dir DIR] [--token TOKEN] [--ready-fd N]`:
 * run the embedded sandbox daemon. Returns the exit status: daemon_run's, 64 on usage, 78 on
 * settings. Settings come from the environment and `.env` (docs/settings.md, "Embedded sandbox"),
 * shellctl's own from SHELLCTL_AUTH_TOKEN, SHELLCTL_ENABLE_PATH_ISOLATION and XDG_DATA_HOME. */
int shellctl_main(int argc, char **argv);
