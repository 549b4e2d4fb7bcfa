"""Fixtures of the integration tests: where the program is, and factories that start it.

    def test_something(server):
        one = server(settings={"BINDERY_LEASE_TTL_SECONDS": "5"})
        assert one.http.get("/healthz").status_code == 200

Every program started through a factory is stopped at the end of the test, must then exit with
status 0, and its output is shown when the test fails.
"""

import os
import secrets
import shutil
import tempfile
from pathlib import Path

import pytest

import harness
from postgres import Postgres


def pytest_configure():
    harness.become_subreaper()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        for program in getattr(item, "started_programs", []):
            report.sections.append((f"{program.args} {program.log_path}", program.output()[-8000:]))
    return report


@pytest.fixture(scope="session")
def bindery() -> Path:
    """The program under test: BINDERY_BIN, or the newest usual build."""
    top = Path(__file__).resolve().parents[2]
    usual = [top / "build/dev/bindery", top / "build/release/bindery"]
    given = [Path(os.environ["BINDERY_BIN"])] if "BINDERY_BIN" in os.environ else usual
    for path in given:
        if path.is_file():
            return path
    raise pytest.UsageError(f"no program at {given}: build it, or set BINDERY_BIN")


@pytest.fixture
def folder() -> Path:
    """A folder of the test's own, with a path short enough for unix sockets and open to job users."""
    path = Path(tempfile.mkdtemp(prefix="bindery-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def programs(request, folder):
    """What the factories started: stopped in reverse order; nothing outlives the test."""
    started: list[harness.Program] = []
    request.node.started_programs = started
    problems: list[str] = []
    yield started
    for program in reversed(started):
        try:
            program.stop()
        except AssertionError as error:
            problems.append(str(error))
            program.kill()
    harness.kill_descendants()
    assert not problems, "\n".join(problems)


@pytest.fixture
def server(bindery, folder, programs):
    """Factory of `bindery serve`. `settings`: environment; `listen`: None for a free loopback port,
    or a BINDERY_LISTEN; `data_dir`: to share or reuse one; `start=False` returns it unstarted;
    `ready=False` does not wait for /readyz."""

    def make(
        settings=None, listen=None, data_dir=None, token=None, args=(), start=True, ready=True
    ) -> harness.Server:
        home = folder / f"server{len(programs)}"
        listen = listen or f"127.0.0.1:{harness.free_port()}"
        env = {"BINDERY_LISTEN": listen, "BINDERY_DATA_DIR": str(data_dir or home / "data")}
        if token:
            env["DIFY_AGENT_API_TOKEN"] = token
        env |= settings or {}
        one = harness.Server(bindery, home, ["serve", *args], env, listen, token)
        programs.append(one)
        if start:
            one.start()
            if ready:
                one.wait_ready()
        return one

    return make


@pytest.fixture
def daemon(bindery, folder, programs):
    """Factory of `bindery shellctl serve`, on a free loopback port, with a random token."""

    def make(
        settings=None, listen=None, state_dir=None, token=None, args=(), start=True
    ) -> harness.Daemon:
        home = folder / f"daemon{len(programs)}"
        listen = listen or f"127.0.0.1:{harness.free_port()}"
        token = secrets.token_hex(16) if token is None else token
        env = {"SHELLCTL_AUTH_TOKEN": token, **(settings or {})}
        argv = ["shellctl", "serve", "--listen", listen]
        argv += ["--state-dir", str(state_dir or home / "state"), *args]
        one = harness.Daemon(bindery, home, argv, env, listen, token)
        programs.append(one)
        if start:
            one.start()
        return one

    return make


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server; tests that ask for it are skipped where there is no program."""
    server = Postgres()
    if not server.available:
        server.close()
        pytest.skip("no PostgreSQL server program on this machine")
    yield server
    server.close()
