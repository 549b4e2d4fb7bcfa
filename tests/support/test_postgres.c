#include "support/test_postgres.h"

#include <criterion/criterion.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_SERVER = 77 };

/* Tests are forked from the runner: they learn of the server by the environment. */
static const char *folder(void)
{
    const char *dir = getenv("BINDERY_TEST_PG_DIR");

    return dir != NULL ? dir : "";
}

static int run_script(const char *action)
{
    char command[1024];

    snprintf(command, sizeof(command), "%s/support/postgres %s %s", BINDERY_TESTS_DIR, action,
             folder());
    return WEXITSTATUS(system(command));
}

static pid_t owner; /* the runner; its forked tests leave the server alone */

static void close_server(void)
{
    char command[128];

    if (getpid() != owner)
        return;
    run_script("kill");
    snprintf(command, sizeof(command), "rm -rf '%s'", folder());
    if (system(command) != 0)
        fprintf(stderr, "cannot remove %s\n", folder());
}

void test_postgres_open(void)
{
    char dir[] = "/tmp/bindery-pg.XXXXXX";

    if (mkdtemp(dir) == NULL)
        abort();
    setenv("BINDERY_TEST_PG_DIR", dir, 1);
    if (run_script("start") == 0) {
        owner = getpid();
        atexit(close_server);
        return;
    }
    rmdir(dir);
    setenv("BINDERY_TEST_PG_DIR", "", 1);
    fprintf(stderr, "SKIPPED: the tests over PostgreSQL, for want of a server program\n");
}

void test_postgres_kill(void)
{
    cr_assert(run_script("kill") == 0);
}

void test_postgres_start(void)
{
    cr_assert(run_script("start") == 0);
}

bool test_postgres_sql(const char *url, const char *sql)
{
    PGconn *conn = PQconnectdb(url);
    PGresult *result = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(result);
    bool good = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;

    if (!good)
        fprintf(stderr, "%s: %s\n", sql, PQerrorMessage(conn));
    PQclear(result);
    PQfinish(conn);
    return good;
}

bool test_postgres_database(char *ret, size_t size)
{
    char url[256], sql[64];

    if (folder()[0] == '\0')
        return false;
    snprintf(url, sizeof(url), "postgresql:///postgres?host=%s&user=postgres", folder());
    snprintf(sql, sizeof(sql), "CREATE DATABASE t%d", (int)getpid());
    cr_assert(test_postgres_sql(url, sql));
    snprintf(ret, size, "postgresql:///t%d?host=%s&user=postgres", (int)getpid(), folder());
    return true;
}
