#include "core/runtime/error.h"
#include "core/runtime/quote.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <ctype.h>
#include <string.h>

TestSuite(error, .timeout = 10);

/* The table: wire codes are words, unique for their status; statuses are errors, every row says what to do. */
Test(error, table)
{
    for (int a = 1; a < ERR_COUNT; a++) {
        const struct err_info *info = err_info((enum err_code)a);
        cr_assert(info->http_status >= 400 && info->http_status <= 599, "%s", info->symbol);
        cr_assert(info->meaning[0] != '\0' && info->todo[0] != '\0', "%s", info->symbol);
        for (const char *c = info->wire; *c != '\0'; c++)
            cr_assert(c[0] == '_' || islower((unsigned char)*c), "%s", info->wire);
        for (int b = 1; b < a; b++) {
            const struct err_info *other = err_info((enum err_code)b);
            cr_assert(info->http_status != other->http_status ||
                          strcmp(info->wire, other->wire) != 0,
                      "%s and %s cannot be told apart", info->symbol, other->symbol);
        }
    }
    cr_assert_str_eq(err_wire(ERR_NONE), "ok");
}

Test(error, setting_and_clearing)
{
    struct error e = {.upstream_status = 5};

    error_set(&e, ERR_CONFLICT, "%s is %d", "x", 3);
    cr_assert(error_is(&e));
    cr_assert(eq(int, e.code, ERR_CONFLICT));
    cr_assert(eq(int, e.upstream_status, 0));
    cr_assert_str_eq(e.message, "x is 3");
    error_set(NULL, ERR_CONFLICT, "nobody asks");
    error_set(&e, ERR_INTERNAL, "was: %s", e.message);
    cr_assert_str_eq(e.message, "was: x is 3", "an argument may be the old message");
    error_clear(&e);
    cr_assert(not(error_is(&e)));
}

Test(error, wrapping_keeps_what_the_peer_said)
{
    struct error e = {0};

    error_set(&e, ERR_UPSTREAM_STATUS, "no room");
    e.upstream_status = 503;
    e.admitted = ADMITTED_UNKNOWN;
    error_wrap(&e, ERR_BINDING_CREATE, "create %s", "b1");
    cr_assert_str_eq(e.message, "create b1: no room");
    cr_assert(eq(int, e.code, ERR_BINDING_CREATE));
    cr_assert(eq(int, e.upstream_status, 503));
    cr_assert(eq(int, e.admitted, ADMITTED_UNKNOWN));
    error_wrap(&e, ERR_INTERNAL, "again %s", e.message);
    cr_assert_str_eq(e.message, "again create b1: no room: create b1: no room");
}

/* Whatever the length, a cut message ends in dots and stays well-formed. */
Test(error, long_messages_are_cut_between_characters)
{
    char text[700];
    struct error e;

    for (size_t pad = 0; pad < 4; pad++) {
        memset(text, 'a', pad);
        text[pad] = '\0';
        while (strlen(text) < 600)
            strcat(text, "€");
        error_set(&e, ERR_INTERNAL, "%s", text);
        cr_assert(lt(sz, strlen(e.message), ERROR_MESSAGE_MAX));
        cr_assert_str_eq(e.message + strlen(e.message) - 3, "...");
        cr_assert(quote_is_utf8(e.message, strlen(e.message)));
        error_set(&e, ERR_INTERNAL, "inner");
        error_wrap(&e, ERR_INTERNAL, "%s", text);
        cr_assert_str_eq(e.message + strlen(e.message) - 3, "...");
        cr_assert(quote_is_utf8(e.message, strlen(e.message)));
        error_set(&e, ERR_INTERNAL, "%s", text);
        error_wrap(&e, ERR_INTERNAL, "outer");
        cr_assert(eq(int, strncmp(e.message, "outer: ", 7), 0));
        cr_assert_str_eq(e.message + strlen(e.message) - 3, "...");
        cr_assert(quote_is_utf8(e.message, strlen(e.message)));
    }
    text[ERROR_MESSAGE_MAX - 1] = '\0';
    error_set(&e, ERR_INTERNAL, "%s", text);
    cr_assert_str_eq(e.message, text, "what fits is not cut");
}
