/* The subcommands of the executable. Each gets its own arguments, argv[0] being its name, and returns
 * the exit status. */
#pragma once

/** Exit statuses that all commands share (the BSD sysexits.h values). */
enum exit_status {
    EXIT_USAGE = 64,       /* wrong arguments */
    EXIT_UNAVAILABLE = 69, /* something outside is missing */
    EXIT_CONFIG = 78,      /* settings or stored state that must be mended first */
};

/** `bindery health [--ready]`: whether the server of BINDERY_LISTEN answers. */
int health_main(int argc, char **argv);

/** `bindery docs errors|metrics|settings`: print a reference page made from a table. */
int docs_main(int argc, char **argv);

/** `bindery ledger export [URL]`, `bindery ledger import [URL]`: all rows as JSON lines, to stdout
 * and from stdin. */
int ledger_main(int argc, char **argv);

/** `bindery bench [options]`: measure lease churn of a Bindery or of a gateway. */
int bench_main(int argc, char **argv);

/** `bindery serve [--print-config]`: the service, until SIGTERM or SIGINT has drained it. */
int serve_main(int argc, char **argv);
