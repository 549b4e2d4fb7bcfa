/* A PostgreSQL server of the test program's own, on a unix socket in a temporary folder. It starts
 * before the program's first test and stops after the last: say TEST_POSTGRES once in the file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/** Connection string of a new, empty database in `ret`; false when this machine has no server. */
bool test_postgres_database(char *ret, size_t size);
/** Run one statement on that database, from outside; false when it fails. */
bool test_postgres_sql(const char *url, const char *sql);

/** Stop the server as a power cut would; start it again. */
void test_postgres_kill(void);
void test_postgres_start(void);

void test_postgres_open(void);

#define TEST_POSTGRES                                                                              \
    ReportHook(PRE_ALL)(struct criterion_test_set * tests)                                         \
    {                                                                                              \
        (void)tests;                                                                               \
        test_postgres_open();                                                                      \
    }
