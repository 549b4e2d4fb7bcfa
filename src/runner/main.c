/* bindery-runner: runs one job of the embedded sandbox. The same code is in `bindery` itself; this
 * small program starts in a fraction of the time, since it loads none of the service's libraries. */
#include "backends/shellctld/program.h"

#include <stdio.h>

enum { EXIT_USAGE_ERROR = 64 };

int main(int argc, char **argv)
{
    int status;

    if (runner_program_dispatch(argc, argv, &status))
        return status;
    fprintf(stderr, "bindery-runner %s: part of bindery; started by its embedded sandbox\n",
            BINDERY_VERSION);
    return EXIT_USAGE_ERROR;
}
