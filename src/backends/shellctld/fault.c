#include "backends/shellctld/fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *wire;
    int status;
    enum err_code code;
} faults[] = {
#define FAULT(symbol, wire, status, code) {wire, status, ERR_##code},
#include "backends/shellctld/faults.def"
#undef FAULT
};

void fault_set(struct error *err, enum fault fault, const char *format, ...)
{
    char message[ERROR_MESSAGE_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    error_set(err, faults[fault].code, "%s", message);
    if (err != NULL)
        snprintf(err->upstream_code, sizeof(err->upstream_code), "%s", faults[fault].wire);
}

const char *fault_code(const struct error *err)
{
    return err->upstream_code[0] != '\0' ? err->upstream_code : err_wire(err->code);
}

int fault_status(const struct error *err)
{
    for (size_t i = 0; i < FAULT_COUNT; i++)
        if (strcmp(faults[i].wire, err->upstream_code) == 0)
            return faults[i].status;
    return err_info(err->code)->http_status;
}
