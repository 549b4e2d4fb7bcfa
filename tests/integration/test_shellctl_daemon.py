"""Daemons of a test's own: settings, collection, crash and restart, and the scopes of bindings."""

import os
import signal
import subprocess
import time

import harness
import pytest
from harness import wait_until
from shellctl_client import ShellctlClient, client_of, fails

STDIO = {"mode": "stdio"}


def is_running(pid: int) -> bool:
    try:
        stat = open(f"/proc/{pid}/stat").read()
    except FileNotFoundError:
        return False
    return stat[stat.rindex(")") + 2] != "Z"


# ---- settings ---------------------------------------------------------------------------------


def test_without_a_token_nothing_is_asked_for(daemon):
    process = daemon(token="")
    with ShellctlClient(process.url, token="") as client:
        assert client.list() == []


def test_output_beyond_the_limit_is_dropped_and_the_job_goes_on(daemon):
    process = daemon(settings={"BINDERY_JOB_MAX_OUTPUT_MIB": "1"})
    with client_of(process) as client:
        job = client.run("head -c 5000000 /dev/zero | tr '\\0' x; exit 3", **STDIO).job_id
        wait_until(lambda: client.status(job).done, 30, "the end")
        view = client.status(job)
        assert view.exit_code == 3 and view.offset <= 1_100_000


# ---- what jobs see ----------------------------------------------------------------------------------------


def test_the_state_folder_is_hidden_from_jobs(daemon):
    """Its usual place is inside HOME, which jobs without a scope may write to."""
    process = daemon()
    process.stop()
    process.args = ["shellctl", "serve", "--listen", process.listen]
    process.start()
    if "no bubblewrap" in process.output():
        assert "jobs can reach the state folder" in process.output()
        pytest.skip("no mount namespace here: the daemon said that the folder cannot be hidden")
    with client_of(process) as client:
        result = client.run("touch mine && ls ~/.local/share/shellctl; echo $?")
        assert result.output == "0\n"
        result = client.run("touch ~/.local/share/shellctl/x || echo refused")
        assert result.output.endswith("refused\n")
    assert (process.folder / "mine").exists()
    assert (process.folder / ".local/share/shellctl/jobs").is_dir()


def test_only_a_private_daemon_runs_jobs_unconfined(daemon, folder):
    """One address that is no unix socket, and jobs without a scope are isolated."""
    outside = folder / "outside"  # inside, a private /tmp may hold a folder of this name
    port = harness.free_port()
    mixed = daemon(
        listen=f"127.0.0.1:{port}", args=("--listen", f"unix:{folder}/a,127.0.0.1:{port}")
    )
    with client_of(mixed) as client:
        client.run(f"touch {outside}")
    assert not outside.exists()
    private = daemon(listen=f"unix:{folder}/b")
    with private.new_client() as http:
        client = ShellctlClient("http://x", token=private.token, client=http)
        assert client.run(f"touch {outside}").exit_code == 0
    assert outside.exists()


# ---- collection ------------------------------------------------------------------------------------


def test_ended_jobs_are_collected_live_ones_are_not(daemon):
    settings = {"BINDERY_JOB_GC_SECONDS": "0.2", "BINDERY_JOB_RETENTION_SECONDS": "1"}
    process = daemon(settings=settings)
    with client_of(process) as client:
        live = client.run("sleep 300", timeout=0.2).job_id
        ended = client.run("echo still here").job_id
        assert client.tail(ended).output == "still here\n"
        wait_until(lambda: len(client.list()) == 1, 20, "collection of the ended job")
        with fails(404, "job_not_found"):
            client.wait(ended)
        assert not client.status(live).done
        client.delete(live, force=True, grace_seconds=0)


# ---- disk full -------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(folder):
    """A file system of 2 MB."""
    path = folder / "disk"
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "bindery", path]).returncode != 0:
        pytest.skip("may not mount")
    path.chmod(0o755)
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def test_a_full_disk_is_said_and_survived(daemon, small_disk):
    process = daemon(state_dir=small_disk / "state")
    with client_of(process) as client:
        loud = client.run("head -c 4000000 /dev/zero; exit 7", timeout=20, **STDIO).job_id
        wait_until(lambda: client.status(loud).done, 20, "the end of a job whose output found no room")
        assert client.status(loud).exit_code == 7, "what it wrote was read on, and its end recorded"
        with fails(500, "internal_error"):
            client.run("true")
        assert [job.job_id for job in client.list()] == [loud], "nothing half-made is left"
        client.delete(loud)
        assert client.run("echo again").output == "again\n"


# ---- restart, crash: case A60 ----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_jobs_outlive_the_daemon(daemon, how):
    process = daemon()
    with client_of(process) as client:
        done = client.run("echo before; exit 5").job_id
        job = client.run("echo one; read x; echo got $x; exit 9", timeout=20)
    getattr(process, how)()
    process.start()
    with client_of(process) as client:
        old = client.status(done)
        assert (old.status, old.exit_code) == ("exited", 5)
        assert client.tail(done).output == "before\n"
        assert client.status(job.job_id).status == "running"
        assert [info.job_id for info in client.list()] == [job.job_id, done]
        answer = client.input(job.job_id, "two\n", offset=job.offset, timeout=20)
        end, _ = client.finish(answer)
        assert (end.status, end.exit_code) == ("exited", 9)
        assert client.tail(job.job_id).output.endswith("got two\n")


def test_jobs_that_end_while_the_daemon_is_down(daemon):
    process = daemon()
    with client_of(process) as client:
        job = client.run("sleep 1; echo late; exit 4", timeout=0.2).job_id
        created = client.status(job).created_at
    process.kill()
    time.sleep(2.5)
    process.start()
    with client_of(process) as client:
        view = client.status(job)
        assert (view.status, view.exit_code, view.created_at) == ("exited", 4, created)
        assert client.tail(job).output == "late\n"


def runner_of(process, job: str) -> int:
    text = (process.folder / "state/jobs" / job / "runner.pid").read_text()
    for word in text.replace(",", " ").replace(":", " ").replace('"', " ").split():
        if word.isdigit():
            return int(word)
    raise AssertionError(text)


def test_a_killed_runner_is_a_lost_job_without_an_exit_code(daemon):
    process = daemon()
    with client_of(process) as client:
        job = client.run("echo up; sleep 300", timeout=20).job_id
        os.kill(runner_of(process, job), signal.SIGKILL)
        wait_until(lambda: client.status(job).done, 15, "the loss to be seen")
        view = client.status(job)
        assert (view.status, view.exit_code) == ("lost", None)
        assert client.tail(job).output == "up\n"
    process.restart()
    with client_of(process) as client:
        assert client.status(job) == view, "the record outlives a restart"
        client.delete(job)


def test_a_runner_killed_while_the_daemon_is_down(daemon):
    process = daemon()
    with client_of(process) as client:
        job = client.run("sleep 305", timeout=0.3).job_id
        wait_until(lambda: client.status(job).status == "running", 10, "its start")
    process.kill()
    os.kill(runner_of(process, job), signal.SIGKILL)
    process.start()
    with client_of(process) as client:
        wait_until(lambda: client.status(job).done, 15, "the loss to be seen")
        assert client.status(job).status == "lost"


def test_a_pid_that_belongs_to_another_is_left_alone(daemon):
    """Case A60: a forged record must not get a stranger killed."""
    process = daemon()
    with client_of(process) as client:
        job = client.run("sleep 305", timeout=0.3).job_id
        wait_until(lambda: client.status(job).status == "running", 10, "its start")
    process.kill()
    runner = runner_of(process, job)
    os.kill(runner, signal.SIGKILL)
    record = process.folder / "state/jobs" / job / "runner.pid"
    stranger = os.fork()
    if stranger == 0:
        time.sleep(60)
        os._exit(0)
    try:
        record.write_text(record.read_text().replace(str(runner), str(stranger), 1))
        process.start()
        with client_of(process) as client:
            wait_until(lambda: client.status(job).done, 20, "the job to be settled")
            assert client.status(job).status == "lost"
            client.delete(job, force=True)
        assert is_running(stranger)
    finally:
        os.kill(stranger, signal.SIGKILL)
        os.waitpid(stranger, 0)


def test_half_made_folders_are_settled_at_start(daemon):
    process = daemon()
    process.stop()
    jobs = process.folder / "state/jobs"
    (jobs / "00000000000000aa").mkdir()
    (jobs / "00000000000000aa/script").write_text("true")
    (jobs / "not-a-job").mkdir()
    process.start()
    with client_of(process) as client:
        assert client.list() == []
    assert not (jobs / "00000000000000aa").exists()
    assert (jobs / "not-a-job").exists(), "what is not ours stays"


def test_two_daemons_on_one_state_folder(daemon, bindery):
    process = daemon()
    second = daemon(state_dir=process.folder / "state", start=False)
    second.launch()
    assert second.wait(30) == 78
    assert "another daemon uses" in second.output()
    second.process = None
    assert process.is_healthy()


# ---- scope ----------------------------------------------------------------------------------------


@pytest.fixture
def places(folder):
    """Homes and Workspaces of two bindings."""

    def make(name):
        home, workspace = folder / f"home-{name}", folder / f"work-{name}"
        for path in (home, workspace):
            path.mkdir(mode=0o700)
        return {"X-Bindery-Home": str(home), "X-Bindery-Workspace": str(workspace)}

    return make


def test_a_scoped_job_lives_in_its_two_folders(daemon, folder, places):
    process = daemon(listen=f"unix:{folder}/s")
    http = process.new_client(headers={})
    scope = places("a")
    client = ShellctlClient("http://x", token=process.token, client=http, headers=scope)
    home, workspace = scope["X-Bindery-Home"], scope["X-Bindery-Workspace"]
    assert client.run("pwd; echo $HOME").output == f"{workspace}\n{home}\n"
    assert client.run("pwd", cwd=home).output == f"{home}\n"
    assert client.run("echo $HOME", env={"HOME": "/tmp"}).output == f"{home}\n"
    assert client.run("mkdir sub").exit_code == 0
    assert client.run("pwd", cwd="sub").output == f"{workspace}/sub\n"
    for outside in ("/", "/tmp", f"{workspace}/..", "../..", f"{home}/../home-b"):
        with fails(400, "invalid_cwd"):
            client.run("pwd", cwd=outside)
    os.symlink("/etc", f"{workspace}/escape")
    with fails(400, "invalid_cwd"):
        client.run("pwd", cwd=f"{workspace}/escape")
    http.close()


def test_scopes_do_not_see_each_other(daemon, folder, places):
    process = daemon(listen=f"unix:{folder}/s")
    http = process.new_client(headers={})
    a, b = (
        ShellctlClient("http://x", token=process.token, client=http, headers=places(name))
        for name in "ab"
    )
    control = ShellctlClient("http://x", token=process.token, client=http)
    job = a.run("sleep 300", timeout=0.2).job_id
    mine = control.run("true").job_id
    for other in (b, control):
        for call in (other.status, other.wait, other.tail, other.terminate, other.delete):
            with fails(404, "job_not_found"):
                call(job)
        with fails(404, "job_not_found"):
            other.input(job, "x")
    with fails(404, "job_not_found"):
        a.status(mine)
    assert [info.job_id for info in a.list()] == [job]
    assert b.list() == [] and [info.job_id for info in control.list()] == [mine]
    process.restart()
    http = process.new_client(headers={})
    a = ShellctlClient("http://x", token=process.token, client=http, headers=a._routing)
    assert [info.job_id for info in a.list()] == [job], "known after a restart"
    a.delete(job, force=True, grace_seconds=0)
    http.close()


def test_a_sandbox_that_is_gone_is_said_and_nothing_is_made(daemon, folder, places):
    process = daemon(listen=f"unix:{folder}/s")
    http = process.new_client(headers={})
    for missing in ("X-Bindery-Home", "X-Bindery-Workspace"):
        scope = places(missing[-4:])
        client = ShellctlClient("http://x", token=process.token, client=http, headers=scope)
        job = client.run("sleep 300", timeout=0.2).job_id
        os.rename(scope[missing], scope[missing] + ".gone")
        with fails(404, "sandbox_not_found"):
            client.run("true")
        with fails(404, "sandbox_not_found"):
            client.run("true", cwd=scope["X-Bindery-Home"])
        with fails(404, "sandbox_not_found"):
            client.status(job)
        with fails(404, "sandbox_not_found"):
            client.list()
        assert not os.path.exists(scope[missing])
        client.delete(job, force=True, grace_seconds=0)
    http.close()


# ---- load ------------------------------------------------------------------------------------------


def test_more_jobs_than_allowed_are_refused(daemon):
    process = daemon(settings={"BINDERY_JOB_MAX_RUNNING": "2"})
    with client_of(process) as client:
        jobs = [client.run("sleep 300", timeout=0.1).job_id for _ in range(2)]
        with fails(503, "overloaded"):
            client.run("true")
        client.delete(jobs[0], force=True, grace_seconds=0)
        assert client.run("true").exit_code == 0
        client.delete(jobs[1], force=True, grace_seconds=0)
