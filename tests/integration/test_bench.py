"""`bindery bench` against the fake gateway: what it counts, and that a stall is not hidden."""

import json
import subprocess

import pytest

from gateway import FakeGateway


@pytest.fixture
def gateway():
    with FakeGateway() as one:
        yield one


def run(bindery, *args, token=None):
    env = {"BINDERY_BENCH_TOKEN": token} if token else {}
    return subprocess.run(
        [str(bindery), "bench", *args], env=env, capture_output=True, text=True, timeout=60
    )


def bench(bindery, gateway, *args):
    done = run(bindery, "--gateway", gateway.url, "--json", "--warmup", "0", *args, token=gateway.token)
    return done.returncode, json.loads(done.stdout)


def test_counts_cycles_and_leaves_nothing(bindery, gateway):
    status, found = bench(bindery, gateway, "--cycles", "50", "--connections", "4")
    assert status == 0
    assert found["cycles"] == 50 and found["failed"] == 0 and found["errors"] == {}
    assert found["acquire_us"]["p50"] <= found["cycle_us"]["p50"] <= found["cycle_us"]["max"]
    log = gateway.log()
    assert gateway.count("POST", "/proxy/v1/jobs/run", log) == 50
    assert sum(e["method"] == "DELETE" and "/jobs/" in e["path"] for e in log) == 50
    assert gateway.state()["alive"] == [] and gateway.state()["jobs"] == 0


def test_errors_are_counted_by_code(bindery, gateway):
    gateway.fault(
        {"fault": "html", "status": 503, "path": "jobs/run", "times": 3},
        {
            "fault": "status",
            "status": 404,
            "path": "jobs/run",
            "times": 2,
            "body": {"error": {"code": "sandbox_expired", "message": "gone"}},
        },
    )
    status, found = bench(bindery, gateway, "--cycles", "20", "--connections", "2")
    assert status == 1
    assert found["failed"] == 5 and found["cycles"] == 15
    assert found["errors"] == {"http_503": 3, "sandbox_expired": 2}


def test_open_loop_counts_from_the_intended_start(bindery, gateway):
    gateway.fault({"fault": "delay", "seconds": 1, "path": "jobs/run", "times": 1})
    args = ("--rate", "50", "--cycles", "60", "--connections", "1", "--duration", "20")
    status, found = bench(bindery, gateway, *args)
    assert status == 0 and found["cycles"] == 60
    # One second of stall holds up about fifty arrivals behind it: a closed loop would show one.
    closed = bench(bindery, gateway, "--cycles", "60", "--connections", "1")[1]
    assert found["cycle_us"]["p50"] > 10 * closed["cycle_us"]["p50"]


def test_usage_and_unreachable(bindery, gateway):
    assert run(bindery, "--connections", "0").returncode == 64
    assert run(bindery, "--scenario", "nonsense").returncode == 64
    assert run(bindery, "--url", "ftp://x").returncode == 64
    refused = run(bindery, "--url", "http://127.0.0.1:1", "--cycles", "1")
    assert refused.returncode == 1 and "upstream_connect" in refused.stderr
    denied = run(bindery, "--gateway", gateway.url, "--cycles", "1", token="wrong")
    assert denied.returncode == 1 and "unauthorized" in denied.stderr
    assert "wrong" not in denied.stderr
