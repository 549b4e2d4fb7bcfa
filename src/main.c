/* The executable: finds the subcommand and runs it. */
#include "backends/shellctld/main_shellctl.h"
#include "backends/shellctld/program.h"
#include "commands.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int version_main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("bindery %s\n", BINDERY_VERSION);
    return 0;
}

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"bench", bench_main, "measure lease churn of a Bindery or of a gateway"},
    {"docs", docs_main, "print a reference page: errors, metrics, settings"},
    {"health", health_main,
     "ask the running server whether it lives (--ready: whether it is ready)"},
    {"shellctl", shellctl_main, "serve: run the embedded sandbox on its own"},
    {"ledger", ledger_main, "export the ledger's rows as JSON lines, or import them"},
    {"serve", serve_main, "run the service (--print-config: show its settings)"},
    {"version", version_main, "print the version"},
};

static void print_usage(FILE *out)
{
    fprintf(out, "bindery %s: sandboxes for AI agents\n\nusage: bindery COMMAND [ARGUMENT…]\n\n",
            BINDERY_VERSION);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    int status;

    /* Whatever we create is ours alone unless its maker says otherwise: the data folder may have to
     * let jobs' users pass through. */
    umask(S_IRWXG | S_IRWXO);
    /* Not for people: the processes that the embedded sandbox starts. */
    if (runner_program_dispatch(argc, argv, &status))
        return status;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    if (strcmp(name, "--version") == 0)
        return version_main(argc, argv);
    if (strcmp(name, "--help") == 0 || strcmp(name, "help") == 0) {
        print_usage(stdout);
        return 0;
    }
    if (name[0] != '\0')
        fprintf(stderr, "bindery: no such command: %s\n\n", name);
    print_usage(stderr);
    return EXIT_USAGE;
}
