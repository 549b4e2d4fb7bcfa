"""The OpenShell backend behind the HTTP API, over the fake gateway: an independent gRPC peer whose
sandboxes are namespaces with a real shell and a real shellctl in them."""

import concurrent.futures
import hashlib
import re

import pytest

from openshell_fake import SHELLCTL_TOKEN
from openshell_given import PATIENCE, available, open_gateway, wait_until

pytestmark = available

READY, PROVISIONING, STOPPED = 2, 1, 7
SPEC = {"tenant_id": "t1", "agent_id": "a1", "binding_id": "b1", "workspace_id": "w1"}


@pytest.fixture
def gateway(bindery):
    with open_gateway(bindery) as one:
        yield one


@pytest.fixture
def front(server, gateway):
    one = server(settings=gateway.settings)
    one.http.timeout = 30 * PATIENCE
    return one


def name_of(binding_id: str) -> str:
    return "dify-" + hashlib.sha256(binding_id.encode()).hexdigest()[:14]


def create(front, **changes):
    return front.http.post("/execution-bindings", json={**SPEC, **changes})


def made(front, **changes) -> dict:
    answer = create(front, **changes)
    assert answer.status_code == 201, answer.text
    return answer.json()


def acquire(front, refs):
    return front.http.post("/v1/leases", json={"binding_ref": refs["binding_ref"]})


def leased(front, refs) -> str:
    answer = acquire(front, refs)
    assert answer.status_code == 201, answer.text
    return answer.json()["lease_id"]


def run(front, lease_id, script, **more):
    answer = front.http.post(f"/v1/leases/{lease_id}/commands", json={"script": script, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def release(front, lease_id):
    assert front.http.delete(f"/v1/leases/{lease_id}").status_code == 204


def destroy(front, refs):
    body = {**refs, "destroy_workspace": True}
    return front.http.post("/execution-bindings/destroy", json=body)


def code(answer) -> str:
    return answer.json()["detail"]["code"]


# ---- the smoke test -----------------------------------------------------------------------------------


# A27: stopped, and woken by the acquire
def test_the_whole_life(front, gateway):
    refs = made(front)
    assert re.fullmatch(r"dify-[0-9a-f]{14}", refs["binding_ref"])
    assert refs["workspace_ref"] == refs["binding_ref"] == name_of("b1")
    assert gateway.sandboxes[refs["binding_ref"]]["phase"] == STOPPED
    lease = leased(front, refs)
    run(front, lease, "echo kept > note; echo $HOME")
    release(front, lease)
    assert gateway.sandboxes[refs["binding_ref"]]["phase"] == READY, "release stops nothing"
    gateway.check_sessions_ended()
    lease = leased(front, refs)
    assert run(front, lease, "cat note")["output"].strip() == "kept"
    release(front, lease)
    assert destroy(front, refs).status_code == 204
    wait_until(lambda: gateway.sandboxes == {}, 10, "the sandbox is gone")
    assert destroy(front, refs).status_code == 204


def test_labels_policy_and_secrets(front, gateway):
    refs = made(front)
    labels = gateway.sandboxes[refs["binding_ref"]]["labels"]
    digest = lambda text: hashlib.sha256(text.encode()).hexdigest()[:14]
    assert labels["dify.resource"] == "runtime-sandbox"
    assert labels["dify.binding"] == digest("b1") and labels["dify.tenant"] == digest("t1")
    assert SHELLCTL_TOKEN not in front.output()


def test_snapshots(front, gateway):
    refs = made(front)
    lease = leased(front, refs)
    run(front, lease, "echo mine > ~/profile; mkdir -p ~/.local/share/shellctl; touch ~/.local/share/shellctl/x")
    release(front, lease)
    body = {"tenant_id": "t1", "agent_id": "a1", "home_snapshot_id": "h1"}
    taken = front.http.post(
        "/home-snapshots/from-binding", json={**body, "backend_binding_ref": refs["binding_ref"]}
    )
    assert taken.status_code == 201, taken.text
    ref = taken.json()["snapshot_ref"]
    assert re.fullmatch(r"[0-9a-f]{14}--home-h1", ref)
    second = made(front, binding_id="b2", workspace_id="w2", home_snapshot_ref=ref)
    lease = leased(front, second)
    found = run(front, lease, "cat ~/profile; ls ~/workspace | wc -l; ls ~/.local/share/shellctl/x")
    assert found["output"].startswith("mine") and "\n0" in found["output"].replace("\r", "")
    assert found["exit_code"] != 0, "shellctl's own state is no part of a snapshot"
    release(front, lease)
    for _ in range(2):
        gone = front.http.post("/home-snapshots/delete", json={"snapshot_ref": ref})
        assert gone.status_code == 204, gone.text
    wait_until(
        lambda: not any(name.startswith("gc-") for name in gateway.sandboxes),
        10,
        "maintenance sandboxes are removed",
    )


# ---- create -----------------------------------------------------------------------------------------


# A01
def test_a_lost_reply_is_repaired_by_looking(front, gateway):
    gateway.fault({"method": "CreateSandbox", "fault": "abort", "when": "after"})
    refs = made(front)
    assert list(gateway.sandboxes) == [refs["binding_ref"]]
    assert gateway.calls("CreateSandbox") == 1


# A04
def test_another_ones_sandbox_under_our_name_is_not_touched(server, gateway):
    other = server(settings={**gateway.settings, "BINDERY_INSTANCE_ID": "another"})
    front = server(settings=gateway.settings)
    refs = made(other)
    conflict = create(front)
    assert conflict.status_code == 409, conflict.text
    assert list(gateway.sandboxes) == [refs["binding_ref"]]
    lease = leased(other, refs)
    assert run(other, lease, "true")["exit_code"] == 0
    release(other, lease)


# A04
def test_a_failed_predecessor_is_replaced_once(front, gateway):
    gateway.set(ready_delay=30)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(create, front)
        wait_until(lambda: gateway.sandboxes, 10, "the first create")
        gateway.phase(name_of("b1"), "ERROR", reason="ImagePullFailed", message="no such image")
        answer = first.result()
    assert answer.status_code == 502 and "ImagePullFailed" in answer.text
    wait_until(lambda: gateway.sandboxes == {}, 10, "cleaned up")
    gateway.set(ready_delay=0.1)
    assert create(front).status_code == 201


# A31
def test_recreate_while_the_old_record_is_being_deleted(front, gateway):
    gateway.set(deleting=1.5)
    refs = made(front)
    assert destroy(front, refs).status_code == 204
    again = made(front)
    assert again == refs
    lease = leased(front, again)
    release(front, lease)


@pytest.mark.parametrize("status", ["INVALID_ARGUMENT", "FAILED_PRECONDITION", "INTERNAL", "OUT_OF_RANGE"])
def test_a_refused_create_leaves_nothing(front, gateway, status):
    gateway.fault({"method": "CreateSandbox", "fault": "status", "code": status, "message": "why not"})
    answer = create(front)
    assert answer.status_code == 502 and code(answer) == "binding_create_failed"
    assert "why not" in answer.text
    assert gateway.sandboxes == {}


@pytest.mark.parametrize(
    ("status", "http", "wire"),
    [
        ("UNAUTHENTICATED", 502, "backend_auth"),
        ("PERMISSION_DENIED", 502, "backend_auth"),
        ("RESOURCE_EXHAUSTED", 429, "rate_limited"),
    ],
)
def test_statuses_that_have_a_code_of_their_own(front, gateway, status, http, wire):
    gateway.fault({"method": "CreateSandbox", "fault": "status", "code": status})
    answer = create(front)
    assert (answer.status_code, code(answer)) == (http, wire)
    assert gateway.sandboxes == {}


@pytest.mark.parametrize("method", ["GetSandbox", "ExecSandbox", "StopSandbox"])
def test_a_create_that_fails_later_removes_the_sandbox(front, gateway, method):
    gateway.fault({"method": method, "fault": "status", "code": "INTERNAL", "times": -1})
    answer = create(front)
    assert answer.status_code == 502, answer.text
    wait_until(lambda: gateway.sandboxes == {}, 10, "the sandbox is removed")


# A13
def test_bad_ids_are_refused_before_any_call(front, gateway):
    before = gateway.state()["calls"].get("CreateSandbox", 0)
    for bad in ("..", "a/b", "a b", "é", "x" * 300):
        assert create(front, binding_id=bad).status_code == 400
    assert gateway.calls("CreateSandbox") == before


# ---- acquire ----------------------------------------------------------------------------------------


# A17
def test_lost_is_only_what_is_gone(front, gateway):
    refs = made(front)
    gateway.vanish(refs["binding_ref"])
    answer = acquire(front, refs)
    assert answer.status_code == 404 and code(answer) == "binding_lost"


def test_a_missing_workspace_is_lost(front, gateway):
    refs = made(front)
    lease = leased(front, refs)
    run(front, lease, "rm -rf /home/dify/workspace", cwd="~")
    release(front, lease)
    answer = acquire(front, refs)
    assert answer.status_code == 404 and code(answer) == "binding_lost"


# A16
def test_ready_that_falls_back_is_waited_for_again(front, gateway):
    refs = made(front)
    release(front, leased(front, refs))
    gateway.phase(refs["binding_ref"], "PROVISIONING", **{"for": 1.5})
    release(front, leased(front, refs))


# A16
def test_a_hanging_exec_is_a_timeout_and_the_binding_stays(server, gateway):
    front = server(settings={**gateway.settings, "BINDERY_ACQUIRE_VALIDATION_SECONDS": "1"})
    refs = made(front)
    release(front, leased(front, refs))
    gateway.fault({"method": "ExecSandbox", "fault": "hang"})
    answer = acquire(front, refs)
    assert answer.status_code == 504 and code(answer) == "backend_timeout"
    gateway.fault()
    release(front, leased(front, refs))


# A24
def test_a_failed_acquire_stops_nothing_under_a_live_lease(front, gateway):
    refs = made(front)
    first = leased(front, refs)
    gateway.fault({"method": "ExecSandbox", "fault": "status", "code": "INTERNAL", "times": -1})
    stops = gateway.calls("StopSandbox")
    answer = acquire(front, refs)
    assert answer.status_code == 502
    assert gateway.calls("StopSandbox") == stops
    gateway.fault()
    assert run(front, first, "echo alive")["output"].strip() == "alive"
    release(front, first)


def test_a_failed_cold_acquire_stops_what_it_started(front, gateway):
    refs = made(front)
    gateway.fault({"method": "ExecSandbox", "fault": "status", "code": "INTERNAL", "times": -1})
    assert acquire(front, refs).status_code == 502
    wait_until(lambda: gateway.sandboxes[refs["binding_ref"]]["phase"] == STOPPED, 10, "stopped again")


# A25
def test_many_calls_stay_within_the_gateways_stream_limits(front, gateway):
    refs = made(front)
    leases = [leased(front, refs) for _ in range(4)]
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        jobs = [pool.submit(run, front, leases[n % 4], f"sleep 1; echo {n}") for n in range(40)]
        found = [job.result()["output"].strip() for job in jobs]
    assert found == [str(n) for n in range(40)]
    state = gateway.state()
    assert state["limit_hits"] == 0 and state["forwards_peak"] <= 20
    for lease in leases:
        release(front, lease)


def test_long_polls_do_not_starve_short_calls(front, gateway):
    refs = made(front)
    lease = leased(front, refs)
    base = f"/v1/leases/{lease}/shellctl/v1/jobs"
    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        polls = [
            pool.submit(front.http.post, base + "/run", json={"script": "sleep 6", "timeout": 6})
            for _ in range(30)
        ]
        wait_until(lambda: gateway.sandboxes[refs["binding_ref"]]["forwards"] >= 16, 10, "polls run")
        listed = front.http.get(base, timeout=5)
        assert listed.status_code == 200
        for poll in polls:
            assert poll.result().status_code == 200
    release(front, lease)


# ---- the gateway's own life ----------------------------------------------------------------------------


def test_leases_come_back_after_a_gateway_restart(front, gateway):
    refs = made(front)
    lease = leased(front, refs)
    gateway.restart(closed=0.7)
    wait_until(lambda: gateway.sandboxes[refs["binding_ref"]]["phase"] == READY, 10, "restarted")

    def works():
        answer = front.http.post(f"/v1/leases/{lease}/commands", json={"script": "echo back"})
        return answer.status_code == 200 and answer.json()["output"].strip() == "back"

    wait_until(works, 10, "the lease works again")
    release(front, lease)


def test_a_lease_outlives_the_loss_of_its_sessions(front, gateway):
    refs = made(front)
    lease = leased(front, refs)
    for n in range(3):
        gateway.forget()
        assert run(front, lease, f"echo {n}")["output"].strip() == str(n)
    gateway.forget()
    release(front, leased(front, refs))
    release(front, lease)


def test_an_answer_over_a_broken_tunnel_says_why(front, gateway):
    refs = made(front)
    lease = leased(front, refs)
    gateway.vanish(refs["binding_ref"])
    answer = front.http.post(f"/v1/leases/{lease}/commands", json={"script": "true"})
    assert answer.status_code >= 500 and "sandbox not found" in answer.text, answer.text
    release(front, lease)


def test_an_unsupported_version_is_refused_with_words(server, bindery):
    with open_gateway(bindery, "--version", "0.1.2") as gateway:
        front = server(settings=gateway.settings, ready=False)
        wait_until(lambda: "0.1.2" in front.output(), 10, "the version was read")
        unready = front.http.get("/readyz")
        assert unready.status_code == 503 and "0.1.2" in unready.text


def test_a_bearer_is_sent_and_a_wrong_one_shows(server, bindery):
    with open_gateway(bindery, "--bearer", "right-token") as gateway:
        settings = {**gateway.settings, "DIFY_AGENT_OPENSHELL_BEARER_TOKEN": "right-token"}
        front = server(settings=settings)
        release(front, leased(front, made(front)))
        gateway.set(bearer="rotated")
        answer = create(front, binding_id="b2", workspace_id="w2")
        assert answer.status_code == 502 and code(answer) == "backend_auth"
        assert "BEARER_TOKEN" in front.http.get("/readyz").text and not front.is_ready()
        gateway.set(bearer="right-token")
        made(front, binding_id="b3", workspace_id="w3")
        assert front.is_ready()
        assert "right-token" not in front.output()
