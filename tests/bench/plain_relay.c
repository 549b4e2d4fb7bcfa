/* What any program in the middle must pay: a source, a relay that only reads and writes, and a sink, over
 * loopback TCP. Prints the relay's processor time for each MiB, and its rate.
 *
 *   plain_relay [MIB] [BUFFER_BYTES] */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static int listen_somewhere(int *ret_port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (bind(fd, (struct sockaddr *)&at, len) != 0 || listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        exit(1);
    *ret_port = ntohs(at.sin_port);
    return fd;
}

static int connect_to(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0)
        exit(1);
    return fd;
}

static void write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n <= 0)
            exit(1);
        bytes += n;
        len -= (size_t)n;
    }
}

static void source(int port, long mib)
{
    char *bytes = calloc(1, MIB);
    int fd = connect_to(port);

    while (mib-- > 0)
        write_all(fd, bytes, MIB);
    _exit(0);
}

static void sink(int port)
{
    char *bytes = malloc(MIB);
    int fd = connect_to(port);

    while (read(fd, bytes, MIB) > 0)
        continue;
    _exit(0);
}

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

int main(int argc, char **argv)
{
    long mib = argc > 1 ? atol(argv[1]) : 2000;
    size_t size = argc > 2 ? (size_t)atol(argv[2]) : 262144;
    char *bytes = malloc(size);
    struct timespec from, to;
    struct rusage used;
    int in_port, out_port, in, out;
    int in_listener = listen_somewhere(&in_port), out_listener = listen_somewhere(&out_port);

    if (fork() == 0)
        source(in_port, mib);
    if (fork() == 0)
        sink(out_port);
    in = accept(in_listener, NULL, NULL);
    out = accept(out_listener, NULL, NULL);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (ssize_t n; (n = read(in, bytes, size)) > 0;)
        write_all(out, bytes, (size_t)n);
    clock_gettime(CLOCK_MONOTONIC, &to);
    getrusage(RUSAGE_SELF, &used);
    printf("%.3f ms of CPU for each MiB, %.0f MiB/s\n",
           (seconds(used.ru_utime) + seconds(used.ru_stime)) * 1000 / (double)mib,
           (double)mib /
               ((double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9));
    return 0;
}
