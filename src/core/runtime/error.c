#include "core/runtime/error.h"

#include <stdio.h>
#include <string.h>

const struct error error_none;

static const struct err_info infos[ERR_COUNT] = {
    [ERR_NONE] = {"NONE", "ok", 200, false, "Success.", ""},
#define ERR(symbol, wire, status, retryable, meaning, todo)                                        \
    [ERR_##symbol] = {#symbol, wire, status, retryable, meaning, todo},
#include "core/runtime/error_codes.def"
#undef ERR
};

const struct err_info *err_info(enum err_code code)
{
    PRE(code >= ERR_NONE && code < ERR_COUNT);
    return &infos[code];
}

const char *err_wire(enum err_code code)
{
    return err_info(code)->wire;
}

/* A message that did not fit: cut in front of the last started UTF-8 character and mark the cut. */
static void mark_cut(char *message, int wanted)
{
    size_t end = ERROR_MESSAGE_MAX - 4;

    if (wanted < ERROR_MESSAGE_MAX)
        return;
    while (end > 0 && ((unsigned char)message[end] & 0xC0) == 0x80)
        end--;
    memcpy(message + end, "...", 4);
}

void error_vset(struct error *err, enum err_code code, const char *format, va_list args)
{
    char message[ERROR_MESSAGE_MAX]; /* an argument may be the old message */

    if (err == NULL)
        return;
    mark_cut(message, vsnprintf(message, sizeof(message), format, args));
    *err = (struct error){.code = code};
    memcpy(err->message, message, strlen(message) + 1);
}

void error_set(struct error *err, enum err_code code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    error_vset(err, code, format, args);
    va_end(args);
}

void error_wrap(struct error *err, enum err_code code, const char *format, ...)
{
    char message[ERROR_MESSAGE_MAX];
    va_list args;
    int used;

    va_start(args, format);
    used = vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    if (used >= 0 && used < ERROR_MESSAGE_MAX) {
        size_t room = sizeof(message) - (size_t)used;
        int more = snprintf(message + used, room, ": %s", err->message);
        used += more > 0 ? more : 0;
    }
    mark_cut(message, used);
    err->code = code;
    memcpy(err->message, message, strlen(message) + 1);
}
