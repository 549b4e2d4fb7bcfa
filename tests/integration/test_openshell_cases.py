"""Public failures of sandbox brokers, over the fake OpenShell gateway; each test names its case."""

import concurrent.futures
import time

import pytest

from harness import wait_until
from test_openshell import (
    PROVISIONING, READY, STOPPED, acquire, code, create, destroy, front, gateway, leased, made,
    name_of, pytestmark, release, run,
)  # fmt: skip

__all__ = ["front", "gateway", "pytestmark"]


def stops(gateway) -> int:
    return gateway.calls("StopSandbox")


# A03
def test_never_ready_and_the_clean_up_fails_too(server, gateway):
    front = server(
        settings={
            **gateway.settings,
            "DIFY_AGENT_OPENSHELL_READY_TIMEOUT_SECONDS": "1",
            "BINDERY_GC_INTERVAL_SECONDS": "1",
        }
    )
    gateway.set(ready_delay=60)
    gateway.fault({"method": "DeleteSandbox", "fault": "status", "code": "UNAVAILABLE", "times": 2})
    answer = create(front)
    assert answer.status_code == 504 and "READY" in answer.json()["detail"]["message"]
    polls = gateway.calls("GetSandbox")
    wait_until(lambda: not gateway.sandboxes, 60, "the collector's delete")
    wait_until(lambda: not front.http.get("/v1/orphans").json()["orphans"], 30, "the row's end")
    assert gateway.calls("DeleteSandbox") >= 3
    assert gateway.calls("GetSandbox") <= polls + 5, "nobody goes on asking whether it is ready"


# A19: a live lease beats the idle stop, whatever it does or does not do
def test_idle_stop_never_stops_what_is_leased(server, gateway):
    front = server(settings={**gateway.settings, "BINDERY_OPENSHELL_IDLE_STOP_SECONDS": "0.5"})
    refs = made(front)
    before = stops(gateway)
    lease = leased(front, refs)
    assert run(front, lease, "sleep 2; echo done")["output"].strip() == "done"
    time.sleep(1)  # a lease without calls is one as well
    assert stops(gateway) == before and gateway.sandboxes[refs["binding_ref"]]["phase"] == READY
    release(front, lease)
    wait_until(lambda: gateway.sandboxes[refs["binding_ref"]]["phase"] == STOPPED, 20, "the idle stop")
    assert stops(gateway) == before + 1
    lease = leased(front, refs)
    assert run(front, lease, "echo again")["output"].strip() == "again"
    release(front, lease)


# A19: releases and acquires around the limit
def test_idle_stop_races_with_acquires_and_no_lease_dies(server, gateway):
    front = server(settings={**gateway.settings, "BINDERY_OPENSHELL_IDLE_STOP_SECONDS": "0.05"})
    refs = [made(front, binding_id=f"b{number}", workspace_id=f"w{number}") for number in range(6)]

    def turns(number: int) -> None:
        for turn in range(6):
            lease = leased(front, refs[number])
            assert run(front, lease, f"echo {turn}")["output"].strip() == str(turn)
            release(front, lease)
            time.sleep(0.05 * (turn % 3))

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(turns, range(6)))


# A20: what runs in the sandbox keeps nothing awake
def test_the_guest_does_not_keep_itself_alive(server, gateway):
    front = server(settings={**gateway.settings, "BINDERY_OPENSHELL_IDLE_STOP_SECONDS": "0.5"})
    refs = made(front)
    lease = leased(front, refs)
    run(front, lease, "setsid sh -c 'while :; do date; sleep 0.1; done' >/dev/null 2>&1 &")
    release(front, lease)
    wait_until(lambda: gateway.sandboxes[refs["binding_ref"]]["phase"] == STOPPED, 20, "the idle stop")


# A24
@pytest.mark.parametrize("method", ["CreateSshSession", "ExecSandbox", "ForwardTcp"])
def test_a_late_failure_of_one_acquire_leaves_the_others_lease(front, gateway, method):
    refs = made(front)
    lease = leased(front, refs)
    before = stops(gateway)
    rule = {"method": method, "fault": "status", "code": "INTERNAL", "times": -1}
    if method == "CreateSshSession":
        gateway.control.post("/cut", json={})  # the next streams need new ones
    gateway.fault(rule)
    acquire(front, refs)
    gateway.fault()
    assert stops(gateway) == before
    assert run(front, lease, "echo alive")["output"].strip() == "alive"
    release(front, lease)


# A61: the replica that was reached does not hold the sandbox
def test_unavailable_is_tried_again_within_the_callers_time(front, gateway):
    refs = made(front)
    for method in ("ExecSandbox", "ForwardTcp"):
        gateway.fault({"method": method, "fault": "status", "code": "UNAVAILABLE", "times": 1,
                       "message": "supervisor session not connected"})  # fmt: skip
        release(front, leased(front, refs))
    gateway.fault({"method": "CreateSandbox", "fault": "status", "code": "UNAVAILABLE", "times": 1})
    create(front, binding_id="b2", workspace_id="w2")
    assert sum(name == name_of("b2") for name in gateway.sandboxes) <= 1
    gateway.fault({"method": "ExecSandbox", "fault": "status", "code": "UNAVAILABLE", "times": -1})
    answer = acquire(front, refs)
    gateway.fault()
    assert answer.status_code in (502, 503, 504) and code(answer) != "binding_lost"
    release(front, leased(front, refs))


# A16, a hundred times: what the probe decides, not the phase
def test_ready_without_a_working_sandbox_is_an_error_each_time(front, gateway):
    refs = made(front)
    gateway.fault({"method": "ExecSandbox", "fault": "status", "code": "INTERNAL", "times": -1})
    codes = {code(acquire(front, refs)) for _ in range(100)}
    gateway.fault()
    assert codes == {"binding_acquire_failed"}
    assert gateway.state()["sessions"] == 0
    release(front, leased(front, refs))
    assert gateway.sandboxes[refs["binding_ref"]]["phase"] in (READY, PROVISIONING)
    assert destroy(front, refs).status_code == 204


# A18: the sandbox dies under its lease; the other one's goes on
def test_a_sandbox_that_dies_while_leased_is_lost_and_alone(front, gateway):
    refs, other = made(front), made(front, binding_id="b2", workspace_id="w2")
    lease, others = leased(front, refs), leased(front, other)
    gateway.vanish(refs["binding_ref"])
    answer = front.http.post(f"/v1/leases/{lease}/commands", json={"script": "echo"})
    assert (answer.status_code, code(answer)) in {(404, "binding_lost"), (502, "binding_unavailable")}
    again = acquire(front, refs)
    assert (again.status_code, code(again)) == (404, "binding_lost")
    assert run(front, others, "echo alive")["output"].strip() == "alive"
    assert list(gateway.sandboxes) == [other["binding_ref"]], "and is not made again"
    release(front, lease)
    release(front, others)


# A48: the environment's proxies are for others
def test_the_environments_proxy_is_not_asked(server, gateway):
    dead = "http://127.0.0.1:9"
    names = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY", "grpc_proxy")
    front = server(settings={**gateway.settings, **dict.fromkeys(names, dead)})
    refs = made(front)
    lease = leased(front, refs)
    assert run(front, lease, "echo through")["output"].strip() == "through"
    release(front, lease)


# A36: what a list leaves out for now is not lost
def test_a_list_without_it_loses_no_binding(server, gateway):
    front = server(settings={**gateway.settings, "BINDERY_RECONCILE_INTERVAL_SECONDS": "0.3",
                             "BINDERY_RECONCILE_GRACE_SECONDS": "0.3", "BINDERY_RECONCILE": "destroy"})  # fmt: skip
    refs = made(front)
    gateway.fault({"method": "ListSandboxes", "fault": "status", "code": "UNAVAILABLE", "times": 3})
    before = gateway.calls("ListSandboxes")
    wait_until(lambda: gateway.calls("ListSandboxes") >= before + 6, 30, "some reconciliations")
    assert list(gateway.sandboxes) == [refs["binding_ref"]]
    release(front, leased(front, refs))


# A26: both ends close their side of a tunnel in their own time; nothing that is on its way is lost
def test_a_slow_large_answer_through_the_tunnel_arrives_whole(front, gateway):
    refs = made(front)
    lease = leased(front, refs)
    script = "for i in 1 2 3 4 5 6 7 8; do head -c 131072 /dev/zero | tr '\\0' x; sleep 0.2; done"
    for _ in range(3):
        result = run(front, lease, script, max_output_bytes=2 << 20, timeout_seconds=60)
        assert len(result["output"]) == 1 << 20 and not result["truncated"]
    release(front, lease)
    wait_until(lambda: gateway.sandboxes[refs["binding_ref"]]["forwards"] == 0, 10, "no stream is left")


# A55: told to stop, and then killed, while the gateway makes a sandbox
@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_a_create_under_way_at_the_end_is_settled_by_the_next_start(server, gateway, how):
    settings = {
        **gateway.settings,
        "BINDERY_DRAIN_SECONDS": "1",
        "BINDERY_CLAIM_SECONDS": "2",
        "BINDERY_GC_INTERVAL_SECONDS": "0.5",
    }
    one = server(settings=settings)
    gateway.fault({"method": "CreateSandbox", "fault": "delay", "seconds": 8, "times": 1, "when": "after"})
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(create, one)
        wait_until(lambda: len(gateway.sandboxes) == 1, 10, "it is made, and not told")
        if how == "SIGKILL":
            one.kill()
        else:
            one.stop()
    one.process = None
    two = server(settings={**settings, "BINDERY_DATA_DIR": one.settings["BINDERY_DATA_DIR"]})
    wait_until(lambda: gateway.sandboxes == {}, 60, "nobody asked for it again: it is removed")
    assert two.http.get("/v1/bindings").json()["bindings"] == []
