/* A ledger of each kind for tests, and calls that run to their end. */
#pragma once

#include "core/domain/ledger.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

enum fixture_kind { FIXTURE_SQLITE, FIXTURE_POSTGRES, FIXTURE_KINDS };

struct fixture {
    enum fixture_kind kind;
    struct loop *loop;
    struct ledger *ledger;
    struct arena *arena; /* of all results */
    char dir[64];        /* temporary; removed in the end */
    char url[256];       /* path of the file, or connection string */
    struct error error;  /* of the last call */
};

/** Skips the test, with a word, when there is no such server on the machine. */
void fixture_open(struct fixture *f, enum fixture_kind kind);
/** A second ledger on the same data, as another process would have it. PostgreSQL only. */
struct ledger *fixture_second(struct fixture *f);
void fixture_close(struct fixture *f);

/** Turn the loop until `*flag`; fails the test after 20 s. */
void fixture_run_until(struct fixture *f, const bool *flag);
/** … until the ledger says that it is ready. */
void fixture_run_until_ready(struct fixture *f);
void fixture_run_ms(struct fixture *f, int64_t ms);

struct op *fixture_begin(struct fixture *f);
void fixture_finish(struct fixture *f, struct op *op);

/** One call of the port, to its end. */
#define CALL_ON(f, ledger_, function, ...)                                                         \
    do {                                                                                           \
        struct op *op_ = fixture_begin(f);                                                         \
        (ledger_)->ops->function((ledger_), op_, __VA_ARGS__);                                     \
        fixture_finish((f), op_);                                                                  \
    } while (0)
/** … that must succeed. */
#define CALL(f, function, ...)                                                                     \
    do {                                                                                           \
        CALL_ON((f), (f)->ledger, function, __VA_ARGS__);                                          \
        cr_assert(eq(int, (f)->error.code, ERR_NONE), "%s", (f)->error.message);                   \
    } while (0)

/** One body, a test for each kind of ledger. */
#define CONTRACT(name)                                                                             \
    static void name(struct fixture *f);                                                           \
    Test(sqlite, name)                                                                             \
    {                                                                                              \
        struct fixture f = {0};                                                                    \
        fixture_open(&f, FIXTURE_SQLITE);                                                          \
        name(&f);                                                                                  \
        fixture_close(&f);                                                                         \
    }                                                                                              \
    Test(postgres, name)                                                                           \
    {                                                                                              \
        struct fixture f = {0};                                                                    \
        fixture_open(&f, FIXTURE_POSTGRES);                                                        \
        name(&f);                                                                                  \
        fixture_close(&f);                                                                         \
    }                                                                                              \
    static void name(struct fixture *f)

/** A claim for a conversation's binding; ids from `n`. */
struct ledger_claim fixture_claim(struct fixture *f, int n);
/** Claimed and activated. */
struct ledger_binding *fixture_binding(struct fixture *f, int n);
