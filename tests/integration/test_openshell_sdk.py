"""The OpenShell gateway's contract, as the official Python SDK sees it: its own client classes, and
its own channel for the streams it has no method for. It holds the fake gateway to what a real one
does, so that what the backend is tested against is not our own idea of it."""

import itertools
import json
import secrets
import threading

import grpc
import openshell
import pytest
from openshell._proto import openshell_pb2 as pb

from openshell_given import available, given, open_gateway, wait_until

pytestmark = available

Code = grpc.StatusCode
WORKSPACE = given("WORKSPACE", "default")
PROVISIONING, READY, ERROR, DELETING, STOPPED = 1, 2, 3, 4, 7
serial = itertools.count()
# answers each connection with its own bytes in upper case, and ends when the peer does
ECHO = """
import socket
server = socket.create_server(("127.0.0.1", 7700))
print("up", flush=True)
while True:
    one, _ = server.accept()
    while data := one.recv(65536):
        one.sendall(data.upper())
    one.sendall(b"<eof>")
    one.close()
"""


@pytest.fixture(scope="module")
def gateway(bindery):
    with open_gateway(bindery) as one:
        yield one


@pytest.fixture(scope="module")
def client(gateway):
    with gateway.client() as one:
        yield one


@pytest.fixture
def settings_restored(gateway):
    """The fake's settings; a test that changes them is skipped elsewhere."""
    change = gateway.set
    yield change
    change(ready_delay=0.1, session_ttl=86400, deleting=0, bearer="")


def fresh_name() -> str:
    return f"sdk-{next(serial)}-{secrets.token_hex(3)}"


def record(client, box) -> pb.Sandbox:
    request = pb.GetSandboxRequest(name=box.name, workspace=WORKSPACE)
    return client._stub.GetSandbox(request, timeout=30).sandbox


def watch(client, box, **flags):
    return client._stub.WatchSandbox(pb.WatchSandboxRequest(id=box.id, **flags), timeout=30)


@pytest.fixture
def box(client):
    """A sandbox that is READY."""
    made = client.create(workspace=WORKSPACE, name=fresh_name())
    list(watch(client, made, follow_status=True, stop_on_terminal=True))
    yield client.get(made.name, workspace=WORKSPACE)
    try:
        client.delete(made.name, workspace=WORKSPACE)
    except grpc.RpcError as error:
        assert error.code() == Code.NOT_FOUND


def refused(code: Code, call, *args, **kwargs) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        answer = call(*args, **kwargs)
        if hasattr(answer, "code") and callable(answer.code):
            list(answer)
    assert caught.value.code() == code, caught.value
    return caught.value.details()


def frame(data: bytes) -> pb.TcpForwardFrame:
    return pb.TcpForwardFrame(data=data)


class Pipe:
    """The request side of a stream: what `put` gives it, until `end`."""

    def __init__(self, *first):
        self.items, self.ended = list(first), False
        self.changed = threading.Condition()

    def put(self, item):
        with self.changed:
            self.items.append(item)
            self.changed.notify()

    def end(self):
        with self.changed:
            self.ended = True
            self.changed.notify()

    def __iter__(self):
        return self

    def __next__(self):
        with self.changed:
            while not self.items and not self.ended:
                self.changed.wait()
            if self.items:
                return self.items.pop(0)
        raise StopIteration


class Forward:
    """A ForwardTcp stream of the SDK's channel."""

    def __init__(self, client, box, token, port=7700, host="127.0.0.1", **more):
        init = pb.TcpForwardInit(
            sandbox_id=box.id, authorization_token=token, tcp={"host": host, "port": port}, **more
        )
        self.pipe = Pipe(pb.TcpForwardFrame(init=init))
        self.call = client._stub.ForwardTcp(self.pipe, timeout=30)

    def exchange(self, data: bytes) -> bytes:
        self.pipe.put(frame(data))
        got = b""
        while len(got) < len(data):
            got += next(self.call).data
        return got

    def finish(self) -> bytes:
        self.pipe.end()
        return b"".join(one.data for one in self.call)


def session(client, box) -> str:
    return client._stub.CreateSshSession(
        pb.CreateSshSessionRequest(sandbox_id=box.id), timeout=30
    ).token


@pytest.fixture
def echo(client, box, gateway):
    """The box with a server on port 7700 in it."""
    script = f"setsid {gateway.python} -c '{ECHO}' >/tmp/up 2>&1 </dev/null & " + (
        "while ! grep -q up /tmp/up; do sleep 0.05; done"
    )
    assert client.exec(box.id, ["/bin/sh", "-c", script]).exit_code == 0
    return box


# ---- records ------------------------------------------------------------------------------------------


def test_health_names_a_version(client):
    health = client.health()
    assert health.status == 1 and len(health.version.split(".")) == 3


def test_a_sandbox_is_made_found_listed_and_deleted(client, settings_restored):
    settings_restored(ready_delay=0.5)
    name = fresh_name()
    made = client.create(workspace=WORKSPACE, name=name, labels={"suite": name})
    assert (made.name, made.workspace, made.phase) == (name, WORKSPACE, PROVISIONING)
    assert made.labels == {"suite": name} and len(made.id) == 36
    assert client.get(name, workspace=WORKSPACE).id == made.id
    found = client.list(workspace=WORKSPACE, label_selector=f" suite={name} ,")
    assert [one.id for one in found] == [made.id]
    assert client.wait_ready(name, workspace=WORKSPACE).id == made.id
    assert client.delete(name, workspace=WORKSPACE) is True
    client.wait_deleted(name, workspace=WORKSPACE)
    refused(Code.NOT_FOUND, client.get, name, workspace=WORKSPACE)
    refused(Code.NOT_FOUND, client.delete, name, workspace=WORKSPACE)


def test_a_name_is_taken_while_the_old_record_is_being_deleted(client, box, settings_restored):
    refused(Code.ALREADY_EXISTS, client.create, workspace=WORKSPACE, name=box.name)
    settings_restored(deleting=1.0)
    client.delete(box.name, workspace=WORKSPACE)
    assert client.get(box.name, workspace=WORKSPACE).phase == DELETING
    assert client.delete(box.name, workspace=WORKSPACE) is True
    refused(Code.ALREADY_EXISTS, client.create, workspace=WORKSPACE, name=box.name)
    client.wait_deleted(box.name, workspace=WORKSPACE)


def test_a_sandbox_without_a_name_gets_one(client):
    made = client.create(workspace=WORKSPACE)
    assert 1 <= len(made.name) <= 19
    client.delete(made.name, workspace=WORKSPACE)


def test_lists_have_an_order_pages_and_selectors(client):
    mark = fresh_name()
    made = [
        client.create(workspace=WORKSPACE, name=fresh_name(), labels={"mark": mark, "n": str(n)})
        for n in range(5)
    ]
    ids = [one.id for one in made]
    ask = {"workspace": WORKSPACE, "label_selector": f"mark={mark}"}
    assert client.list_ids(**ask) == ids
    assert client.list_ids(**ask, limit=2) + client.list_ids(**ask, limit=9, offset=2) == ids
    assert client.list_ids(workspace=WORKSPACE, label_selector=f"mark={mark},n=3") == [ids[3]]
    assert set(ids) <= set(client.list_ids_for_all_workspaces(label_selector=f"mark={mark}"))
    for bad in ("mark", "mark!=x", "mark in (x)", ",".join(f"k{n}=v" for n in range(65))):
        refused(Code.INVALID_ARGUMENT, client.list, workspace=WORKSPACE, label_selector=bad)
    both = pb.ListSandboxesRequest(workspace=WORKSPACE, all_workspaces=True)
    refused(Code.INVALID_ARGUMENT, client._stub.ListSandboxes, both, timeout=30)
    for one in made:
        client.delete(one.name, workspace=WORKSPACE)


def test_workspaces_hold_sandboxes_apart(client):
    workspaces = openshell.WorkspaceClient.from_sandbox_client(client)
    mine, name = fresh_name(), fresh_name()
    assert workspaces.create(mine, labels={"a": "b"}).labels == {"a": "b"}
    refused(Code.ALREADY_EXISTS, workspaces.create, mine)
    assert mine in [one.name for one in workspaces.list(limit=1000)]
    inside = client.create(workspace=mine, name=name)
    outside = client.create(workspace=WORKSPACE, name=name)
    assert inside.id != outside.id and client.get(name, workspace=mine).id == inside.id
    refused(Code.FAILED_PRECONDITION, workspaces.delete, mine)
    refused(Code.FAILED_PRECONDITION, client.create, workspace=mine, name=fresh_name())
    client.delete(name, workspace=mine)
    client.wait_deleted(name, workspace=mine)
    assert workspaces.delete(mine) is True
    refused(Code.NOT_FOUND, workspaces.get, mine)
    refused(Code.NOT_FOUND, client.create, workspace=mine, name=name)
    refused(Code.FAILED_PRECONDITION, workspaces.delete, "default")
    client.delete(name, workspace=WORKSPACE)


BAD_SPECS = {
    "variable": {"environment": {"1x": "y"}},
    "reserved": {"environment": {"OPENSHELL_X": "y"}},
    "long_value": {"environment": {"X": "y" * 8193}},
    "line_end": {"environment": {"X": "a\nb"}},
    "many": {"environment": {f"K{n}": "" for n in range(129)}},
    "image": {"template": {"image": "i" * 1025}},
    "log_level": {"log_level": "x" * 33},
    "writable_root": {"policy": {"filesystem": {"read_write": ["/"]}}},
    "relative": {"policy": {"filesystem": {"read_only": ["usr"]}}},
    "dots": {"policy": {"filesystem": {"read_only": ["/usr/../etc"]}}},
    "no_gpu": {"resource_requirements": {"gpu": {"count": 0}}},
}


@pytest.mark.parametrize("kind", BAD_SPECS)
def test_a_spec_beyond_the_limits_is_refused(client, kind):
    name = fresh_name()
    spec = pb.SandboxSpec(**BAD_SPECS[kind])
    refused(Code.INVALID_ARGUMENT, client.create, workspace=WORKSPACE, name=name, spec=spec)
    refused(Code.NOT_FOUND, client.get, name, workspace=WORKSPACE)


@pytest.mark.parametrize("name", ["x" * 20, "Upper", "a_b", "a--b", "-a", "a-", "a.b"])
def test_names_beyond_the_limits_are_refused(client, name):
    refused(Code.INVALID_ARGUMENT, client.create, workspace=WORKSPACE, name=name)


def test_labels_beyond_the_limits_are_refused(client):
    for labels in ({"a b": ""}, {"": "x"}, {"k": "v" * 64}, {"k": "-v"}, {"n" * 64: ""}):
        refused(Code.INVALID_ARGUMENT, client.create, workspace=WORKSPACE, labels=labels)


def test_the_size_of_a_message_is_limited(client, box):
    big = b"x" * (1 << 20)
    refused(Code.OUT_OF_RANGE, client.exec, box.id, ["/bin/cat"], stdin=big)
    fits = big[: (1 << 20) - 200]
    assert client.exec(box.id, ["/usr/bin/wc", "-c"], stdin=fits).stdout.strip() == str(len(fits))


def test_names_and_ids_are_not_the_same(client, box):
    refused(Code.NOT_FOUND, client.get, box.id[:19], workspace=WORKSPACE)
    refused(Code.NOT_FOUND, client.exec, box.name, ["/bin/true"])
    refused(Code.INVALID_ARGUMENT, client.exec, "", ["/bin/true"])
    refused(Code.INVALID_ARGUMENT, client.get, "", workspace=WORKSPACE)


def test_methods_that_are_not_for_users(client):
    beat = pb.ReportPolicyStatusRequest()
    refused(Code.PERMISSION_DENIED, client._stub.ReportPolicyStatus, beat, timeout=30)
    refused(Code.PERMISSION_DENIED, client._stub.ConnectSupervisor, iter(()), timeout=30)
    refused(Code.UNIMPLEMENTED, client._stub.ListProviders, pb.ListProvidersRequest(), timeout=30)
    unknown = client._channel.unary_unary("/openshell.v1.OpenShell/Nothing")
    refused(Code.UNIMPLEMENTED, unknown, b"", timeout=30)
    health = client._channel.unary_unary("/grpc.health.v1.Health/Check")
    refused(Code.UNIMPLEMENTED, health, b"", timeout=30)


def test_a_bearer_is_demanded_of_all_but_health(gateway, settings_restored):
    settings_restored(bearer="right")
    tokens = iter(["wrong", "right"])
    with openshell.SandboxClient(gateway.endpoint, bearer_token=lambda: next(tokens)) as one:
        refused(Code.UNAUTHENTICATED, one.get, "nobody", workspace=WORKSPACE)
        refused(Code.NOT_FOUND, one.get, "nobody", workspace=WORKSPACE)
    with openshell.SandboxClient(gateway.endpoint) as one:
        assert one.health().status == 1
        refused(Code.UNAUTHENTICATED, one.list, workspace=WORKSPACE)


# ---- life ---------------------------------------------------------------------------------------------


def test_stop_and_start_keep_the_record_and_the_files(client, box):
    assert client.exec(box.id, ["/bin/sh", "-c", "echo kept > note"]).exit_code == 0
    before = record(client, box)
    assert client.stop(box.name, workspace=WORKSPACE).phase == STOPPED
    assert client.stop(box.name, workspace=WORKSPACE).phase == STOPPED
    refused(Code.FAILED_PRECONDITION, client.exec, box.id, ["/bin/true"])
    assert client.start(box.name, workspace=WORKSPACE).id == box.id
    assert client.wait_ready(box.name, workspace=WORKSPACE).id == box.id
    assert client.start(box.name, workspace=WORKSPACE).phase == READY
    assert client.exec(box.id, ["/bin/cat", "note"]).stdout == "kept\n"
    after = record(client, box)
    assert after.status.main_process_instance_id != before.status.main_process_instance_id
    assert after.metadata.resource_version > before.metadata.resource_version


def test_error_is_final(client, gateway, box):
    gateway.phase(box.name, "ERROR", reason="MainProcessExited")
    wait_until(lambda: client.get(box.name, workspace=WORKSPACE).phase == ERROR, 5, "ERROR")
    with pytest.raises(openshell.SandboxError):
        client.wait_ready(box.name, workspace=WORKSPACE)
    for call in (client.stop, client.start):
        refused(Code.FAILED_PRECONDITION, call, box.name, workspace=WORKSPACE)
    assert client.delete(box.name, workspace=WORKSPACE) is True


def test_a_stop_goes_on_without_its_caller(client, box):
    request = pb.StopSandboxRequest(name=box.name, workspace=WORKSPACE)
    client._stub.StopSandbox.future(request, timeout=30).cancel()
    client.stop(box.name, workspace=WORKSPACE)
    assert client.wait_stopped(box.name, workspace=WORKSPACE).phase == STOPPED


@pytest.mark.skipif(bool(given("ENDPOINT")), reason="the SDK reads its gateway from a file")
def test_the_sdks_own_context_manager(gateway, tmp_path, monkeypatch):
    folder = tmp_path / "openshell" / "gateways" / "tests"
    folder.mkdir(parents=True)
    metadata = {"gateway_endpoint": f"http://{gateway.endpoint}", "auth_mode": "none"}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    name = fresh_name()
    with openshell.Sandbox(workspace=WORKSPACE, cluster="tests", name=name) as one:
        assert one.exec(["/bin/echo", "hello"]).stdout == "hello\n"
        assert name in gateway.sandboxes
    assert name not in gateway.sandboxes


# ---- watch --------------------------------------------------------------------------------------------


def test_watch_begins_with_a_snapshot_and_ends_at_ready(client, settings_restored):
    settings_restored(ready_delay=0.5)
    made = client.create(workspace=WORKSPACE, name=fresh_name())
    events = list(watch(client, made, follow_status=True, stop_on_terminal=True))
    phases = [event.sandbox.status.phase for event in events]
    assert phases[0] == PROVISIONING and phases[-1] == READY
    assert [event.sandbox.metadata.id for event in events] == [made.id] * len(events)
    again = list(watch(client, made, stop_on_terminal=True))
    assert len(again) == 1
    client.delete(made.name, workspace=WORKSPACE)


def test_watch_follows_a_stop_and_does_not_announce_the_end(client, box):
    stream = watch(client, box, follow_status=True)
    assert next(stream).sandbox.status.phase == READY
    client.stop(box.name, workspace=WORKSPACE)
    while next(stream).sandbox.status.phase != STOPPED:
        pass
    client.delete(box.name, workspace=WORKSPACE)
    with pytest.raises(grpc.RpcError) as caught:
        list(stream)
    assert caught.value.code() == Code.CANCELLED
    refused(Code.NOT_FOUND, watch, client, box)


def test_an_error_does_not_end_a_watch(client, gateway, box):
    stream = watch(client, box, follow_status=True)
    next(stream)
    gateway.phase(box.name, "ERROR", reason="ContainerExited")
    assert next(stream).sandbox.status.conditions[0].reason == "ContainerExited"
    threading.Timer(0.5, stream.cancel).start()
    refused(Code.CANCELLED, list, stream)


# ---- exec ---------------------------------------------------------------------------------------------


def test_exec_gives_output_input_and_status(client, box):
    result = client.exec(box.id, ["/bin/sh", "-c", "cat; echo no >&2; exit 7"], stdin=b"in")
    assert result == openshell.ExecResult(7, "in", "no\n")
    assert client.exec(box.id, ["/nowhere/at/all"]).exit_code == 127
    assert client.exec(box.id, ["/proc/self/status"]).exit_code == 126
    assert client.exec(box.id, ["/bin/sh", "-c", "kill -9 $$"]).exit_code == 137
    with pytest.raises(openshell.SandboxError):
        client.exec(box.id, [])


def test_exec_keeps_words_and_variables_as_they_are(client, box):
    words = ["a b", "it's", "", "$HOME", "`id`", "*", "new\nline", "ü", '"']
    result = client.exec(
        box.id,
        ["/usr/bin/env", "bash", "-c", 'printf "%s\\0" "$@"; pwd; printf %s "$V"', "x", *words],
        env={"V": "a 'b' $c"},
        workdir="/tmp",
    )
    *said, rest = result.stdout.split("\0")
    assert said == words and rest == "/tmp\na 'b' $c"
    assert client.exec(box.id, ["/bin/true"], workdir="/nowhere").exit_code == 1


def test_exec_streams_while_the_command_runs(client, box):
    script = "echo first; while [ ! -e go ]; do sleep 0.05; done; echo second"
    stream = client.exec_stream(box.id, ["/bin/sh", "-c", script])
    assert next(stream) == openshell.ExecChunk("stdout", b"first\n")
    client.exec(box.id, ["/usr/bin/touch", "go"])
    assert next(stream) == openshell.ExecChunk("stdout", b"second\n")
    assert next(stream).exit_code == 0


def test_exec_of_much_output_loses_nothing(client, box):
    script = "head -c 3000000 /dev/zero | tr '\\0' x; head -c 300000 /dev/zero | tr '\\0' y >&2"
    result = client.exec(box.id, ["/bin/sh", "-c", script])
    assert result.stdout == "x" * 3000000 and result.stderr == "y" * 300000


def test_exec_past_its_time_is_124_and_the_process_goes_on(client, box):
    script = "sleep 2; echo late > proof"
    result = client.exec(box.id, ["/bin/sh", "-c", script], timeout_seconds=1)
    assert result.exit_code == 124
    there = ["/bin/sh", "-c", "cat proof 2>/dev/null"]
    wait_until(lambda: client.exec(box.id, there).stdout == "late\n", 15, "the process went on")


def test_exec_cancelled_does_not_kill(client, box):
    stream = client.exec_stream(box.id, ["/bin/sh", "-c", "echo on; sleep 1; echo late > proof"])
    next(stream)
    stream.close()
    there = ["/bin/sh", "-c", "cat proof 2>/dev/null"]
    wait_until(lambda: client.exec(box.id, there).stdout == "late\n", 15, "the process went on")


def test_exec_when_the_sandbox_stops(client, box):
    stream = client.exec_stream(box.id, ["/bin/sh", "-c", "echo on; sleep 60"])
    next(stream)
    client.stop(box.name, workspace=WORKSPACE)
    refused(Code.UNAVAILABLE, list, stream)


def test_exec_limits(client, box):
    for command, more in (
        (["/bin/echo", "a\0b"], {}),
        (["/bin/echo"] * 1025, {}),
        (["/bin/echo", "x" * 32769], {}),
        (["/bin/echo"] + ["x" * 32000] * 9, {}),
        (["/bin/true"], {"env": {"OPENSHELL_X": ""}}),
        (["/bin/true"], {"env": {"X": "a\nb"}}),
        (["/bin/true"], {"workdir": "/" + "x" * 4096}),
    ):
        refused(Code.INVALID_ARGUMENT, client.exec, box.id, command, **more)


def test_exec_python_runs_a_function(client, box, gateway, monkeypatch):
    monkeypatch.setattr("openshell.sandbox._SANDBOX_PYTHON_BIN", gateway.python)
    result = client.exec_python(box.id, lambda a, b: a * b, args=(6,), kwargs={"b": 7})
    assert result == openshell.ExecResult(0, "42\n", "")


def interactive(client, box, *command, **more):
    start = pb.ExecSandboxRequest(sandbox_id=box.id, command=command, **more)
    pipe = Pipe(pb.ExecSandboxInput(start=start))
    return pipe, client._stub.ExecSandboxInteractive(pipe, timeout=30)


def read_to(stream, wanted: bytes) -> bytes:
    got = b""
    while wanted not in got:
        got += next(stream).stdout.data
    return got


def test_interactive_exec_without_a_terminal(client, box):
    pipe, stream = interactive(client, box, "/bin/sh", "-c", "read a; echo got $a; exit 3")
    pipe.put(pb.ExecSandboxInput(stdin=b"some\n"))
    assert read_to(stream, b"\n") == b"got some\n"
    assert [event.exit.exit_code for event in stream] == [3]
    pipe.end()


def test_interactive_exec_on_a_terminal(client, box):
    pipe, stream = interactive(
        client, box, "/bin/bash", "-c", "stty size; cat; stty size", tty=True, rows=11, cols=22
    )
    assert b"11 22\r\n" in read_to(stream, b"\n")
    pipe.put(pb.ExecSandboxInput(resize={"rows": 33, "cols": 44}))
    pipe.put(pb.ExecSandboxInput(stdin=b"\x04"))
    assert b"33 44\r\n" in read_to(stream, b"44")
    assert list(stream)[-1].exit.exit_code == 0
    pipe.end()


def test_interactive_exec_loses_the_status_at_half_close(client, box):
    pipe, stream = interactive(client, box, "/bin/sleep", "30")
    pipe.end()
    refused(Code.UNAVAILABLE, list, stream)
    first = iter([pb.ExecSandboxInput(stdin=b"x")])
    refused(Code.INVALID_ARGUMENT, client._stub.ExecSandboxInteractive, first, timeout=30)


# ---- sessions and forwards ------------------------------------------------------------------------------


def test_sessions_are_made_and_revoked(client, box):
    made = client._stub.CreateSshSession(pb.CreateSshSessionRequest(sandbox_id=box.id), timeout=30)
    assert made.sandbox_id == box.id and len(made.token) == 36 and made.expires_at_ms > 0
    assert made.gateway_scheme in ("http", "https") and 1 <= made.gateway_port <= 65535
    revoke = client._stub.RevokeSshSession
    for expected in (True, True):
        assert revoke(pb.RevokeSshSessionRequest(token=made.token), timeout=30).revoked is expected
    assert revoke(pb.RevokeSshSessionRequest(token="unknown"), timeout=30).revoked is False
    refused(Code.INVALID_ARGUMENT, revoke, pb.RevokeSshSessionRequest(), timeout=30)
    for bad, code in (("", Code.INVALID_ARGUMENT), (box.name, Code.NOT_FOUND)):
        request = pb.CreateSshSessionRequest(sandbox_id=bad)
        refused(code, client._stub.CreateSshSession, request, timeout=30)


def test_a_forward_carries_bytes_both_ways(client, echo):
    forward = Forward(client, echo, f" {session(client, echo)} ")
    assert forward.exchange(b"hello") == b"HELLO"
    big = b"abcdefgh" * 100000
    assert forward.exchange(big) == big.upper()
    assert forward.finish() == b"<eof>"
    assert forward.call.code() == Code.OK


def test_the_targets_end_is_not_passed_on_before_ours(client, echo, gateway):
    script = f"{gateway.python} -c 'import socket as s; o=s.create_server((\"127.0.0.1\", 7701))\n" + (
        "print(1, flush=True); o.accept()[0].sendall(b\"bye\")'"
    )
    command = ["/bin/sh", "-c", f"setsid {script} >/tmp/u2 2>&1 </dev/null & sleep 1"]
    assert client.exec(echo.id, command).exit_code == 0
    forward = Forward(client, echo, session(client, echo), 7701)
    assert next(forward.call).data == b"bye"
    ended = threading.Event()
    reader = threading.Thread(target=lambda: (list(forward.call), ended.set()))
    reader.start()
    assert not ended.wait(1.0), "the end came although the client had not closed"
    forward.pipe.end()
    assert ended.wait(10)
    reader.join()


def test_three_forwards_a_token_and_twenty_a_sandbox(client, echo):
    token = session(client, echo)
    held = [Forward(client, echo, token) for _ in range(3)]
    next_one = Forward(client, echo, token)
    refused(Code.RESOURCE_EXHAUSTED, list, next_one.call)
    tokens = [session(client, echo) for _ in range(6)]
    held += [Forward(client, echo, tokens[n // 3]) for n in range(17)]
    for one in held:
        one.call.initial_metadata()
    refused(Code.RESOURCE_EXHAUSTED, list, Forward(client, echo, tokens[5]).call)
    for one in held:
        one.pipe.end()
    for one in held:
        one.finish()
    assert Forward(client, echo, tokens[5]).exchange(b"x") == b"X"


def test_the_checks_of_a_forward(client, gateway, echo, settings_restored):
    token = session(client, echo)

    def check(code, *args, **more):
        refused(code, list, Forward(client, echo, *args, **more).call)

    check(Code.UNAUTHENTICATED, "nothing")
    check(Code.UNAUTHENTICATED, "")
    check(Code.INVALID_ARGUMENT, token, 0)
    check(Code.INVALID_ARGUMENT, token, 70000)
    for host in ("", "0.0.0.0", "10.0.0.1", "example.org", "::ffff:127.0.0.1"):
        check(Code.INVALID_ARGUMENT, token, host=host)
    for host in ("LOCALHOST", " 127.0.0.1 "):
        assert Forward(client, echo, token, host=host).exchange(b"a") == b"A"
    check(Code.UNAVAILABLE, session(client, echo), 7799)
    data_first = iter([frame(b"x")])
    refused(Code.INVALID_ARGUMENT, client._stub.ForwardTcp, data_first, timeout=30)
    no_target = pb.TcpForwardFrame(init={"sandbox_id": echo.id, "authorization_token": token})
    refused(Code.INVALID_ARGUMENT, client._stub.ForwardTcp, iter([no_target]), timeout=30)
    settings_restored(session_ttl=0.001)
    check(Code.UNAUTHENTICATED, session(client, echo))


def test_a_token_is_of_its_sandbox_and_ends_with_it(client, box):
    other = client.create(workspace=WORKSPACE, name=fresh_name())
    client.wait_ready(other.name, workspace=WORKSPACE)
    token = session(client, other)
    refused(Code.UNAUTHENTICATED, list, Forward(client, box, token).call)
    client.stop(other.name, workspace=WORKSPACE)
    refused(Code.FAILED_PRECONDITION, list, Forward(client, other, token).call)
    client.start(other.name, workspace=WORKSPACE)
    client.wait_ready(other.name, workspace=WORKSPACE)
    refused(Code.UNAUTHENTICATED, list, Forward(client, other, token).call)
    client.delete(other.name, workspace=WORKSPACE)


def test_a_revoked_token_cuts_nothing_that_runs(client, echo):
    token = session(client, echo)
    forward = Forward(client, echo, token)
    assert forward.exchange(b"a") == b"A"
    client._stub.RevokeSshSession(pb.RevokeSshSessionRequest(token=token), timeout=30)
    assert forward.exchange(b"b") == b"B"
    refused(Code.UNAUTHENTICATED, list, Forward(client, echo, token).call)
    forward.finish()


def test_a_stop_breaks_what_is_forwarded(client, echo):
    forward = Forward(client, echo, session(client, echo))
    assert forward.exchange(b"a") == b"A"
    client.stop(echo.name, workspace=WORKSPACE)
    refused(Code.UNAVAILABLE, list, forward.call)


def test_what_is_abandoned_gives_its_slot_back(client, gateway, echo):
    token = session(client, echo)
    for _ in range(5):
        forward = Forward(client, echo, token)
        assert forward.exchange(b"a") == b"A"
        forward.call.cancel()
        wait_until(
            lambda: gateway.sandboxes[echo.name]["forwards"] == 0, 10, "the slot is given back"
        )
