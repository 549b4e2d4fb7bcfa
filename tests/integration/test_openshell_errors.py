"""The error catalogue over the fake OpenShell gateway: every gRPC status at every call of every operation,
what the caller is answered, and what remains in the gateway. The rule, and the exceptions to it."""

import grpc
import pytest

from harness import wait_until
from openshell_fake import FakeOpenShell
from test_openshell import STOPPED, acquire, create, destroy, pytestmark

__all__ = ["pytestmark"]

STATUSES = [status.name for status in grpc.StatusCode if status.name != "OK"]

# What a status is everywhere, and what any other is to an operation.
OF_ITS_OWN = {
    "UNAUTHENTICATED": (502, "backend_auth"),
    "PERMISSION_DENIED": (502, "backend_auth"),
    "RESOURCE_EXHAUSTED": (429, "rate_limited"),
}
OTHERWISE = {
    "create": (502, "binding_create_failed"),
    "acquire": (502, "binding_acquire_failed"),
    "destroy": (502, "binding_destroy_failed"),
    "snapshot_delete": (502, "home_snapshot_delete_failed"),
}
TIMEOUT, LOST, GONE = (504, "backend_timeout"), (404, "binding_lost"), (204, None)
EXCEPTIONS = {
    # a gateway that is away is waited for, as long as the sandbox may take
    ("create", "GetSandbox"): {"UNAVAILABLE": TIMEOUT},
    ("snapshot_delete", "GetSandbox"): {"UNAVAILABLE": TIMEOUT},
    ("acquire", "GetSandbox"): {"NOT_FOUND": LOST},
    # still stopping, or another one was quicker: tried again until then
    ("acquire", "StartSandbox"): {"NOT_FOUND": LOST, "FAILED_PRECONDITION": TIMEOUT, "ABORTED": TIMEOUT},
    ("acquire", "ExecSandbox"): {"NOT_FOUND": LOST},
    ("acquire", "CreateSshSession"): {"NOT_FOUND": LOST},
    # of the session's token, not of our credentials
    ("acquire", "ForwardTcp"): {"NOT_FOUND": LOST, "UNAUTHENTICATED": (502, "binding_acquire_failed")},
    ("destroy", "DeleteSandbox"): {"NOT_FOUND": GONE},
    # the snapshot has gone by then; the sandbox that did it is recorded and collected
    ("snapshot_delete", "DeleteSandbox"): dict.fromkeys(STATUSES, GONE),
}


def expected(operation: str, method: str, status: str) -> tuple[int, str | None]:
    exceptions = EXCEPTIONS.get((operation, method), {})
    return exceptions.get(status) or OF_ITS_OWN.get(status) or OTHERWISE[operation]


def answer_of(answer) -> tuple[int, str | None]:
    return answer.status_code, answer.json()["detail"]["code"] if answer.content else None


@pytest.fixture
def gateway(bindery):
    with FakeOpenShell(bindery, "--ready-delay", "0") as one:
        yield one


@pytest.fixture
def front(server, gateway):
    return server(
        settings={
            **gateway.settings,
            "DIFY_AGENT_OPENSHELL_READY_TIMEOUT_SECONDS": "2",
            "BINDERY_GC_INTERVAL_SECONDS": "3600",
        }
    )


def statuses(gateway, method: str):
    """Each status in force at the method, for as long as it is asked."""
    for status in STATUSES:
        gateway.fault({"method": method, "fault": "status", "code": status, "times": -1, "message": "why not"})
        yield status
        gateway.fault()


def told_why(answer) -> bool:
    return answer.status_code in (204, 404, 504) or "why not" in answer.text


def made(front, number: int) -> dict:
    answer = create(front, binding_id=f"b{number}", workspace_id=f"w{number}")
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.mark.parametrize("method", ["CreateSandbox", "GetSandbox", "ExecSandbox", "StopSandbox"])
def test_create(front, gateway, method):
    for number, status in enumerate(statuses(gateway, method)):
        answer = create(front, binding_id=f"b{number}", workspace_id=f"w{number}")
        assert answer_of(answer) == expected("create", method, status), status
        assert told_why(answer), answer.text
        wait_until(lambda: gateway.sandboxes == {}, 10, f"nothing is left after {status}")
    assert front.http.get("/v1/orphans").json()["orphans"] == []


@pytest.mark.parametrize(
    "method", ["GetSandbox", "StartSandbox", "ExecSandbox", "CreateSshSession", "ForwardTcp"]
)
def test_acquire(front, gateway, method):
    refs = made(front, 1)
    box = refs["binding_ref"]
    for status in statuses(gateway, method):
        answer = acquire(front, refs)
        assert answer_of(answer) == expected("acquire", method, status), status
        assert answer.json()["detail"]["admitted"] == "no" and told_why(answer), answer.text
        wait_until(lambda: gateway.sandboxes[box]["phase"] == STOPPED, 10, "what was started is stopped")
        wait_until(lambda: gateway.state()["sessions"] == 0, 10, "sessions are revoked")
    lease = acquire(front, refs)
    assert lease.status_code == 201, "and none of it has hurt the binding"


def test_destroy(front, gateway):
    refs = made(front, 1)
    for status in statuses(gateway, "DeleteSandbox"):
        answer = destroy(front, refs)
        assert answer_of(answer) == expected("destroy", "DeleteSandbox", status), status
        assert list(gateway.sandboxes) == [refs["binding_ref"]], "it is there, as its row is"
        if answer.status_code == 204:  # the row has gone with what it was told
            break
    refs = made(front, 2)
    remaining = STATUSES[STATUSES.index("NOT_FOUND") + 1 :]
    for status in remaining:
        gateway.fault({"method": "DeleteSandbox", "fault": "status", "code": status, "times": -1, "message": "why not"})
        answer = destroy(front, refs)
        assert answer_of(answer) == expected("destroy", "DeleteSandbox", status), status
    gateway.fault()
    assert destroy(front, refs).status_code == 204
    wait_until(lambda: refs["binding_ref"] not in gateway.sandboxes, 10, "the end")


def snapshot(front, refs, number: int) -> str:
    body = {"tenant_id": "t1", "agent_id": "a1", "home_snapshot_id": f"s{number}"}
    body["backend_binding_ref"] = refs["binding_ref"]
    answer = front.http.post("/home-snapshots/from-binding", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()["snapshot_ref"]


@pytest.mark.parametrize("method", ["CreateSandbox", "GetSandbox", "ExecSandbox", "DeleteSandbox"])
def test_snapshot_delete(front, gateway, method):
    refs = made(front, 1)
    refs_of = [snapshot(front, refs, number) for number in range(len(STATUSES))]
    for ref, status in zip(refs_of, statuses(gateway, method)):
        answer = front.http.post("/home-snapshots/delete", json={"snapshot_ref": ref})
        assert answer_of(answer) == expected("snapshot_delete", method, status), status
        assert told_why(answer), answer.text

    def recorded() -> set[str]:
        answer = front.http.get("/v1/orphans", params={"limit": 200})
        return {orphan["ref"] for orphan in answer.json()["orphans"]}

    def left() -> set[str]:
        return set(gateway.sandboxes) - {refs["binding_ref"]}

    if method == "DeleteSandbox":
        assert len(left()) == len(STATUSES)
        # all but the one whose NOT_FOUND was believed: the reconciler finds what such a lie leaves
        wait_until(lambda: len(left() - recorded()) == 1, 10, "what is left is on record")
    else:
        wait_until(lambda: not left(), 10, "the maintenance sandboxes have gone")
        assert recorded() == set()
