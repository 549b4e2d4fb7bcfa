/* A .env file: it splits into names and values within bounds, whatever is in it; the settings made of
 * it are either all good and can be shown, or come with a problem. */
#include "fuzz.h"

#include "core/runtime/check.h"
#include "core/runtime/config.h"
#include "core/runtime/config_env.h"

#include <stdlib.h>
#include <string.h>

enum { VALUE_BOUND = 64 * 1024 };

static void split(const char *text)
{
    struct arena *arena = arena_new();
    struct env_source source = {0};
    int line = 0;

    env_file_parse(&source, arena, text, NULL);
    for (size_t i = 0; i < source.n_entries; i++) {
        const struct env_entry *e = &source.entries[i];
        POST(e->name[0] != '\0' && strpbrk(e->name, "= \t\n#") == NULL);
        POST((e->value == NULL) == (e->why != NULL));
        POST(e->value == NULL || strlen(e->value) <= VALUE_BOUND + strlen(text));
        POST(e->line >= line);
        line = e->line;
    }
    arena_free(arena);
}

static struct config *settings_of(const char *text, struct buf *problems)
{
    char *const environment[] = {(char *)"HOME=/home/someone", NULL};

    return config_parse(&(struct config_sources){.environment = environment,
                                                 .env_files = {text},
                                                 .env_file_names = {".env"}},
                        problems);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct buf problems = {0}, printed = {0};
    char *text = xstrndup((const char *)bytes, memchr(bytes, 0, len) != NULL ? 0 : len);
    struct config *config;

    split(text);
    config = settings_of(text, &problems);
    POST((config == NULL) == (problems.len != 0));
    if (config != NULL)
        config_print(config, &printed);
    config_free(config);
    free(text);
    buf_fini(&problems);
    buf_fini(&printed);
    return 0;
}
