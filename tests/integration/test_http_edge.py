"""The HTTP edge, byte by byte: framing, keep-alive, errors, identity, streams.

Limits, deadlines and drain are in test_http_limits.py.
"""

import hashlib
import json
import re
import threading
import time

import pytest

from edge import Closed, Edge, Raw

HOST = "Host: x\r\n"
GET = f"GET /hello HTTP/1.1\r\n{HOST}\r\n"
MARKER = f"GET /marker HTTP/1.1\r\n{HOST}\r\n"


def post(path: str, body: bytes | str, extra: str = "") -> bytes:
    body = body.encode() if isinstance(body, str) else body
    head = f"POST {path} HTTP/1.1\r\n{HOST}Content-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


def chunked(path: str, coded: bytes | str, extra: str = "") -> bytes:
    coded = coded.encode() if isinstance(coded, str) else coded
    return f"POST {path} HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n{extra}\r\n".encode() + coded


@pytest.fixture(scope="module")
def edge():
    with Edge("token=secret") as one:
        yield one


# ---- keep-alive (A37) ---------------------------------------------------------------------------


def test_keep_alive_serves_a_thousand_mixed_requests(edge):
    with edge.connect() as raw:
        for i in range(250):
            assert raw.ask(GET).body == b"hello\n"
            assert raw.ask(f"GET /none/{i} HTTP/1.1\r\n{HOST}\r\n").status == 404
            assert raw.ask(post("/echo", "x" * 700)).body == b"x" * 700
            head = raw.ask(f"HEAD /hello HTTP/1.1\r\n{HOST}\r\n", "HEAD")
            assert head.headers["content-length"] == "6" and not head.closes
            assert raw.ask(f"DELETE /empty HTTP/1.1\r\n{HOST}\r\n").status == 204
        refused = raw.ask(f"POST /json HTTP/1.1\r\n{HOST}Content-Length: 70000\r\n\r\n")
        assert refused.status == 413 and refused.closes


def test_no_body_behind_head_and_204(edge):
    with edge.connect() as raw:
        raw.send(f"HEAD /hello HTTP/1.1\r\n{HOST}\r\nDELETE /empty HTTP/1.1\r\n{HOST}\r\n{GET}")
        assert raw.answer("HEAD").status == 200
        empty = raw.answer()
        assert empty.status == 204 and "content-length" not in empty.headers
        assert raw.answer().body == b"hello\n"


@pytest.mark.parametrize(
    "request_text, keeps",
    [
        (GET, True),
        (f"GET /hello HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n", False),
        (f"GET /hello HTTP/1.1\r\n{HOST}Connection: foo, close\r\n\r\n", False),
        ("GET /hello HTTP/1.0\r\n\r\n", False),
        ("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
    ],
)
def test_connection_is_kept_or_closed_as_asked(edge, request_text, keeps):
    with edge.connect() as raw:
        answer = raw.ask(request_text)
        assert answer.status == 200 and answer.closes == (not keeps)
        if keeps:
            assert raw.ask(request_text).status == 200
        else:
            assert raw.is_closed(5)
    if "1.0" in request_text and keeps:
        assert answer.headers["connection"] == "keep-alive"


def test_http_1_0_never_gets_chunks(edge):
    with edge.connect() as raw:
        answer = raw.ask("GET /big/100000?chunked=1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert "transfer-encoding" not in answer.headers
        assert len(answer.body) == 100000 and answer.closes


# ---- pipelining ---------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order(edge):
    with edge.connect() as raw:
        raw.send((GET + f"GET /nap/20 HTTP/1.1\r\n{HOST}\r\n").encode() * 5 + post("/echo", "end"))
        for _ in range(5):
            assert raw.answer().body == b"hello\n"
            assert raw.answer().body == b"slept\n"
        assert raw.answer().body == b"end"


def test_a_thousand_pipelined_requests_in_one_write(edge):
    with edge.connect() as raw:
        raw.send(GET.encode() * 1000)
        for _ in range(1000):
            assert raw.answer().body == b"hello\n"


# ---- reads that end anywhere --------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_bytes, body",
    [
        (f"GET /seen/a%2Fb/x/y?q=1%2B2 HTTP/1.1\r\n{HOST}\r\n".encode(), None),
        (post("/echo", "hello world"), b"hello world"),
        (chunked("/echo", "5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nT: v\r\n\r\n"), b"hello world"),
    ],
)
def test_split_at_every_offset(edge, request_bytes, body):
    with edge.connect() as raw:
        want = raw.ask(request_bytes)
        for at in range(1, len(request_bytes)):
            raw.send(request_bytes[:at])
            time.sleep(0.001)
            raw.send(request_bytes[at:])
            answer = raw.answer()
            assert answer.status == 200
            if body is None:
                assert re.sub(rb"id=\w+", b"", answer.body) == re.sub(rb"id=\w+", b"", want.body)
            else:
                assert answer.body == body, at


# ---- chunked bodies (A40) -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "coded",
    [
        b"".join(b"1\r\n%c\r\n" % c for c in b"hello world") + b"0\r\n\r\n",
        b"b;ext=1\r\nhello world\r\n0;last=1\r\n\r\n",
        b"B\r\nhello world\r\n0\r\nTrailer: 1\r\nOther: 2\r\n\r\n",
        b"000000b \r\nhello world\r\n0\r\n\r\n",
    ],
)
def test_chunked_bodies_and_the_request_behind(edge, coded):
    with edge.connect() as raw:
        raw.send(chunked("/echo", coded) + GET.encode())
        assert raw.answer().body == b"hello world"
        assert raw.answer().body == b"hello\n"


@pytest.mark.parametrize(
    "coded", ["FFFFFFFFFFFFFFFF\r\n", "-1\r\n", "0x10\r\n", "\r\n", "5\r\nhelloX\r\n", "5\nhello"]
)
@pytest.mark.parametrize("path", ["/echo", "/sink"])
def test_malformed_chunks_get_400_and_a_close(edge, coded, path):
    token = "Authorization: Bearer secret\r\n"
    with edge.connect() as raw:
        answer = raw.ask(chunked(path, coded.encode() + MARKER.encode(), token))
        assert answer.status == 400 and answer.closes
        assert "malformed" in json.loads(answer.body)["detail"]["message"]
        assert raw.read_rest() == b""


def test_an_endless_chunked_body_is_413_in_bounded_memory(edge):
    before = edge.resident_bytes()
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    with edge.connect() as raw:
        raw.send(chunked("/echo", ""))
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(16384):
                raw.send(piece)
    assert edge.resident_bytes() - before < 16 << 20  # with the sanitizer's shadow and quarantine
    with edge.connect() as raw:
        raw.send(chunked("/echo", piece * 17))
        assert raw.answer().status == 413


# ---- smuggling (A41) ----------------------------------------------------------------------------

SMUGGLING = [
    "Content-Length: 5\r\nContent-Length: 6\r\n",
    "Content-Length: 5\r\nContent-Length: 5\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length: +5\r\n",
    "Content-Length: 0x5\r\n",
    "Content-Length : 5\r\n",
    "Content-Length: 18446744073709551617\r\n",
    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: \x0bchunked\r\n",
    "Transfer-Encoding : chunked\r\n",
    "Transfer-Encoding: identity\r\n",
    "X: y\r\n Content-Length: 5\r\n",
    "X: y\rContent-Length: 5\r\n",
    "X: y\nContent-Length: 5\r\n",
    "X: a\0b\r\n",
    "Host: y\r\n",
]


@pytest.mark.parametrize("fields", SMUGGLING)
def test_a_second_reading_is_refused(edge, fields):
    handled = edge.counters()["handled"]
    with edge.connect() as raw:
        raw.send(f"POST /echo HTTP/1.1\r\n{HOST}{fields}\r\n" + "0\r\n\r\n" + GET)
        answer = raw.answer()
        assert answer.status == 400 and answer.closes
        assert json.loads(answer.body)["detail"]["code"] == "bad_request"
        assert raw.read_rest() == b""
    assert edge.counters()["handled"] == handled


@pytest.mark.parametrize(
    "text",
    [
        "GET /hello HTTP/9.9\r\nHost: x\r\n\r\n",
        "GET /hello HTTP/1.1\r\n\r\n",
        "get /hello HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET hello HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n",
        "GET /hello HTTP/1.1\nHost: x\n\n",
    ],
)
def test_garbage_gets_400(edge, text):
    with edge.connect() as raw:
        answer = raw.ask(text)
        assert answer.status == 400 and answer.closes and raw.read_rest() == b""


# ---- Expect (A39) -------------------------------------------------------------------------------


def expecting(path: str, length: int, extra: str = "", value: str = "100-continue") -> str:
    return (
        f"POST {path} HTTP/1.1\r\n{HOST}Content-Length: {length}\r\n"
        f"Expect: {value}\r\n{extra}\r\n"
    )


def test_100_continue_comes_once_and_first(edge):
    with edge.connect() as raw:
        assert raw.ask(expecting("/echo", 2048)).status == 100
        for _ in range(16):
            raw.send(b"y" * 128)
        assert raw.answer().body == b"y" * 2048
        assert raw.ask(GET).body == b"hello\n"


def test_no_100_for_what_is_refused(edge):
    for request, status in [
        (expecting("/json", 20), 401),
        (expecting("/json", 20, "Authorization: Bearer wrong\r\n"), 401),
        (expecting("/json", 20_000_000, "Authorization: Bearer secret\r\n"), 413),
        (expecting("/nope", 20), 404),
        (expecting("/hello", 20), 405),
        (expecting("/echo", 20, value="banana"), 417),
    ]:
        with edge.connect() as raw:
            answer = raw.ask(request)
            assert answer.status == status and answer.closes
            assert raw.read_rest() == b""


def test_100_continue_waits_for_a_streaming_handler(edge):
    with edge.connect() as raw:
        raw.send(expecting("/late/300", 5))
        began = time.monotonic()
        assert raw.answer().status == 100 and time.monotonic() - began > 0.2
        assert json.loads(raw.ask("hello").body)["bytes"] == 5
        refused = raw.ask(expecting("/late/100?refuse=1", 5))
        assert refused.status == 410 and refused.closes
        assert raw.read_rest() == b""


def test_no_100_without_need(edge):
    with edge.connect() as raw:
        assert raw.ask(expecting("/echo", 5) + "hello").body == b"hello"
        old = "POST /echo HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
        assert raw.ask(old + "hello").body == b"hello"


# ---- routing, identity, error bodies ------------------------------------------------------------


def test_error_shapes(edge):
    unknown = edge.ask(f"GET /nope HTTP/1.1\r\n{HOST}\r\n")
    assert (unknown.status, json.loads(unknown.body)) == (404, {"detail": "Not Found"})
    unknown = edge.ask(f"GET /v1/nope HTTP/1.1\r\n{HOST}\r\n")
    assert json.loads(unknown.body)["detail"]["code"] == "not_found"
    wrong = edge.ask(f"PUT /hello HTTP/1.1\r\n{HOST}\r\n")
    assert (wrong.status, json.loads(wrong.body)) == (405, {"detail": "Method Not Allowed"})
    assert wrong.headers["allow"] == "GET, HEAD"
    assert edge.ask(f"BREW /hello HTTP/1.1\r\n{HOST}\r\n").status == 405
    slash = edge.ask(f"GET /hello/?a=1 HTTP/1.1\r\n{HOST}\r\n")
    assert (slash.status, slash.headers["location"]) == (307, "/hello?a=1")
    limited = edge.ask(f"GET /error HTTP/1.1\r\n{HOST}\r\n")
    assert limited.headers["retry-after"] == "3"
    assert json.loads(limited.body)["detail"]["admitted"] == "unknown"


@pytest.mark.parametrize(
    "header, detail",
    [
        ("", "missing authorization header"),
        ("Authorization: Basic secret\r\n", "invalid authorization scheme"),
        ("Authorization: Bearer \r\n", "invalid authorization scheme"),
        ("Authorization: Bearer wrong\r\n", "invalid bearer token"),
    ],
)
def test_the_order_of_failures(edge, header, detail):
    """Not JSON comes before authentication, field problems behind it; a path before all."""
    refused = edge.ask(post("/json", '{"name":1}', header))
    assert (refused.status, json.loads(refused.body)) == (401, {"detail": detail})
    assert refused.headers["www-authenticate"] == "Bearer" and not refused.closes
    not_json = edge.ask(post("/json", '{"name":', header))
    assert not_json.status == 422
    assert json.loads(not_json.body)["detail"][0]["type"] == "json_invalid"
    assert edge.ask(post("/nope", "{", header)).status == 404
    v1 = edge.ask(post("/v1/json", "{", header))
    assert (v1.status, json.loads(v1.body)["detail"]["message"]) == (401, detail)
    shell = edge.ask(post("/shell/json", "{", header))
    assert (shell.status, json.loads(shell.body)["error"]["code"]) == (401, "unauthorized")


def test_bodies_that_do_not_fit(edge):
    token = "Authorization: bearer secret \r\n"
    good = edge.ask(post("/json", '{"name":"n"}', token))
    assert (good.status, json.loads(good.body)) == (201, {"name": "n"})
    bad = json.loads(edge.ask(post("/json", '{"name":"","x":1}', token)).body)["detail"]
    assert [problem["type"] for problem in bad] == ["string_too_short", "extra_forbidden"]
    absent = edge.ask(post("/json", "", token))
    assert absent.status == 422
    assert json.loads(absent.body) == {
        "detail": [{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}]
    }
    deep = edge.ask(post("/json", "[" * 5000, token))
    assert deep.status == 422 and json.loads(deep.body)["detail"][0]["type"] == "json_invalid"
    for body in ("{", '{"name":1}', "[]"):
        files = edge.ask(post("/files", body, token))
        assert files.status == 400
        assert json.loads(files.body)["detail"]["code"] == "invalid_binding_path"
    v1 = edge.ask(post("/v1/json", '{"name":1,"x":2}', token))
    assert v1.status == 422 and len(json.loads(v1.body)["detail"]["problems"]) == 2
    assert edge.ask(post("/v1/json", "{", token)).status == 400


def test_request_ids_and_trace_context(edge):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    path = f"GET /seen/a/x/b HTTP/1.1\r\n{HOST}"
    answer = edge.ask(f"{path}X-Request-Id: abc-1.2:3\r\ntraceparent: {trace}\r\n\r\n")
    assert answer.headers["x-request-id"] == "abc-1.2:3"
    assert f"id=abc-1.2:3\ntrace={trace}\n" in answer.body.decode()
    made = set()
    for bad in ("", "X-Request-Id: a b\r\n", "X-Request-Id: \xe9\r\n", f"X-Request-Id: {'a' * 129}\r\n"):
        answer = edge.ask(f"{path}{bad}traceparent: 00-zz\r\n\r\n")
        assert re.fullmatch(r"[0-9a-f]{16}", answer.headers["x-request-id"])
        assert b"trace=-\n" in answer.body
        made.add(answer.headers["x-request-id"])
    assert len(made) == 4
    assert "date" in answer.headers
    assert edge.ask(f"GET /nope HTTP/1.1\r\n{HOST}X-Request-Id: q\r\n\r\n").headers["x-request-id"] == "q"


# paths and ids (the edge's part of A46, A47)


@pytest.mark.parametrize(
    "ref, status",
    [
        ("..", 400),
        (".", 400),
        ("%2e%2e", 400),
        (".%2E", 400),
        ("..%2fadmin", 400),
        ("a%2f..%2fb", 400),
        ("a%5c..%5cb", 400),
        ("a%00b", 400),
        ("a%0d%0aX-Inner-Api-Key:%20x", 400),
        ("a%09b", 400),
        ("a%7fb", 400),
        ("a%zzb", 400),
        ("a%", 400),
        ("a%ff", 400),
        ("a%c0%af", 400),
        ("a\\b", 400),
        ("a#f", 400),
        ("\xc3\xa9", 400),
        ("a/../../admin", 400),
        ("a/b", 404),
        ("", 404),
        ("a" * 9000, 431),
        ("a%c3%a9", 200),
        ("a%F0%9F%98%80", 200),
        ("a%2fb", 200),
        ("a;b", 200),
        ("a:b@c!$&'()*+,=~", 200),
        ("a" * 7900, 200),
    ],
)
def test_refs_in_paths(edge, ref, status):
    answer = edge.ask(f"GET /seen/{ref}/x/b HTTP/1.1\r\n{HOST}\r\n")
    assert answer.status == status, answer.body
    if status >= 400:
        detail = json.loads(answer.body)["detail"]
        assert status == 404 or (detail["code"] and detail["message"])


def test_what_a_handler_sees(edge):
    answer = edge.ask(
        f"POST /any/a%20b/v1//jobs/%2e%2e%2e?q=a+b%26&z HTTP/1.1\r\n{HOST}"
        "Authorization: Bearer lease-token\r\nContent-Length: 2\r\nX-Twice: 1\r\nX-Twice: 2\r\n\r\nhi"
    )
    text = answer.body.decode()
    for line in (
        "method=POST",
        "path=/any/a%20b/v1//jobs/%2e%2e%2e",
        "query=q=a+b%26&z",
        "q=a b&",
        "rest=v1//jobs/%2e%2e%2e",
        "bearer=lease-token",
        "param.a=a b",
        "authorized=0",
        "length=2",
        "X-Twice=1",
        "X-Twice=2",
    ):
        assert line in text.splitlines(), text
    assert "Content-Length=" not in text
    absolute = edge.ask(f"GET http://x/seen/a/x/b?q=1 HTTP/1.1\r\n{HOST}\r\n")
    assert "path=/seen/a/x/b\nquery=q=1\n" in absolute.body.decode()


def test_system_routes(edge):
    assert json.loads(edge.ask(f"GET /healthz HTTP/1.1\r\n{HOST}\r\n").body) == {"status": "ok"}
    assert json.loads(edge.ask(f"GET /readyz HTTP/1.1\r\n{HOST}\r\n").body)["ready"] is True
    metrics = edge.ask(f"GET /metrics HTTP/1.1\r\n{HOST}\r\n").body.decode()
    assert 'bindery_http_requests_total{route="/healthz",method="GET",status="200"}' in metrics
    assert "bindery_http_connections 1" in metrics
    document = json.loads(edge.ask(f"GET /openapi.json HTTP/1.1\r\n{HOST}\r\n").body)
    assert document["openapi"] == "3.1.0" and "/any/{a}/{rest}" in document["paths"]


# ---- listeners ----------------------------------------------------------------------------------


def test_unix_and_v6_listeners(folder):
    path = folder / "edge.sock"
    listen = f"unix:{path},[::1]:0,127.0.0.1:0"
    with Edge(listen=listen) as one:
        assert one.addresses[1].startswith("[::1]:") and path.stat().st_mode & 0o007 == 0
        for address in one.addresses:
            with Raw(address) as raw:
                assert raw.ask(GET).body == b"hello\n"
        one.process.kill()
        one.process.wait()
        with Edge(listen=f"unix:{path}") as second:  # the dead one's file is replaced
            with Raw(second.address) as raw:
                assert raw.ask(GET).body == b"hello\n"
            third = Edge.__new__(Edge)
            with pytest.raises(AssertionError, match="Address already in use"):
                third.__init__(listen=f"unix:{path}")
        assert not path.exists()
        one.process.returncode = 0


@pytest.mark.parametrize(
    "listen, word",
    [
        ("127.0.0.1:99999", "port"),
        ("127.0.0.1", "host:port"),
        ("example.com:80", "numeric"),
        ("[::zz]:80", "IPv6"),
        ("unix:relative", "absolute"),
        ("unix:/" + "a" * 120, "bytes"),
        ("unix:/no/such/folder/s", "No such file"),
        (" ", "no address"),
    ],
)
def test_bad_addresses_are_named(listen, word):
    with pytest.raises(AssertionError, match=word):
        Edge(listen=listen)


def test_a_port_in_use_is_named(edge):
    with pytest.raises(AssertionError, match="Address already in use"):
        Edge(listen=edge.address)


# ---- deferred replies and clients that leave (A05, A38) -------------------------------------------


def wait_counter(edge, name: str, value: int) -> None:
    end = time.monotonic() + 10
    while edge.counters()[name] != value:
        assert time.monotonic() < end, edge.counters()
        time.sleep(0.02)


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_client_that_leaves_cancels_its_operation(how):
    with Edge("quiet") as one:
        raws = [one.connect() for _ in range(100)]
        for i, raw in enumerate(raws):
            raw.send(f"GET /nap/60000?undo_ms={i % 7} HTTP/1.1\r\n{HOST}\r\n")
        wait_counter(one, "napping", 100)
        for raw in raws:
            raw.socket.close() if how == "fin" else raw.reset()
        wait_counter(one, "cancelled", 100)
        wait_counter(one, "in_flight", 1)


def test_short_connections_with_deferred_answers_and_resets():
    with Edge("quiet") as one:
        files = one.open_files()
        for i in range(600):
            raw = one.connect()
            raw.send(f"GET /nap/{i % 4} HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n")
            if i % 2:
                time.sleep((i % 5) / 1000)
                raw.reset()
                continue
            assert raw.answer().body == b"slept\n"
            assert raw.is_closed(2)
            raw.socket.close()
        wait_counter(one, "in_flight", 1)
        assert one.open_files() <= files + 1


def test_a_half_sent_request_then_silence_then_gone(edge):
    for text in ("POST /echo HT", f"POST /echo HTTP/1.1\r\n{HOST}Content-Length: 10\r\n\r\nabc"):
        with edge.connect() as raw:
            raw.send(text)
    assert edge.ask(GET).status == 200


def test_an_answer_in_the_making_survives_a_closed_sending_side(edge):
    """`printf … | nc -N`: the request and the FIN come together."""
    with edge.connect() as raw:
        raw.send(GET)
        raw.socket.shutdown(1)
        assert raw.answer().body == b"hello\n"
        assert raw.is_closed(5)


# ---- streams (A45) ------------------------------------------------------------------------------


def pattern(n: int) -> bytes:
    return (bytes(range(97, 97 + 23)) * (n // 23 + 1))[:n]


def hash_of(data: bytes) -> int:
    h = 2166136261
    for c in data:
        h = ((h ^ c) * 16777619) & 0xFFFFFFFF
    return h


@pytest.mark.parametrize("query", ["", "?chunked=1"])
def test_streamed_replies_arrive_whole(edge, query):
    with edge.connect() as raw:
        for size in (0, 1, 8192, 65536, 5_000_000):
            answer = raw.ask(f"GET /big/{size}{query} HTTP/1.1\r\n{HOST}\r\n")
            assert hashlib.sha256(answer.body).digest() == hashlib.sha256(pattern(size)).digest()
        head = raw.ask(f"HEAD /big/100{query} HTTP/1.1\r\n{HOST}\r\n", "HEAD")
        assert head.status == 200
        assert raw.ask(GET).body == b"hello\n"


@pytest.mark.parametrize("query", ["?cut=1", "?cut=1&chunked=1"])
def test_a_cut_reply_looks_cut(edge, query):
    with edge.connect() as raw, pytest.raises(Closed):
        raw.ask(f"GET /big/1000{query} HTTP/1.1\r\n{HOST}\r\n")


def test_a_hostile_peer_cannot_break_the_framing(edge):
    with edge.connect() as raw:
        for status, wanted in (("200", 200), ("101", 502), ("99999", 502), ("204", 204), ("404", 404)):
            answer = raw.ask(f"GET /hostile/{status} HTTP/1.1\r\n{HOST}\r\n")
            assert answer.status == wanted
            assert answer.body == (b"" if wanted == 204 else b"hello")
            names = [name.lower() for name, _ in answer.fields]
            assert "x-good" in names and not {"x-bad", "x bad", "x-injected"} & set(names)
            assert names.count("content-length") == (wanted != 204) and names.count("date") == 1
            assert "connection" not in names and "transfer-encoding" not in names
            assert answer.headers["content-type"] == "text/x"


def test_a_slow_reader_holds_the_stream_back():
    with Edge("quiet") as one, one.connect(small_buffer=8192) as raw:
        before = one.resident_bytes()
        raw.send(f"GET /big/400000000 HTTP/1.1\r\n{HOST}\r\n")
        raw.read_until(b"\r\n\r\n")
        for _ in range(20):
            raw.read_exactly(1024)
            time.sleep(0.02)
        assert one.resident_bytes() - before < 8 << 20
        raw.socket.close()
        wait_counter(one, "gone", 1)


def test_uploads_stream_and_can_be_paused(edge):
    token = "Authorization: Bearer secret\r\n"
    body = bytes(i * 7 % 251 for i in range(200_000))
    with edge.connect() as raw:
        for query in ("", "?slow=1"):
            answer = json.loads(raw.ask(post(f"/sink{query}", body, token)).body)
            assert answer == {"bytes": len(body), "hash": hash_of(body)}
        pieces = [body[i : i + 4096] for i in range(0, len(body), 4096)]
        coded = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"
        answer = json.loads(raw.ask(chunked("/sink", coded, token)).body)
        assert answer == {"bytes": len(body), "hash": hash_of(body)}
        assert raw.ask(GET).body == b"hello\n"


def test_both_directions_at_once(edge):
    body = pattern(3_000_000)
    with edge.connect() as raw:
        sender = threading.Thread(target=raw.send, args=(post("/mirror", body),))
        sender.start()
        answer = raw.answer()
        sender.join()
        assert answer.body == body
        assert raw.ask(GET).body == b"hello\n"
