/* Paths, scripts and their output: the scripts run in a real shell here. */
#include "core/domain/binding_files.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct arena *arena;
static char folder[] = "/tmp/bindery-files-XXXXXX";

static void set_up(void)
{
    arena = arena_new();
    cr_assert(mkdtemp(folder) != NULL);
}

static void tear_down(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    cr_assert(eq(int, system(command), 0));
    arena_free(arena);
}

TestSuite(binding_files, .init = set_up, .fini = tear_down, .timeout = 30);

static const struct layout layout = {"/home/a", "/work/b"};

Test(binding_files, paths_are_resolved_textually)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {".", "/work/b"},
        {"", "/work/b"},
        {"x", "/work/b/x"},
        {"x/./y//z/", "/work/b/x/y/z"},
        {"../c", "/work/c"},
        {"../../../..", "/"},
        {"~", "/home/a"},
        {"~/x", "/home/a/x"},
        {"~x", "/work/b/~x"},
        {"/", "/"},
        {"/etc/../x", "/x"},
        {"~/../q", "/home/q"},
        {"..x/...", "/work/b/..x/..."},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        cr_assert_str_eq(binding_file_path(arena, &layout, cases[i].in), cases[i].out, "%s",
                         cases[i].in);
}

/* Run a script as the sandbox would. */
static struct command_result run(const char *script)
{
    char *command = arena_printf(arena, "%s/script", folder);
    FILE *file = fopen(command, "w");
    size_t size = 2 * 1024 * 1024;
    char *output = arena_alloc(arena, size + 1);
    struct command_result result = {.status = "exited", .output = output};

    fputs(script, file);
    fclose(file);
    file = popen(arena_printf(arena, "sh '%s' 2>/dev/null", command), "r");
    result.output_len = fread(output, 1, size, file);
    result.exit_code = pclose(file);
    unlink(command);
    return result;
}

static void make(const char *shell)
{
    cr_assert(eq(int, system(arena_printf(arena, "cd '%s' && %s", folder, shell)), 0));
}

static const char *in_folder(const char *name)
{
    return arena_printf(arena, "%s/%s", folder, name);
}

Test(binding_files, lists_what_is_there_in_order)
{
    struct binding_listing listing;
    struct command_result result;
    struct error err;

    make("mkdir d 'sp ace' && printf 12345 > d/b && mkdir d/a-b d/a && ln -s /etc d/link && "
         "mkfifo d/fifo && touch \"d/new\nline\" 'd/q'\\''uote' d/.hidden && touch -d @1700000000 "
         "d/b");
    result = run(binding_files_list_script(arena, in_folder("d")));
    cr_assert(binding_files_parse_list(arena, &result, &listing, &err), "%s", err.message);
    cr_assert(eq(sz, listing.n_entries, (size_t)8));
    cr_assert_str_eq(listing.entries[0].name, ".hidden");
    cr_assert_str_eq(listing.entries[1].name, "a");
    cr_assert_str_eq(listing.entries[2].name, "a-b");
    cr_assert_str_eq(listing.entries[2].type, "dir");
    cr_assert(eq(i64, listing.entries[2].size, -1));
    cr_assert_str_eq(listing.entries[3].name, "b");
    cr_assert_str_eq(listing.entries[3].type, "file");
    cr_assert(eq(i64, listing.entries[3].size, 5));
    cr_assert(eq(i64, listing.entries[3].mtime, 1700000000));
    cr_assert_str_eq(listing.entries[4].type, "other");
    cr_assert_str_eq(listing.entries[5].type, "symlink");
    cr_assert_str_eq(listing.entries[6].name, "new\nline");
    cr_assert(not(listing.truncated));
}

Test(binding_files, a_thousand_entries_and_no_more)
{
    struct binding_listing listing;
    struct command_result result;
    struct error err;

    make("mkdir d && cd d && seq -f %04g 1000 | xargs touch");
    result = run(binding_files_list_script(arena, in_folder("d")));
    cr_assert(binding_files_parse_list(arena, &result, &listing, &err));
    cr_assert(eq(sz, listing.n_entries, (size_t)1000));
    cr_assert(not(listing.truncated));
    make("touch d/0000");
    result = run(binding_files_list_script(arena, in_folder("d")));
    cr_assert(binding_files_parse_list(arena, &result, &listing, &err));
    cr_assert(eq(sz, listing.n_entries, (size_t)1000));
    cr_assert(listing.truncated);
    cr_assert_str_eq(listing.entries[0].name, "0000");
    cr_assert_str_eq(listing.entries[999].name, "0999");
}

static struct binding_content read_file(const char *name, int64_t max_bytes)
{
    struct binding_content content;
    struct error err;
    struct command_result result =
        run(binding_files_read_script(arena, in_folder(name), max_bytes));

    cr_assert(binding_files_parse_read(arena, &result, max_bytes, &content, &err), "%s",
              err.message);
    return content;
}

Test(binding_files, reads_text_and_knows_what_is_none)
{
    struct binding_content c;

    make("printf 'caf\\303\\251' > text && printf 'a\\377b' > bytes && printf '' > empty && "
         "printf 'a\\0b' > nul && head -c 300000 /dev/zero | tr '\\0' x > big");
    c = read_file("text", 262144);
    cr_assert_str_eq(c.text, "caf\xc3\xa9");
    cr_assert(eq(i64, c.size, 5));
    cr_assert(not(c.truncated || c.binary));
    c = read_file("text", 4); /* the cut goes through the last character */
    cr_assert(c.truncated && !c.binary);
    cr_assert(eq(sz, c.text_len, (size_t)3));
    c = read_file("bytes", 262144);
    cr_assert(c.binary && c.text == NULL);
    c = read_file("empty", 262144);
    cr_assert(eq(sz, c.text_len, (size_t)0));
    cr_assert(eq(i64, c.size, 0));
    c = read_file("nul", 262144);
    cr_assert(not(c.binary));
    cr_assert(eq(sz, c.text_len, (size_t)3));
    c = read_file("big", 262144);
    cr_assert(c.truncated);
    cr_assert(eq(sz, c.text_len, (size_t)262144));
    cr_assert(eq(i64, c.size, 300000));
    c = read_file("big", 300000);
    cr_assert(not(c.truncated));
}

static enum err_code list_code(const char *name)
{
    struct binding_listing listing;
    struct error err = {0};
    struct command_result result = run(binding_files_list_script(arena, in_folder(name)));

    return binding_files_parse_list(arena, &result, &listing, &err) ? ERR_NONE : err.code;
}

static enum err_code read_code(const char *name)
{
    struct binding_content content;
    struct error err = {0};
    struct command_result result = run(binding_files_read_script(arena, in_folder(name), 10));

    return binding_files_parse_read(arena, &result, 10, &content, &err) ? ERR_NONE : err.code;
}

Test(binding_files, wrong_paths_are_the_callers_fault)
{
    make("mkdir d && printf x > f && ln -s f flink && ln -s d dlink && mkfifo pipe");
    cr_assert(eq(int, list_code("none"), ERR_INVALID_BINDING_PATH));
    cr_assert(eq(int, list_code("f"), ERR_INVALID_BINDING_PATH));
    cr_assert(eq(int, list_code("dlink"), ERR_INVALID_BINDING_PATH));
    cr_assert(eq(int, list_code("d"), ERR_NONE));
    cr_assert(eq(int, read_code("none"), ERR_INVALID_BINDING_PATH));
    cr_assert(eq(int, read_code("d"), ERR_INVALID_BINDING_PATH));
    cr_assert(eq(int, read_code("flink"), ERR_INVALID_BINDING_PATH));
    cr_assert(eq(int, read_code("pipe"), ERR_INVALID_BINDING_PATH));
    cr_assert(eq(int, read_code("a'; touch '$PWD'/pwned; '"), ERR_INVALID_BINDING_PATH));
    cr_assert(eq(int, read_code("f"), ERR_NONE));
}

Test(binding_files, output_that_is_none_of_ours_is_refused)
{
    static const char *const outputs[] = {"",          "ok",        "ok\n12\n!!!!",   "ok\nx\nQUJD",
                                          "ok\n3\nQU", "notools\n", "sh: not found\n"};
    struct binding_content content;
    struct binding_listing listing;
    struct error err;

    for (size_t i = 0; i < sizeof(outputs) / sizeof(*outputs); i++) {
        struct command_result r = {
            .status = "exited", .output = outputs[i], .output_len = strlen(outputs[i])};

        cr_assert(not(binding_files_parse_read(arena, &r, 10, &content, &err)), "%zu", i);
        cr_assert(eq(int, err.code, ERR_BINDING_UNAVAILABLE), "%zu", i);
        if (i >= 2)
            cr_assert(not(binding_files_parse_list(arena, &r, &listing, &err)), "%zu", i);
    }
    struct command_result lost = {.status = "lost", .output = "ok\n", .output_len = 3};
    cr_assert(not(binding_files_parse_list(arena, &lost, &listing, &err)));
    lost = (struct command_result){.status = "terminated", .output = "", .stop_reason = "timeout"};
    cr_assert(not(binding_files_parse_list(arena, &lost, &listing, &err)));
}
