#!/usr/bin/env python3
"""Instructions that the service executes for one lease cycle (acquire and release), by callgrind.

    build/venv/bin/python tests/bench/instructions.py [--connections 16] [--cycles 1500] [--by symbols]

Unlike times, these figures hardly depend on the machine or on what else it does. The gateway is the
tests' fake one with canned jobs, or any other (--gateway, --token). Two runs of `bindery bench` that
differ only in their number of cycles are counted; what belongs to no cycle cancels out. Beside the
total: which library, or which functions, executed them. Needs the release build, the tests' environment
(scripts/make-test-venv) and valgrind.
"""

import argparse
import collections
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests/integration"))
import harness  # noqa: E402
from gateway import FakeGateway  # noqa: E402

START_SECONDS, DUMP_SECONDS = 120, 60
NAMED = re.compile(r"(ob|fn)=\((\d+)\)(?: (.+))?")


def own_cost(dump: Path, by: str) -> collections.Counter:
    """Instructions of each object file or function, without what it calls."""
    names: dict[tuple[str, str], str] = {}
    cost: collections.Counter = collections.Counter()
    here = {"ob": "?", "fn": "?"}
    called = False
    for line in dump.read_text().splitlines():
        if match := NAMED.match(line):
            kind, number, name = match.groups()
            if name:
                names[kind, number] = name
            here[kind] = names[kind, number]
        elif line.startswith(("cob=", "cfn=")) and (match := NAMED.match(line[1:])) and match.group(3):
            names[match.group(1), match.group(2)] = match.group(3)
        elif line.startswith("calls="):
            called = True  # the next line is what the callee cost
        elif line and (line[0].isdigit() or line[0] in "+-*"):
            if not called:
                where = here["ob"] if by == "libraries" else f"{here['fn']} [{Path(here['ob']).name}]"
                cost[Path(where).name if by == "libraries" else where] += int(line.split()[-1])
            called = False
    return cost


class Counted:
    """`bindery serve` under callgrind."""

    def __init__(self, binary: Path, folder: Path, settings: dict[str, str]):
        self.url = "http://" + settings["BINDERY_LISTEN"]
        self.out = folder / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={self.out}", str(binary), "serve"]
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("BINDERY_", "DIFY_"))}
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(command, env={**kept, **settings}, stdout=self.log, stderr=self.log)
        self.dumps = 0

    def wait_ready(self) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(self.url + "/readyz", timeout=20).close()
                return
            time.sleep(0.2)
        raise SystemExit(f"the service did not start; see {self.log.name}")

    def dump(self) -> Path:
        """Counts since the last dump."""
        self.dumps += 1
        subprocess.run(["callgrind_control", "-d", str(self.process.pid)], check=True, capture_output=True,
                       timeout=DUMP_SECONDS)
        return Path(f"{self.out}.{self.dumps}")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(START_SECONDS)
        self.log.close()


def run_cycles(options: argparse.Namespace, url: str, cycles: int) -> int:
    command = [options.load or options.binary, "bench", "--url", url, "--connections", options.connections,
               "--cycles", cycles, "--warmup", 0, "--duration", 600, "--json"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert not result["errors"], result["errors"]
    return result["cycles"]


def measure(options: argparse.Namespace, gateway: dict[str, str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="bindery-instructions-"))
    listen = f"127.0.0.1:{harness.free_port()}"
    settings = {**gateway, "BINDERY_LISTEN": listen, "BINDERY_DATA_DIR": str(folder / "data")}
    service = Counted(options.binary, folder, settings)
    try:
        service.wait_ready()
        run_cycles(options, service.url, options.cycles // 5)  # caches and pools fill
        service.dump()
        few = run_cycles(options, service.url, options.cycles // 5)
        before = own_cost(service.dump(), options.by)
        many = run_cycles(options, service.url, options.cycles)
        after = own_cost(service.dump(), options.by)
    finally:
        service.stop()
    cost = {name: (after[name] - before[name]) / (many - few) for name in after}
    total = sum(cost.values())
    print(f"{total:12,.0f}  instructions a cycle, {options.connections} connections")
    for name, each in sorted(cost.items(), key=lambda item: -item[1])[: options.rows]:
        print(f"{each:12,.0f}  {each / total:6.1%}  {name}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=TOP / "build/release/bindery")
    parser.add_argument("--load", type=Path, help="another bindery for the load, such as a newer one")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--cycles", type=int, default=1500)
    parser.add_argument("--by", choices=["libraries", "symbols"], default="libraries")
    parser.add_argument("--rows", type=int, default=14)
    parser.add_argument("--gateway", help="URL of a gateway, in place of the fake one")
    parser.add_argument("--token", default="", help="its X-Inner-Api-Key")
    options = parser.parse_args()
    if options.gateway:
        measure(options, {
            "DIFY_AGENT_RUNTIME_BACKEND": "enterprise",
            "DIFY_AGENT_ENTERPRISE_SANDBOX_GATEWAY_ENDPOINT": options.gateway,
            "DIFY_AGENT_ENTERPRISE_SANDBOX_GATEWAY_AUTH_TOKEN": options.token,
        })
        return 0
    with FakeGateway() as gateway:
        measure(options, gateway.settings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
