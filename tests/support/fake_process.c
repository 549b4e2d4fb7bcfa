#include "support/fake_process.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static void child(const char *python, const char *module, const char *const *args, int out)
{
    const char *argv[32] = {python, "-B", "-m", module};
    int n = 4;

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    for (; *args != NULL && n < 31; args++)
        argv[n++] = *args;
    setenv("PYTHONPATH", BINDERY_TESTS_DIR "/fakes", 1);
    unsetenv("ASAN_OPTIONS"); /* leaks of a fake's own children are no concern of the test */
    dup2(out, STDOUT_FILENO);
    execvp(python, (char *const *)argv);
    _exit(127);
}

void fake_process_start(struct fake_process *fake, const char *python, const char *module,
                        const char *const *args)
{
    int pipe_ends[2];
    char line[128];
    FILE *out;
    int n;

    cr_assert(pipe(pipe_ends) == 0);
    if (fork() == 0)
        child(python, module, args, pipe_ends[1]);
    close(pipe_ends[1]);
    out = fdopen(pipe_ends[0], "r");
    n = fgets(line, sizeof(line), out) == NULL
            ? 0
            : sscanf(line, "listening %d %d", &fake->port, &fake->control_port);
    cr_assert(n >= 1, "%s did not start", module);
    if (n == 1)
        fake->control_port = fake->port;
    fclose(out);
}

static void write_all(int fd, const char *text)
{
    size_t len = strlen(text);

    while (len > 0) {
        ssize_t n = write(fd, text, len);
        cr_assert(n > 0, "the fake went away");
        text += n;
        len -= (size_t)n;
    }
}

void fake_process_request(const struct fake_process *fake, const char *method, const char *path,
                          const char *body, char *ret, size_t cap)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)fake->control_port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    static char answer[1 << 20];
    char head[512], *start;
    size_t len = 0, wanted = 0;
    int status = 0;

    cr_assert(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
    snprintf(head, sizeof(head),
             "%s %s HTTP/1.1\r\nHost: fake\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
             method, path, strlen(body));
    write_all(fd, head);
    write_all(fd, body);
    for (;;) {
        ssize_t n = read(fd, answer + len, sizeof(answer) - 1 - len);
        if (n <= 0)
            break;
        len += (size_t)n;
        answer[len] = '\0';
        start = strstr(answer, "\r\n\r\n");
        if (start != NULL) {
            const char *field = strcasestr(answer, "content-length:");
            wanted = field != NULL ? strtoul(field + 15, NULL, 10) : 0;
            if (len - (size_t)(start + 4 - answer) >= wanted)
                break;
        }
    }
    close(fd);
    cr_assert(sscanf(answer, "HTTP/1.1 %d", &status) == 1 && status / 100 == 2, "%s %s: %d", method,
              path, status);
    start = strstr(answer, "\r\n\r\n");
    if (ret != NULL && start != NULL)
        snprintf(ret, cap, "%s", start + 4);
}
