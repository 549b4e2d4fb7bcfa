"""`broker_server` (the API over a backend in memory) and an upstream for its data plane that a test
scripts byte by byte."""

import contextlib
import os
import socket
import subprocess
import threading
import time
from pathlib import Path

import harness
import httpx
import pytest

TOKEN = "the-api-token"


class BrokerServer(harness.Service):
    """On a free port; `scripted` is its upstream. Stopped with exit status 0 demanded."""

    def __init__(self, folder: Path, upstream: str, settings: dict[str, str]):
        binary = Path(os.environ.get("BROKER_SERVER") or self._usual())
        listen = f"127.0.0.1:{harness.free_port()}"
        # memory is measured: what ASan keeps of freed blocks must not count
        asan = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"
        env = {"BINDERY_LISTEN": listen, "DIFY_AGENT_API_TOKEN": TOKEN, "ASAN_OPTIONS": asan}
        env |= settings
        super().__init__(binary, folder, [upstream], env, listen, TOKEN)

    @staticmethod
    def _usual():
        return Path(__file__).resolve().parents[2] / "build/dev/tests/integration/broker_server"

    health_path = "/test/state"

    def state(self) -> dict:
        return self.http.get("/test/state").json()

    def script(self, call: str, delay_ms=0, fail_times=0) -> None:
        self.http.get(f"/test/script/{call}/{delay_ms}/{fail_times}")

    def create(self, **fields) -> httpx.Response:
        body = {"tenant_id": "t", "agent_id": "a", "binding_id": "b", "workspace_id": "w"}
        body |= {"existing_workspace_ref": None, "home_snapshot_ref": None}
        return self.http.post("/execution-bindings", json=body | fields)

    def acquire(self, ref=None, **fields) -> dict:
        ref = ref or self.create().json()["binding_ref"]
        answer = self.http.post("/v1/leases", json={"binding_ref": ref, **fields})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def holder(self, lease: dict, **options) -> httpx.Client:
        """A client that knows nothing but the lease's own base URL and token."""
        headers = {"Authorization": f"Bearer {lease['shellctl']['token']}"}
        options.setdefault("timeout", 30)
        return httpx.Client(
            base_url=lease["shellctl"]["base_url"], headers=headers, trust_env=False, **options
        )


class Upstream:
    """Accepts connections; `handle(connection, head, rest)` gets each request's head and what came
    with it, and returns whether the connection may be used again."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.handle = answer_ok
        self.heads: list[bytes] = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        pending = b""
        with connection, contextlib.suppress(OSError):
            while True:
                while b"\r\n\r\n" not in pending:
                    got = connection.recv(65536)
                    if not got:
                        return
                    pending += got
                head, _, pending = pending.partition(b"\r\n\r\n")
                self.heads.append(head)
                if not self.handle(connection, head, pending):
                    return
                pending = b""

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
        self.listener.close()


def answer(connection, status: str, body: bytes, *headers: str) -> bool:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    return True


def answer_ok(connection, head, rest) -> bool:
    read_body(connection, head, rest)
    return answer(connection, "200 OK", b'{"status":"ok"}', "Content-Type: application/json")


def header(head: bytes, name: str) -> str | None:
    for line in head.decode("latin-1").split("\r\n")[1:]:
        key, _, value = line.partition(":")
        if key.lower() == name.lower():
            return value.strip()
    return None


def read_body(connection, head: bytes, rest: bytes) -> bytes:
    """The whole body, of either framing."""
    length = header(head, "content-length")
    if header(head, "transfer-encoding") == "chunked":
        while not (rest.endswith(b"\r\n0\r\n\r\n") or rest == b"0\r\n\r\n"):
            rest += connection.recv(65536)
        body = b""
        while True:
            size, _, rest = rest.partition(b"\r\n")
            if int(size, 16) == 0:
                return body
            body += rest[: int(size, 16)]
            rest = rest[int(size, 16) + 2 :]
    while len(rest) < int(length or 0):
        rest += connection.recv(65536)
    return rest


@pytest.fixture
def upstream():
    one = Upstream()
    yield one
    one.close()


@pytest.fixture
def brokers(folder, upstream, programs):
    """Factory of running broker servers over the one upstream."""

    def make(**settings) -> BrokerServer:
        one = BrokerServer(folder / f"broker{len(programs)}", upstream.url, settings)
        programs.append(one)
        return one.start()

    return make


@pytest.fixture
def broker(brokers):
    return brokers()


def rss_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def settle(condition, seconds=15.0):
    harness.wait_until(condition, seconds, "to settle")


__all__ = ["TOKEN", "answer", "answer_ok", "broker", "brokers", "header", "read_body", "rss_kib",
           "settle", "subprocess", "time", "upstream"]
