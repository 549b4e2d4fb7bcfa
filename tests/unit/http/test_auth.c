#include "http/auth.h"

#include <criterion/criterion.h>

TestSuite(auth, .timeout = 10);

/* The table of Dify Agent's control plane, section 1.2. */
Test(auth, follows_the_control_plane)
{
    const char *missing = "missing authorization header";
    const char *scheme = "invalid authorization scheme";
    const char *token = "invalid bearer token";
    const struct {
        const char *configured, *header, *failure;
    } cases[] = {
        {NULL, NULL, NULL},
        {"", NULL, NULL},
        {" \t", "Basic x", NULL},
        {"s3cret", NULL, missing},
        {"s3cret", "", scheme},
        {"s3cret", "Bearer", scheme},
        {"s3cret", "Bearer ", scheme},
        {"s3cret", "Bearer   ", scheme},
        {"s3cret", "Basic s3cret", scheme},
        {"s3cret", "Bearers s3cret", scheme},
        {"s3cret", "s3cret", scheme},
        {"s3cret", "Bearer s3cret", NULL},
        {"s3cret", "bEARER s3cret", NULL},
        {"s3cret", "Bearer   s3cret  ", NULL},
        {" s3cret ", "Bearer s3cret", NULL},
        {"s3cret", "Bearer s3cre", token},
        {"s3cret", "Bearer s3cretx", token},
        {"s3cret", "Bearer S3CRET", token},
        {"s3cret", "Bearer s3cret s3cret", token},
        {"s3cret", "Bearer \xff\xfe", token},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *got = auth_check_bearer(cases[i].configured, cases[i].header);
        if (cases[i].failure == NULL)
            cr_assert_null(got, "%zu: %s", i, got);
        else
            cr_assert_str_eq(got, cases[i].failure, "%zu", i);
    }
}
