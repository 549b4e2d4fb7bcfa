"""The ledger over HTTP: owners, generations, retirement, sessions, pages, the timeline; PostgreSQL
that comes and goes; moving a ledger from one database to another."""

import concurrent.futures
import json
import subprocess
import time

import pytest

from gateway import FakeGateway
from harness import wait_until

OWNER = {"tenant_id": "t", "app_id": "a", "agent_id": "g", "agent_config_version_id": "v"}
QUICK = {"BINDERY_GC_INTERVAL_SECONDS": "1", "BINDERY_RETIRE_GRACE_SECONDS": "1"}


def put(http, owner, **changes):
    return http.put(f"/v1/owners/conversation/{owner}/binding", json={**OWNER, **changes})


def end(http, owner, tenant="t", app="a"):
    return http.delete(
        f"/v1/owners/conversation/{owner}", params={"tenant_id": tenant, "app_id": app}
    )


@pytest.fixture
def gateway():
    with FakeGateway() as fake:
        yield fake


@pytest.fixture(params=["sqlite", "postgres"])
def ledger_settings(request):
    if request.param == "sqlite":
        return {}
    return {"BINDERY_LEDGER_URL": request.getfixturevalue("postgres").database()}


def test_a_conversations_life(server, ledger_settings):
    one = server(settings={**QUICK, **ledger_settings})
    made = put(one.http, "c1")
    assert made.status_code == 201, made.text
    row = made.json()
    assert row["status"] == "active" and row["binding_ref"] and row["workspace_ref"]
    again = put(one.http, "c1")
    assert again.status_code == 200
    assert again.json()["binding_id"] == row["binding_id"]

    mismatch = put(one.http, "c1", agent_config_version_id="w")
    assert mismatch.status_code == 409
    assert mismatch.json()["detail"]["code"] == "binding_generation_mismatch"

    session = {"messages": ["ä", {"n": 1.5}]}
    stored = one.http.put(
        f"/v1/bindings/{row['binding_id']}/session-snapshot",
        json={"session_snapshot": session, "pending_form_id": "f1"},
    )
    assert stored.status_code == 204
    read = put(one.http, "c1").json()
    assert read["session_snapshot"] == session
    assert read["pending_form_id"] == "f1" and read["pending_tool_call_id"] is None

    lease = one.http.post("/v1/leases", json={"binding_ref": row["binding_ref"]})
    assert lease.status_code == 201
    assert one.http.delete(f"/v1/leases/{lease.json()['lease_id']}").status_code == 204

    ended = end(one.http, "c1")
    assert ended.status_code == 202
    assert ended.json()["binding_ids"] == [row["binding_id"]]
    assert end(one.http, "c1").status_code == 202
    refused = one.http.post("/v1/leases", json={"binding_ref": row["binding_ref"]})
    assert refused.status_code == 404
    wait_until(
        lambda: one.http.get(f"/v1/bindings/{row['binding_id']}").status_code == 404,
        20,
        "the binding's end",
    )
    events = one.http.get(f"/v1/bindings/{row['binding_id']}/timeline").json()["events"]
    assert [event["event"] for event in events] == ["creating", "active", "retired", "gone"]
    assert all(event["actor"] and event["at"] for event in events)


# A06
def test_many_first_calls_make_one(server, ledger_settings, gateway):
    gateway.fault({"method": "POST", "path": "^/v1/sandboxes$", "fault": "delay", "seconds": 0.5})
    one = server(settings={**gateway.settings, **ledger_settings})
    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        answers = list(pool.map(lambda _: put(one.new_client(), "c1"), range(30)))
    assert sorted(answer.status_code for answer in answers) == [200] * 29 + [201]
    assert len({answer.json()["binding_ref"] for answer in answers}) == 1
    assert gateway.state()["created_total"] == 1


# A06
def test_creators_error_is_everybodys(server, gateway):
    gateway.fault(
        {"method": "POST", "path": "^/v1/sandboxes$", "fault": "status", "status": 400,
         "body": {"code": "bad_image", "message": "no such image"}, "times": 1},
        {"method": "POST", "path": "^/v1/sandboxes$", "fault": "delay", "seconds": 0.5},
    )
    one = server(settings=gateway.settings)
    first = put(one.http, "c1")
    assert first.status_code >= 400
    assert one.http.get("/v1/bindings").json()["bindings"] == []
    assert put(one.http, "c1").status_code == 201


def test_binding_id_of_difys_route_is_a_key(server, ledger_settings, gateway):
    gateway.fault({"method": "POST", "path": "^/v1/sandboxes$", "fault": "delay", "seconds": 0.5})
    one = server(settings={**gateway.settings, **ledger_settings})
    spec = {"tenant_id": "t", "agent_id": "g", "binding_id": "b1", "workspace_id": "w1"}

    def create(_):
        return one.new_client().post("/execution-bindings", json=spec)

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(create, range(20)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.text for answer in answers}) == 1
    assert gateway.state()["created_total"] == 1
    other = one.http.post("/execution-bindings", json={**spec, "agent_id": "other"})
    assert other.status_code == 409
    assert other.json()["detail"]["code"] == "conflict"
    refs = answers[0].json()
    gone = one.http.post("/execution-bindings/destroy", json={**refs, "destroy_workspace": True})
    assert gone.status_code == 204
    assert gateway.alive == []
    assert one.http.get("/v1/bindings").json()["bindings"] == []


# A28, A29, A32
def test_collector_outlasts_a_gateway_that_fails(server, ledger_settings, gateway):
    one = server(settings={**gateway.settings, **QUICK, **ledger_settings})
    put(one.http, "c1")
    gateway.fault({"method": "DELETE", "path": "^/v1/sandboxes/", "fault": "status",
                   "status": 500, "times": 2})
    row = one.http.get("/v1/bindings").json()["bindings"][0]
    end(one.http, "c1")

    def waiting():
        found = one.http.get(f"/v1/workspaces/{row['workspace_id']}").json()
        return (found.get("waiting") or {}).get("last_error")

    assert "500" in wait_until(waiting, 10, "an attempt that failed")
    wait_until(lambda: gateway.alive == [], 20, "the sandbox's end")
    wait_until(lambda: not one.http.get("/v1/workspaces").json()["workspaces"], 10, "the row's end")


# A11
def test_quota_answers_429(server, gateway):
    one = server(settings={**gateway.settings, "BINDERY_TENANT_MAX_BINDINGS": "3"})
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        codes = sorted(pool.map(lambda n: put(one.new_client(), f"c{n}").status_code, range(10)))
    assert codes == [201] * 3 + [429] * 7
    refused = put(one.http, "c99")
    assert refused.headers["Retry-After"]
    assert put(one.http, "c99", tenant_id="u").status_code == 201


def test_pages_and_filters(server, gateway):
    one = server(settings=gateway.settings)
    for n in range(12):
        put(one.http, f"c{n}", tenant_id=f"t{n % 2}")
    seen, after = [], None
    while True:
        params = {"tenant_id": "t0", "limit": 2, **({"after": after} if after else {})}
        page = one.http.get("/v1/bindings", params=params).json()
        seen += [row["owner_id"] for row in page["bindings"]]
        after = page["next"]
        if after is None:
            break
    assert sorted(seen) == sorted(f"c{n}" for n in range(0, 12, 2))
    assert one.http.get("/v1/bindings", params={"status": "nonsense"}).status_code == 400
    assert one.http.get("/v1/workspaces", params={"limit": 0}).status_code == 400
    assert one.http.post("/v1/gc/sweep").status_code == 202
    assert one.http.get("/v1/bindings/unknown").status_code == 404


def test_bad_requests_say_what_is_wrong(server, gateway):
    one = server(settings=gateway.settings)
    assert one.http.put("/v1/owners/person/c1/binding", json=OWNER).status_code == 400
    assert put(one.http, "x" * 300).status_code == 400
    assert put(one.http, "c1", tenant_id="a\nb").status_code == 400
    assert put(one.http, "c1", nonsense=1).status_code == 422
    assert one.http.delete("/v1/owners/conversation/c1").status_code == 400
    assert put(one.http, "c1", home_snapshot_id="none").status_code == 404
    assert gateway.state()["created_total"] == 0


def test_postgres_that_is_away_is_503_and_comes_back(server, postgres, gateway):
    url = postgres.database()
    one = server(settings={**gateway.settings, "BINDERY_LEDGER_URL": url})
    assert put(one.http, "c1").status_code == 201
    postgres.kill()
    try:
        wait_until(lambda: one.http.get("/readyz").status_code == 503, 5, "not ready")
        refused = put(one.http, "c2")
        assert refused.status_code == 503
        assert refused.json()["detail"]["code"] == "ledger_unavailable"
        assert refused.headers["Retry-After"]
        assert one.http.get("/healthz").status_code == 200
        two = server(settings={**gateway.settings, "BINDERY_LEDGER_URL": url}, ready=False)
        assert two.http.get("/readyz").status_code == 503
    finally:
        postgres.start()
    wait_until(lambda: one.http.get("/readyz").status_code == 200, 10, "ready again")
    wait_until(lambda: two.http.get("/readyz").status_code == 200, 10, "ready at last")
    assert put(one.http, "c1").status_code == 200
    assert put(two.http, "c1").status_code == 200
    assert put(two.http, "c2").status_code == 201
    assert gateway.state()["created_total"] == 2


def test_newer_schema_ends_with_78(server, postgres):
    url = postgres.database()
    postgres.sql(url, "CREATE TABLE bindery_schema (version INT NOT NULL)")
    postgres.sql(url, "INSERT INTO bindery_schema VALUES (1000)")
    one = server(settings={"BINDERY_LEDGER_URL": url}, start=False)
    one.launch()
    assert one.wait() == 78
    assert "run the newer program" in one.output()
    one.process = None


def test_moving_a_ledger_loses_nothing(server, postgres, gateway, bindery, folder):
    one = server(settings={**gateway.settings, **QUICK})
    for n in range(20):
        put(one.http, f"c{n}")
    row = one.http.get("/v1/bindings").json()["bindings"][0]
    one.http.put(
        f"/v1/bindings/{row['binding_id']}/session-snapshot",
        json={"session_snapshot": {"é": "\u0001"}, "pending_form_id": None},
    )
    gateway.fault({"method": "DELETE", "path": "^/v1/sandboxes/", "fault": "status", "status": 500})
    end(one.http, "c7")
    one.stop()
    file_url = f"sqlite:{one.settings['BINDERY_DATA_DIR']}/ledger.db"
    url = postgres.database()

    def export(source):
        done = subprocess.run([bindery, "ledger", "export", source], capture_output=True, check=True)
        return done.stdout

    exported = export(file_url)
    subprocess.run([bindery, "ledger", "import", url], input=exported, check=True)
    assert export(url) == exported
    rows = [json.loads(line) for line in exported.splitlines()[1:]]
    assert sum(r["table"] == "bindings" for r in rows) == 20
    again = subprocess.run([bindery, "ledger", "import", url], input=exported, capture_output=True)
    assert again.returncode != 0 and b"empty" in again.stderr
    back = f"sqlite:{folder}/back.db"
    subprocess.run([bindery, "ledger", "import", back], input=exported, check=True)
    assert export(back) == exported

    gateway.fault()
    two = server(settings={**gateway.settings, **QUICK, "BINDERY_LEDGER_URL": url})
    assert put(two.http, "c3").status_code == 200
    assert put(two.http, "c100").status_code == 201
    wait_until(lambda: len(gateway.alive) == 20, 20, "collection goes on where it stopped")


def test_damaged_file_is_refused_and_left_alone(server, folder):
    one = server(start=False)
    data = folder / "data"
    data.mkdir(mode=0o700)
    broken = data / "ledger.db"
    broken.write_bytes(b"this is no database at all, whatever its name may say" * 100)
    one.settings["BINDERY_DATA_DIR"] = str(data)
    one.launch()
    assert one.wait() == 78
    assert broken.read_bytes().startswith(b"this is no database")
    one.process = None


# A31, A57
def test_lost_binding_is_replaced_only_when_asked(server, gateway):
    one = server(settings={**gateway.settings, **QUICK})
    row = put(one.http, "c1").json()
    gateway.expire(gateway.alive[0])
    assert one.http.post("/v1/leases", json={"binding_ref": row["binding_ref"]}).status_code == 404

    def told():
        answer = put(one.http, "c1")
        return answer if answer.status_code == 409 else None

    lost = wait_until(told, 5, "the loss in the ledger")
    assert lost.json()["detail"]["code"] == "binding_lost"
    new = put(one.http, "c1", replace_lost=True)
    assert new.status_code == 201
    assert new.json()["generation"] == 2
    assert new.json()["binding_id"] != row["binding_id"]
    time.sleep(0.1)
    assert put(one.http, "c1").status_code == 200
