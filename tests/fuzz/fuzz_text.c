/* Foreign text on its way into shells, URLs, logs and JSON. */
#include "fuzz.h"

#include "core/runtime/buf.h"
#include "core/runtime/json.h"
#include "core/runtime/quote.h"
#include "core/runtime/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Encoding and decoding a URL segment gives the text back; the encoded form is all safe. */
static void url_round_trip(struct arena *arena, const char *text)
{
    char *encoded = quote_url_segment(arena, text, false);
    char *decoded = NULL;

    POST(strspn(encoded, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~%") ==
         strlen(encoded));
    POST(quote_url_decode(arena, encoded, strlen(encoded), &decoded));
    POST(strcmp(decoded, text) == 0);
}

/* A shell word is one pair of quotes after another, with only escaped quotes between. */
static void shell_word(struct arena *arena, const char *text)
{
    const char *word = quote_shell(arena, text);
    size_t at = 0;

    for (;;) {
        POST(*word++ == '\'');
        while (*word != '\'')
            POST(*word++ == text[at++]);
        word++;
        if (*word == '\0')
            break;
        POST(strncmp(word, "\\'", 2) == 0 && text[at++] == '\'');
        word += 2;
    }
    POST(text[at] == '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct arena *arena = arena_new();
    struct buf clean = {0}, json = {0};
    struct json_object *value = NULL;
    char *text = xstrndup((const char *)bytes, strnlen((const char *)bytes, len));
    char *ignored;

    url_round_trip(arena, text);
    shell_word(arena, text);
    (void)quote_url_decode(arena, (const char *)bytes, len, &ignored);
    utf8_add(&clean, (const char *)bytes, len);
    POST(memchr(bytes, 0, len) != NULL || quote_is_utf8(buf_text(&clean), clean.len));
    POST(!quote_is_utf8((const char *)bytes, len) ||
         (clean.len == len && (len == 0 || memcmp(clean.data, bytes, len) == 0)));
    json_string_n(&(struct json_writer){.out = &json}, (const char *)bytes, len);
    POST(json_parse(arena, json.data, json.len, &value, NULL, NULL));
    free(text);
    buf_fini(&clean);
    buf_fini(&json);
    arena_free(arena);
    return 0;
}
