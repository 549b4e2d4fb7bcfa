/* Reaping for process 1: strangers go, our own children keep their status for who waits. */
#include "core/runtime/reaper.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(reaper, .timeout = 10);

static pid_t ours;

static bool is_ours(void *ctx, pid_t pid)
{
    (void)ctx;
    return pid == ours;
}

static pid_t child(int status)
{
    pid_t pid = fork();

    if (pid == 0)
        _exit(status);
    return pid;
}

static void wait_for_end(pid_t pid)
{
    siginfo_t info;

    cr_assert(eq(int, waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0));
}

Test(reaper, strangers_are_reaped_and_ours_are_left)
{
    pid_t strangers[5];
    int status = 0;

    for (int i = 0; i < 5; i++)
        strangers[i] = child(i);
    for (int i = 0; i < 5; i++)
        wait_for_end(strangers[i]);
    ours = child(7);
    wait_for_end(ours);
    while (reaper_sweep(is_ours, NULL)) { /* ours hides what ended later */
        cr_assert(eq(int, waitpid(ours, &status, 0), ours));
        ours = 0;
    }
    cr_assert(eq(int, WEXITSTATUS(status), 7));
    for (int i = 0; i < 5; i++) {
        cr_assert(eq(int, waitpid(strangers[i], NULL, WNOHANG), -1));
        cr_assert(eq(int, errno, ECHILD));
    }
}

Test(reaper, nothing_to_reap_and_not_process_one)
{
    cr_assert(not(reaper_sweep(is_ours, NULL)));
    cr_assert(reaper_start(NULL, is_ours, NULL) == NULL);
}
