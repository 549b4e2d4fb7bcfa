"""The Enterprise backend behind the HTTP API, in front of a gateway that misbehaves on command: what
the caller gets, what is left in the gateway, what the metrics say."""

import concurrent.futures
import json
import socket
import struct
import threading
import time

import pytest

from gateway import FakeGateway
from harness import wait_until

SPEC = {"tenant_id": "t1", "agent_id": "a1", "binding_id": "b1", "workspace_id": "w1"}
QUICK = {
    "DIFY_AGENT_ENTERPRISE_SANDBOX_GATEWAY_TIMEOUT": "1.5",
    "BINDERY_ACQUIRE_VALIDATION_SECONDS": "1",
    "BINDERY_ENTERPRISE_RETRY_BUDGET_SECONDS": "3",
}


@pytest.fixture
def gateway():
    with FakeGateway() as one:
        yield one


@pytest.fixture
def front(server, gateway):
    return server(settings={**gateway.settings, **QUICK})


def create(front, **changes):
    return front.http.post("/execution-bindings", json={**SPEC, **changes})


def made(front, **changes) -> dict:
    answer = create(front, **changes)
    assert answer.status_code == 201, answer.text
    return answer.json()


def acquire(front, refs):
    return front.http.post("/v1/leases", json={"binding_ref": refs["binding_ref"]})


def destroy(front, refs):
    body = {**refs, "destroy_workspace": True}
    return front.http.post("/execution-bindings/destroy", json=body)


def detail(answer) -> dict:
    return answer.json()["detail"]


def metric(front, line_start: str) -> float:
    for line in front.http.get("/metrics").text.splitlines():
        if line.startswith(line_start + " ") or line.startswith(line_start + "{"):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


# ---- the good case --------------------------------------------------------------------------------


def test_a_life(front, gateway):
    refs = made(front)
    assert refs["binding_ref"] == refs["workspace_ref"] == gateway.alive[0]
    gateway.log()
    lease = acquire(front, refs)
    assert lease.status_code == 201 and lease.json()["layout"]["workspace_dir"] == "/home/dify/workspace"
    log = gateway.log()
    assert [e["path"] for e in log if e["method"] == "POST"] == ["/proxy/v1/jobs/run"]
    assert front.http.delete(f"/v1/leases/{lease.json()['lease_id']}").status_code == 204
    wait_until(lambda: gateway.state()["jobs"] == 0, 5, "transient jobs deleted")
    assert gateway.alive == [refs["binding_ref"]], "release stops nothing"
    assert destroy(front, refs).status_code == 204
    assert gateway.alive == []
    assert destroy(front, refs).status_code == 204, "absent is success"


def test_what_it_cannot_do_is_said_before_anything_is_sent(front, gateway):
    shared = create(front, existing_workspace_ref="")
    assert shared.status_code == 409 and detail(shared)["code"] == "shared_workspace_unsupported"
    snapshot = create(front, home_snapshot_ref="s1")
    assert snapshot.status_code == 501 and detail(snapshot)["code"] == "home_snapshot_unsupported"
    body = {"binding_ref": "x", "destroy_workspace": False}
    kept = front.http.post("/execution-bindings/destroy", json=body)
    assert kept.status_code == 409
    assert detail(kept)["code"] == "workspace_preservation_unsupported"
    other = {"binding_ref": "x", "workspace_ref": "y", "destroy_workspace": True}
    differs = front.http.post("/execution-bindings/destroy", json=other)
    assert differs.status_code in (400, 502)
    assert gateway.log() == []


def test_snapshots_of_a_newer_gateway(server, gateway):
    front = server(settings={**gateway.settings, "BINDERY_ENTERPRISE_SNAPSHOTS": "true"})
    refs = made(front)
    body = {"tenant_id": "t1", "agent_id": "a1", "home_snapshot_id": "h1"}
    body["backend_binding_ref"] = refs["binding_ref"]
    taken = front.http.post("/home-snapshots/from-binding", json=body)
    assert taken.status_code == 201, taken.text
    ref = taken.json()["snapshot_ref"]
    again = made(front, binding_id="b2", workspace_id="w2", home_snapshot_ref=ref)
    assert again["binding_ref"] in gateway.alive
    for _ in range(2):
        gone = front.http.post("/home-snapshots/delete", json={"snapshot_ref": ref})
        assert gone.status_code == 204


# ---- creates that go wrong (A01, A02, A08, A49) -----------------------------------------------------

BEFORE = {"method": "POST", "path": "^/v1/sandboxes$", "times": 1}
AFTER = {**BEFORE, "when": "after"}

# rule, status, code, left in the gateway without a name (and so counted)
CREATE_FAULTS = {
    "500": ({**BEFORE, "fault": "status", "status": 500}, 502, "binding_create_failed", 0),
    "401": ({**BEFORE, "fault": "status", "status": 401}, 502, "backend_auth", 0),
    "html page": ({**BEFORE, "fault": "html"}, 502, "binding_create_failed", None),
    "redirect": (
        {**BEFORE, "fault": "redirect", "location": "http://127.0.0.1:9/x"},
        502,
        "binding_create_failed",
        0,
    ),
    "429": (
        {**BEFORE, "times": -1, "fault": "status", "status": 429, "headers": {"Retry-After": "60"}},
        429,
        "rate_limited",
        0,
    ),
    "503": (
        {**BEFORE, "times": -1, "fault": "status", "status": 503, "headers": {"Retry-After": "60"}},
        503,
        "overloaded",
        0,
    ),
    "answer lost, FIN": ({**AFTER, "fault": "cut"}, 502, "backend_outcome_unknown", 1),
    "answer lost, RST": ({**AFTER, "fault": "reset"}, 502, "backend_outcome_unknown", 1),
    "cut in the head": ({**AFTER, "fault": "cut_headers"}, 502, "backend_outcome_unknown", 1),
    "cut in the body": ({**AFTER, "fault": "cut_body"}, 502, "backend_outcome_unknown", 1),
    "garbage": ({**AFTER, "fault": "garbage"}, 502, "backend_outcome_unknown", 1),
    "not JSON": ({**AFTER, "fault": "not_json"}, 502, "binding_create_failed", 1),
    "wrong type": ({**AFTER, "fault": "replace", "body": {"sandboxId": 7}}, 502, "binding_create_failed", 1),
    "empty id": ({**AFTER, "fault": "replace", "body": {"sandboxId": ""}}, 502, "binding_create_failed", 1),
    "hang": ({**AFTER, "fault": "hang"}, 504, "backend_timeout", 1),
    "slow drip": ({**AFTER, "fault": "drip", "seconds": 0.1}, 504, "backend_timeout", 1),
}


@pytest.mark.parametrize("name", CREATE_FAULTS)
def test_a_create_that_fails(front, gateway, name):
    rule, status, code, unaccounted = CREATE_FAULTS[name]
    gateway.fault(rule)
    answer = create(front)
    assert (answer.status_code, detail(answer)["code"]) == (status, code), answer.text
    assert gateway.count("POST", "/v1/sandboxes") == 1, "never sent twice"
    if status in (429, 503):
        assert 50 <= int(answer.headers["retry-after"]) <= 60
    counted = metric(front, "bindery_unaccounted_creates_total")
    left = len(gateway.alive)
    if unaccounted is None:  # some proxy gave up: it may have taken place or not
        assert counted == 1 and left <= 1
    else:
        assert (left, counted) == (unaccounted, unaccounted)
    assert gateway.token not in answer.text and gateway.token not in front.output()


def test_a_kept_connection_that_was_closed_under_us(front, gateway):
    for n in range(3):
        made(front, binding_id=f"warm{n}", workspace_id=f"warm{n}")
    gateway.log()
    gateway.fault({**AFTER, "fault": "reset"})
    answer = create(front)
    assert answer.status_code == 502
    assert gateway.count("POST", "/v1/sandboxes") == 1
    assert len(gateway.alive) == 4
    gateway.fault({"method": "DELETE", "path": "^/v1/sandboxes/", "times": 1, "fault": "reset"})
    refs = {"binding_ref": gateway.alive[0], "workspace_ref": gateway.alive[0]}
    first = destroy(front, refs)
    assert first.status_code == 204 or destroy(front, refs).status_code == 204


LAYOUT_FAULTS = {
    "script fails": {
        "fault": "replace",
        "body": {
            "job_id": "j1",
            "done": True,
            "status": "exited",
            "exit_code": 1,
            "output_path": "/x",
            "output": "mkdir: denied",
            "offset": 13,
            "truncated": False,
        },
    },
    "job failed with exit code 0": {
        "fault": "replace",
        "body": {
            "job_id": "j1",
            "done": True,
            "status": "failed",
            "exit_code": 0,
            "output_path": "/x",
            "output": "",
            "offset": 0,
            "truncated": False,
        },
    },
    "proxy 500": {"fault": "status", "status": 500},
    "cut": {"fault": "cut"},
    "not JSON": {"fault": "not_json"},
}


@pytest.mark.parametrize("name", LAYOUT_FAULTS)
def test_a_layout_that_fails_leaves_nothing(front, gateway, name):
    gateway.fault({**LAYOUT_FAULTS[name], "path": "jobs/run", "times": -1})
    answer = create(front)
    assert answer.status_code == 502, answer.text
    if name == "script fails":
        assert "mkdir: denied" in detail(answer)["message"]
    assert gateway.alive == []
    deletes = [e for e in gateway.log() if e["method"] == "DELETE" and "/sandboxes/" in e["path"]]
    assert len(deletes) == 1


def test_a_clean_up_that_fails_is_recorded(front, gateway):
    gateway.fault(
        {**LAYOUT_FAULTS["script fails"], "path": "jobs/run", "times": -1},
        {"method": "DELETE", "path": "^/v1/sandboxes/", "fault": "status", "status": 500, "times": -1},
    )
    answer = create(front)
    assert answer.status_code == 502 and "mkdir: denied" in detail(answer)["message"]
    assert len(gateway.alive) == 1
    assert gateway.alive[0] in front.output()


# ---- callers that go away (A05) ----------------------------------------------------------------------


def raw_create(front, binding_id: str, reset: bool) -> socket.socket:
    host, port = front.listen.rsplit(":", 1)
    made_socket = socket.create_connection((host, int(port)))
    body = json.dumps(
        {"tenant_id": "t", "agent_id": "a", "binding_id": binding_id, "workspace_id": f"w-{binding_id}"}
    ).encode()
    made_socket.sendall(
        b"POST /execution-bindings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        + f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    if reset:
        made_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return made_socket


@pytest.mark.parametrize("reset", [False, True])
def test_clients_that_leave_during_create_leave_nothing(front, gateway, reset):
    gateway.fault({"method": "POST", "path": "^/v1/sandboxes$", "fault": "delay", "seconds": 1.2, "times": -1})
    sockets = [raw_create(front, f"b-{number}", reset) for number in range(40)]
    seen = []
    wait_until(
        lambda: len(seen) == 40 or seen.extend(e for e in gateway.log() if e["method"] == "POST"),
        10,
        "all creates under way",
    )
    for one in sockets:
        one.close()
    wait_until(lambda: gateway.state()["created_total"] == 40, 20, "the gateway made them all")
    wait_until(lambda: gateway.alive == [], 20, "and they were all deleted again")
    assert metric(front, "bindery_unaccounted_creates_total") == 0


# ---- 429 (A10) and credentials (A14) -----------------------------------------------------------------


def test_retry_after_is_waited_out_by_all_and_left_spread(front, gateway):
    seen = []
    gateway.fault(
        {"method": "POST", "path": "^/v1/sandboxes$", "fault": "status", "status": 429}
        | {"headers": {"Retry-After": "2"}, "times": 1}
    )

    def one(n):
        answer = create(front, binding_id=f"b{n}", workspace_id=f"w{n}")
        seen.append(time.monotonic())
        return answer.status_code

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        first = pool.submit(one, 0)
        wait_until(lambda: gateway.state()["connections"] > 0, 5, "first request")
        time.sleep(0.3)
        rest = [pool.submit(one, n) for n in range(1, 20)]
        time.sleep(0.5)
        assert gateway.count("POST", "/v1/sandboxes") == 1, "nothing is sent inside the window"
        assert first.result() == 201
        assert [f.result() for f in rest] == [201] * 19
    assert len(gateway.alive) == 20


def test_a_dead_key_makes_no_storm_and_shows(front, gateway):
    gateway.control.put("/token", json={"token": "rotated"})
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda n: create(front).status_code, range(100)))
    assert set(codes) == {502}
    assert gateway.count("POST", "/v1/sandboxes") <= 12
    unready = front.http.get("/readyz")
    assert unready.status_code == 503
    gateway.control.put("/token", json={"token": gateway.token})
    wait_until(lambda: create(front).status_code == 201, 10, "recovery without a restart")
    assert front.http.get("/readyz").status_code == 200


# ---- acquire: missing or broken (A17, A18) -------------------------------------------------------------


def shellctl_error(status, code):
    return {"fault": "status", "status": status, "body": {"error": {"code": code, "message": "m"}}}


PROBE_FAULTS = [
    (shellctl_error(404, "sandbox_not_found"), 404, "binding_lost"),
    (shellctl_error(400, "Sandbox_Expired"), 404, "binding_lost"),
    (shellctl_error(500, "NOT_FOUND"), 404, "binding_lost"),
    (shellctl_error(404, "job_not_found"), 502, "binding_acquire_failed"),
    (shellctl_error(410, "gone"), 502, "binding_acquire_failed"),
    (shellctl_error(429, "slow"), 429, "rate_limited"),
    (shellctl_error(401, "unauthorized"), 502, "backend_auth"),
    ({"fault": "status", "status": 404, "body": "404 page not found"}, 502, "binding_acquire_failed"),
    ({"fault": "html"}, 502, "binding_acquire_failed"),
    ({"fault": "reset"}, 502, "binding_acquire_failed"),
    ({"fault": "replace", "body": [1]}, 502, "binding_acquire_failed"),
    ({"fault": "hang"}, 504, "backend_timeout"),
]


def test_only_what_the_gateway_calls_gone_is_lost(front, gateway):
    refs = made(front)
    for rule, status, code in PROBE_FAULTS:
        gateway.fault({**rule, "path": "jobs/run", "times": -1})
        answer = acquire(front, refs)
        assert (answer.status_code, detail(answer)["code"]) == (status, code), (rule, answer.text)
        gateway.fault()
    assert gateway.state()["created_total"] == 1, "acquire never creates"
    assert acquire(front, refs).status_code == 201


def test_a_sandbox_that_expires_while_leased(front, gateway):
    refs = made(front)
    lease = acquire(front, refs).json()
    gateway.expire(refs["binding_ref"])
    run = front.http.post(f"/v1/leases/{lease['lease_id']}/commands", json={"script": "true"})
    assert run.status_code == 404 and detail(run)["code"] == "binding_lost"
    for _ in range(2):
        assert front.http.delete(f"/v1/leases/{lease['lease_id']}").status_code == 204
    again = acquire(front, refs)
    assert again.status_code == 404 and detail(again)["code"] == "binding_lost"
    assert destroy(front, refs).status_code == 204


def test_concurrent_acquires_share_one_probe(front, gateway):
    refs = made(front)
    gateway.log()
    gateway.fault({"path": "jobs/run", "fault": "delay", "seconds": 0.4, "times": -1})
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: acquire(front, refs), range(20)))
    assert {a.status_code for a in answers} == {201}
    assert len({a.json()["lease_id"] for a in answers}) == 20
    assert gateway.count("POST", "/proxy/v1/jobs/run") <= 4


# ---- destroy (A28, A29) ----------------------------------------------------------------------------------


def test_no_delete_error_is_called_success(front, gateway):
    refs = made(front)
    for status in (401, 403, 409, 429, 500, 502):
        gateway.fault(
            {"method": "DELETE", "path": "^/v1/sandboxes/", "fault": "status", "status": status, "times": -1}
        )
        answer = destroy(front, refs)
        assert answer.status_code in (429, 502), (status, answer.text)
        assert gateway.alive == [refs["binding_ref"]]
        gateway.fault()
        wait_until(lambda: front.http.get("/readyz").status_code == 200 or status in (401, 403), 5, "open")
        time.sleep(1.1 if status in (401, 403) else 0)
    assert destroy(front, refs).status_code == 204


# ---- redirects and refs (A46, A47, A49) ---------------------------------------------------------------------


def test_the_key_follows_no_redirect(front, gateway):
    got = []
    trap = socket.create_server(("127.0.0.1", 0))

    def listen():
        trap.settimeout(20)
        try:
            while True:
                peer, _ = trap.accept()
                got.append(peer.recv(65536))
                peer.close()
        except OSError:
            pass

    threading.Thread(target=listen, daemon=True).start()
    refs = made(front)
    location = f"http://127.0.0.1:{trap.getsockname()[1]}/x"
    gateway.fault({"path": ".*", "fault": "redirect", "location": location, "times": -1})
    assert create(front, binding_id="b9", workspace_id="w9").status_code == 502
    assert acquire(front, refs).status_code == 502
    assert destroy(front, refs).status_code == 502
    trap.close()
    assert got == []


BAD_REFS = ["..", ".", "a/../../admin", "a\\b", "a\r\nX-Inner-Api-Key: x", "\t", "x" * 300, "/"]
ODD_REFS = ["%2e%2e", "a?x=1", "a#f", "a;b", "é☕"]


def test_refs_reach_the_gateway_as_one_segment_or_not_at_all(front, gateway):
    for ref in BAD_REFS:
        answer = destroy(front, {"binding_ref": ref, "workspace_ref": ref})
        assert answer.status_code in (400, 404, 422), (ref, answer.text)
        assert acquire(front, {"binding_ref": ref}).status_code in (400, 404, 422)
    assert gateway.log() == []
    for ref in ODD_REFS:
        assert destroy(front, {"binding_ref": ref, "workspace_ref": ref}).status_code == 204
        entry = gateway.log()[-1]
        assert entry["path"].count("/") == 3 and entry["path"].startswith("/v1/sandboxes/")


# ---- connections (A44, A59) -----------------------------------------------------------------------------------


def test_connections_are_kept_across_leases_and_never_half_read(front, gateway):
    refs = made(front)
    for _ in range(20):
        lease = acquire(front, refs).json()
        front.http.delete(f"/v1/leases/{lease['lease_id']}")
    assert gateway.state()["connections"] <= 6
    gateway.fault({"path": "jobs/run", "fault": "cut_body", "when": "after", "times": 5})
    for _ in range(5):
        assert acquire(front, refs).status_code == 502
    gateway.fault()
    for _ in range(10):
        assert acquire(front, refs).status_code == 201


# A48
def test_the_environments_proxy_is_not_asked(server, gateway):
    dead = "http://127.0.0.1:9"
    front = server(
        settings={**gateway.settings, "http_proxy": dead, "HTTPS_PROXY": dead, "ALL_PROXY": dead}
    )
    refs = made(front)
    assert acquire(front, refs).status_code == 201


# A15: how long we wait for an answer is nobody's lifetime
def test_no_timeout_of_ours_reaches_the_gateway_as_a_lifetime(front, gateway):
    refs = made(front)
    lease = acquire(front, refs).json()
    front.http.delete(f"/v1/leases/{lease['lease_id']}")
    log = gateway.log()
    created = next(e for e in log if e["method"] == "POST" and e["path"] == "/v1/sandboxes")
    assert set(json.loads(created["body"])) == {"tenantId"}
    for entry in log:
        names = {name.lower() for name, _ in entry["headers"]}
        assert not names & {"keep-alive", "timeout", "x-timeout", "grpc-timeout", "x-sandbox-timeout"}
