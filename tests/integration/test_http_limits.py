"""The HTTP edge under pressure: sizes, deadlines, connection and descriptor limits, drain."""

import json
import resource
import signal
import time

import pytest

from edge import Closed, Edge

HOST = "Host: x\r\n"
GET = f"GET /hello HTTP/1.1\r\n{HOST}\r\n"


def eventually(condition, seconds: float = 10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


# ---- sizes --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def edge():
    with Edge("quiet") as one:
        yield one


def test_a_head_of_100_kb_gets_431(edge):
    big = "".join(f"X-{i}: {'v' * 1000}\r\n" for i in range(100))
    for text in (
        f"GET /hello HTTP/1.1\r\n{HOST}{big}\r\n",
        f"GET /hello HTTP/1.1\r\n{HOST}X: {'v' * 100_000}\r\n\r\n",
        f"GET /{'a' * 100_000} HTTP/1.1\r\n{HOST}\r\n",
        f"GET /hello HTTP/1.1\r\n{HOST}" + "A: b\r\n" * 1000 + "\r\n",
        f"GET /hello HTTP/1.1\r\n{HOST}X: {'v' * 8100}\r\n\r\n",
    ):
        with edge.connect() as raw:
            answer = raw.ask(text)
            assert answer.status == 431 and answer.closes
            assert json.loads(answer.body)["detail"]["code"] == "headers_too_large"
            assert raw.read_rest() == b""


def test_a_head_just_within_the_limit_passes(edge):
    fill = "".join(f"X-{i}: {'v' * 7000}\r\n" for i in range(4))
    assert edge.ask(f"GET /hello HTTP/1.1\r\n{HOST}{fill}\r\n").status == 200


def test_10_mb_body_gets_413_before_and_after_it_is_sent(edge):
    head = f"POST /echo HTTP/1.1\r\n{HOST}Content-Length: 10000000\r\n\r\n"
    with edge.connect() as raw:
        assert raw.ask(head).status == 413
    with edge.connect() as raw:
        answer = raw.ask(head.encode() + b"x" * 10_000_000)
        assert answer.status == 413 and answer.closes
        assert json.loads(answer.body)["detail"]["code"] == "payload_too_large"


def test_a_short_refused_body_keeps_the_connection(edge):
    with edge.connect() as raw:
        raw.send(f"POST /nope HTTP/1.1\r\n{HOST}Content-Length: 5\r\n\r\nhello{GET}")
        refused = raw.answer()
        assert refused.status == 404 and not refused.closes
        assert raw.answer().body == b"hello\n"


def test_the_exact_limit_is_allowed(edge):
    body = b"x" * (1 << 20)
    with edge.connect() as raw:
        head = f"POST /echo HTTP/1.1\r\n{HOST}Content-Length: %d\r\n\r\n"
        assert raw.ask((head % len(body)).encode() + body).body == body
        assert raw.ask((head % (len(body) + 1)).encode()).status == 413


# ---- deadlines (A42, A44) -----------------------------------------------------------------------


def drip(raws, piece: bytes, seconds: float) -> None:
    """Send one byte on each every now and then until the time is over or all are closed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for raw in raws:
            try:
                raw.send(piece)
            except OSError:
                return
        time.sleep(0.1)


def test_a_slow_head_gets_408_however_it_drips():
    with Edge("quiet", "header_timeout_ms=1200") as one:
        files = one.open_files()
        raws = [one.connect().send("GET /hello HTTP/1.1\r\nX: ") for _ in range(200)]
        drip(raws, b"v", 0.4)
        assert one.ask(GET).status == 200
        for raw in raws:
            answer = raw.answer()
            assert answer.status == 408 and answer.closes
            assert json.loads(answer.body)["detail"]["code"] == "request_timeout"
            raw.socket.close()
        eventually(lambda: one.open_files() <= files)


def test_silence_is_closed_without_a_word():
    with Edge("quiet", "header_timeout_ms=300", "idle_timeout_ms=600") as one:
        with one.connect() as silent, one.connect() as idle:
            assert idle.ask(GET).status == 200
            assert silent.is_closed(5)
            assert idle.ask(GET).status == 200  # its limit is the other one
            began = time.monotonic()
            assert idle.is_closed(5)
            assert time.monotonic() - began > 0.4


def test_the_second_request_has_a_head_deadline_too():
    with Edge("quiet", "header_timeout_ms=300", "idle_timeout_ms=60000") as one:
        with one.connect() as raw:
            assert raw.ask(GET).status == 200
            raw.send("GET /hel")
            assert raw.answer().status == 408


@pytest.mark.parametrize("path", ["/echo", "/sink", "/nope"])
@pytest.mark.parametrize("coded", [False, True])
def test_a_slow_body_is_not_waited_for(path, coded):
    framing = "Transfer-Encoding: chunked" if coded else "Content-Length: 1000"
    with Edge("quiet", "body_timeout_ms=500") as one, one.connect() as raw:
        raw.send(f"POST {path} HTTP/1.1\r\n{HOST}{framing}\r\n\r\n{'5' if coded else 'x'}")
        if path == "/nope":
            assert raw.answer().status == 404
            assert raw.is_closed(6)
            return
        answer = raw.answer()
        assert answer.status == 408 and answer.closes
        if path == "/sink":
            assert one.counters()["gone"] == 1


def test_a_body_that_is_not_taken_yet_is_not_late():
    with Edge("quiet", "body_timeout_ms=300", "request_timeout_ms=1500") as one, one.connect() as raw:
        for request in (
            f"GET /late/700 HTTP/1.1\r\n{HOST}\r\n",
            f"POST /late/700 HTTP/1.1\r\n{HOST}Content-Length: 5\r\n\r\nhello",
        ):
            assert raw.ask(request).status == 200
        assert raw.ask(f"GET /late/60000 HTTP/1.1\r\n{HOST}\r\n").status == 504
    with Edge("quiet", "body_timeout_ms=300") as one, one.connect() as raw:
        raw.send(f"POST /late/10 HTTP/1.1\r\n{HOST}Content-Length: 5\r\n\r\nhel")
        assert raw.answer().status == 408


def test_a_client_that_does_not_read_is_dropped():
    with Edge("quiet", "write_timeout_ms=400") as one:
        with one.connect(small_buffer=4096) as raw:
            raw.send(f"GET /big/50000000 HTTP/1.1\r\n{HOST}\r\n")
            eventually(lambda: one.counters()["gone"] == 1, 8)


def test_the_whole_request_has_a_deadline_except_long_ones():
    with Edge("quiet", "request_timeout_ms=300") as one:
        late = one.ask(f"GET /nap/60000 HTTP/1.1\r\n{HOST}\r\n")
        assert late.status == 504
        assert json.loads(late.body)["detail"]["code"] == "backend_timeout"
        assert one.counters()["cancelled"] == 1
        assert one.ask(f"POST /nap/700 HTTP/1.1\r\n{HOST}\r\n").body == b"slept\n"


def test_a_kept_connection_is_reused_until_its_limit():
    with Edge("quiet", "idle_timeout_ms=400") as one, one.connect() as raw:
        for _ in range(4):
            assert raw.ask(GET).status == 200
            time.sleep(0.25)


# ---- connections and descriptors (A43) -----------------------------------------------------------


def test_in_flight_limit():
    with Edge("quiet", "max_in_flight=3") as one:
        raws = [one.connect().send(f"GET /nap/60000 HTTP/1.1\r\n{HOST}\r\n") for _ in range(3)]
        eventually(lambda: one.ask(GET).status == 503)
        refused = one.ask(GET)
        assert refused.status == 503 and refused.headers["retry-after"] == "1"
        assert json.loads(refused.body)["detail"]["code"] == "overloaded"
        raws[0].socket.close()
        eventually(lambda: one.ask(GET).status == 200)


def test_connection_limits_answer_503_and_recover():
    with Edge("quiet", "max_connections=10") as one:
        raws = [one.connect() for _ in range(10)]
        for raw in raws:
            assert raw.ask(GET).status == 200
        refused = one.ask(GET)
        assert refused.status == 503 and refused.closes and refused.headers["retry-after"] == "1"
        more = [one.connect() for _ in range(40)]
        assert raws[3].ask(GET).status == 200
        for raw in raws[5:] + more:
            raw.socket.close()
        eventually(lambda: one.ask(GET).status == 200)
    with Edge("quiet", "max_connections_per_ip=3") as one:
        raws = [one.connect() for _ in range(3)]
        assert [raw.ask(GET).status for raw in raws] == [200] * 3
        assert one.ask(GET).status == 503


def test_out_of_descriptors_does_not_spin():
    with Edge("max_connections=100000", files=64) as one:
        kept = one.connect()
        assert kept.ask(GET).status == 200
        held = []
        for _ in range(200):
            raw = one.connect()
            held.append(raw)
        time.sleep(0.3)
        lines, cpu, began = one.output().count("\n"), one.cpu_seconds(), time.monotonic()
        for _ in range(20):
            assert kept.ask(GET).status == 200
            time.sleep(0.05)
        elapsed = time.monotonic() - began
        assert one.cpu_seconds() - cpu < 0.2 * elapsed + 0.1
        assert one.output().count("\n") - lines < 20 + 10 * elapsed  # with those 20 requests
        assert "bounds the number of connections" in one.output()
        for raw in held:
            raw.socket.close()
        eventually(lambda: one.ask(GET).status == 200, 20)


def test_accept_without_a_descriptor_pauses_and_recovers():
    """The limit is taken away while it runs, so that accept() itself fails."""
    with Edge("max_connections=100000", files=200) as one:
        kept = one.connect()
        assert kept.ask(GET).status == 200
        resource.prlimit(one.process.pid, resource.RLIMIT_NOFILE, (one.open_files(), 200))
        held = [one.connect() for _ in range(30)]
        time.sleep(0.3)
        cpu, began = one.cpu_seconds(), time.monotonic()
        for _ in range(10):
            assert kept.ask(GET).status == 200
            time.sleep(0.1)
        assert one.cpu_seconds() - cpu < 0.2 * (time.monotonic() - began) + 0.1
        assert "cannot accept connections" in one.output()
        assert b" 503 " in held[0].read_rest()[:20]  # by the descriptor kept for that
        resource.prlimit(one.process.pid, resource.RLIMIT_NOFILE, (200, 200))
        for raw in held:
            raw.socket.close()
        eventually(lambda: one_request(one), 3)


def one_request(one) -> bool:
    try:
        return one.ask(GET).status == 200
    except (Closed, OSError):
        return False


# ---- drain (A44, A55) ----------------------------------------------------------------------------


def test_drain_finishes_what_runs_and_refuses_what_comes():
    with Edge("quiet", "drain_timeout_ms=5000") as one:
        running, idle = one.connect(), one.connect()
        running.send(f"GET /nap/800 HTTP/1.1\r\n{HOST}\r\n")
        assert idle.ask(GET).status == 200
        eventually(lambda: one.counters()["napping"] == 1)
        one.process.send_signal(signal.SIGTERM)
        eventually(lambda: refuses_connections(one))
        ready = idle.ask(f"GET /readyz HTTP/1.1\r\n{HOST}\r\n")
        assert ready.status == 503 and ready.closes
        assert idle.is_closed(5)
        last = running.answer()
        assert last.body == b"slept\n" and last.closes
    assert one.drained == "drained 0"


def refuses_connections(one) -> bool:
    try:
        one.connect().socket.close()
        return False
    except ConnectionRefusedError:
        return True


def test_a_new_request_during_the_drain_gets_503():
    with Edge("quiet") as one:
        running, kept = one.connect(), one.connect()
        running.send(f"GET /nap/500 HTTP/1.1\r\n{HOST}\r\n")
        assert kept.ask(GET).status == 200
        eventually(lambda: one.counters()["napping"] == 1)
        one.process.send_signal(signal.SIGTERM)
        eventually(lambda: refuses_connections(one))
        refused = kept.ask(f"GET /nap/1 HTTP/1.1\r\n{HOST}\r\n")
        assert refused.status == 503 and refused.closes
        assert json.loads(refused.body)["detail"]["code"] == "draining"
        assert running.answer().status == 200


def test_the_drain_deadline_aborts_and_undoes():
    with Edge("quiet", "drain_timeout_ms=300", "drain_settle_ms=2000") as one:
        raw = one.connect().send(f"GET /nap/60000?undo_ms=100 HTTP/1.1\r\n{HOST}\r\n")
        stream = one.connect(small_buffer=4096).send(f"GET /big/90000000 HTTP/1.1\r\n{HOST}\r\n")
        eventually(lambda: one.counters()["napping"] == 1 and one.counters()["handled"] == 2)
        began = time.monotonic()
        one.process.send_signal(signal.SIGTERM)
        answer = raw.answer()
        assert answer.status == 503 and answer.closes
        assert json.loads(answer.body)["detail"]["code"] == "draining"
        one.process.wait(10)
        assert time.monotonic() - began < 30, "a guard, not a figure"
        with pytest.raises((Closed, ConnectionResetError)):
            stream.answer()
    assert one.drained == "drained 0"


def test_what_does_not_undo_in_time_is_counted():
    with Edge("quiet", "drain_timeout_ms=100", "drain_settle_ms=200") as one:
        raw = one.connect().send(f"GET /nap/60000?undo_ms=1500 HTTP/1.1\r\n{HOST}\r\n")
        eventually(lambda: one.counters()["napping"] == 1)
        one.process.send_signal(signal.SIGTERM)
        one.process.wait(10)
        assert raw.read_rest() == b""
    assert one.drained == "drained 1"


def test_grace_serves_on_but_is_not_ready_and_a_second_signal_hurries():
    with Edge("quiet", "drain_grace_ms=60000") as one:
        with one.connect() as raw:
            one.process.send_signal(signal.SIGTERM)
            eventually(lambda: one.ask(f"GET /readyz HTTP/1.1\r\n{HOST}\r\n").status == 503)
            assert raw.ask(GET).status == 200
            one.process.send_signal(signal.SIGTERM)
            one.process.wait(10)


def test_no_request_sent_before_the_close_is_lost():
    """Requests race the end of the drain: each gets an answer, or its connection was refused."""
    with Edge("quiet") as one:
        raws = [one.connect() for _ in range(50)]
        for raw in raws:
            assert raw.ask(GET).status == 200
        one.process.send_signal(signal.SIGSTOP)
        one.process.send_signal(signal.SIGTERM)
        for raw in raws:
            raw.send(f"GET /seen/a/x/b HTTP/1.1\r\n{HOST}\r\n")
        one.process.send_signal(signal.SIGCONT)
        for raw in raws:
            assert raw.answer().status in (200, 503)
