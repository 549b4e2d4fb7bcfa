/* Which program runs jobs: `bindery-runner` beside this executable, a small one that starts in a
 * millisecond; else this executable itself, which does the same but loads every library first. */
#pragma once

#define RUNNER_COMMAND "shellctl-runner"
#define JAIL_COMMAND   "shellctl-jail"

/** Absolute path; lives as long as the process. */
const char *runner_program(void);

/** For tests, whose executable is neither: use this one. */
void runner_program_set(const char *path);

/** If `argv` names one of the two commands, run it and return true with its exit status. */
_Bool runner_program_dispatch(int argc, char **argv, int *ret_status);
