"""Dify Agent's private control plane over the embedded sandbox, by a client as strict as Dify's."""

import harness
import httpx
import pytest
from dify_client import DifyAgentClient, HTTPError, NotFoundError, ValidationError

TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def plane(module_server):
    client = DifyAgentClient(module_server.url, TOKEN)
    client.server = module_server
    yield client
    client.close()


@pytest.fixture(scope="module")
def module_server(bindery, tmp_path_factory):
    """One server for the module: its bindings have names of their own."""
    folder = tmp_path_factory.mktemp("plane")
    for parent in (folder, folder.parent, folder.parent.parent):
        parent.chmod(0o755)
    listen = f"127.0.0.1:{harness.free_port()}"
    env = {
        "BINDERY_LISTEN": listen,
        "BINDERY_DATA_DIR": str(folder / "data"),
        "DIFY_AGENT_API_TOKEN": TOKEN,
    }
    one = harness.Server(bindery, folder / "home", ["serve"], env, listen, TOKEN)
    one.start().wait_ready()
    yield one
    one.stop()
    harness.kill_descendants()


@pytest.fixture
def made(plane, request):
    """A binding of this test's own, destroyed afterwards."""
    name = f"b{abs(hash(request.node.name)):x}"
    one = plane.create(binding_id=name, workspace_id=f"w-{name}")
    yield one
    plane.destroy(one.binding_ref, True, one.workspace_ref)


def run(plane, binding_ref: str, script: str) -> str:
    lease = plane.http.post(f"{plane.server.url}/v1/leases", json={"binding_ref": binding_ref}).json()
    path = f"{plane.server.url}/v1/leases/{lease['lease_id']}"
    answer = plane.http.post(f"{path}/commands", json={"script": script}).json()
    assert answer["status"] == "exited" and answer["exit_code"] == 0, answer
    plane.http.delete(path)
    return answer["output"]


# ---- frame ----------------------------------------------------------------------------------------


def test_authentication_has_three_answers(module_server):
    url = f"{module_server.url}/execution-bindings"
    cases = [
        ({}, "missing authorization header"),
        ({"Authorization": "Basic x"}, "invalid authorization scheme"),
        ({"Authorization": "Bearer"}, "invalid authorization scheme"),
        ({"Authorization": "Bearer wrong"}, "invalid bearer token"),
    ]
    for headers, said in cases:
        answer = httpx.post(url, json={}, headers=headers)
        assert answer.status_code == 401
        assert answer.json() == {"detail": said}
        assert answer.headers["www-authenticate"] == "Bearer"
    answer = httpx.post(url, json={}, headers={"Authorization": f"bearer  {TOKEN}"})
    assert answer.status_code == 422


def test_order_of_failures(module_server):
    """Section 1.3: not JSON comes before authentication, that before the fields."""
    url = module_server.url
    assert httpx.post(f"{url}/nowhere", json={}).json() == {"detail": "Not Found"}
    wrong = httpx.get(f"{url}/execution-bindings")
    assert wrong.status_code == 405 and wrong.json() == {"detail": "Method Not Allowed"}
    assert "POST" in wrong.headers["allow"]
    answer = httpx.post(f"{url}/execution-bindings", content=b'{"a":')
    assert answer.status_code == 422
    (problem,) = answer.json()["detail"]
    assert problem["type"] == "json_invalid" and problem["loc"][0] == "body"
    assert httpx.post(f"{url}/execution-bindings", content=b"{}").status_code == 401
    assert httpx.post(f"{url}/home-snapshots/initialize", json={}).status_code == 404


def test_openapi_is_open(module_server):
    document = httpx.get(f"{module_server.url}/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for path in ("/execution-bindings", "/execution-bindings/destroy", "/home-snapshots/delete",
                 "/home-snapshots/from-binding", "/execution-bindings/files/list",
                 "/execution-bindings/files/read", "/execution-bindings/files/download",
                 "/v1/leases", "/v1/leases/{id}/commands"):  # fmt: skip
        assert path in document["paths"], path


def test_every_problem_is_listed(plane):
    with pytest.raises(ValidationError) as caught:
        plane.post("/execution-bindings", {"tenant_id": "", "agent_id": 7, "other": None}, 201)
    found = {(problem["type"], tuple(problem["loc"])) for problem in caught.value.detail}
    assert found == {
        ("string_too_short", ("body", "tenant_id")),
        ("string_type", ("body", "agent_id")),
        ("missing", ("body", "binding_id")),
        ("missing", ("body", "workspace_id")),
        ("extra_forbidden", ("body", "other")),
    }
    short = next(p for p in caught.value.detail if p["type"] == "string_too_short")
    assert short["msg"] == "String should have at least 1 character"
    assert short["ctx"] == {"min_length": 1} and short["input"] == ""
    missing = next(p for p in caught.value.detail if p["type"] == "missing")
    assert missing["msg"] == "Field required"
    assert missing["input"] == {"tenant_id": "", "agent_id": 7, "other": None}


def test_destroy_has_a_rule_of_the_whole(plane):
    with pytest.raises(ValidationError) as caught:
        plane.destroy("b:w", True, None)
    (problem,) = caught.value.detail
    assert problem["type"] == "value_error" and problem["loc"] == ["body"]
    assert problem["msg"] == "Value error, workspace_ref is required when destroy_workspace is true"
    with pytest.raises(ValidationError) as caught:
        plane.post("/execution-bindings/destroy", {"binding_ref": "x", "destroy_workspace": "maybe"}, 204)
    assert [problem["type"] for problem in caught.value.detail] == ["bool_parsing"]


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'"x"', b"{} {}", b"\xff", b"[" * 100000])
def test_bodies_that_are_no_object(plane, body):
    answer = plane.http.post(f"{plane.server.url}/execution-bindings", content=body)
    assert answer.status_code == 422 and isinstance(answer.json()["detail"], list)


def test_too_large_bodies_and_heads(plane):
    answer = plane.http.post(f"{plane.server.url}/execution-bindings", content=b"x" * 10_000_000)
    assert answer.status_code == 413
    answer = plane.http.get(f"{plane.server.url}/healthz", headers={"X-Big": "x" * 100_000})
    assert answer.status_code == 431


# ---- bindings -------------------------------------------------------------------------------------


def test_a_binding_lives_and_dies(plane):
    one = plane.create(binding_id="life", workspace_id="life-w")
    assert len(one.binding_ref) <= 255 and len(one.workspace_ref) <= 255
    run(plane, one.binding_ref, "echo kept > file")
    assert run(plane, one.binding_ref, "cat file").strip() == "kept"
    for _ in range(2):
        plane.destroy(one.binding_ref, True, one.workspace_ref)
    lost = plane.http.post(f"{plane.server.url}/v1/leases", json={"binding_ref": one.binding_ref})
    assert lost.status_code == 404 and lost.json()["detail"]["code"] == "binding_lost"
    plane.post(
        "/execution-bindings/destroy",
        {"binding_ref": one.binding_ref, "destroy_workspace": "yes", "workspace_ref": one.workspace_ref},
        204,
    )


def test_a_second_binding_shares_the_workspace(plane, made):
    other = plane.create(
        binding_id="second", workspace_id=made.workspace_ref, existing_workspace_ref=made.workspace_ref
    )
    assert other.workspace_ref == made.workspace_ref
    run(plane, made.binding_ref, "echo shared > here")
    assert run(plane, other.binding_ref, "cat here").strip() == "shared"
    plane.destroy(other.binding_ref, False)
    assert run(plane, made.binding_ref, "cat here").strip() == "shared"


@pytest.mark.parametrize(
    "name",
    ["..", ".", "a/b", "a:b", "a\r\nX: y", "a\tb", "a b", "..%2f", "é", "☕", "x" * 300, "x" * 10000],
)
def test_ids_that_no_path_may_hold(plane, name):
    """A46, A47"""
    with pytest.raises(HTTPError) as caught:
        plane.create(binding_id=name, workspace_id="w-ids")
    assert caught.value.status in (400, 422), caught.value
    with pytest.raises(HTTPError) as caught:
        plane.create(binding_id="b-ids", workspace_id=name)
    assert caught.value.status in (400, 422), caught.value


@pytest.mark.parametrize("ref", ["..", "a", "a:b:c", "../../etc:w", "a:..", "%2e%2e:w", ":", "a:", "\x01"])
def test_refs_that_were_never_issued(plane, ref):
    for attempt in (
        lambda: plane.destroy(ref, True, "w"),
        lambda: plane.snapshot(ref, "s-bad"),
    ):
        with pytest.raises(HTTPError) as caught:
            attempt()
        assert caught.value.status == 400, caught.value
        assert caught.value.code == "invalid_ref"
    with pytest.raises(HTTPError) as caught:
        plane.delete_snapshot(ref)
    assert caught.value.status == 400


# ---- snapshots ------------------------------------------------------------------------------------


def test_a_home_travels_in_a_snapshot(plane, made):
    run(plane, made.binding_ref, 'echo mine > "$HOME/.profile-of-mine"')
    ref = plane.snapshot(made.binding_ref, "travels")
    copy = plane.create(binding_id="copy", workspace_id="copy-w", home_snapshot_ref=ref)
    assert run(plane, copy.binding_ref, 'cat "$HOME/.profile-of-mine"').strip() == "mine"
    plane.destroy(copy.binding_ref, True, copy.workspace_ref)
    for _ in range(2):
        plane.delete_snapshot(ref)
    with pytest.raises(HTTPError) as caught:
        plane.create(binding_id="copy", workspace_id="copy-w", home_snapshot_ref=ref)
    assert caught.value.status == 502 and caught.value.code == "binding_create_failed"


def test_a_snapshot_of_what_is_gone_is_404(plane):
    one = plane.create(binding_id="gone", workspace_id="gone-w")
    plane.destroy(one.binding_ref, True, one.workspace_ref)
    with pytest.raises(NotFoundError) as caught:
        plane.snapshot(one.binding_ref, "of-nothing")
    assert caught.value.code == "binding_lost"


# ---- files ----------------------------------------------------------------------------------------


def test_files_are_listed_and_read(plane, made):
    run(plane, made.binding_ref, "mkdir d; printf 'caf\\303\\251\\n' > d/text; printf 'a\\377' > d/bin; "
                                 "ln -s text d/link; mkfifo d/pipe; touch \"d/new\nline\"; echo home > ~/h")  # fmt: skip
    listing = plane.list_files(made.binding_ref, "d")
    assert listing.path == "d" and not listing.truncated
    assert [(e.name, e.type, e.size) for e in listing.entries] == [
        ("bin", "file", 2), ("link", "symlink", None), ("new\nline", "file", 0),
        ("pipe", "other", None), ("text", "file", 6),
    ]  # fmt: skip
    assert [e.name for e in plane.list_files(made.binding_ref).entries] == ["d"]
    text = plane.read_file(made.binding_ref, "./d/../d/text")
    assert (text.path, text.text, text.size, text.binary, text.truncated) == (
        "./d/../d/text", "café\n", 6, False, False,
    )  # fmt: skip
    cut = plane.read_file(made.binding_ref, "d/text", 4)
    assert (cut.text, cut.truncated, cut.binary) == ("caf", True, False)
    binary = plane.read_file(made.binding_ref, "d/bin")
    assert (binary.binary, binary.text) == (True, None)
    assert plane.read_file(made.binding_ref, "~/h").text == "home\n"
    assert "h" in [e.name for e in plane.list_files(made.binding_ref, "~").entries]


def test_a_large_file_is_cut_at_the_limit(plane, made):
    run(plane, made.binding_ref, "head -c 300000 /dev/zero | tr '\\0' x > big")
    content = plane.read_file(made.binding_ref, "big")
    assert (len(content.text), content.size, content.truncated) == (262144, 300000, True)


@pytest.mark.parametrize(
    ("kind", "path"),
    [("list", "none"), ("list", "file"), ("list", "dlink"), ("list", "/proc/1/root/x"), ("read", "none"),
     ("read", "dir"), ("read", "flink"), ("read", "pipe"), ("read", "x" * 5000), ("list", "a\u0000b")],
)  # fmt: skip
def test_wrong_paths_are_400(plane, made, kind, path):
    run(plane, made.binding_ref, "mkdir dir; echo > file; ln -s dir dlink; ln -s file flink; mkfifo pipe")
    with pytest.raises(HTTPError) as caught:
        plane.list_files(made.binding_ref, path) if kind == "list" else plane.read_file(made.binding_ref, path)
    assert caught.value.status == 400 and caught.value.code == "invalid_binding_path"


def test_file_validation_is_400_and_loss_404(plane, made):
    for path, body in [
        ("list", {}),
        ("list", {"backend_binding_ref": ""}),
        ("list", {"backend_binding_ref": made.binding_ref, "more": 1}),
        ("read", {"backend_binding_ref": made.binding_ref}),
        ("read", {"backend_binding_ref": made.binding_ref, "path": "x", "max_bytes": 0}),
        ("read", {"backend_binding_ref": made.binding_ref, "path": "x", "max_bytes": 262145}),
        ("read", {"backend_binding_ref": "../x", "path": "x"}),
    ]:
        with pytest.raises(HTTPError) as caught:
            plane.post(f"/execution-bindings/files/{path}", body, 200)
        assert caught.value.status == 400 and caught.value.code == "invalid_binding_path", body
    with pytest.raises(NotFoundError) as caught:
        plane.list_files("nobody:nowhere")
    assert caught.value.code == "binding_not_found"


def test_download_is_validated_then_unavailable(plane, made):
    context = {"tenant_id": "t", "agent_mode": "agent_app", "invoke_from": "web-app"}
    with pytest.raises(ValidationError) as caught:
        plane.download(made.binding_ref, "f", {**context, "agent_mode": "x", "extra": 1})
    locations = {tuple(problem["loc"]) for problem in caught.value.detail}
    assert ("body", "execution_context", "agent_mode") in locations
    assert ("body", "execution_context", "extra") in locations
    with pytest.raises(HTTPError) as caught:
        plane.download(made.binding_ref, "f", context)
    assert (caught.value.status, caught.value.code) == (400, "invalid_execution_context")
    with pytest.raises(HTTPError) as caught:
        plane.download(made.binding_ref, "f", {**context, "user_id": "u", "user_from": "account"})
    assert (caught.value.status, caught.value.code) == (503, "agent_stub_upload_unavailable")
