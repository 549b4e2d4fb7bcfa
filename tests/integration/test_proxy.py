"""The data plane: what is passed on, streaming with back-pressure, and every way it can end."""

import concurrent.futures
import contextlib
import hashlib
import json
import socket
import struct
import threading
import time

import httpx
import pytest
from brokered import (  # noqa: F401
    TOKEN, answer, answer_ok, broker, brokers, header, read_body, rss_kib, settle, upstream,
)  # fmt: skip


def raw(broker, lease, text: bytes, rcvbuf=None) -> socket.socket:
    """Send bytes on a new connection; `{path}` is the lease's data plane."""
    host, _, port = broker.listen.rpartition(":")
    connection = socket.socket()
    if rcvbuf:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    connection.connect((host, int(port)))
    path = f"/v1/leases/{lease['lease_id']}/shellctl"
    connection.sendall(text.replace(b"{path}", path.encode()).replace(b"{token}", TOKEN.encode()))
    return connection


GET = b"GET {path}/v1/x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\n\r\n"


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_request_is_passed_on_without_what_is_of_the_hop(broker, upstream):
    """A47, A59: the header set that the sandbox sees is exact."""
    bodies = []

    def echo(connection, head, rest):
        bodies.append(read_body(connection, head, rest))
        return answer(connection, "201 Created", b"made", "X-Job: 7", "Content-Type: text/x")

    upstream.handle = echo
    lease = broker.acquire()
    with broker.holder(lease) as holder:
        got = holder.post(
            "/v1/jobs/run?a=1&b=%20",
            content=b"script",
            headers={"X-Mine": "1", "Connection": "X-Hop, keep-alive", "X-Hop": "1", "TE": "trailers",
                     "X-Sandbox-Id": "stolen", "Proxy-Authorization": "x", "X-Request-Id": "r-1"},
        )
    assert (got.status_code, got.content, got.headers["x-job"]) == (201, b"made", "7")
    assert got.headers["content-type"] == "text/x"
    head = upstream.heads[-1]
    assert head.startswith(b"POST /v1/jobs/run?a=1&b=%20 HTTP/1.1\r\n")
    assert bodies == [b"script"]
    assert header(head, "authorization") == "Bearer inner"
    assert header(head, "x-sandbox-id") == "routed"
    assert header(head, "x-mine") == "1"
    assert header(head, "x-request-id") == "r-1"
    assert header(head, "host") == upstream.url.removeprefix("http://")
    for name in ("x-hop", "te", "proxy-authorization", "expect"):
        assert header(head, name) is None
    assert head.lower().count(b"content-length") == 1 and head.lower().count(b"authorization") == 1


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_any_method(broker, upstream, method):
    lease = broker.acquire()

    def reply(connection, head, rest):
        read_body(connection, head, rest)
        if method == "HEAD":
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n")
            return True
        return answer(connection, "200 OK", b'{"status":"ok"}')

    upstream.handle = reply
    with broker.holder(lease) as holder:
        for _ in range(2):
            got = holder.request(method, "/v1/x")
            assert got.status_code == 200
            assert got.content == (b"" if method == "HEAD" else b'{"status":"ok"}')
    assert upstream.heads[-1].startswith(f"{method} /v1/x ".encode())


@pytest.mark.parametrize(
    "tail", ["/../../admin", "/v1/%2e%2e/x", "/v1/a%2fb", "/v1/a%5cb", "/v1/.%2E/x", "/v1/./x", "/%00"]
)
def test_path_tricks_reach_nobody(broker, upstream, tail):
    """A46"""
    lease = broker.acquire()
    connection = raw(broker, lease, GET.replace(b"/v1/x", tail.encode()))
    assert connection.recv(4096).split(b" ")[1] in (b"400", b"404")
    connection.close()
    assert upstream.heads == []


def test_paths_are_passed_byte_for_byte(broker, upstream):
    lease = broker.acquire()
    connection = raw(broker, lease, GET.replace(b"/v1/x", b"/v1//a%20b/%C3%A9;x=1?q=../.."))
    assert b"200" in connection.recv(4096)
    connection.close()
    assert upstream.heads[-1].split(b" ")[1] == b"/v1//a%20b/%C3%A9;x=1?q=../.."


def test_redirects_are_handed_back_not_followed(broker, upstream):
    """A49"""
    upstream.handle = lambda c, h, r: answer(c, "302 Found", b"", "Location: http://127.0.0.1:1/x")
    with broker.holder(broker.acquire()) as holder:
        assert holder.get("/v1/x").status_code == 302
    assert len(upstream.heads) == 1


def test_keep_alive_mixes_statuses_and_bodies(broker, upstream):
    """A37"""

    def reply(connection, head, rest):
        size = int(head.split(b" ")[1].rsplit(b"/", 1)[1])
        body = read_body(connection, head, rest)
        return answer(connection, "404 Not Found" if size % 3 == 0 else "200 OK", body[:size] + b"x" * size)

    upstream.handle = reply
    with broker.holder(broker.acquire()) as holder:
        for size in range(200):
            got = holder.post(f"/v1/{size}", content=b"b" * (size * 7 % 5000))
            assert got.status_code == (404 if size % 3 == 0 else 200)
            assert got.content == b"b" * min(size, size * 7 % 5000) + b"x" * size
    assert upstream.connections < 20


def test_chunked_upload_and_expect_continue(broker, upstream):
    """A39"""
    bodies = []

    def take(connection, head, rest):
        bodies.append(read_body(connection, head, rest))
        return answer(connection, "200 OK", b"")

    upstream.handle = take
    lease = broker.acquire()

    def chunks():
        for index in range(50):
            yield b"%d" % index * 1000

    with broker.holder(lease) as holder:
        assert holder.post("/v1/x", content=chunks()).status_code == 200
    assert bodies[-1] == b"".join(chunks())
    connection = raw(
        broker, lease,
        b"POST {path}/v1/x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\n"
        b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n",
    )  # fmt: skip
    assert connection.recv(4096).startswith(b"HTTP/1.1 100 ")
    connection.sendall(b"hello")
    assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    connection.close()
    assert bodies[-1] == b"hello"


# ---- streaming ------------------------------------------------------------------------------------


BLOCK = bytes(range(256)) * 4096  # 1 MiB


def test_a_gibibyte_arrives_whole_in_bounded_memory(broker, upstream):
    """A45: hash-checked, through pauses of a reader that stops now and then."""
    blocks = 1024
    sent = hashlib.sha256()

    def flood(connection, head, rest):
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {blocks * len(BLOCK)}\r\n\r\n".encode())
        for index in range(blocks):
            block = index.to_bytes(4, "big") + BLOCK[4:]
            sent.update(block)
            connection.sendall(block)
        return True

    upstream.handle = flood
    lease = broker.acquire()
    before = rss_kib(broker.pid)
    peak, got, total = before, hashlib.sha256(), 0
    with broker.holder(lease, timeout=120) as holder, holder.stream("GET", "/v1/x") as stream:
        for index, part in enumerate(stream.iter_raw(1 << 20)):
            got.update(part)
            total += len(part)
            if index % 128 == 5:
                time.sleep(0.15)
                peak = max(peak, rss_kib(broker.pid))
    assert total == blocks * len(BLOCK)
    assert got.digest() == sent.digest()
    assert peak - before < 16 * 1024, (before, peak)


def test_a_slow_reader_holds_the_sender_back(broker, upstream):
    """A45"""
    sent = [0]

    def flood(connection, head, rest):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
        connection.settimeout(20)
        with contextlib.suppress(OSError):
            while True:
                sent[0] += connection.send(BLOCK)
        return False

    upstream.handle = flood
    connection = raw(broker, broker.acquire(), GET, rcvbuf=4096)
    before = rss_kib(broker.pid)
    time.sleep(1)
    first = sent[0]
    for _ in range(20):
        connection.recv(1024)
        time.sleep(0.05)
    assert sent[0] - first < 8 << 20
    assert rss_kib(broker.pid) - before < 8 * 1024
    reset(connection)
    settle(lambda: broker.state()["in_flight"] == 1)


def test_a_slow_sandbox_holds_the_uploader_back(broker, upstream):
    go = threading.Event()
    got = hashlib.sha256()

    def slow(connection, head, rest):
        go.wait(20)
        left = int(header(head, "content-length"))
        while left:
            part = rest or connection.recv(1 << 20)
            rest = b""
            got.update(part)
            left -= len(part)
        return answer(connection, "200 OK", b"")

    upstream.handle = slow
    lease = broker.acquire()
    before = rss_kib(broker.pid)
    sent, want = [0], hashlib.sha256()

    def blocks():
        for index in range(64):
            block = index.to_bytes(4, "big") + BLOCK[4:]
            want.update(block)
            sent[0] += len(block)
            yield block

    with concurrent.futures.ThreadPoolExecutor(1) as pool, broker.holder(lease, timeout=60) as holder:
        headers = {"Content-Length": str(64 * len(BLOCK))}
        upload = pool.submit(holder.post, "/v1/x", content=blocks(), headers=headers)
        time.sleep(1)
        assert sent[0] < 32 << 20
        assert rss_kib(broker.pid) - before < 8 * 1024
        go.set()
        assert upload.result(60).status_code == 200
    assert got.digest() == want.digest()


def test_a_long_poll_is_not_cut(broker, upstream):
    def poll(connection, head, rest):
        read_body(connection, head, rest)
        time.sleep(3)
        return answer_ok(connection, b"", b"")

    upstream.handle = poll
    with broker.holder(broker.acquire()) as holder:
        assert holder.post("/v1/jobs/x/wait", json={"timeout": 3}).status_code == 200


def test_bytes_arrive_as_they_come(broker, upstream):
    go = threading.Event()

    def drip(connection, head, rest):
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        go.wait(10)
        connection.sendall(b"6\r\nsecond\r\n0\r\n\r\n")
        return True

    upstream.handle = drip
    with broker.holder(broker.acquire()) as holder, holder.stream("GET", "/v1/x") as stream:
        parts = stream.iter_raw()
        assert next(parts) == b"first"
        go.set()
        assert b"".join(parts) == b"second"


# ---- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", [reset, socket.socket.close])
def test_a_client_that_leaves_cancels_upstream(broker, upstream, leave):
    """A05, A38, A45"""
    seen = threading.Event()

    def hang(connection, head, rest):
        if connection.recv(1) == b"":
            seen.set()
        return False

    upstream.handle = hang
    connection = raw(broker, broker.acquire(), GET)
    settle(lambda: upstream.heads)
    leave(connection)
    assert seen.wait(10)
    settle(lambda: broker.state()["in_flight"] == 1)


def test_the_end_of_a_lease_cuts_its_streams(broker, upstream):
    closed = threading.Event()

    def begin(connection, head, rest):
        if b"/v1/begun" in head:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        while connection.recv(100):
            pass
        closed.set()
        return False

    upstream.handle = begin
    lease = broker.acquire()
    with broker.holder(lease) as holder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(broker.holder(lease).get, "/v1/waiting")
        begun = pool.submit(holder.get, "/v1/begun")
        settle(lambda: len(upstream.heads) == 2)
        time.sleep(0.1)
        assert broker.http.delete(f"/v1/leases/{lease['lease_id']}").status_code == 204
        assert waiting.result(5).status_code == 410
        with pytest.raises(httpx.TransportError):
            begun.result(5)
    assert closed.wait(10)
    settle(lambda: broker.state()["planes"] == 0)


def test_proof_of_loss_ends_the_leases_once(broker, upstream):
    """A17, A18"""
    upstream.handle = lambda c, h, r: answer(
        c, "404 Not Found", b'{"code":"sandbox_not_found","message":"gone"}'
    )
    ref = broker.create().json()["binding_ref"]
    one, two = broker.acquire(ref), broker.acquire(ref)
    with broker.holder(one) as holder:
        got = holder.get("/v1/x")
        assert got.status_code == 404
        assert got.json()["error"]["code"] == "binding_lost"
        assert holder.get("/v1/x").json()["error"]["code"] == "binding_lost"
    asked = len(upstream.heads)
    assert asked == 1
    with broker.holder(two) as holder:
        assert holder.get("/v1/x").json()["error"]["code"] == "binding_lost"
    assert broker.http.get(f"/v1/leases/{one['lease_id']}").status_code == 404
    for lease in (one, one, two):
        assert broker.http.delete(f"/v1/leases/{lease['lease_id']}").status_code == 204
    assert broker.state()["leases"] == 0


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("404 Not Found", b'{"error":{"code":"job_not_found","message":"Unknown job id"}}'),
        ("404 Not Found", b"404 page not found\n"),
        ("500 Internal Server Error", b"<html>" + b"x" * 100000),
        ("502 Bad Gateway", b""),
        ("429 Too Many Requests", b"{}"),
    ],
)
def test_other_errors_are_passed_on_and_lose_nothing(broker, upstream, status, body):
    """A17"""
    upstream.handle = lambda c, h, r: answer(c, status, body, "X-Kept: 1")
    lease = broker.acquire()
    with broker.holder(lease) as holder:
        got = holder.get("/v1/x")
        assert (got.status_code, got.content, got.headers["x-kept"]) == (int(status[:3]), body, "1")
    assert broker.http.get(f"/v1/leases/{lease['lease_id']}").status_code == 200


def test_an_upstream_that_breaks_is_said_or_shown(broker, upstream):
    lease = broker.acquire()
    upstream.handle = lambda c, h, r: False
    with broker.holder(lease) as holder:
        got = holder.post("/v1/x", content=b"x")
        assert got.status_code == 502
        assert got.json()["error"]["code"] == "binding_unavailable"

    def half(connection, head, rest):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        return False

    upstream.handle = half
    with broker.holder(lease) as holder, pytest.raises(httpx.TransportError):
        holder.get("/v1/x")
    upstream.handle = answer_ok
    with broker.holder(lease) as holder:
        assert holder.get("/v1/x").status_code == 200


def test_nobody_listens_upstream(broker, upstream):
    upstream.close()
    with broker.holder(broker.acquire()) as holder:
        got = holder.get("/v1/x")
        assert got.status_code == 502
        assert got.json()["error"]["code"] == "binding_unavailable"


def test_what_is_left_half_read_never_reaches_the_next(broker, upstream):
    """A59: each marker gets its own answer, whatever was aborted before it."""

    def reply(connection, head, rest):
        body = read_body(connection, head, rest)
        payload = body * 2000
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(payload)}\r\n\r\n".encode())
        connection.sendall(payload)
        return True

    upstream.handle = reply
    lease = broker.acquire()
    post = b"POST {path}/v1/x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\nContent-Length: 8\r\n\r\n"
    with broker.holder(lease) as holder:
        for index in range(150):
            aborted = raw(broker, lease, post + b"aborted!")
            aborted.recv(1 + index * 97 % 9000)
            reset(aborted)
            marker = b"mark%04d" % index
            assert holder.post("/v1/x", content=marker).content == marker * 2000
    settle(lambda: broker.state()["in_flight"] == 1)


def test_many_short_connections(broker, upstream):
    """A38"""
    lease = broker.acquire()
    close = GET.replace(b"Host: h", b"Host: h\r\nConnection: close")
    for index in range(200):
        connection = raw(broker, lease, close)
        if index % 2:
            reset(connection)
            continue
        received = b""
        while part := connection.recv(65536):
            received += part
        assert received.startswith(b"HTTP/1.1 200") and received.endswith(b'{"status":"ok"}')
        connection.close()
    settle(lambda: broker.state()["in_flight"] == 1)


def test_errors_are_in_the_shape_of_the_data_plane(broker, upstream):
    lease = broker.acquire()
    with broker.holder(lease) as holder:
        got = holder.get("/v1/a%2fb")
        assert got.status_code == 400
        assert set(got.json()) == {"error"} and set(got.json()["error"]) == {"code", "message"}
    assert json.loads(got.text)


def test_a_drain_cuts_long_polls_at_its_deadline(brokers, upstream):
    """A55: a stream that does not end is cut, upstream hears of it, and the process ends well."""
    broker = brokers(BINDERY_DRAIN_SECONDS="1")
    closed = threading.Event()

    def hang(connection, head, rest):
        while connection.recv(100):
            pass
        closed.set()
        return False

    upstream.handle = hang
    lease = broker.acquire()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.holder(lease).get, "/v1/waiting")
        settle(lambda: upstream.heads)
        broker.stop()
        try:
            assert waiting.result(5).status_code == 503
        except httpx.TransportError:
            pass  # cut before there was an answer: the balancer's retry takes it elsewhere
    assert closed.wait(10)
