"""The reconciler over an OpenShell gateway that others use too: what is ours and has no row goes, once,
whichever replica finds it; what is a neighbour's or nobody's stays."""

import os
import shutil

import grpc
import pytest
from openshell._proto import openshell_pb2 as pb
from openshell._proto import openshell_pb2_grpc as pb_grpc

from harness import wait_until
from openshell_fake import FakeOpenShell

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("bwrap") or not shutil.which("nsenter"),
    reason="the fake gateway's sandboxes need root, bubblewrap and nsenter",
)

OWNER = {"tenant_id": "t", "app_id": "a", "agent_id": "g", "agent_config_version_id": "v"}
RECONCILING = {
    "BINDERY_RECONCILE": "destroy",
    "BINDERY_RECONCILE_INTERVAL_SECONDS": "0.5",
    "BINDERY_RECONCILE_GRACE_SECONDS": "1",
    "BINDERY_GC_INTERVAL_SECONDS": "1",
}


@pytest.fixture
def gateway(bindery):
    with FakeOpenShell(bindery) as one:
        yield one


def make(one, name: str, n: int) -> set[str]:
    refs = set()
    for i in range(n):
        answer = one.http.put(f"/v1/owners/conversation/{name}-{i}/binding", json=OWNER)
        assert answer.status_code == 201, answer.text
        refs.add(answer.json()["binding_ref"])
    return refs


def runs(one) -> int:
    return one.http.get("/v1/gc").json()["reconciler"]["runs"]


# A35
def test_a_neighbours_and_nobodys_sandboxes_stay(server, gateway):
    """Three owners share the gateway; a ledger that knows nothing has the label of one of them."""
    neighbour = server(settings={**gateway.settings, "BINDERY_INSTANCE_ID": "staging"})
    theirs = make(neighbour, "theirs", 3)
    lost = server(settings=gateway.settings)
    ours = make(lost, "ours", 3)
    with grpc.insecure_channel(gateway.endpoint) as channel:
        request = pb.CreateSandboxRequest(name="unlabelled", spec=pb.SandboxSpec())
        pb_grpc.OpenShellStub(channel).CreateSandbox(request, timeout=10)
    assert ours | theirs | {"unlabelled"} == set(gateway.sandboxes)
    lost.stop()
    fresh = server(settings={**gateway.settings, **RECONCILING})
    wait_until(lambda: not ours & set(gateway.sandboxes), 30, "the end of ours")
    before = runs(fresh)
    wait_until(lambda: runs(fresh) >= before + 2, 20, "two more comparisons")
    assert set(gateway.sandboxes) == theirs | {"unlabelled"}
    assert fresh.http.get("/v1/orphans").json()["orphans"] == []
    assert neighbour.http.get("/v1/bindings").json()["bindings"][0]["status"] == "active"


# A33
def test_two_replicas_find_what_no_row_knows_and_destroy_it_once(server, gateway, postgres):
    """What an earlier ledger left of ours goes after the start; those with rows stay."""
    lost = server(settings=gateway.settings)
    strays = make(lost, "strays", 6)
    lost.stop()
    settings = {**gateway.settings, "BINDERY_LEDGER_URL": postgres.database()}
    first = server(settings=settings)
    known = make(first, "known", 3)
    first.stop()
    assert strays | known == set(gateway.sandboxes)
    before = gateway.calls("DeleteSandbox")
    one, two = (server(settings={**settings, **RECONCILING}) for _ in range(2))
    wait_until(lambda: set(gateway.sandboxes) == known, 30, "exactly those with rows")
    for replica in (one, two):
        seen = runs(replica)
        wait_until(lambda: runs(replica) >= seen + 2, 20, "two more comparisons")
    assert set(gateway.sandboxes) == known
    assert gateway.calls("DeleteSandbox") - before == len(strays), "none was destroyed twice"
    rows = one.http.get("/v1/bindings").json()["bindings"]
    assert {row["binding_ref"] for row in rows if row["status"] == "active"} == known
    assert all(row["lost_at"] is None for row in rows)
