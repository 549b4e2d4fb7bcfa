/* Runs a fuzz target over the files of its corpus, where libFuzzer is not linked. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    uint8_t *bytes = NULL;
    size_t len = 0, room = 0;
    do {
        room = room * 2 + 4096;
        bytes = realloc(bytes, room);
        if (bytes == NULL)
            abort();
        len += fread(bytes + len, 1, room - len, file);
    } while (len == room);
    fclose(file);
    /* exactly as long as the input: reading behind its end is found */
    uint8_t *exact = malloc(len > 0 ? len : 1);
    if (exact == NULL)
        abort();
    memcpy(exact, bytes, len);
    free(bytes);
    int status = LLVMFuzzerTestOneInput(exact, len);
    free(exact);
    return status;
}

int main(int argc, char **argv)
{
    int failed = 0, count = 0;

    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (folder == NULL) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
        return 64;
    }
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        failed += replay_file(path) != 0;
        count++;
    }
    closedir(folder);
    printf("Tested: %d | Failing: %d\n", count, failed);
    return failed == 0 && count > 0 ? 0 : 1;
}
