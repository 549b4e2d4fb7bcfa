"""What becomes of the embedded sandbox's processes when the product's own die, or time runs out."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from dify_client import DifyAgentClient
from harness import descendants, wait_until
from served import TOKEN, lease_of, new_server
from shellctl_client import client_of


def running() -> dict[int, str]:
    """Command lines of what runs below us."""
    found = {}
    for pid in descendants(os.getpid()):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if line:  # a zombie has none
            found[pid] = line
    return found


@pytest.fixture
def served(bindery, folder, programs):
    """Servers of one data folder, for tests that kill them."""

    def make():
        server = new_server(bindery, folder / f"s{len(programs)}", folder / "data")
        programs.append(server)
        return server.start().wait_ready()

    return make


def test_a_killed_server_loses_no_job(served):
    """Case A60: ten bindings with running jobs, kill -9, start: after ten seconds each is adopted,
    and nothing runs but the server, its daemon and the jobs."""
    first = served()
    jobs = []
    with contextlib.closing(DifyAgentClient(first.url, TOKEN)) as plane:
        for i in range(10):
            made = plane.create(binding_id=f"b{i}", workspace_id=f"w{i}")
            with client_of(lease_of(first, made.binding_ref)) as shell:
                jobs.append((made, shell.run(f"read x; exit {i}", timeout=0.3).job_id))
    first.kill()
    wait_until(
        lambda: not any("shellctl serve" in line for line in running().values()), 5, "its daemon's end"
    )
    begun = time.monotonic()
    second = served()
    for i, (made, job) in enumerate(jobs):
        with client_of(lease_of(second, made.binding_ref)) as shell:
            assert shell.status(job).status == "running"
            end, _ = shell.finish(shell.input(job, "go\n"))
            assert (end.status, end.exit_code) == ("exited", i)
            assert shell.run("echo works").output == "works\n"
    assert time.monotonic() - begun < 40, "ten seconds, with room for a busy machine"
    wait_until(lambda: len(running()) == 2, 10, f"two processes: {running()}")


def test_a_pid_of_another_is_not_signalled_by_the_server(served, folder):
    """Case A60: the record of a running job names a stranger when the server comes back."""
    first = served()
    with contextlib.closing(DifyAgentClient(first.url, TOKEN)) as plane:
        made = plane.create()
        with client_of(lease_of(first, made.binding_ref)) as shell:
            job = shell.run("sleep 300", timeout=0.5).job_id
    first.kill()
    record = next((folder / "data").rglob(f"jobs/{job}/runner.pid"))
    runner = int("".join(c if c.isdigit() else " " for c in record.read_text()).split()[0])
    os.kill(runner, signal.SIGKILL)
    stranger = subprocess.Popen(["sleep", "60"])
    record.write_text(record.read_text().replace(str(runner), str(stranger.pid), 1))
    second = served()
    with client_of(lease_of(second, made.binding_ref)) as shell:
        wait_until(lambda: shell.status(job).done, 15, "the job to be settled")
        assert shell.status(job).status == "lost"
        shell.delete(job, force=True)
    assert stranger.poll() is None, "it was signalled"
    stranger.kill()
    stranger.wait()


def has_restarted(server) -> bool:
    """The server is ready with a second daemon; it may not have noticed the end of the first yet."""
    answer = server.http.get("/readyz")
    return answer.status_code == 200 and '"restarts":1' in answer.text


def test_a_daemon_that_dies_mid_job_comes_back_with_it(served):
    server = served()
    with contextlib.closing(DifyAgentClient(server.url, TOKEN)) as plane:
        made = plane.create()
    lease = lease_of(server, made.binding_ref)
    with client_of(lease) as shell:
        job = shell.run("read x; echo got $x; exit 8", timeout=0.3)
        daemon = next(pid for pid, line in running().items() if "shellctl serve" in line)
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: has_restarted(server), 20, "another daemon")
        end, output = shell.finish(shell.input(job.job_id, "it\n", offset=job.offset))
        assert end.exit_code == 8 and output.endswith("got it\n")


def test_a_command_that_runs_out_of_time_leaves_no_process(served):
    """Case A52: descendants that left the session too."""
    server = served()
    with contextlib.closing(DifyAgentClient(server.url, TOKEN)) as plane:
        made = plane.create()
    lease = lease_of(server, made.binding_ref)
    script = "setsid sleep 301 & sleep 302 & sleep 303"
    answer = server.http.post(
        f"/v1/leases/{lease.id}/commands", json={"script": script, "timeout_seconds": 1}
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] != "exited" and answer.json()["exit_code"] is None
    wait_until(lambda: not any("sleep 30" in line for line in running().values()), 5, "their end")
    wait_until(lambda: len(running()) == 2, 5, f"two processes: {running()}")
