#!/usr/bin/env python3
"""Lifecycles against a gateway that fails at random: is every sandbox accounted for?

    build/venv/bin/python tests/bench/lifecycles.py [--cycles 10000] [--at-once 200] [--probability 0.01]

Starts the fake gateway with every fault at the given probability and a Bindery in front of it, runs
`bindery bench --scenario lifecycle`, then takes the faults back, lets the collector finish and compares
what the gateway believes alive with what the ledger says. Exit status 0 when nothing is unaccounted for.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests/integration"))
import harness  # noqa: E402
from gateway import FakeGateway  # noqa: E402


def rows(http, path: str, key: str) -> list[dict]:
    found, cursor = [], None
    while True:
        page = http.get(path, params={"limit": 200, **({"after": cursor} if cursor else {})})
        page.raise_for_status()
        found += page.json()[key]
        cursor = page.json()["next"]
        if not cursor:
            return found


def settled(http) -> bool:
    waiting = [r for r in rows(http, "/v1/bindings", "bindings") if r["status"] in ("creating", "retired")]
    return not waiting


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", type=Path, default=TOP / "build/release/bindery")
    parser.add_argument("--cycles", type=int, default=10000)
    parser.add_argument("--at-once", type=int, default=200)
    parser.add_argument("--probability", type=float, default=0.01)
    parser.add_argument("--settle", type=int, default=180)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bindery-lifecycles-"))
    with FakeGateway() as gateway:
        settings = {
            **gateway.settings,
            "BINDERY_LISTEN": f"127.0.0.1:{harness.free_port()}",
            "BINDERY_DATA_DIR": str(folder / "data"),
            "BINDERY_ACCESS_LOG": "false",
            "BINDERY_LOG_LEVEL": "error",
            "BINDERY_GC_INTERVAL_SECONDS": "1",
            "DIFY_AGENT_ENTERPRISE_SANDBOX_GATEWAY_TIMEOUT": "5",
        }
        server = harness.Server(options.binary, folder, ["serve"], settings, settings["BINDERY_LISTEN"], None)
        server.start()
        server.wait_ready()
        gateway.random_faults(options.probability)
        command = [str(options.binary), "bench", "--url", server.url, "--scenario", "lifecycle", "--json"]
        command += ["--cycles", str(options.cycles), "--connections", str(options.at_once)]
        command += ["--duration", "3600", "--warmup", "0"]
        bench = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        result = json.loads(bench.stdout)
        gateway.fault()
        end = time.monotonic() + options.settle
        while not settled(server.http) and time.monotonic() < end:
            time.sleep(1)
        bindings = rows(server.http, "/v1/bindings", "bindings")
        orphans = rows(server.http, "/v1/orphans", "orphans")
        alive = set(gateway.alive)
        named = {r["binding_ref"] for r in bindings if r["binding_ref"]}
        named |= {o["ref"] for o in orphans if o.get("ref")}
        unnamed = [o for o in orphans if not o.get("ref")]
        unexplained = alive - named
        spoiled = set(gateway.state()["unanswered"])
        print(json.dumps({k: result[k] for k in ("cycles", "failed", "errors")}))
        print(f"created {gateway.state()['created_total']}, alive {len(alive)}, of these named by a row {len(alive & named)}")
        print(f"without a name: {len(unexplained)} alive, {len(unexplained - spoiled)} of them made by a create that was")
        print(f"answered; {len(unnamed)} creates of unknown outcome are on record")
        left = [r for r in bindings if r["status"] in ("creating", "retired")]
        print(f"rows not settled: {len(left)}; bindings {len(bindings)}, orphans {len(orphans)}")
        server.stop()
        accounted = unexplained <= spoiled and len(unexplained) <= len(unnamed)
        return 0 if accounted and not left else 1


if __name__ == "__main__":
    sys.exit(main())
