"""Leases over the HTTP API: acquire, read, renew, release, their tokens, their ends."""

import concurrent.futures
import time

import httpx
import pytest
from brokered import broker, brokers, settle, upstream  # noqa: F401

ERROR_KEYS = {"code", "message", "retryable", "admitted"}


def detail(answer: httpx.Response) -> dict:
    body = answer.json()
    assert set(body) == {"detail"} and set(body["detail"]) == ERROR_KEYS, body
    return body["detail"]


def bearer(token: str) -> dict:
    return {"Authorization": f"Bearer {token}"}


def test_acquire_answers_with_all_that_a_holder_needs(broker):
    lease = broker.acquire()
    assert set(lease) == {
        "lease_id", "binding_ref", "backend", "layout", "acquired_at", "expires_at", "shellctl",
    }  # fmt: skip
    assert len(lease["lease_id"]) == 32
    assert lease["layout"] == {"home_dir": "/home/fake", "workspace_dir": "/workspace/fake"}
    url = f"{broker.url}/v1/leases/{lease['lease_id']}/shellctl"
    assert lease["shellctl"]["base_url"] == url
    assert broker.holder(lease).get("/healthz").json() == {"status": "ok"}


def test_the_public_url_goes_into_answers(brokers):
    lease = brokers(BINDERY_PUBLIC_URL="https://sandboxes.example/x/").acquire()
    assert lease["shellctl"]["base_url"].startswith("https://sandboxes.example/x/v1/leases/")


def test_bad_bodies_are_answered_with_all_their_problems(broker):
    answer = broker.http.post("/v1/leases", json={"binding_ref": "", "ttl_seconds": 0, "more": 1})
    assert answer.status_code == 422
    assert "binding_ref" in answer.text and "ttl_seconds" in answer.text and "more" in answer.text
    assert broker.http.post("/v1/leases", content=b"{").status_code == 400
    assert broker.http.post("/v1/leases", json=[]).status_code == 422


@pytest.mark.parametrize(
    "ref",
    ["..", ".", "a/../../admin", "a\r\nX-Inner-Api-Key: x", "a\tb", "x" * 256, "x" * 65536, "a\u0000b"],
)
def test_refs_that_walk_or_split_headers_reach_no_backend(broker, ref):
    """A46, A47"""
    answer = broker.http.post("/v1/leases", json={"binding_ref": ref})
    assert answer.status_code in (400, 413, 422), answer.text
    if "\0" not in ref and len(ref) < 60000:
        assert detail(answer)["code"] == "invalid_ref"
    assert broker.state()["acquires"] == 0


def test_unknown_binding_is_lost(broker):
    answer = broker.http.post("/v1/leases", json={"binding_ref": "b99"})
    assert answer.status_code == 404 and detail(answer)["code"] == "binding_lost"


def test_a_hung_probe_times_out_and_leaves_nothing(brokers):
    """A16"""
    broker = brokers(BINDERY_ACQUIRE_VALIDATION_SECONDS="0.5")
    hung, other = (broker.create().json()["binding_ref"] for _ in range(2))
    broker.script("acquire", 60000)
    clients = [broker.new_client() for _ in range(40)]
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        body = {"binding_ref": hung}
        futures = [pool.submit(one.post, "/v1/leases", json=body) for one in clients]
        answers = [future.result() for future in futures]
    assert {(a.status_code, detail(a)["code"]) for a in answers} == {(504, "backend_timeout")}
    broker.script("acquire", 0)
    assert broker.acquire(other)
    assert broker.state()["leases"] == 1


def test_expired_lease_is_gone_at_once_and_blocks_nobody(broker):
    """A22"""
    lease = broker.acquire(ttl_seconds=0.3)
    time.sleep(0.35)
    gone = broker.http.get(f"/v1/leases/{lease['lease_id']}")
    assert gone.status_code == 410 and detail(gone)["code"] == "lease_gone"
    with broker.holder(lease) as holder:
        answer = holder.get("/healthz")
        assert answer.status_code == 410
        assert answer.json()["error"]["code"] == "lease_gone"
    assert broker.http.get("/v1/leases").json()["leases"] == []
    assert broker.acquire(lease["binding_ref"])["lease_id"] != lease["lease_id"]
    settle(lambda: broker.state()["planes"] == 1)


def test_the_old_holder_cannot_touch_the_new_holders_lease(broker):
    """A23"""
    old = broker.acquire(ttl_seconds=0.2)
    time.sleep(0.25)
    young = broker.acquire(old["binding_ref"])
    path = f"/v1/leases/{young['lease_id']}"
    token = bearer(old["shellctl"]["token"])
    assert httpx.delete(f"{broker.url}/v1/leases/{old['lease_id']}", headers=token).status_code == 204
    assert httpx.delete(broker.url + path, headers=token).status_code == 403
    assert httpx.post(f"{broker.url}{path}/renew", headers=token).status_code == 403
    assert httpx.get(f"{broker.url}{path}/shellctl/v1/x", headers=token).status_code == 403
    assert broker.http.get(path).status_code == 200


def test_release_is_idempotent_and_closes_the_door(broker):
    lease = broker.acquire()
    path = f"/v1/leases/{lease['lease_id']}"
    for _ in range(3):
        answer = broker.http.delete(path)
        assert answer.status_code == 204 and answer.content == b""
    assert broker.http.get(path).status_code == 410
    assert broker.http.post(f"{path}/renew", json={}).status_code == 410
    assert broker.holder(lease).get("/healthz").status_code == 410
    settle(lambda: broker.state()["planes"] == 0)
    assert broker.http.delete("/v1/leases/" + "0" * 32).status_code == 204
    assert broker.http.delete("/v1/leases/nonsense").status_code == 404


def test_what_a_lease_token_opens_and_what_not(broker):
    lease = broker.acquire()
    path = f"/v1/leases/{lease['lease_id']}"
    with httpx.Client(base_url=broker.url, headers=bearer(lease["shellctl"]["token"])) as holder:
        assert holder.get("/v1/leases").status_code == 401
        assert holder.get(path).status_code == 401
        assert holder.post("/v1/leases", json={"binding_ref": "b1"}).status_code == 401
        assert holder.post("/execution-bindings", json={}).status_code == 401
        assert holder.post(f"{path}/renew").status_code == 200
        assert holder.get(f"{path}/shellctl/v1/x").status_code == 200
        assert httpx.get(f"{broker.url}{path}/shellctl/healthz").status_code == 200
        assert holder.delete(path).status_code == 204
    for wrong in ("nonsense", "blt1.AAAA", "blt1."):
        answer = httpx.get(f"{broker.url}{path}/shellctl/v1/x", headers=bearer(wrong))
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    assert httpx.get(f"{broker.url}{path}/shellctl/v1/x").status_code == 401
    # as on shellctl itself, health is open; to who knows the lease's id
    assert httpx.get(f"{broker.url}{path}/shellctl/healthz").status_code == 410


def test_renew_extends_up_to_the_ceiling(brokers):
    """A20: renewals end at the ceiling over all of them."""
    broker = brokers(
        BINDERY_LEASE_TTL_SECONDS="1",
        BINDERY_LEASE_MAX_TTL_SECONDS="1",
        BINDERY_LEASE_MAX_TOTAL_SECONDS="1.2",
    )
    lease = broker.acquire(ttl_seconds=0.6)
    path = f"/v1/leases/{lease['lease_id']}"
    time.sleep(0.4)
    renewed = broker.http.post(f"{path}/renew", json={"ttl_seconds": 0.7}).json()
    assert set(renewed) == set(lease) - {"layout"}
    assert renewed["expires_at"] > lease["expires_at"]
    assert renewed["shellctl"]["token"] != lease["shellctl"]["token"]
    time.sleep(0.4)
    assert broker.http.post(f"{path}/renew", json={"ttl_seconds": 60}).status_code == 200
    time.sleep(0.5)
    assert broker.http.post(f"{path}/renew", json={"ttl_seconds": 60}).status_code == 410
    assert broker.holder(renewed).get("/healthz").status_code == 410


def test_another_replica_serves_renews_and_releases_by_token(brokers):
    """A56 at API level: leases live in their tokens, not in a process."""
    one, two = brokers(), brokers()
    ref = one.create().json()["binding_ref"]
    assert two.create().json()["binding_ref"] == ref  # both know b1
    lease = one.acquire(ref)
    path = f"{two.url}/v1/leases/{lease['lease_id']}"
    token = bearer(lease["shellctl"]["token"])
    assert two.http.get(f"/v1/leases/{lease['lease_id']}").status_code == 404
    renewed = httpx.post(f"{path}/renew", headers=token)
    assert renewed.status_code == 200
    assert two.state()["reopens"] == 0
    assert httpx.get(f"{path}/shellctl/healthz", headers=token).status_code == 200
    assert httpx.get(f"{path}/shellctl/healthz", headers=token).status_code == 200
    assert two.state()["reopens"] == 1
    ran = httpx.post(f"{path}/commands", headers=token, json={"script": "true"})
    assert ran.status_code == 200
    assert httpx.delete(path, headers=token).status_code == 204
    assert httpx.get(f"{path}/shellctl/healthz", headers=token).status_code == 410
    assert httpx.post(f"{path}/renew", headers=token).status_code == 410


def test_leases_outlive_a_restart(broker):
    lease = broker.acquire()
    broker.restart()
    broker.create()
    assert broker.holder(lease).get("/healthz").status_code == 200


def test_destroy_ends_leases_and_nothing_comes_back(broker):
    """A30, A31"""
    for _ in range(5):
        made = broker.create().json()
        lease = broker.acquire(made["binding_ref"])
        body = {**made, "destroy_workspace": True}
        assert broker.http.post("/execution-bindings/destroy", json=body).status_code == 204
        creates = broker.state()["creates"]
        for _ in range(20):
            assert broker.holder(lease).get("/healthz").status_code in (404, 410)
            again = broker.http.post("/v1/leases", json={"binding_ref": made["binding_ref"]})
            assert again.status_code == 404
        assert broker.state()["creates"] == creates
        assert broker.http.post("/execution-bindings/destroy", json=body).status_code == 204


def test_listing_pages_through_all(broker):
    ref = broker.create().json()["binding_ref"]
    made = [broker.acquire(ref)["lease_id"] for _ in range(7)]
    seen, after = [], None
    while True:
        page = broker.http.get("/v1/leases", params={"limit": 3, **({"after": after} if after else {})})
        seen += [lease["lease_id"] for lease in page.json()["leases"]]
        after = page.json()["next"]
        if after is None:
            break
    assert seen == made
    assert "blt1." not in page.text
    assert broker.http.get("/v1/leases", params={"limit": 0}).status_code == 400


def test_concurrent_acquires_share_one_probe(broker):
    ref = broker.create().json()["binding_ref"]
    broker.script("acquire", 1500)
    clients = [broker.new_client() for _ in range(30)]
    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        futures = [pool.submit(one.post, "/v1/leases", json={"binding_ref": ref}) for one in clients]
        answers = [future.result() for future in futures]
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["lease_id"] for answer in answers}) == 30
    assert broker.state()["acquires"] < 4


def test_commands_report_truthfully(broker):
    lease = broker.acquire()
    path = f"/v1/leases/{lease['lease_id']}/commands"
    answer = broker.http.post(path, json={"script": "true", "env": {"A": "1"}, "mode": "stdio"})
    body = answer.json()
    assert body.pop("duration_ms") >= 0
    assert body == {
        "status": "exited", "exit_code": 0, "output": "", "truncated": False, "stop_reason": None,
    }  # fmt: skip
    for bad in ({}, {"script": ""}, {"script": "x", "timeout_seconds": 0}, {"script": "x", "mode": "tty"},
                {"script": "x", "env": {"A=B": "1"}}, {"script": "x", "env": {"A": 1}}, {"script": "x", "y": 1}):
        assert broker.http.post(path, json=bad).status_code == 422, bad
    broker.script("run", 0, 1)
    failed = broker.http.post(path, json={"script": "x"})
    assert failed.status_code == 502 and detail(failed)["code"] == "binding_unavailable"


def test_a_release_ends_a_running_command(broker):
    lease = broker.acquire()
    broker.script("run", 60000)
    path = f"/v1/leases/{lease['lease_id']}"
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(broker.new_client().post, f"{path}/commands", json={"script": "sleep"})
        settle(lambda: broker.state()["in_flight"] >= 2)
        assert broker.http.delete(path).status_code == 204
        answer = running.result(5)
    assert answer.status_code == 410 and detail(answer)["code"] == "lease_gone"


def test_overload_is_said_and_passes(brokers):
    broker = brokers(BINDERY_MAX_LEASES="2")
    ref = broker.create().json()["binding_ref"]
    first = broker.acquire(ref)
    broker.acquire(ref)
    refused = broker.http.post("/v1/leases", json={"binding_ref": ref})
    assert refused.status_code == 503 and detail(refused)["code"] == "overloaded"
    assert int(refused.headers["retry-after"]) >= 1
    broker.http.delete(f"/v1/leases/{first['lease_id']}")
    assert broker.acquire(ref)
