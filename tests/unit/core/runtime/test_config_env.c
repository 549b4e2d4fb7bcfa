/* .env files and the order of sources. */
#include "core/runtime/config_env.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

static struct arena *arena;

static void set_up(void)
{
    arena = arena_new();
}

static void tear_down(void)
{
    arena_free(arena);
}

TestSuite(config_env, .init = set_up, .fini = tear_down, .timeout = 10);

/* "NAME=value|NAME=value" of a file; `!` for a malformed value. */
static const char *parsed(const char *text)
{
    static char *const environment[] = {(char *)"FROM_ENV=outside", NULL};
    struct config_sources sources = {.environment = environment};
    struct env_sources env;
    struct env_source file = {0};
    const char *out = "";

    env_sources_init(&env, arena, &sources);
    env_file_parse(&file, arena, text, &env.source[0]);
    for (size_t i = 0; i < file.n_entries; i++)
        out = arena_printf(arena, "%s%s%s=%s", out, i == 0 ? "" : "|", file.entries[i].name,
                           file.entries[i].value != NULL ? file.entries[i].value : "!");
    return out;
}

Test(config_env, plain_lines)
{
    cr_assert_str_eq(parsed("A=1\nB = two words \n\n# comment\n export C=3\nD=\nE"),
                     "A=1|B=two words|C=3|D=");
    cr_assert_str_eq(parsed("A=1\r\nB=2\r\n"), "A=1|B=2");
    cr_assert_str_eq(parsed("\xEF\xBB\xBF"
                            "A=1"),
                     "A=1");
    cr_assert_str_eq(parsed("A=x#y # comment\nB=# comment\nC=a b"), "A=x#y|B=|C=a b");
    cr_assert_str_eq(parsed("A=b=c\nexported=1\n=x\nno equals sign\n"), "A=b=c|exported=1");
    cr_assert_str_eq(parsed(""), "");
}

Test(config_env, quoted_values)
{
    cr_assert_str_eq(parsed("A='it\\'s # no \\n comment' # one\nB=\"x\\ty\\\"z\\q\""),
                     "A=it's # no \\n comment|B=x\ty\"z\\q");
    cr_assert_str_eq(parsed("A=\"two\nlines\"\nB=2"), "A=two\nlines|B=2");
    cr_assert_str_eq(parsed("A='x' y\nB=2"), "A=!|B=2");
    cr_assert_str_eq(parsed("A=\"open\nB=2\nC='also\nD=4"), "A=!|B=2|C=!|D=4");
    cr_assert_str_eq(parsed("A='\\"), "A=!");
}

Test(config_env, references)
{
    cr_assert_str_eq(parsed("A=x\nB=${A}-${A}\nC=${FROM_ENV}\nD=${NONE}\nE=${NONE:-dflt}"),
                     "A=x|B=x-x|C=outside|D=|E=dflt");
    cr_assert_str_eq(parsed("A=x\nB='${A}'\nC=\"${A}\"\nD=$A ${A"), "A=x|B=${A}|C=x|D=$A ${A");
    cr_assert_str_eq(parsed("FROM_ENV=inside\nB=${FROM_ENV}"), "FROM_ENV=inside|B=inside");
    cr_assert_str_eq(parsed("A=${A:x}"), "A=${A:x}");
}

Test(config_env, references_cannot_explode)
{
    char text[2000] = "A0=0123456789\n";

    for (int i = 1; i < 40; i++)
        sprintf(text + strlen(text), "A%d=${A%d}${A%d}\n", i, i - 1, i - 1);
    cr_assert_not_null(strstr(parsed(text), "|A13=!"));
}

static const char *found(const struct config_sources *sources, const char *name, const char *alias)
{
    struct env_sources env;
    struct env_value v;

    env_sources_init(&env, arena, sources);
    if (!env_find(&env, (const char *const[]){name, alias}, alias != NULL ? 2 : 1, &v))
        return "none";
    return arena_printf(arena, "%s=%s from %s", v.name, v.value != NULL ? v.value : v.why, v.where);
}

Test(config_env, order_of_sources)
{
    char *const environment[] = {(char *)"a_B=env", (char *)"EMPTY=", (char *)"=odd",
                                 (char *)"nothing", NULL};
    const struct config_sources sources = {
        .environment = environment,
        .env_files = {"A_B=file\nC=1\nC=2\nALIAS=alias\nBAD='x", "C=3\nD=4\nNAME=name"},
        .env_file_names = {".env", "dify-agent/.env"}};

    cr_assert_str_eq(found(&sources, "A_B", NULL), "a_B=env from the environment");
    cr_assert_str_eq(found(&sources, "EMPTY", NULL), "EMPTY= from the environment");
    cr_assert_str_eq(found(&sources, "C", NULL), "C=2 from .env");
    cr_assert_str_eq(found(&sources, "d", NULL), "D=4 from dify-agent/.env");
    cr_assert_str_eq(found(&sources, "NAME", "ALIAS"), "ALIAS=alias from .env");
    cr_assert_str_eq(found(&sources, "BAD", NULL), "BAD=its quoted value has no end from .env");
    cr_assert_str_eq(found(&sources, "NONE", "NOR"), "none");
}

Test(config_env, the_exact_case_is_preferred)
{
    char *const environment[] = {(char *)"Name=1", (char *)"NAME=2", (char *)"name=3", NULL};
    const struct config_sources sources = {.environment = environment};

    cr_assert_str_eq(found(&sources, "NAME", NULL), "NAME=2 from the environment");
}
