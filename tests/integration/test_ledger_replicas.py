"""Two servers on one PostgreSQL: many owners, many first calls each, exactly one sandbox for each.

The full size (1,000 owners, 20 calls each) runs with BINDERY_TEST_FULL=1."""

import asyncio
import collections
import os
import time

import httpx

from gateway import FakeGateway
from harness import wait_until

FULL = os.environ.get("BINDERY_TEST_FULL") == "1"
OWNERS, CALLS = (1000, 20) if FULL else (60, 10)
AT_ONCE = 200
BODY = {"tenant_id": "t", "app_id": "a", "agent_id": "g", "agent_config_version_id": "v"}


async def first_calls(urls: list[str]) -> list[tuple[int, int, str]]:
    """(owner, status, binding_ref) of every call; the calls of an owner alternate between servers."""
    limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
    clients = [httpx.AsyncClient(base_url=u, limits=limits, timeout=120, trust_env=False) for u in urls]
    gate = asyncio.Semaphore(AT_ONCE)

    async def call(owner: int, n: int) -> tuple[int, int, str]:
        async with gate:
            answer = await clients[n % len(clients)].put(
                f"/v1/owners/conversation/c{owner}/binding", json=BODY
            )
        return owner, answer.status_code, answer.json().get("binding_ref") or answer.text

    answers = await asyncio.gather(*(call(o, n) for o in range(OWNERS) for n in range(CALLS)))
    for client in clients:
        await client.aclose()
    return answers


# A07
def test_every_owner_gets_exactly_one_sandbox(server, postgres):
    url = postgres.database()
    with FakeGateway() as gateway:
        settings = {**gateway.settings, "BINDERY_LEDGER_URL": url, "BINDERY_LEASE_SECRET": "s" * 32}
        servers = [server(settings=settings), server(settings=settings)]
        started = time.monotonic()
        answers = asyncio.run(first_calls([one.url for one in servers]))
        took = time.monotonic() - started
        codes = collections.Counter(status for _, status, _ in answers)
        assert codes == {201: OWNERS, 200: OWNERS * (CALLS - 1)}, (
            codes, [a for a in answers if a[1] > 201][:5])
        refs = collections.defaultdict(set)
        for owner, _, ref in answers:
            refs[owner].add(ref)
        assert all(len(found) == 1 for found in refs.values())
        assert gateway.state()["created_total"] == OWNERS == len(gateway.alive)
        assert postgres.sql(url, "SELECT count(*) FROM bindings WHERE status='active'") == str(OWNERS)
        print(f"{len(answers)} calls in {took:.1f} s")


def test_two_replicas_collect_together(server, postgres):
    url = postgres.database()
    with FakeGateway() as gateway:
        settings = {**gateway.settings, "BINDERY_LEDGER_URL": url,
                    "BINDERY_GC_INTERVAL_SECONDS": "1", "BINDERY_GC_CONCURRENCY": "4"}
        servers = [server(settings=settings), server(settings=settings)]
        http = servers[0].http
        for owner in range(40):
            http.put(f"/v1/owners/conversation/c{owner}/binding", json=BODY).raise_for_status()
        gateway.log()
        retired = http.post("/v1/apps/a/retire", params={"tenant_id": "t"})
        assert retired.status_code == 202 and len(retired.json()["binding_ids"]) == 40
        for one in servers:
            one.http.post("/v1/gc/sweep")
        wait_until(lambda: gateway.alive == [], 30, "all sandboxes' end")
        wait_until(lambda: not http.get("/v1/workspaces").json()["workspaces"], 10, "all rows' end")
        deletes = [e["path"] for e in gateway.log() if e["method"] == "DELETE"]
        assert len(deletes) == len(set(deletes)) == 40, "nothing was destroyed twice"


def test_a_dead_replicas_claims_are_taken_over(server, postgres):
    url = postgres.database()
    with FakeGateway() as gateway:
        settings = {**gateway.settings, "BINDERY_LEDGER_URL": url, "BINDERY_CLAIM_SECONDS": "2"}
        one, two = server(settings=settings), server(settings=settings)
        gateway.fault({"method": "POST", "path": "^/v1/sandboxes$", "fault": "hang", "times": 1})
        with httpx.Client(base_url=one.url, trust_env=False, timeout=0.5) as client:
            try:
                client.put("/v1/owners/conversation/c1/binding", json=BODY)
            except httpx.TimeoutException:
                pass
            one.kill()
        started = time.monotonic()
        answer = two.http.put("/v1/owners/conversation/c1/binding", json=BODY)
        assert answer.status_code in (200, 201), answer.text
        assert time.monotonic() - started < 10
        assert len(gateway.alive) <= 2
