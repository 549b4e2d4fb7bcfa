#!/usr/bin/env python3
"""The figures of docs/benchmarks.md that need no other service: the embedded default, measured in one
run on one machine, each beside what it is held against.

    build/venv/bin/python tests/bench/spine.py [--seconds 10] [--leases 10000]

Needs the release build, the tests' environment (scripts/make-test-venv) and wrk.
"""

import argparse
import asyncio
import http.client
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests/integration"))
import harness  # noqa: E402


def rss_kib(pid: int) -> int:
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1))


def wrk_rate(url: str, seconds: int) -> float:
    text = subprocess.run(
        ["wrk", "-t1", "-c64", f"-d{seconds}s", url], capture_output=True, text=True, check=True
    ).stdout
    assert "Non-2xx" not in text, text
    return float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))


def plain_server(folder: Path) -> tuple[subprocess.Popen, str]:
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "evhtp", "libevent", "libevent_openssl", "openssl"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    program = folder / "plain_evhtp"
    subprocess.run(
        [
            "cc",
            "-O2",
            TOP / "tests/bench/plain_evhtp.c",
            "-o",
            program,
            *flags,
            "-lonig",
            "-lpthread",
        ],
        check=True,
    )
    port = harness.free_port()
    process = subprocess.Popen([program, str(port)])
    return process, f"http://127.0.0.1:{port}/healthz"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.unix_path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.unix_path)


def ask(connection, method, path, body, want, headers=None):
    text = json.dumps(body) if body is not None else None
    connection.request(method, path, text, {"Content-Type": "application/json", **(headers or {})})
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == want, f"{path}: {answer.status} {text}"
    return json.loads(text) if text else None


def new_binding(server):
    one = {
        "tenant_id": "bench",
        "agent_id": "bench",
        "binding_id": str(uuid.uuid4()),
        "workspace_id": str(uuid.uuid4()),
    }
    answer = server.http.post("/execution-bindings", json=one)
    assert answer.status_code == 201, answer.text
    return answer.json()


def health_rates(server, folder, seconds):
    """Alternating, so that a neighbour's load falls on both."""
    plain, url = plain_server(folder)
    try:
        time.sleep(0.2)
        pairs = [
            (wrk_rate(url, seconds), wrk_rate(server.url + "/healthz", seconds)) for _ in range(3)
        ]
    finally:
        plain.kill()
        plain.wait()
    return statistics.median(p for p, _ in pairs), statistics.median(o for _, o in pairs)


def acquire_latency(server, binding, rounds):
    """p50 in ms of an acquire through Bindery and of the raw probe job it stands on, in turns."""
    socket_path = next(Path(server.settings["BINDERY_DATA_DIR"]).glob("run/*.sock*"))
    raw = UnixConnection(str(socket_path))
    ours = http.client.HTTPConnection(server.listen)
    lease = ask(ours, "POST", "/v1/leases", {"binding_ref": binding["binding_ref"]}, 201)
    layout = lease["layout"]
    probe = {
        "script": f"test -d {layout['home_dir']} && test -d {layout['workspace_dir']}",
        "timeout": 5,
        "output_limit": 1024,
        "io_mode": "stdio",
    }
    # the same confined job that an acquire starts
    scope = {
        "X-Bindery-Home": layout["home_dir"],
        "X-Bindery-Workspace": layout["workspace_dir"],
    }
    acquired, probed = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        job = ask(raw, "POST", "/v1/jobs/run", probe, 200, scope)
        probed.append(time.perf_counter() - start)
        ask(raw, "DELETE", f"/v1/jobs/{job['job_id']}", None, 200, scope)
        start = time.perf_counter()
        lease = ask(ours, "POST", "/v1/leases", {"binding_ref": binding["binding_ref"]}, 201)
        acquired.append(time.perf_counter() - start)
        ask(ours, "DELETE", f"/v1/leases/{lease['lease_id']}", None, 204)
    return statistics.median(acquired) * 1000, statistics.median(probed) * 1000


async def many(server, binding, count, parallel):
    """Acquire `count` leases over `parallel` connections; no release."""
    host, port = server.listen.split(":")
    body = json.dumps({"binding_ref": binding["binding_ref"], "ttl_seconds": 3600}).encode()
    request = (
        b"POST /v1/leases HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(body)
    ) + body
    left = iter(range(count))

    async def worker():
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in left:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"Content-Length: (\d+)", head).group(1))
            text = await reader.readexactly(length)
            assert head.startswith(b"HTTP/1.1 201"), head + text
        writer.close()

    await asyncio.gather(*(worker() for _ in range(parallel)))


def lease_memory(options, folder, settings):
    """On a service of its own: one that has served already takes new leases from memory it has."""
    folder.mkdir(mode=0o755)
    listen = f"127.0.0.1:{harness.free_port()}"
    settings = settings | {"BINDERY_LISTEN": listen, "BINDERY_DATA_DIR": str(folder / "data")}
    server = harness.Server(options.bindery, folder, ["serve"], settings, listen, None)
    try:
        server.start().wait_ready()
        binding = new_binding(server)
        asyncio.run(many(server, binding, 200, 32))  # the connections' share
        before = rss_kib(server.pid)
        started = time.perf_counter()
        asyncio.run(many(server, binding, options.leases, 32))
        took = time.perf_counter() - started
        held = len(server.http.get("/v1/leases", params={"limit": 200}).json()["leases"])
        grown = rss_kib(server.pid) - before
    finally:
        server.stop()
    if held < 200 or grown <= 0:
        sys.exit(f"spine: {held} leases on a page and {grown} KiB more: that measures nothing")
    return [
        (
            f"memory of an idle lease, at {options.leases:,} leases",
            f"{grown / options.leases:.2f} KiB",
            "< 8 KiB",
        ),
        ("acquires while those were made, 32 connections", f"{options.leases / took:.0f} /s", ""),
    ]


def turn_counts(server, metric: str) -> dict[str, int]:
    """Turns so far, by bucket bound, cumulative."""
    text = server.http.get("/metrics").text
    rows = re.findall(metric + r'_bucket\{le="([^"]+)"\} (\d+)', text)
    return {bound: int(count) for bound, count in rows}


def longest_ms(before: dict[str, int], after: dict[str, int]) -> str:
    """The smallest bucket bound that holds every turn between the two."""
    total = after["+Inf"] - before["+Inf"]
    bound = next(le for le in after if after[le] - before[le] == total)
    return bound if bound == "+Inf" else f"{float(bound) * 1000:g} ms"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bindery", type=Path, default=TOP / "build/release/bindery")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--leases", type=int, default=10000)
    options = parser.parse_args()
    if not shutil.which("wrk"):
        sys.exit("spine: wrk is missing (Debian package wrk)")

    folder = Path(tempfile.mkdtemp(prefix="bindery-bench-"))
    folder.chmod(0o755)
    listen = f"127.0.0.1:{harness.free_port()}"
    settings = {
        "BINDERY_LISTEN": listen,
        "BINDERY_DATA_DIR": str(folder / "data"),
        "BINDERY_LOG_LEVEL": "warn",
        "BINDERY_LEASE_TTL_SECONDS": "3600",
        "BINDERY_MAX_LEASES": str(options.leases * 2),
    }
    server = harness.Server(options.bindery, folder, ["serve"], settings, listen, None)
    rows = []
    try:
        server.start().wait_ready()
        idle = rss_kib(server.pid)
        rows.append(("RSS of the service, idle", f"{idle / 1024:.1f} MiB", "< 30 MiB"))
        plain, ours = health_rates(server, folder, options.seconds)
        rows.append(
            (
                "`GET /healthz` beside plain libevhtp, 64 connections",
                f"{ours / plain:.0%}",
                "≥ 80 %",
            )
        )
        binding = new_binding(server)
        acquire, probe = acquire_latency(server, binding, 200)
        rows.append(
            (
                "acquire beside its raw probe, p50",
                f"{acquire - probe:+.2f} ms on {probe:.2f} ms",
                "+0.5 ms",
            )
        )
        rows += lease_memory(options, folder / "fresh", settings)
        turn = "bindery_loop_turn_seconds", "bindery_loop_turn_cpu_seconds"
        turns_before = [turn_counts(server, metric) for metric in turn]
        churn = subprocess.run(
            [
                options.bindery,
                "bench",
                "--url",
                server.url,
                "--connections",
                "128",
                "--duration",
                str(options.seconds),
                "--target",
                binding["binding_ref"],
                "--json",
            ],
            capture_output=True,
            text=True,
        )
        longest, longest_cpu = (
            longest_ms(before, turn_counts(server, metric))
            for metric, before in zip(turn, turns_before)
        )
        rows.append(("longest loop turn, 128 clients churning leases", longest, "< 20 ms"))
        rows.append(("… of which on a processor, at most", longest_cpu, ""))
        print(churn.stdout.strip() or churn.stderr.strip(), file=sys.stderr)
        server.stop()
    finally:
        server.kill()
        harness.kill_descendants()
        shutil.rmtree(folder, ignore_errors=True)
    print("| figure | measured | bar |\n|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
