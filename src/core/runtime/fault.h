/* Points at which a crash test kills the process. Off unless BINDERY_FAULT_POINT is set, and then
 * only that point does anything, so that the program under test is the program that ships. */
#pragma once

/** Die by SIGKILL here when BINDERY_FAULT_POINT is `<name>.<when>` or `<name>.<when>:<n>` and this
 * is the n-th passage (the first without n). */
void fault_point(const char *name, const char *when);
