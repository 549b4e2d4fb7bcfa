"""The embedded sandbox under its supervisor, with the real daemon: readiness and isolation facts,
settings, crash of the daemon, crash of the server."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import httpx
import pytest
from harness import Program, descendants, wait_until
from shellctl_client import ShellctlClient


class Supervisor(Program):
    """The supervising process; `facts()` is what it said last of the sandbox."""

    def __init__(self, binary, folder, data_dir, settings):
        program = Path(os.environ["SANDBOX_SERVER"])
        super().__init__(program, folder, [str(binary), str(data_dir)], settings)

    def lines(self):
        return [json.loads(line) for line in self.output().splitlines() if line.startswith("{")]

    def facts(self):
        said = self.lines()
        return said[-1] if said else {"ready": False}

    def start(self):
        before = len(self.lines())
        self.launch()
        wait_until(
            lambda: len(self.lines()) > before and self.facts()["ready"],
            20,
            f"readiness: {self.output()[-3000:]}",
        )
        return self

    @property
    def socket(self) -> str:
        return [line for line in self.output().splitlines() if line.startswith("/")][-1]


@pytest.fixture
def supervisor(bindery, folder, programs):
    if "SANDBOX_SERVER" not in os.environ:
        pytest.skip("SANDBOX_SERVER does not name the test program")

    def make(settings=None, data_dir=None):
        one = Supervisor(
            bindery, folder / f"server{len(programs)}", data_dir or folder / "data", settings or {}
        )
        programs.append(one)
        return one

    return make


@contextlib.contextmanager
def sandbox(supervisor, scope=None):
    transport = httpx.HTTPTransport(uds=supervisor.socket)
    with httpx.Client(transport=transport, timeout=30) as http:
        yield ShellctlClient("http://sandbox", token="", client=http, headers=scope)


def new_scope(folder, name):
    scope = {}
    for kind in ("Home", "Workspace"):
        path = folder / f"{kind.lower()}-{name}"
        path.mkdir(mode=0o700, exist_ok=True)
        scope[f"X-Bindery-{kind}"] = str(path)
    return scope


def living() -> list[int]:
    """What runs below us; orphans that nobody has reaped yet do not."""
    found = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{pid}/stat").read_text()
            if stat[stat.rindex(")") + 2] != "Z":
                found.append(pid)
    return found


def daemons() -> list[int]:
    found = []
    for pid in living():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if words[1:3] == ["shellctl", "serve"]:
                found.append(pid)
    return found


def test_ready_with_its_facts_and_settings(supervisor, folder):
    one = supervisor(settings={"BINDERY_JOB_MAX_RUNNING": "1", "DIFY_AGENT_API_TOKEN": "hush-hush"})
    one.start()
    facts = one.facts()
    assert facts["restarts"] == 0 and facts["child"]["isolation"]
    assert daemons() == [facts["pid"]]
    environ = Path(f"/proc/{facts['pid']}/environ").read_text()
    assert "hush-hush" not in environ
    assert "hush-hush" not in Path(f"/proc/{facts['pid']}/cmdline").read_text()
    assert Path(one.socket).parent.stat().st_mode & 0o777 == 0o700
    with sandbox(one) as control:
        job = control.run("sleep 300", timeout=0.2).job_id
        with pytest.raises(Exception, match="overloaded"):
            control.run("true")
        control.delete(job, force=True, grace_seconds=0)
    one.stop()
    assert daemons() == [] and not Path(one.socket).exists()


def test_the_daemon_comes_back_and_its_jobs_are_still_there(supervisor):
    one = supervisor().start()
    with sandbox(one) as control:
        job = control.run("read x; exit 6", timeout=0.3).job_id
    os.kill(one.facts()["pid"], signal.SIGKILL)
    wait_until(lambda: one.facts().get("restarts") == 1 and one.facts()["ready"], 20, "a restart")
    with sandbox(one) as control:
        end, _ = control.finish(control.input(job, "\n"))
        assert end.exit_code == 6
        control.delete(job)


def test_a_daemon_that_refuses_to_start_is_tried_again(supervisor):
    """Here: its state folder cannot be used."""
    one = supervisor()
    Path(one.args[1]).mkdir()
    (Path(one.args[1]) / "sandbox").mkdir()
    (Path(one.args[1]) / "sandbox/jobs").write_text("in the way")
    one.launch()
    wait_until(lambda: one.output().count("cannot start") >= 2, 20, "attempts")
    assert not one.facts()["ready"]
    (Path(one.args[1]) / "sandbox/jobs").unlink()
    wait_until(lambda: one.facts()["ready"], 30, "recovery")
    one.stop()


def test_a_killed_server_leaves_no_daemon_and_loses_no_job(supervisor, folder):
    """Case A60: ten bindings with running jobs; kill -9; ten seconds after the next start each job
    is adopted and nothing else runs."""
    first = supervisor().start()
    jobs = {}
    for i in range(10):
        scope = new_scope(folder, str(i))
        with sandbox(first, scope) as binding:
            jobs[i] = (scope, binding.run(f"read x; echo got $x; exit {i}", timeout=0.3).job_id)
    first.kill()
    wait_until(lambda: daemons() == [], 5, "the daemon's end")
    second = supervisor()
    begun = time.monotonic()
    second.start()
    for i, (scope, job) in jobs.items():
        with sandbox(second, scope) as binding:
            assert binding.status(job).status == "running"
            answer = binding.input(job, "news\n", timeout=10)
            end, _ = binding.finish(answer)
            assert (end.status, end.exit_code) == ("exited", i)
            assert binding.tail(job).output.endswith("got news\n")
            binding.delete(job)
    assert time.monotonic() - begun < 30
    wait_until(
        lambda: sorted(living()) == sorted([second.pid, second.facts()["pid"]]),
        10,
        "no process but the server and its daemon",
    )
    second.stop()


def test_jobs_of_a_server_that_is_killed_with_its_runners_are_lost(supervisor, folder):
    first = supervisor().start()
    scope = new_scope(folder, "x")
    with sandbox(first, scope) as binding:
        job = binding.run("sleep 300", timeout=0.3).job_id
        binding.wait(job, timeout=0.2)
    pids = descendants(os.getpid())
    first.kill()
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    second = supervisor().start()
    with sandbox(second, scope) as binding:
        wait_until(lambda: binding.status(job).done, 10, "the loss to be seen")
        view = binding.status(job)
        assert (view.status, view.exit_code) == ("lost", None)
        assert binding.run("echo next").output == "next\n"
    second.stop()
