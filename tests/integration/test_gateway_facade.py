"""The gateway facade: an independent client of the Enterprise gateway's protocol, and a Bindery whose
backend is another Bindery's facade."""

import httpx
import pytest

KEY = "facade-key-of-the-tests"


@pytest.fixture
def facade(server):
    """A Bindery on the embedded sandbox that speaks the gateway protocol."""
    return server(settings={"BINDERY_GATEWAY_API_KEY": KEY})


class GatewayClient:
    """The wire of the original adapter: two headers, one path prefix, no knowledge of Bindery."""

    def __init__(self, url: str, key: str = KEY):
        self.http = httpx.Client(
            base_url=url, headers={"X-Inner-Api-Key": key}, timeout=30, trust_env=False
        )
        self.key = key

    def create(self) -> str:
        answer = self.http.post("/v1/sandboxes", json={"tenantId": "t1"})
        assert answer.status_code == 201, answer.text
        assert set(answer.json()) == {"sandboxId"}
        return answer.json()["sandboxId"]

    def delete(self, sandbox_id: str) -> int:
        segment = httpx.URL("/v1/sandboxes/").path + "".join(
            c if c.isalnum() or c in "-._~" else "".join(f"%{b:02X}" for b in c.encode())
            for c in sandbox_id
        )
        return self.http.delete(segment).status_code

    def shellctl(self, method: str, path: str, sandbox_id: str, **options) -> httpx.Response:
        headers = {"X-Sandbox-Id": sandbox_id, "Authorization": f"Bearer {self.key}"}
        return self.http.request(method, "/proxy" + path, headers=headers, **options)

    def run(self, sandbox_id: str, script: str, **fields) -> dict:
        body = {"script": script, "timeout": 20, "output_limit": 8192, "idle_flush_seconds": 0.5}
        answer = self.shellctl("POST", "/v1/jobs/run", sandbox_id, json={**body, **fields})
        assert answer.status_code == 200, answer.text
        result = answer.json()
        while not result["done"]:
            wait = {"offset": 0, "timeout": 20, "output_limit": 8192, "idle_flush_seconds": 0.5}
            path = f"/v1/jobs/{result['job_id']}/wait"
            result = self.shellctl("POST", path, sandbox_id, json=wait).json()
        deleted = self.shellctl("DELETE", f"/v1/jobs/{result['job_id']}?force=true", sandbox_id)
        assert deleted.status_code == 200
        return result


LAYOUT = """set -eu
mkdir -p /home/dify
rm -rf -- /home/dify/workspace
mkdir -p /home/dify/workspace
chmod 700 /home/dify /home/dify/workspace
"""
PROBE = "set -eu\ntest -d /home/dify\ntest -d /home/dify/workspace\n"


def needs_a_view_of_its_own(facade):
    """Only a mount namespace can show a Home under another name."""
    checks = {c["name"]: c for c in facade.http.get("/readyz").json()["checks"]}
    isolation = checks["backend"]["facts"]["sandbox"]["child"]["isolation"]
    if not isolation["bubblewrap"]:
        why = isolation["missing"].get("bubblewrap")
        pytest.skip(f"jobs have no view of the file system of their own here: {why}")


def test_a_whole_life_through_the_protocol(facade):
    needs_a_view_of_its_own(facade)
    client = GatewayClient(facade.url)
    sandbox = client.create()
    assert client.run(sandbox, LAYOUT)["exit_code"] == 0
    probe = client.run(sandbox, PROBE)
    assert (probe["status"], probe["exit_code"]) == ("exited", 0)
    there = client.run(sandbox, "echo kept > note; pwd", cwd="/home/dify/workspace")
    assert there["exit_code"] == 0
    again = client.run(sandbox, "cat /home/dify/workspace/note")
    assert again["output"].strip() == "kept"
    assert client.shellctl("GET", "/healthz", sandbox).json() == {"status": "ok"}
    assert client.delete(sandbox) == 204
    assert client.delete(sandbox) == 204


def test_a_destroyed_sandbox_is_not_found(facade):
    client = GatewayClient(facade.url)
    sandbox = client.create()
    assert client.run(sandbox, "true")["exit_code"] == 0
    assert client.delete(sandbox) == 204
    for _ in range(3):
        gone = client.shellctl("POST", "/v1/jobs/run", sandbox, json={"script": "true"})
        assert gone.status_code == 404
        assert gone.json()["error"]["code"] == "sandbox_not_found"
    never = client.shellctl("POST", "/v1/jobs/run", "made:up~up", json={"script": "true"})
    assert never.status_code == 404 and never.json()["error"]["code"] == "sandbox_not_found"


def test_a_busy_client_pays_one_validation(facade):
    client = GatewayClient(facade.url)
    sandbox = client.create()
    for _ in range(5):
        client.run(sandbox, "true")
    metrics = facade.http.get("/metrics").text
    acquired = [
        line
        for line in metrics.splitlines()
        if line.startswith("bindery_leases{") and 'backend="local"' in line
    ]
    assert acquired and float(acquired[0].rsplit(" ", 1)[1]) == 1


def test_keys_and_bad_requests(facade):
    wrong = GatewayClient(facade.url, key="wrong")
    for answer in (
        wrong.http.post("/v1/sandboxes", json={"tenantId": "t"}),
        wrong.shellctl("GET", "/healthz", "x"),
        httpx.post(facade.url + "/v1/sandboxes", json={"tenantId": "t"}, trust_env=False),
    ):
        assert answer.status_code == 401
    client = GatewayClient(facade.url)
    refused = client.http.post("/v1/sandboxes", json={})
    assert refused.status_code in (400, 422) and "reason" in refused.json()
    assert client.http.post("/v1/sandboxes", content=b"{").status_code in (400, 422)
    missing = client.http.post("/proxy/v1/jobs/run", json={"script": "true"})
    assert missing.status_code == 400 and "error" in missing.json()


def test_it_is_off_without_a_key(server):
    plain = server()
    client = GatewayClient(plain.url)
    assert client.http.post("/v1/sandboxes", json={"tenantId": "t"}).status_code == 404
    assert client.shellctl("GET", "/healthz", "x").status_code == 404


def test_the_chain(facade, server):
    """Bindery (enterprise) → Bindery (facade over local) → embedded shellctl."""
    needs_a_view_of_its_own(facade)
    front = server(
        settings={
            "DIFY_AGENT_RUNTIME_BACKEND": "enterprise",
            "DIFY_AGENT_ENTERPRISE_SANDBOX_GATEWAY_ENDPOINT": facade.url,
            "DIFY_AGENT_ENTERPRISE_SANDBOX_GATEWAY_AUTH_TOKEN": KEY,
        }
    )
    spec = {"tenant_id": "t", "agent_id": "a", "binding_id": "b1", "workspace_id": "w1"}
    made = front.http.post("/execution-bindings", json=spec)
    assert made.status_code == 201, made.text
    refs = made.json()
    assert refs["binding_ref"] == refs["workspace_ref"]
    for turn in range(2):
        lease = front.http.post("/v1/leases", json={"binding_ref": refs["binding_ref"]})
        assert lease.status_code == 201, lease.text
        run = front.http.post(
            f"/v1/leases/{lease.json()['lease_id']}/commands",
            json={"script": f"echo turn {turn} >> log; cat log"},
        )
        assert run.status_code == 200, run.text
        assert run.json()["output"].split("\n")[turn].strip() == f"turn {turn}"
        assert front.http.delete(f"/v1/leases/{lease.json()['lease_id']}").status_code == 204
    body = {**refs, "destroy_workspace": True}
    assert front.http.post("/execution-bindings/destroy", json=body).status_code == 204
    lost = front.http.post("/v1/leases", json={"binding_ref": refs["binding_ref"]})
    assert lost.status_code == 404 and lost.json()["detail"]["code"] == "binding_lost"
