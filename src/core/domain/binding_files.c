#include "core/domain/binding_files.h"

#include "core/runtime/buf.h"
#include "core/runtime/quote.h"
#include "core/runtime/utf8.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

/* ---- paths ----------------------------------------------------------------------------------- */

char *binding_file_path(struct arena *arena, const struct layout *layout, const char *path)
{
    const char *base = layout->workspace_dir;
    char *out, *end;

    if (path[0] == '~' && (path[1] == '\0' || path[1] == '/')) {
        base = layout->home_dir;
        path++;
    } else if (path[0] == '/') {
        base = "";
    }
    path = arena_printf(arena, "%s/%s", base, path);
    out = arena_alloc(arena, strlen(path) + 2);
    end = out;
    while (*path != '\0') {
        size_t len = strcspn(path, "/");

        if (len == 2 && path[0] == '.' && path[1] == '.') {
            while (end > out && *--end != '/') /* back to in front of the last component */
                continue;
        } else if (len > 0 && !(len == 1 && path[0] == '.')) {
            *end++ = '/';
            memcpy(end, path, len);
            end += len;
        }
        path += len + (path[len] == '/');
    }
    if (end == out)
        *end++ = '/';
    *end = '\0';
    return out;
}

/* ---- scripts --------------------------------------------------------------------------------- */

/* The first line of output is a word: `ok`, or why not. What follows `ok` is base64, because names
 * and contents are bytes and output is text. */
static const char script_head[] =
    "LC_ALL=C; export LC_ALL\n"
    "p=%s\n"
    "if ! find / -maxdepth 0 -printf x >/dev/null 2>&1 || ! base64 --version >/dev/null 2>&1\n"
    "then echo notools; exit 0; fi\n"
    "if [ -L \"$p\" ]; then echo symlink; exit 0; fi\n"
    "if [ ! -e \"$p\" ]; then echo missing; exit 0; fi\n";

char *binding_files_list_script(struct arena *arena, const char *absolute_path)
{
    const char *head = arena_printf(arena, script_head, quote_shell(arena, absolute_path));

    return arena_printf(arena,
                        "%s"
                        "if [ ! -d \"$p\" ]; then echo notdir; exit 0; fi\n"
                        "if [ ! -r \"$p\" ] || [ ! -x \"$p\" ]; then echo denied; exit 0; fi\n"
                        "echo ok\n"
                        "find \"$p\" -mindepth 1 -maxdepth 1 -printf '%%f/%%y/%%s/%%T@\\0' |\n"
                        "sort -z -t/ -k1,1 | head -z -n %d | base64 -w 0\n",
                        head, BINDING_FILES_MAX_ENTRIES + 1);
}

char *binding_files_read_script(struct arena *arena, const char *absolute_path, int64_t max_bytes)
{
    const char *head = arena_printf(arena, script_head, quote_shell(arena, absolute_path));

    return arena_printf(arena,
                        "%s"
                        "if [ -d \"$p\" ]; then echo isdir; exit 0; fi\n"
                        "if [ ! -f \"$p\" ]; then echo special; exit 0; fi\n"
                        "if [ ! -r \"$p\" ]; then echo denied; exit 0; fi\n"
                        "echo ok\n"
                        "stat -c %%s -- \"$p\"\n"
                        "dd if=\"$p\" bs=65536 iflag=nofollow,fullblock,count_bytes count=%lld "
                        "status=none | base64 -w 0\n",
                        head, (long long)max_bytes + 1);
}

/* ---- output ---------------------------------------------------------------------------------- */

static void path_problem(struct error *err, const char *word, size_t len)
{
    static const struct {
        const char *word, *message;
    } words[] = {
        {"missing", "there is no such file or directory"},
        {"symlink", "the path is a symbolic link, which is not followed"},
        {"notdir", "the path is not a directory"},
        {"isdir", "the path is a directory"},
        {"special", "the path is neither a file nor a directory"},
        {"denied", "the sandbox may not read the path"},
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (strlen(words[i].word) == len && memcmp(words[i].word, word, len) == 0) {
            error_set(err, ERR_INVALID_BINDING_PATH, "%s", words[i].message);
            return;
        }
    }
    if (len == 7 && memcmp(word, "notools", 7) == 0)
        error_set(err, ERR_BINDING_UNAVAILABLE,
                  "the sandbox has no GNU findutils and coreutils, which file access needs");
    else
        error_set(err, ERR_BINDING_UNAVAILABLE, "the script in the sandbox gave no usable output");
}

/* A cursor over the output, behind its first line when that is `ok`. */
static bool output_begin(const struct command_result *r, const char **ret, struct error *err)
{
    const char *newline;

    if (r->stop_reason != NULL) {
        error_set(err, ERR_BINDING_UNAVAILABLE, "the script in the sandbox was stopped: %s",
                  r->stop_reason);
        return false;
    }
    if (strcmp(r->status, "exited") != 0 || r->exit_code != 0 || r->truncated) {
        error_set(err, ERR_BINDING_UNAVAILABLE,
                  "the script in the sandbox did not do its work (status %s, exit code %d)",
                  r->status, r->exit_code);
        return false;
    }
    newline = memchr(r->output, '\n', r->output_len);
    if (newline == NULL || newline - r->output != 2 || memcmp(r->output, "ok", 2) != 0) {
        path_problem(err, r->output, strcspn(r->output, "\r\n"));
        return false;
    }
    *ret = newline + 1;
    return true;
}

static bool decode_base64(struct arena *arena, const char *text, size_t len, char **ret,
                          size_t *ret_len)
{
    int n, padding = 0;

    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r'))
        len--;
    *ret = arena_alloc(arena, len / 4 * 3 + 4);
    *ret_len = 0;
    if (len == 0)
        return true;
    while (padding < 2 && text[len - 1 - (size_t)padding] == '=')
        padding++;
    n = EVP_DecodeBlock((unsigned char *)*ret, (const unsigned char *)text, (int)len);
    if (n < padding || len % 4 != 0)
        return false;
    *ret_len = (size_t)(n - padding);
    return true;
}

static bool not_base64(struct error *err)
{
    error_set(err, ERR_BINDING_UNAVAILABLE, "the script in the sandbox gave damaged output");
    return false;
}

static const char *type_of(char letter)
{
    switch (letter) {
    case 'f':
        return "file";
    case 'd':
        return "dir";
    case 'l':
        return "symlink";
    default:
        return "other";
    }
}

/* One record, `name/type/size/mtime`; the name is all in front of the first slash. */
static bool parse_entry(char *record, struct binding_file *ret)
{
    char *type = strchr(record, '/');
    char *size = type != NULL ? strchr(type + 1, '/') : NULL;
    char *mtime = size != NULL ? strchr(size + 1, '/') : NULL;

    if (mtime == NULL)
        return false;
    *type = '\0';
    ret->name = record;
    ret->name_len = (size_t)(type - record);
    ret->type = type_of(type[1]);
    ret->size = type[1] == 'f' ? strtoll(size + 1, NULL, 10) : -1;
    ret->mtime = strtoll(mtime + 1, NULL, 10);
    return true;
}

bool binding_files_parse_list(struct arena *arena, const struct command_result *result,
                              struct binding_listing *ret, struct error *err)
{
    const char *text;
    char *raw;
    size_t len;

    if (!output_begin(result, &text, err))
        return false;
    if (!decode_base64(arena, text, result->output_len - (size_t)(text - result->output), &raw,
                       &len))
        return not_base64(err);
    *ret = (struct binding_listing){
        .entries = arena_alloc(arena, BINDING_FILES_MAX_ENTRIES * sizeof(*ret->entries))};
    for (size_t at = 0; at < len; at += strlen(raw + at) + 1) {
        size_t record_len = strnlen(raw + at, len - at);

        if (record_len == len - at) /* the last record, too, ends in a NUL */
            return not_base64(err);
        if (ret->n_entries == BINDING_FILES_MAX_ENTRIES) {
            ret->truncated = true;
            break;
        }
        char *record = arena_memdup(arena, raw + at, record_len);
        if (!parse_entry(record, &ret->entries[ret->n_entries]))
            return not_base64(err);
        ret->n_entries++;
    }
    return true;
}

/* Valid UTF-8? A character that the cut at `max_bytes` went through does not count against the
 * file: *ret_len ends in front of it. */
static bool is_text(const char *raw, size_t len, bool cut, size_t *ret_len)
{
    size_t at = 0;

    while (at < len) {
        bool valid;
        size_t n = utf8_next(raw + at, len - at, &valid);

        if (!valid && !(cut && at + n == len && n < 4))
            return false;
        if (!valid)
            break;
        at += n;
    }
    *ret_len = at;
    return true;
}

bool binding_files_parse_read(struct arena *arena, const struct command_result *result,
                              int64_t max_bytes, struct binding_content *ret, struct error *err)
{
    const char *text, *body;
    char *raw, *end;
    size_t len;

    if (!output_begin(result, &text, err))
        return false;
    *ret = (struct binding_content){.size = strtoll(text, &end, 10)};
    if (end == text || *end != '\n')
        return not_base64(err);
    body = end + 1;
    if (!decode_base64(arena, body, result->output_len - (size_t)(body - result->output), &raw,
                       &len))
        return not_base64(err);
    ret->truncated = len > (size_t)max_bytes;
    if (ret->truncated)
        len = (size_t)max_bytes;
    ret->binary = !is_text(raw, len, ret->truncated, &ret->text_len);
    ret->text = ret->binary ? NULL : raw;
    return true;
}
