/* Bodies of the sandbox daemon's API: whatever arrives is decoded into a request within its bounds,
 * or refused with a fault that has a status. */
#include "fuzz.h"

#include "backends/shellctld/fault.h"
#include "backends/shellctld/requests.h"
#include "core/runtime/check.h"
#include "http/exchange.h"

#include <string.h>

static void check_fault(const struct error *err)
{
    POST(error_is(err));
    POST(fault_status(err) == 400 || fault_status(err) == 422);
    POST(err->message[0] != '\0');
}

static void check_run(const struct run_request *run)
{
    POST(run->script[0] != '\0');
    POST(run->cols >= 1 && run->cols <= 4096 && run->rows >= 1 && run->rows <= 4096);
    POST(run->wait.timeout_ms > 0 && run->wait.output_limit > 0 && run->wait.offset == 0);
    for (size_t i = 0; run->env != NULL && run->env[i] != NULL; i += 2)
        POST(run->env[i][0] != '\0' && strchr(run->env[i], '=') == NULL && run->env[i + 1] != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct arena *arena = arena_new();
    struct exchange x = {.arena = arena, .body_len = len};
    struct input_request input;
    struct wait_request wait;
    struct run_request run;
    struct error err = {0};
    int64_t grace_ms;

    x.body = arena_memdup(arena, bytes, len);
    if (request_read_run(&x, &run, &err))
        check_run(&run);
    else
        check_fault(&err);
    error_clear(&err);
    if (request_read_wait(&x, &wait, &err))
        POST(wait.output_limit > 0);
    else
        check_fault(&err);
    error_clear(&err);
    if (request_read_input(&x, &input, &err))
        POST(input.text != NULL && input.wait.timeout_ms > 0);
    else
        check_fault(&err);
    grace_ms = request_read_grace_ms(&x);
    POST(grace_ms >= 0 && grace_ms <= 600000);
    arena_free(arena);
    return 0;
}
