/* The real sources: the process environment and the working directory. */
#include "core/runtime/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENV_FILE_MAX = 1024 * 1024 };

/* The text of one file; NULL when it does not exist, or after noting a problem. */
static char *file_read(const char *path, struct buf *problems)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a fifo must not hold us up */
    struct stat st;
    char *text;
    ssize_t len;

    if (fd < 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            buf_addf(problems, "%s: cannot be read: %s\n", path, strerror(errno));
        return NULL;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > ENV_FILE_MAX) {
        buf_addf(problems, "%s: is not a regular file of at most 1 MiB\n", path);
        close(fd);
        return NULL;
    }
    text = xmalloc((size_t)st.st_size + 1);
    len = read(fd, text, (size_t)st.st_size);
    close(fd);
    if (len != st.st_size || memchr(text, '\0', (size_t)len) != NULL) {
        buf_addf(problems, "%s: %s\n", path,
                 len != st.st_size ? "could not be read completely" : "holds a NUL byte");
        free(text);
        return NULL;
    }
    text[len] = '\0';
    return text;
}

struct config *config_load(struct buf *problems)
{
    static const char *const paths[] = {".env", "dify-agent/.env"};
    struct config_sources sources = {.environment = environ};
    size_t before = problems->len;
    char *texts[2];
    struct config *config;

    for (int i = 0; i < 2; i++) {
        texts[i] = file_read(paths[i], problems);
        sources.env_files[i] = texts[i];
        sources.env_file_names[i] = paths[i];
    }
    config = config_parse(&sources, problems);
    for (int i = 0; i < 2; i++)
        free(texts[i]);
    if (problems->len == before)
        return config;
    config_free(config);
    return NULL;
}
