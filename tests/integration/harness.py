"""Starts the real program for a test and holds it to account when it ends.

A `Program` is one `bindery …` process with an environment of its own (nothing of the developer's
settings leaks in), its output in a file. `stop()` asks it to end, demands exit status 0 in time and
refuses any word of a sanitizer in its output. Whatever a test leaves behind is killed afterwards
by `kill_descendants`, jobs that left their process group included.
"""

import contextlib
import ctypes
import os
import random
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx

SANITIZER_WORDS = re.compile(r"ERROR: (Address|Leak)Sanitizer|LeakSanitizer:|runtime error:")
START_SECONDS = 20
STOP_SECONDS = 40
PR_SET_CHILD_SUBREAPER = 36


def free_port() -> int:
    """A loopback port below the range of outgoing connections that nobody listens on now."""
    for _ in range(200):
        port = random.SystemRandom().randrange(12000, 32000)
        with contextlib.closing(socket.socket()) as probe:
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise RuntimeError("no free port found")


def become_subreaper() -> None:
    """Orphans of the programs become our children, so that none escapes kill_descendants."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


# Servers that outlive a test: neither they nor their children are killed after it.
spared: set[int] = set()


def descendants(root: int) -> list[int]:
    """Process ids of everything below `root`, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            stat = (entry / "stat").read_text()
            parent = int(stat[stat.rindex(")") + 2 :].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    queue = list(children.get(root, []))
    while queue:
        pid = queue.pop(0)
        if pid in spared:
            continue
        found.append(pid)
        queue.extend(children.get(pid, []))
    return found


def kill_descendants() -> list[int]:
    """Kill and reap all that runs below this process; returns what had to be killed."""
    killed: list[int] = []
    for _ in range(50):
        pids = descendants(os.getpid())
        if not pids:
            break
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        killed += [pid for pid in pids if pid not in killed]
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)
    return killed


def wait_until(condition, seconds: float, what: str):
    """Poll until `condition()` is true and return its value; an AssertionError names `what`."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)


class Program:
    """One running `bindery` with arguments and settings of its own."""

    def __init__(self, binary: Path, folder: Path, args: list[str], settings: dict[str, str]):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log_path = folder / "output.log"
        self.args = args
        self.settings = settings
        self._binary = binary
        self.process: subprocess.Popen | None = None

    def environment(self) -> dict[str, str]:
        passed_on = ("PATH", "LANG", "TMPDIR", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS")
        env = {name: os.environ[name] for name in passed_on if name in os.environ}
        env["HOME"] = str(self.folder)
        return {**env, **self.settings}

    def launch(self) -> None:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [str(self._binary), *self.args],
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def output(self) -> str:
        """All it has written so far, on both streams, over restarts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def check_output(self) -> None:
        found = SANITIZER_WORDS.search(self.output())
        assert not found, f"{found.group(0)} in {self.log_path}:\n{self.output()[-6000:]}"

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            # SIGABRT leaves a stack where sanitizers are on
            self.process.send_signal(signal.SIGABRT)
            self.process.wait(10)
            raise AssertionError(
                f"did not end within {seconds} s:\n{self.output()[-6000:]}"
            ) from None

    def stop(self, expect: int = 0, signal_number: int = signal.SIGTERM) -> None:
        """End it in an orderly way; a second call does nothing."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        status = self.wait()
        self.process = None
        assert status == expect, f"exit status {status}:\n{self.output()[-6000:]}"
        self.check_output()

    def kill(self) -> None:
        """SIGKILL, as a crash would end it: nothing is checked."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Service(Program):
    """A program that serves HTTP. `url` is its base; `http` an httpx client of it."""

    health_path = "/healthz"

    def __init__(self, binary, folder, args, settings, listen, token):
        super().__init__(binary, folder, args, settings)
        self.listen = listen
        self.token = token
        self._client: httpx.Client | None = None

    @property
    def url(self) -> str:
        return "http://bindery" if self.listen.startswith("unix:") else f"http://{self.listen}"

    def new_client(self, **options) -> httpx.Client:
        """A client of one's own, with the token unless `headers` are given."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        options.setdefault("headers", headers)
        options.setdefault("timeout", 30)
        if self.listen.startswith("unix:"):
            options["transport"] = httpx.HTTPTransport(uds=self.listen.removeprefix("unix:"))
        return httpx.Client(base_url=self.url, trust_env=False, **options)

    @property
    def http(self) -> httpx.Client:
        if self._client is None:
            self._client = self.new_client()
        return self._client

    def is_healthy(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self.http.get(self.health_path, timeout=5).status_code == 200
        return False

    def start(self) -> "Service":
        """Launch and wait until it answers."""
        self.launch()
        wait_until(
            lambda: not self.running or self.is_healthy(),
            START_SECONDS,
            f"answer of {self.listen}; output:\n{self.output()[-3000:]}",
        )
        assert self.running, f"ended at start:\n{self.output()[-6000:]}"
        return self

    def restart(self) -> "Service":
        """Stop in an orderly way and start again on the same folder and address."""
        self.stop()
        return self.start()

    def stop(self, *args, **kwargs) -> None:
        self._drop_client()
        super().stop(*args, **kwargs)

    def kill(self) -> None:
        self._drop_client()
        super().kill()

    def _drop_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class Server(Service):
    """`bindery serve` on a data folder of its own."""

    def is_ready(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self.http.get("/readyz", timeout=5).status_code == 200
        return False

    def wait_ready(self, seconds: float = START_SECONDS) -> "Server":
        wait_until(self.is_ready, seconds, f"readiness; output:\n{self.output()[-3000:]}")
        return self


class Daemon(Service):
    """`bindery shellctl serve`, the embedded sandbox on its own."""
