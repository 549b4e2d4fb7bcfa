#include "core/runtime/config_check.h"

#include "core/runtime/buf.h"
#include "core/runtime/json.h"
#include "core/runtime/quote.h"

#include <errno.h>
#include <json-c/json.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char white[] = " \t\r\n\f\v";

static bool is_blank(const char *text)
{
    return text[strspn(text, white)] == '\0';
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Whether `end`, where a conversion of `text` stopped, leaves nothing but white space. */
static bool ends_well(const char *text, const char *end)
{
    return end != text && is_blank(end);
}

static const char *check_int(const struct setting *setting, const char *value, int64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoll(value, &end, 10);
    if (!ends_well(value, end))
        return "is not an integer";
    if (errno == ERANGE || *ret < setting->min || *ret > setting->max)
        return "is out of range";
    return NULL;
}

static const char *check_seconds(const struct setting *setting, const char *value, int64_t *ret_ms)
{
    double seconds;
    char *end;

    if (value[strspn(value, "+-.0123456789eE \t\r\n")] != '\0') /* no hex, no inf, no nan */
        return "is not a number";
    seconds = strtod(value, &end);
    if (!ends_well(value, end))
        return "is not a number";
    if (!(seconds >= 0) || seconds * 1000 > (double)setting->max)
        return "is out of range";
    *ret_ms = llround(seconds * 1000);
    if (*ret_ms < setting->min || (*ret_ms == 0 && seconds > 0))
        return "is out of range";
    return NULL;
}

static const char *check_bool(const char *value, int64_t *ret)
{
    static const char *const words[] = {"false", "true", "0", "1", "no", "yes",
                                        "off",   "on",   "f", "t", "n",  "y"};
    size_t from = strspn(value, white);
    size_t len = strcspn(value + from, white);

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (strlen(words[i]) == len && strncasecmp(words[i], value + from, len) == 0 &&
            is_blank(value + from + len)) {
            *ret = i % 2;
            return NULL;
        }
    }
    return "is neither true nor false";
}

const char *config_check_number(const struct setting *setting, const char *value, int64_t *ret)
{
    if (is_blank(value))
        return "is blank";
    if (setting->kind == SETTING_INT)
        return check_int(setting, value, ret);
    if (setting->kind == SETTING_MS)
        return check_seconds(setting, value, ret);
    return check_bool(value, ret);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static bool is_port(const char *text, size_t len, long least)
{
    long port = 0;

    if (len == 0 || len > 5)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        port = port * 10 + (text[i] - '0');
    }
    return port >= least && port <= 65535;
}

/* A name, an IPv4 address, or an IPv6 address in brackets. */
static bool is_host(const char *text, size_t len)
{
    const char *allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";

    if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
        allowed = "0123456789abcdefABCDEF:.";
        text++;
        len -= 2;
    }
    return len > 0 && strspn(text, allowed) >= len;
}

static const char *check_host_port(const char *text, size_t len, long least_port)
{
    const char *colon = memrchr(text, ':', len);
    size_t host_len;

    if (memchr(text, '/', len) != NULL)
        return "has a slash in it";
    if (colon == NULL || (len > 0 && text[len - 1] == ']'))
        return "names no port";
    host_len = (size_t)(colon - text);
    if (!is_host(text, host_len))
        return "names no valid host";
    if (!is_port(colon + 1, len - host_len - 1, least_port))
        return "has a port that is not valid";
    return NULL;
}

static const char *check_url(const char *text)
{
    const char *host, *colon;
    size_t len;

    if (strncasecmp(text, "http://", 7) != 0 && strncasecmp(text, "https://", 8) != 0)
        return "is not an http or https URL";
    if (strpbrk(text, "?#") != NULL)
        return "has a query or a fragment";
    if (strpbrk(text, " \\\"<>^`{|}") != NULL)
        return "holds characters that a URL cannot hold";
    host = strstr(text, "//") + 2;
    len = strcspn(host, "/");
    if (memchr(host, '@', len) != NULL) {
        const char *at = memrchr(host, '@', len);
        len -= (size_t)(at + 1 - host);
        host = at + 1;
    }
    colon = memrchr(host, ':', len);
    if (colon == NULL || (len > 0 && host[len - 1] == ']'))
        return is_host(host, len) ? NULL : "names no valid host";
    return check_host_port(host, len, 1);
}

static const char *check_path(const char *text)
{
    return text[0] == '/' ? NULL : "is not an absolute path";
}

/* Comma-separated items, white space around each dropped. */
static const char *check_items(const char *text, bool empty_ok,
                               const char *(*check)(const char *item, size_t len))
{
    for (;;) {
        size_t len;
        const char *why;
        text += strspn(text, white);
        len = strcspn(text, ",");
        const char *next = text + len;
        while (len > 0 && strchr(white, text[len - 1]) != NULL)
            len--;
        why = len == 0 ? (empty_ok ? NULL : "has an empty item") : check(text, len);
        if (why != NULL)
            return why;
        if (*next == '\0')
            return NULL;
        text = next + 1;
    }
}

static const char *check_listen_item(const char *item, size_t len)
{
    enum { UNIX_PATH_MAX = 107 }; /* sun_path, unix(7), less its NUL */

    if (len < 5 || strncmp(item, "unix:", 5) != 0)
        return check_host_port(item, len, 0);
    if (len < 7 || item[5] != '/')
        return "has a socket path that is not absolute";
    return len - 5 <= UNIX_PATH_MAX ? NULL : "has a socket path of more than 107 bytes";
}

static const char *check_egress_item(const char *item, size_t len)
{
    const char *colon = memrchr(item, ':', len);

    if (memchr(item, '/', len) != NULL)
        return "has a slash in an item";
    if (colon == NULL || colon == item)
        return "has an item without host or port";
    if (!is_port(colon + 1, len - (size_t)(colon + 1 - item), 1))
        return "has an item with a port that is not valid";
    return NULL;
}

static const char *check_json(const char *text, enum json_type type)
{
    struct arena *arena = arena_new();
    const char *why = NULL;
    struct json_object *value;

    if (!json_parse(arena, text, strlen(text), &value, NULL, NULL))
        why = "is not valid JSON";
    else if (!json_object_is_type(value, type))
        why = type == json_type_object ? "is not a JSON object" : "is not a JSON array";
    else if (type == json_type_object && json_object_object_length(value) == 0)
        why = "is an empty object";
    for (size_t i = 0;
         why == NULL && type == json_type_array && i < json_object_array_length(value); i++) {
        if (!json_object_is_type(json_object_array_get_idx(value, i), json_type_string))
            why = "has an element that is not a string";
    }
    arena_free(arena);
    return why;
}

static const char *check_ledger_url(const char *text)
{
    if (strncmp(text, "postgresql://", 13) == 0 || strncmp(text, "postgres://", 11) == 0)
        return NULL;
    if (strncmp(text, "sqlite:/", 8) == 0 && text[8] != '\0')
        return NULL;
    return "is neither a postgresql:// URL nor sqlite:/path";
}

static const char *check_choice(const char *choices, const char *value)
{
    size_t len = strlen(value);

    for (const char *at = choices;; at++) {
        size_t n = strcspn(at, "|");
        if (n == len && memcmp(at, value, len) == 0)
            return NULL;
        at += n;
        if (*at == '\0')
            return "is not one of the choices";
    }
}

static const char *check_one(const struct setting *setting, const char *value)
{
    switch (setting->check) {
    case CHECK_ANY:
        return NULL;
    case CHECK_NOT_BLANK:
        return is_blank(value) ? "is blank" : NULL;
    case CHECK_URL:
        return check_url(value);
    case CHECK_ABS_PATH:
        return check_path(value);
    case CHECK_HOST_PORT:
        return check_host_port(value, strlen(value), 1);
    case CHECK_JSON_OBJECT:
        return check_json(value, json_type_object);
    case CHECK_JSON_STRINGS:
        return check_json(value, json_type_array);
    case CHECK_LISTEN:
        return check_items(value, false, check_listen_item);
    case CHECK_EGRESS:
        return check_items(value, true, check_egress_item);
    case CHECK_LEDGER_URL:
        return check_ledger_url(value);
    }
    UNREACHABLE("setting check");
}

const char *config_check_text(const struct setting *setting, const char *value)
{
    bool is_json = setting->check == CHECK_JSON_OBJECT || setting->check == CHECK_JSON_STRINGS;

    if (setting->kind == SETTING_CHOICE)
        return check_choice(setting->choices, value);
    if (!quote_is_utf8(value, strlen(value)))
        return "is not valid UTF-8";
    if (!is_json && !quote_is_header_safe(value))
        return "holds a control character";
    return check_one(setting, value);
}

/* ---- showing --------------------------------------------------------------------------------- */

const char *config_masked(const struct setting *setting, const char *value, struct arena *arena)
{
    const char *host = strstr(value, "://");
    const char *user_end = NULL;

    if ((setting->flags & SETTING_SECRET) != 0)
        return *value == '\0' ? "" : "***";
    if (setting->check == CHECK_URL && host != NULL)
        user_end = memrchr(host + 3, '@', strcspn(host + 3, "/?#"));
    if (user_end == NULL)
        return value;
    return arena_printf(arena, "%.*s***%s", (int)(host + 3 - value), value, user_end);
}

const char *config_shown(const struct setting *setting, const char *value, struct arena *arena)
{
    enum { SHOWN_MAX = 120 };
    const char *masked = config_masked(setting, value, arena);
    struct buf out = {0};
    const char *shown;

    json_string_n(&(struct json_writer){.out = &out}, masked, strnlen(masked, SHOWN_MAX));
    buf_drain(&out, 1); /* without its quotes */
    shown = arena_printf(arena, "%.*s%s", (int)out.len - 1, out.data,
                         strlen(masked) > SHOWN_MAX ? "..." : "");
    buf_fini(&out);
    return shown;
}
