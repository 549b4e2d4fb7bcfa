#!/usr/bin/env python3
"""The tunnel to an OpenShell sandbox: Bindery beside the official SDK's own channel, in one run.

    build/venv/bin/python tests/bench/openshell.py [--mib 512] [--exchanges 2000] [--acquires 300]

All speak to plain_openshell.c, a gateway in C whose forwarded port answers HTTP: the fake gateway in
Python would be what is measured. Three are compared: Bindery, from whose HTTP port a consumer reads; a
program on the SDK's channel that passes the same bytes on to the same consumer over a socket; and the
SDK's channel alone, whose process drops what it reads. Prints a table of throughput, round trip and CPU;
the exit status says whether the bars are met: 3 times the throughput, a third of the CPU for each MiB,
a third of the CPU of an acquire.
"""

import argparse
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
# this file has the SDK's name
sys.path = [path for path in sys.path if Path(path).resolve() != TOP / "tests/bench"]
sys.path.insert(0, str(TOP / "tests/integration"))
import harness  # noqa: E402

TICK = os.sysconf("SC_CLK_TCK")
GET = "GET {} HTTP/1.1\r\nHost: sandbox\r\n\r\n"
POST = "POST {} HTTP/1.1\r\nHost: sandbox\r\nContent-Length: 1\r\n\r\n1"
BOOTSTRAP = b"test -d ~/workspace && exit 0\n"


def build_gateway(folder: Path) -> Path:
    program = folder / "plain_openshell"
    flags = subprocess.check_output(
        ["pkg-config", "--cflags", "--libs", "libnghttp2", "libevent"], text=True
    ).split()
    source = str(TOP / "tests/bench/plain_openshell.c")
    command = ["cc", "-O2", "-std=gnu17", "-D_GNU_SOURCE", source, "-o", str(program), *flags]
    subprocess.run(command, check=True)
    return program


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def percentile(times: list[float], part: float) -> float:
    return sorted(times)[int(len(times) * part)] * 1000


class Peer:
    """What is measured: `mib` through one tunnel, `exchanges` of a byte, `acquires`."""

    def __init__(self, options):
        self.options = options

    def run(self) -> dict:
        options, size = self.options, self.options.mib << 20
        self.download(1 << 20)  # warm
        cpu, began = self.cpu(), time.monotonic()
        self.download(size)
        took, cpu_bytes = time.monotonic() - began, self.cpu() - cpu
        times = []
        for _ in range(options.exchanges):
            began = time.monotonic()
            self.exchange()
            times.append(time.monotonic() - began)
        self.acquire()
        cpu, began = self.cpu(), time.monotonic()
        for _ in range(options.acquires):
            self.acquire()
        acquiring, cpu_acquire = time.monotonic() - began, self.cpu() - cpu
        return {
            "mib_per_s": options.mib / took,
            "cpu_ms_per_mib": cpu_bytes * 1000 / options.mib,
            "p50_ms": percentile(times, 0.5),
            "p99_ms": percentile(times, 0.99),
            "acquire_cpu_ms": cpu_acquire * 1000 / options.acquires,
            "acquire_ms": acquiring * 1000 / options.acquires,
        }


class Sdk(Peer):
    """The SDK's client and channel, one forward for each exchange, as Bindery does."""

    def __init__(self, options, port: int):
        import openshell
        from openshell._proto import openshell_pb2

        super().__init__(options)
        self.pb = openshell_pb2
        self.client = openshell.SandboxClient(f"127.0.0.1:{port}")
        self.token = self.session()

    def cpu(self) -> float:
        return time.process_time()

    def session(self) -> str:
        request = self.pb.CreateSshSessionRequest(sandbox_id="sdk")
        return self.client._stub.CreateSshSession(request).token

    def forward(self, request: str):
        init = {"sandbox_id": "sdk", "authorization_token": self.token}
        init["tcp"] = {"host": "127.0.0.1", "port": 5004}
        frame = self.pb.TcpForwardFrame
        return self.client._stub.ForwardTcp(iter([frame(init=init), frame(data=request.encode())]))

    def download(self, size: int) -> None:
        got = sum(len(frame.data) for frame in self.forward(GET.format(f"/bytes/{size}")))
        assert got > size

    def exchange(self) -> None:
        got = b"".join(frame.data for frame in self.forward(POST.format("/echo")))
        assert got.endswith(b"\r\n\r\n1")

    def acquire(self) -> None:
        """What an acquire of a running sandbox asks of the gateway, and its release."""
        self.client.get("sdk", workspace="default")
        assert self.client.exec("sdk", ["/bin/sh", "-s"], stdin=BOOTSTRAP).exit_code == 0
        token = self.session()
        got = b"".join(frame.data for frame in self.forward(GET.format("/healthz")))
        assert got.endswith(b'{"status":"ok"}')
        self.client._stub.RevokeSshSession(self.pb.RevokeSshSessionRequest(token=token))


class Passing(Sdk):
    """A program on the SDK that passes on: `serve` in its process, the rest in the consumer's."""

    def serve(self, listener: socket.socket) -> None:
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while request := peer.recv(65536):
            for frame in self.forward(request.decode()):
                peer.sendall(frame.data)


class Consumer:
    """A connection on which answers are read and dropped."""

    def __init__(self, host: str, port: int):
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.room = bytearray(1 << 20)

    def ask(self, request: str, size: int) -> None:
        """The answer must be good and have a body of `size` bytes."""
        self.socket.sendall(request.encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.socket.recv(65536)
        assert b" 200 " in data
        left = size - len(data.partition(b"\r\n\r\n")[2])
        while left > 0:
            n = self.socket.recv_into(self.room, min(left, len(self.room)))
            assert n > 0
            left -= n


class Passed(Peer):
    """The consumer's side of Passing."""

    def __init__(self, options, pid: int, port: int):
        super().__init__(options)
        self.pid, self.consumer = pid, Consumer("127.0.0.1", port)

    def cpu(self) -> float:
        return cpu_s(self.pid)

    def download(self, size: int) -> None:
        self.consumer.ask(GET.format(f"/bytes/{size}"), size)

    def exchange(self) -> None:
        self.consumer.ask(POST.format("/echo"), 1)

    def acquire(self) -> None:
        pass


class Bindery(Peer):
    def __init__(self, options, server):
        super().__init__(options)
        self.server = server
        spec = {"tenant_id": "t", "agent_id": "a", "binding_id": "b", "workspace_id": "w"}
        made = server.http.post("/execution-bindings", json=spec)
        assert made.status_code == 201, made.text
        self.refs = {"binding_ref": made.json()["binding_ref"]}
        lease = server.http.post("/v1/leases", json=self.refs)
        assert lease.status_code == 201, lease.text
        self.base = f"/v1/leases/{lease.json()['lease_id']}/shellctl"
        host, _, port = server.listen.rpartition(":")
        self.consumer = Consumer(host, int(port))
        # an acquire without a lease beside it: it makes its session, and its release revokes it
        other = server.http.post("/execution-bindings", json={**spec, "binding_id": "c"})
        self.other = {"binding_ref": other.json()["binding_ref"]}

    def cpu(self) -> float:
        return cpu_s(self.server.pid)

    def download(self, size: int) -> None:
        self.consumer.ask(GET.format(f"{self.base}/bytes/{size}"), size)

    def exchange(self) -> None:
        self.consumer.ask(POST.format(f"{self.base}/echo"), 1)

    def acquire(self) -> None:
        lease = self.server.http.post("/v1/leases", json=self.other)
        assert lease.status_code == 201, lease.text
        self.server.http.delete(f"/v1/leases/{lease.json()['lease_id']}")


def measure_sdk(options, port: int, pipe) -> None:
    pipe.send(Sdk(options, port).run())


def pass_on(options, port: int, pipe) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        Passing(options, port).serve(listener)


def in_process(target, options, port: int, measure) -> dict:
    """The SDK in a process of its own, so that its CPU is told apart."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(options, port, theirs))
    process.start()
    theirs.close()
    result = measure(process.pid, ours.recv())
    process.terminate()
    process.join()
    return result


def start_bindery(options, folder: Path, port: int):
    prefix = "DIFY_AGENT_OPENSHELL_"
    settings = {
        "DIFY_AGENT_RUNTIME_BACKEND": "openshell",
        prefix + "GATEWAY_ENDPOINT": f"127.0.0.1:{port}",
        prefix + "INSECURE": "true",
        prefix + "DRIVER_CONFIG": '{"docker": {}}',
        prefix + "SHELLCTL_AUTH_TOKEN": "token",
        "BINDERY_LISTEN": f"127.0.0.1:{harness.free_port()}",
        "BINDERY_DATA_DIR": str(folder / "data"),
    }
    listen = settings["BINDERY_LISTEN"]
    server = harness.Server(options.binary, folder, ["serve"], settings, listen, None)
    return server.start().wait_ready()


BARS = (
    ("mib_per_s", "throughput, MiB/s", lambda ours, theirs: ours >= 3 * theirs),
    ("cpu_ms_per_mib", "CPU, ms per MiB", lambda ours, theirs: ours <= theirs / 3),
    ("p50_ms", "round trip of one byte, p50 ms", None),
    ("p99_ms", "round trip of one byte, p99 ms", None),
    ("acquire_cpu_ms", "acquire and release, CPU ms", lambda ours, theirs: ours <= theirs / 3),
    ("acquire_ms", "acquire and release, ms", None),
)


def report(bindery: dict, passed: dict, sdk: dict) -> bool:
    print("| figure | Bindery | SDK passing on | SDK alone | bar |")
    print("| --- | ---: | ---: | ---: | --- |")
    met = True
    for key, words, bar in BARS:
        others = [sdk] if key.startswith("acquire") else [passed, sdk]
        fits = [bar(bindery[key], other[key]) for other in others] if bar else []
        met &= all(fits)
        verdicts = ", ".join("met" if one else "**not met**" for one in fits)
        middle = "" if len(others) == 1 else f"{passed[key]:.3f}"
        print(f"| {words} | {bindery[key]:.3f} | {middle} | {sdk[key]:.3f} | {verdicts} |")
    return met


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", type=Path, default=TOP / "build/release/bindery")
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--exchanges", type=int, default=2000)
    parser.add_argument("--acquires", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bindery-openshell-"))
    gateway = subprocess.Popen([build_gateway(folder)], stdout=subprocess.PIPE, text=True)
    port = int(gateway.stdout.readline().split()[1])
    server = start_bindery(options, folder, port)
    try:
        bindery = Bindery(options, server).run()
        passed = in_process(
            pass_on, options, port, lambda pid, at: Passed(options, pid, at).run()
        )
        sdk = in_process(measure_sdk, options, port, lambda _, figures: figures)
    finally:
        server.stop()
        gateway.terminate()
        gateway.wait()
    if options.json:
        print(json.dumps({"bindery": bindery, "passed": passed, "sdk": sdk}))
    return 0 if report(bindery, passed, sdk) else 1


if __name__ == "__main__":
    sys.exit(main())
