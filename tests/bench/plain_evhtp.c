/* A plain libevhtp server whose one route answers as /healthz does: what our HTTP edge is measured
 * against. Usage: plain_evhtp PORT */
#include <event2/buffer.h>
#include <event2/event.h>
#include <evhtp/evhtp.h>
#include <stdlib.h>
#include <string.h>

static const char body[] = "{\"status\":\"ok\"}";

static void answer(evhtp_request_t *request, void *ctx)
{
    (void)ctx;
    evhtp_headers_add_header(request->headers_out,
                             evhtp_header_new("Content-Type", "application/json", 0, 0));
    evbuffer_add(request->buffer_out, body, sizeof body - 1);
    evhtp_send_reply(request, EVHTP_RES_OK);
}

int main(int argc, char **argv)
{
    struct event_base *base = event_base_new();
    evhtp_t *server = evhtp_new(base, NULL);

    if (argc != 2 || evhtp_bind_socket(server, "127.0.0.1", (uint16_t)atoi(argv[1]), 1024) != 0)
        return 1;
    evhtp_set_cb(server, "/healthz", answer, NULL);
    return event_base_loop(base, 0);
}
