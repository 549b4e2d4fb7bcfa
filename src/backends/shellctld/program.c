#include "backends/shellctld/program.h"

#include "backends/shellctld/jail.h"
#include "backends/shellctld/job_runner.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char program[PATH_MAX + 32];

const char *runner_program(void)
{
    char self[PATH_MAX];
    ssize_t n;

    if (program[0] != '\0')
        return program;
    n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash != NULL) {
        snprintf(program, sizeof program, "%.*s/bindery-runner", (int)(slash - self), self);
        if (access(program, X_OK) != 0)
            snprintf(program, sizeof program, "%s", self);
    }
    return program;
}

void runner_program_set(const char *path)
{
    snprintf(program, sizeof program, "%s", path);
}

bool runner_program_dispatch(int argc, char **argv, int *ret_status)
{
    if (argc > 1 && strcmp(argv[1], RUNNER_COMMAND) == 0)
        *ret_status = job_runner_main(argc - 1, argv + 1);
    else if (argc > 1 && strcmp(argv[1], JAIL_COMMAND) == 0)
        *ret_status = jail_main(argc - 1, argv + 1);
    else
        return false;
    return true;
}
