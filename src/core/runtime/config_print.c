/* Settings on their way out: --print-config, docs/settings.md, the log's redaction. */
#include "core/runtime/config.h"

#include "core/runtime/config_check.h"
#include "core/runtime/config_table.h"
#include "core/runtime/json.h"
#include "core/runtime/log.h"
#include "core/runtime/quote.h"

#include <inttypes.h>
#include <string.h>

static const char *text_of(const struct config *config, const struct setting *s)
{
    return *(const char *const *)(const void *)((const char *)config + s->offset);
}

static int64_t number_of(const struct config *config, const struct setting *s)
{
    const char *field = (const char *)config + s->offset;

    if (s->kind == SETTING_BOOL)
        return *(const bool *)field;
    return *(const int64_t *)(const void *)field;
}

static bool is_text(const struct setting *s)
{
    return s->kind == SETTING_TEXT || s->kind == SETTING_CHOICE;
}

static void number_write(struct buf *out, const struct setting *s, int64_t number)
{
    if (s->kind == SETTING_BOOL)
        buf_adds(out, number != 0 ? "true" : "false");
    else if (s->kind == SETTING_MS)
        buf_addf(out, "%.12g", (double)number / 1000);
    else
        buf_addf(out, "%" PRId64, number);
}

/* As a .env file would take it: quoted when it must be. */
static void text_write(struct buf *out, const char *text)
{
    if (text[strcspn(text, " \t\"'#$\\")] == '\0')
        buf_adds(out, text);
    else if (strchr(text, '\'') == NULL && strchr(text, '\\') == NULL)
        buf_addf(out, "'%s'", text);
    else
        json_string(&(struct json_writer){.out = out}, text);
}

void config_print(const struct config *config, struct buf *out)
{
    struct arena *arena = arena_new();

    for (size_t i = 0; i < n_settings; i++) {
        const struct setting *s = &settings[i];
        const char *text = is_text(s) ? text_of(config, s) : NULL;
        if (is_text(s) && text == NULL) {
            buf_addf(out, "# %s is not set\n", s->name);
            continue;
        }
        buf_addf(out, "%s=", s->name);
        if (is_text(s))
            text_write(out, config_masked(s, text, arena));
        else
            number_write(out, s, number_of(config, s));
        buf_addc(out, '\n');
    }
    arena_free(arena);
}

/* ---- docs/settings.md ------------------------------------------------------------------------- */

static void cell(struct buf *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '|')
            buf_addc(out, '\\');
        buf_addc(out, *text);
    }
}

static void document_default(const struct setting *s, struct buf *out)
{
    if (!is_text(s)) {
        buf_addc(out, '`');
        number_write(out, s, s->number_default);
        buf_addc(out, '`');
    } else if (s->text_default == NULL) {
        buf_adds(out, (s->flags & SETTING_REQUIRED) != 0 ? "required" : "not set");
    } else if (*s->text_default == '\0') {
        buf_adds(out, "empty");
    } else {
        buf_addf(out, "`%s`", s->text_default);
    }
}

static void document_notes(const struct setting *s, struct buf *out)
{
    static const struct {
        unsigned flag;
        const char *backend;
    } backends[] = {{SETTING_FOR_LOCAL, "local"},
                    {SETTING_FOR_ENTERPRISE, "enterprise"},
                    {SETTING_FOR_OPENSHELL, "openshell"},
                    {SETTING_FOR_E2B, "e2b"}};
    const char *names[SETTING_NAMES_MAX];
    size_t n_names = setting_names(s, names);

    for (size_t i = 0; i < sizeof(backends) / sizeof(*backends); i++) {
        if ((s->flags & backends[i].flag) != 0)
            buf_addf(out, " Checked only when the backend is `%s`.", backends[i].backend);
    }
    for (size_t i = 1; i < n_names; i++)
        buf_addf(out, " Also read as `%s`.", names[i]);
    if ((s->flags & SETTING_SECRET) != 0)
        buf_adds(out, " Secret: never shown.");
}

void config_document(struct buf *out)
{
    buf_adds(out, "| Setting | Default | Takes | Meaning |\n|---|---|---|---|\n");
    for (size_t i = 0; i < n_settings; i++) {
        const struct setting *s = &settings[i];
        char expects[160];
        setting_expects(s, expects, sizeof(expects));
        buf_addf(out, "| `%s` | ", s->name);
        document_default(s, out);
        buf_adds(out, " | ");
        cell(out, expects);
        buf_adds(out, " | ");
        cell(out, s->doc);
        document_notes(s, out);
        buf_adds(out, " |\n");
    }
}

/* ---- redaction ------------------------------------------------------------------------------- */

/* The password of a URL, as it stands there and decoded: libraries print either. */
static void redact_password(const char *url, struct arena *arena)
{
    const char *start = strstr(url, "://");
    const char *at, *colon;
    char *plain;
    size_t len;

    if (start == NULL)
        return;
    start += 3;
    len = strcspn(start, "/?#");
    at = memrchr(start, '@', len);
    colon = at == NULL ? NULL : memchr(start, ':', (size_t)(at - start));
    if (colon == NULL)
        return;
    len = (size_t)(at - colon - 1);
    log_redact(arena_memdup(arena, colon + 1, len));
    if (quote_url_decode(arena, colon + 1, len, &plain))
        log_redact(plain);
}

void config_register_secrets(const struct config *config)
{
    struct arena *arena = arena_new();

    for (size_t i = 0; i < n_settings; i++) {
        const struct setting *s = &settings[i];
        const char *text = s->kind == SETTING_TEXT ? text_of(config, s) : NULL;
        if (text == NULL)
            continue;
        if ((s->flags & SETTING_SECRET) != 0)
            log_redact(text);
        if (s->check == CHECK_URL || s->check == CHECK_LEDGER_URL)
            redact_password(text, arena);
    }
    arena_free(arena);
}
