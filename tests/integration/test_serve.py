"""`bindery serve` as a process: settings, data folder, start, restart, drain, disconnects."""

import concurrent.futures
import os
import signal
import socket
import subprocess
import threading
import time

import harness
import httpx
import pytest
from dify_client import DifyAgentClient
from shellctl_client import ShellctlClient


def serve(bindery, folder, *args, **env):
    settings = {"BINDERY_DATA_DIR": str(folder / "data"), "HOME": str(folder), "PATH": os.environ["PATH"]}
    settings["BINDERY_LISTEN"] = f"127.0.0.1:{harness.free_port()}"
    return subprocess.run(
        [bindery, "serve", *args], capture_output=True, text=True, timeout=30, cwd=folder, env=settings | env
    )


def test_print_config_hides_secrets(bindery, folder):
    done = serve(bindery, folder, "--print-config", DIFY_AGENT_API_TOKEN="hush-hush", BINDERY_LEASE_TTL_SECONDS="7")
    assert done.returncode == 0
    assert "BINDERY_LEASE_TTL_SECONDS=7" in done.stdout
    assert "DIFY_AGENT_API_TOKEN=***" in done.stdout and "hush-hush" not in done.stdout + done.stderr
    assert not (folder / "data").exists()


def test_all_problems_of_the_settings_at_once(bindery, folder):
    done = serve(
        bindery, folder, BINDERY_LISTEN="nonsense", BINDERY_LEASE_SECRET="short", BINDERY_LEASE_TTL_SECONDS="-1"
    )
    assert done.returncode == 78
    for name in ("BINDERY_LISTEN", "BINDERY_LEASE_SECRET", "BINDERY_LEASE_TTL_SECONDS"):
        assert name in done.stderr
    assert "short\n" not in done.stderr
    assert serve(bindery, folder, "--nonsense").returncode == 64


def test_a_port_in_use_is_said(bindery, folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        done = serve(bindery, folder, BINDERY_LISTEN=listen)
    assert done.returncode == 69
    assert listen in done.stderr and "in use" in done.stderr.lower()


def test_an_unusable_data_folder_is_said(bindery, folder):
    (folder / "file").write_text("")
    done = serve(bindery, folder, BINDERY_DATA_DIR=str(folder / "file" / "data"))
    assert done.returncode == 78
    assert "BINDERY_DATA_DIR" in done.stderr and "file" in done.stderr


def test_two_servers_on_one_data_folder(server, bindery, folder):
    one = server(data_dir=folder / "data")
    done = serve(bindery, folder, BINDERY_DATA_DIR=str(folder / "data"))
    assert done.returncode == 69
    assert "in use by another server" in done.stderr and str(one.pid) in done.stderr
    assert one.is_ready()


def test_a_damaged_lease_secret_is_said(bindery, folder):
    (folder / "data").mkdir()
    (folder / "data" / "lease-secret").write_text("half")
    done = serve(bindery, folder)
    assert done.returncode == 78 and "lease-secret" in done.stderr


@pytest.fixture
def plane(server):
    one = server(token="t")
    client = DifyAgentClient(one.url, "t")
    client.server = one
    yield client
    client.close()


def lease_of(plane, ref):
    answer = plane.server.http.post("/v1/leases", json={"binding_ref": ref})
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_the_real_client_works_through_a_lease(plane):
    """Every call of the strict shellctl client, through the data plane."""
    made = plane.create()
    lease = lease_of(plane, made.binding_ref)
    with ShellctlClient(lease["shellctl"]["base_url"], lease["shellctl"]["token"]) as shell:
        assert shell.health().status == "ok"
        result, output = shell.run_to_end("echo $PWD; echo $HOME; exit 3")
        assert result.exit_code == 3
        assert output.split() == [lease["layout"]["workspace_dir"], lease["layout"]["home_dir"]]
        job = shell.run("read line; echo got $line; sleep 60", timeout=1.0)
        assert not job.done
        answer = shell.input(job.job_id, "hello\n", offset=job.offset, timeout=5.0)
        assert "got hello" in answer.output
        assert shell.status(job.job_id).status == "running"
        assert job.job_id in [info.job_id for info in shell.list()]
        assert "got hello" in shell.tail(job.job_id).output
        assert shell.terminate(job.job_id, 1.0).status == "terminated"
        assert shell.delete(job.job_id, force=True).deleted
    plane.destroy(made.binding_ref, True, made.workspace_ref)


def test_a_lease_reaches_its_own_binding_only(plane):
    one = plane.create(binding_id="one", workspace_id="one-w")
    two = plane.create(binding_id="two", workspace_id="two-w")
    first, second = lease_of(plane, one.binding_ref), lease_of(plane, two.binding_ref)
    with ShellctlClient(first["shellctl"]["base_url"], first["shellctl"]["token"]) as shell:
        shell.run_to_end("echo secret > file")
        mine = shell.run("sleep 60", timeout=0.5)
        with ShellctlClient(second["shellctl"]["base_url"], second["shellctl"]["token"]) as other:
            assert mine.job_id not in [info.job_id for info in other.list()]
            got, output = other.run_to_end(f"cat {first['layout']['workspace_dir']}/file; true")
            assert "secret" not in output
            answer = other.request("GET", f"/v1/jobs/{mine.job_id}")
            assert answer.status_code == 404
        shell.delete(mine.job_id, force=True, grace_seconds=0)


def test_a_large_output_arrives_whole(plane):
    """Hash-checked through lease, proxy and sandbox, window by window."""
    made = plane.create()
    lease = lease_of(plane, made.binding_ref)
    size = 64 << 20
    with ShellctlClient(lease["shellctl"]["base_url"], lease["shellctl"]["token"], output_limit=1 << 20) as shell:
        script = f"head -c {size} /dev/zero | tr '\\0' y"
        result, output = shell.run_to_end(script, mode="stdio", timeout=120.0)
        assert result.exit_code == 0 and len(output) == size and output.count("y") == size
        shell.delete(result.job_id, force=True)


def test_state_outlives_a_restart(plane):
    made = plane.create()
    lease = lease_of(plane, made.binding_ref)
    with ShellctlClient(lease["shellctl"]["base_url"], lease["shellctl"]["token"]) as shell:
        shell.run_to_end("echo kept > file")
        job = shell.run("sleep 3; echo late", timeout=0.5)
        plane.server.restart().wait_ready()
        result, output = shell.finish(shell.wait(job.job_id, timeout=10.0))
        assert output.strip() == "late" and result.exit_code == 0
        assert shell.run_to_end("cat file")[1].strip() == "kept"


def test_a_vanished_workspace_is_lost_and_not_made_again(plane, folder):
    made = plane.create()
    lease = lease_of(plane, made.binding_ref)
    workspace = lease["layout"]["workspace_dir"]
    os.rename(workspace, workspace + ".gone")
    answer = plane.server.http.post("/v1/leases", json={"binding_ref": made.binding_ref})
    assert answer.status_code == 404 and answer.json()["detail"]["code"] == "binding_lost"
    assert not os.path.exists(workspace)
    answer = plane.server.http.get(f"/v1/leases/{lease['lease_id']}")
    assert answer.status_code == 404 and answer.json()["detail"]["code"] == "binding_lost"
    assert plane.server.http.delete(f"/v1/leases/{lease['lease_id']}").status_code == 204


def test_the_same_ids_again_right_after_destroy(plane):
    """A31: destroy answers when the names are free."""
    for round_number in range(15):
        made = plane.create(binding_id="again", workspace_id="again-w")
        lease = lease_of(plane, made.binding_ref)
        path = f"/v1/leases/{lease['lease_id']}"
        command = plane.server.http.post(f"{path}/commands", json={"script": "ls; echo > file"}).json()
        assert (command["status"], command["output"]) == ("exited", ""), round_number
        if round_number % 2:
            assert plane.server.http.delete(path).status_code == 204
        plane.destroy(made.binding_ref, True, made.workspace_ref)
        assert plane.server.http.get(path).status_code == 410


def test_clients_that_leave_during_create_leave_nothing(plane):
    """A05: what is made for nobody is removed again."""
    host, _, port = plane.server.listen.rpartition(":")
    homes = plane.server.folder / "data/sandbox/homes"
    for index in range(20):
        body = (
            b'{"tenant_id":"t","agent_id":"a","binding_id":"gone%d","workspace_id":"gone%d"}' % (index, index)
        )
        connection = socket.create_connection((host, int(port)))
        connection.sendall(
            b"POST /execution-bindings HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body
        )
        time.sleep(0.004 * index)
        if index % 2:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()

    def left():
        folders = [home / name for home in (homes, homes.parent / "workspaces") for name in os.listdir(home)]
        return [path for path in folders if path.name.startswith("gone")]

    answered = sum(
        "path=/execution-bindings status=201" in line for line in plane.server.output().splitlines()
    )
    harness.wait_until(lambda: len(left()) <= 2 * answered, 20, f"removal of {left()}")


def test_sigterm_finishes_what_runs_and_refuses_the_rest(plane):
    """A55"""
    made = plane.create()
    lease = lease_of(plane, made.binding_ref)
    url = f"{plane.server.url}/v1/leases/{lease['lease_id']}/commands"
    headers = {"Authorization": "Bearer t"}
    idle = httpx.Client(headers=headers)
    assert idle.get(f"{plane.server.url}/readyz").status_code == 200
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(httpx.post, url, json={"script": "sleep 2; echo done"}, headers=headers, timeout=30)
        time.sleep(1)
        os.kill(plane.server.pid, signal.SIGTERM)
        time.sleep(0.3)
        try:
            refused = idle.post(f"{plane.server.url}/execution-bindings", json={})
            assert refused.status_code == 503 and refused.headers["connection"] == "close"
        except httpx.TransportError:
            pass  # closed or no longer accepting: as good
        assert running.result(20).json()["output"].strip() == "done"
    assert plane.server.wait(20) == 0
    idle.close()


def test_a_drain_deadline_cuts_what_does_not_end(server):
    one = server(settings={"BINDERY_DRAIN_SECONDS": "1"})
    made = one.http.post(
        "/execution-bindings", json={"tenant_id": "t", "agent_id": "a", "binding_id": "b", "workspace_id": "w"}
    ).json()
    lease = one.http.post("/v1/leases", json={"binding_ref": made["binding_ref"]}).json()
    url = f"{one.url}/v1/leases/{lease['lease_id']}/commands"
    answers = []

    def command():
        try:
            answers.append(httpx.post(url, json={"script": "sleep 60"}, timeout=30).status_code)
        except httpx.TransportError:
            answers.append(None)

    thread = threading.Thread(target=command)
    thread.start()
    time.sleep(1)
    one.stop()
    thread.join(10)
    assert answers and answers[0] in (503, None)


def test_a_second_signal_hurries(server):
    one = server(settings={"BINDERY_DRAIN_GRACE_MS": "60000"})
    os.kill(one.pid, signal.SIGTERM)
    time.sleep(0.3)
    assert one.http.get("/readyz").status_code == 503
    assert one.http.get("/healthz").status_code == 200
    os.kill(one.pid, signal.SIGTERM)
    assert one.wait(15) == 0


def test_unix_socket_and_two_listeners(server, folder):
    listen = f"unix:{folder}/s"
    one = server(listen=listen)
    assert one.http.get("/healthz").json() == {"status": "ok"}


def test_no_backend_is_503_before_the_fields(server):
    one = server(settings={"DIFY_AGENT_LOCAL_SANDBOX_ENDPOINT": ""}, ready=False)
    assert one.http.get("/readyz").status_code == 503
    for path in ("/execution-bindings", "/execution-bindings/destroy", "/home-snapshots/from-binding",
                 "/home-snapshots/delete", "/execution-bindings/files/list", "/execution-bindings/files/read",
                 "/execution-bindings/files/download", "/v1/leases"):  # fmt: skip
        answer = one.http.post(path, json={})
        assert answer.status_code == 503, path
        assert answer.json()["detail"]["code"] == "runtime_backend_unavailable"
    assert one.http.post("/execution-bindings", content=b"{").status_code == 422
    assert one.http.get("/healthz").json() == {"status": "ok"}
