"""The HTTP edge, byte by byte: framing, keep-alive, errors, limits, deadlines, streams, drain."""

import json

from edge import Edge

GET = "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"


def test_keep_alive_serves_a_thousand_mixed_requests():
    body = "x" * 700
    too_large = "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n"
    with Edge("quiet") as edge, edge.connect() as raw:
        for i in range(250):
            assert raw.ask(GET).body == b"hello\n"
            assert raw.ask(f"GET /none/{i} HTTP/1.1\r\nHost: x\r\n\r\n").status == 404
            post = f"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}"
            assert raw.ask(post).body == body.encode()
            head = raw.ask("HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n", "HEAD")
            assert head.headers["content-length"] == "6" and not head.closes
        refused = raw.ask(too_large)
        assert refused.status == 413 and refused.closes


def test_error_shapes():
    with Edge("token=secret") as edge:
        unknown = edge.ask("GET /nope HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (unknown.status, json.loads(unknown.body)) == (404, {"detail": "Not Found"})
        unknown = edge.ask("GET /v1/nope HTTP/1.1\r\nHost: x\r\n\r\n")
        assert json.loads(unknown.body)["detail"]["code"] == "not_found"
        wrong = edge.ask("PUT /hello HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (wrong.status, json.loads(wrong.body)) == (405, {"detail": "Method Not Allowed"})
        assert wrong.headers["allow"] == "GET, HEAD"
        slash = edge.ask("GET /hello/?a=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (slash.status, slash.headers["location"]) == (307, "/hello?a=1")
        limited = edge.ask("GET /error HTTP/1.1\r\nHost: x\r\n\r\n")
        assert limited.headers["retry-after"] == "3"
        assert json.loads(limited.body)["detail"]["admitted"] == "unknown"
