"""Drives edge_server, a server with routes made for tests, with raw bytes.

`Edge` is the running program. `Raw` is one connection: what is sent is exactly what the test says;
answers are read by their framing, so that a byte too many or too few shows.
"""

import os
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from harness import SANITIZER_WORDS


@dataclass
class Answer:
    """One response, and whether the connection ended with it."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    head: bytes = b""
    fields: list[tuple[str, str]] = field(default_factory=list)

    @property
    def closes(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"


class Closed(Exception):
    """The server closed (or reset) the connection where an answer was expected."""


class Raw:
    """A client connection that sends and reads bytes."""

    def __init__(self, address: str, timeout: float = 20, small_buffer: int = 0):
        if address.startswith("unix:"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(address[5:])
        else:
            host, port = address.rsplit(":", 1)
            family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
            self.socket = socket.socket(family)
            if small_buffer:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, small_buffer)
            self.socket.settimeout(timeout)
            self.socket.connect((host.strip("[]"), int(port)))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data: bytes | str) -> "Raw":
        self.socket.sendall(data.encode("latin-1") if isinstance(data, str) else data)
        return self

    def reset(self) -> None:
        """Close with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()

    def _more(self) -> None:
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Closed(f"after {self.buffer[-200:]!r}")
        self.buffer += data

    def read_exactly(self, n: int) -> bytes:
        while len(self.buffer) < n:
            self._more()
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def read_until(self, end: bytes) -> bytes:
        while end not in self.buffer:
            self._more()
        at = self.buffer.index(end) + len(end)
        data, self.buffer = self.buffer[:at], self.buffer[at:]
        return data

    def read_rest(self) -> bytes:
        """Everything until the server closes."""
        try:
            while True:
                self._more()
        except Closed:
            data, self.buffer = self.buffer, b""
            return data

    def answer(self, method: str = "GET") -> Answer:
        """Read one response by its framing."""
        head = self.read_until(b"\r\n\r\n")
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1", first
        fields = [tuple(line.split(": ", 1)) for line in lines]
        headers = {name.lower(): value for name, value in fields}
        one = Answer(int(status), headers, head=head, fields=fields)
        if method == "HEAD" or one.status in (100, 204, 304):
            return one
        if headers.get("transfer-encoding") == "chunked":
            while size := int(self.read_until(b"\r\n"), 16):
                one.body += self.read_exactly(size)
                assert self.read_exactly(2) == b"\r\n"
            assert self.read_exactly(2) == b"\r\n"
        elif "content-length" in headers:
            one.body = self.read_exactly(int(headers["content-length"]))
        else:
            one.body = self.read_rest()
        return one

    def ask(self, data: bytes | str, method: str = "GET") -> Answer:
        return self.send(data).answer(method)

    def is_closed(self, seconds: float = 10) -> bool:
        """True when the server closes within that time; false when it sends something or nothing."""
        if self.buffer:
            return False
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False


class Edge:
    """A running edge_server."""

    def __init__(self, *settings: str, listen: str = "127.0.0.1:0", files: int | None = None):
        usual = Path(__file__).resolve().parents[2] / "build/dev/tests/integration/edge_server"
        binary = os.environ.get("EDGE_SERVER", str(usual))
        self.log = tempfile.TemporaryFile()
        command = [binary, listen, *settings]
        if files is not None:
            command = ["prlimit", f"--nofile={files}:{files}", *command]
        # Freed memory that the sanitizer keeps aside would hide what the program holds.
        asan = os.environ.get("ASAN_OPTIONS", "abort_on_error=1") + ":quarantine_size_mb=4"
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, "ASAN_OPTIONS": asan},
        )
        self.addresses = [self.process.stdout.readline().strip() for _ in listen.split(",")]
        assert self.addresses[0], self.output()
        self.address = self.addresses[0]

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            time.sleep(0)
        try:
            out, _ = self.process.communicate(timeout=20)
        finally:
            self.process.kill()
        text = self.output()
        if kind is not None:
            print(text[-6000:])
            return
        assert not SANITIZER_WORDS.search(text), text[-6000:]
        assert self.process.returncode == 0, f"{self.process.returncode}: {text[-6000:]}"
        self.drained = out.strip()

    def output(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def connect(self, **options) -> Raw:
        return Raw(self.address, **options)

    def ask(self, data: bytes | str, method: str = "GET") -> Answer:
        """One request on a connection of its own."""
        with self.connect() as raw:
            return raw.ask(data, method)

    def counters(self) -> dict:
        import json

        return json.loads(self.ask("GET /counters HTTP/1.1\r\nHost: x\r\n\r\n").body)

    def open_files(self) -> int:
        pid = self.process.pid
        return len(os.listdir(f"/proc/{pid}/fd"))

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096
