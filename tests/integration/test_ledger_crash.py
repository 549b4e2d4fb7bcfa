"""Kill the server at every step of the ledger, and at random moments; afterwards the books are right.

Each round: the server runs a random mix of first turns, retirements, creates and destroys until
SIGKILL ends it, at a fault point or at a random moment. After restart and collection, no sandbox is
without a row, no active row without a sandbox, no owner with two, and all retired is gone.

The full size (every point on every ledger, 300 random moments) runs with BINDERY_TEST_FULL=1."""

import os
import random
import threading
import time

import httpx
import pytest

from gateway import FakeGateway
from harness import wait_until

FULL = os.environ.get("BINDERY_TEST_FULL") == "1"
RANDOM_KILLS = 300 if FULL else 8
STEPS = ["find_owner", "claim_binding", "activate_binding", "abandon_binding", "retire", "list",
         "claim_work", "finish_work", "retry_work", "report_orphan", "find_ref", "prune_events"]
POINTS = [f"{step}.{when}" for step in STEPS for when in ("before", "after")]
SETTINGS = {
    "BINDERY_GC_INTERVAL_SECONDS": "1",
    "BINDERY_CLAIM_SECONDS": "2",
    "BINDERY_RETIRE_GRACE_SECONDS": "0.1",
    "BINDERY_RECONCILE": "destroy",
    "BINDERY_RECONCILE_INTERVAL_SECONDS": "1",
    "BINDERY_RECONCILE_GRACE_SECONDS": "3",
}
BODY = {"tenant_id": "t", "app_id": "a", "agent_id": "g", "agent_config_version_id": "v"}


class Workload:
    """Random calls from a few threads until the server is gone."""

    def __init__(self, url: str, seed: int):
        self.url = url
        self.stop = False
        self.threads = [
            threading.Thread(target=self._run, args=(seed * 100 + n,), daemon=True) for n in range(4)
        ]
        for thread in self.threads:
            thread.start()

    def _run(self, seed: int) -> None:
        rng = random.Random(seed)
        refs: list[dict] = []
        with httpx.Client(base_url=self.url, trust_env=False, timeout=20) as http:
            while not self.stop:
                try:
                    self._call(http, rng, refs)
                except httpx.HTTPError:
                    return  # the server is gone

    def _call(self, http: httpx.Client, rng: random.Random, refs: list[dict]) -> None:
        owner = f"/v1/owners/conversation/c{rng.randrange(6)}"
        what = rng.random()
        if what < 0.45:
            http.put(f"{owner}/binding", json=BODY)
        elif what < 0.65:
            http.delete(owner, params={"tenant_id": "t", "app_id": "a"})
        elif what < 0.85 or not refs:
            spec = {"tenant_id": "t", "agent_id": "g", "workspace_id": f"w{rng.getrandbits(40)}",
                    "binding_id": f"b{rng.getrandbits(40)}"}
            answer = http.post("/execution-bindings", json=spec)
            if answer.status_code == 201:
                refs.append(answer.json())
        else:
            http.post("/execution-bindings/destroy", json={**refs.pop(), "destroy_workspace": True})

    def join(self) -> None:
        self.stop = True
        for thread in self.threads:
            thread.join(30)


def pages(http: httpx.Client, path: str, key: str) -> list[dict]:
    rows, after = [], None
    while True:
        answer = http.get(path, params={"limit": 500, **({"after": after} if after else {})})
        answer.raise_for_status()
        rows += answer.json()[key]
        after = answer.json()["next"]
        if after is None:
            return rows


def settled(http: httpx.Client) -> list[dict] | None:
    """The active rows, once nothing waits for its creation or destruction any more."""
    rows = pages(http, "/v1/bindings", "bindings")
    if any(row["status"] != "active" for row in rows):
        return None
    if any(row["status"] == "retired" for row in pages(http, "/v1/workspaces", "workspaces")):
        return None
    return rows


def check_books(one, alive, can_list: bool) -> None:
    """`alive()` are the names of what the backend really has: a ref, up to its first colon."""
    rows = wait_until(lambda: settled(one.http), 40, "the books' settling")
    refs = [row["binding_ref"].split(":")[0] for row in rows]
    owners = [row["owner_id"] for row in rows if row["owner_id"]]
    assert len(owners) == len(set(owners)), "an owner with two bindings"
    assert len(refs) == len(set(refs))

    def agree():
        now = alive()
        assert set(refs) <= now, f"active rows without a sandbox: {set(refs) - now}"
        if can_list:
            return now == set(refs)
        orphans = pages(one.http, "/v1/orphans", "orphans")
        unknown = [o for o in orphans if o["kind"] == "unknown"]
        named = {o["ref"] for o in orphans if o["ref"]}
        return len(now - set(refs) - named) <= len(unknown)

    wait_until(agree, 40, f"every sandbox accounted for: {alive()} against {refs}")


def crash_round(make_server, settings, seed, point=None) -> bool:
    """Start a server and see it killed; whether it died at the point by itself."""
    fault = {"BINDERY_FAULT_POINT": f"{point}:{random.Random(seed).randrange(1, 8)}"} if point else {}
    one = make_server({**settings, **fault})
    one.launch()
    deadline = time.monotonic() + 20
    while one.running and not one.is_healthy() and time.monotonic() < deadline:
        time.sleep(0.02)
    work = Workload(one.url, seed)
    if point is None:
        time.sleep(random.Random(seed).uniform(0.02, 1.5))
    else:
        end = time.monotonic() + 6
        while one.running and time.monotonic() < end:
            time.sleep(0.02)
    died = not one.running
    one.kill()
    work.join()
    return died


def run_rounds(server, settings, alive, can_list, points):
    data = {}

    def make(extra):
        one = server(settings={**SETTINGS, **data, **settings, **extra}, start=False)
        data.setdefault("BINDERY_DATA_DIR", one.settings["BINDERY_DATA_DIR"])
        return one

    missed = []
    for seed, point in enumerate(points):
        if not crash_round(make, {}, seed, point) and point:
            missed.append(point)
        if seed % (1 if FULL else 4) == 0 or seed == len(points) - 1:
            one = make({})
            one.start()
            one.wait_ready()
            check_books(one, alive, can_list)
            one.stop()
    rare = {"abandon_binding", "retry_work", "report_orphan", "find_ref"}
    assert not [p for p in missed if p.split(".")[0] not in rare], f"never reached: {missed}"


def plan(points):
    return list(points) + [None] * RANDOM_KILLS



@pytest.mark.parametrize("ledger", ["sqlite", "postgres"])
def test_enterprise_books_are_right_after_every_crash(server, request, ledger):
    settings = {}
    if ledger == "postgres":
        settings["BINDERY_LEDGER_URL"] = request.getfixturevalue("postgres").database()
    with FakeGateway() as gateway:
        gateway.fault(
            {"method": "POST", "path": "^/v1/sandboxes$", "fault": "status", "status": 500,
             "probability": 0.1},
            {"method": "POST", "path": "^/v1/sandboxes$", "fault": "delay", "seconds": 0.02},
            {"method": "DELETE", "path": ".*", "fault": "status", "status": 500, "probability": 0.1},
        )
        points = POINTS if FULL or ledger == "sqlite" else POINTS[1::4]
        run_rounds(server, {**gateway.settings, **settings}, lambda: set(gateway.alive), False,
                   plan(points))


def test_local_books_are_right_after_every_crash(server, folder):
    """The embedded sandbox can be listed: what exists and what is active must be the same set."""
    homes = folder / "data" / "sandbox" / "homes"

    def alive():
        return {path.name for path in homes.iterdir() if not path.name.startswith(".")}

    points = POINTS if FULL else ["activate_binding.before", "claim_binding.after", "retire.after",
                                  "finish_work.before"]
    settings = {"BINDERY_DATA_DIR": str(folder / "data")}
    run_rounds(server, settings, alive, True, list(points) + [None] * (RANDOM_KILLS // 2))
