"""What goes wrong around the ledger, at the whole program: locks, full and read-only disks, a database
that is slow, silent or replaced by another one. Callers get 503 with Retry-After in time, nothing is
created without a row, and all of it passes without a restart."""

import concurrent.futures
import contextlib
import os
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from gateway import FakeGateway
from harness import wait_until
from postgres import Postgres
from slow_socket import SlowSocket

OWNER = {"tenant_id": "t", "app_id": "a", "agent_id": "g", "agent_config_version_id": "v"}
IN_TIME_S = 20  # far above any deadline of a ledger call, far below a hanging client


def put(one, owner):
    return one.http.put(f"/v1/owners/conversation/{owner}/binding", json=OWNER, timeout=IN_TIME_S)


def refused(answer):
    """503, to be repeated: and nothing has been done."""
    assert answer.status_code == 503, answer.text
    assert answer.json()["detail"]["code"] == "ledger_unavailable"
    assert answer.json()["detail"]["retryable"] is True
    assert int(answer.headers["Retry-After"]) >= 1


@pytest.fixture
def gateway():
    with FakeGateway() as fake:
        yield fake


@contextlib.contextmanager
def small_disk(path: Path, mib: int):
    """A file system of that size; the test is skipped where mounting is not allowed."""
    path.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0755", "tmpfs", str(path)],
        capture_output=True,
    )
    if done.returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path: Path) -> Path:
    ballast = path / "ballast"
    with ballast.open("wb", buffering=0) as out, contextlib.suppress(OSError):
        while out.write(b"\1" * 4096) == 4096:
            pass
    return ballast


# ---- SQLite ---------------------------------------------------------------------------------------------


# A53
def test_locked_file_is_waited_for_and_then_refused(server, gateway):
    one = server(settings=gateway.settings)
    assert put(one, "c0").status_code == 201
    other = sqlite3.connect(
        Path(one.settings["BINDERY_DATA_DIR"]) / "ledger.db", isolation_level=None,
        check_same_thread=False,
    )
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        other.execute("BEGIN IMMEDIATE")
        calls = [pool.submit(put, one, f"short-{n}") for n in range(20)]
        wait_until(lambda: any(c.running() for c in calls), 5, "calls under way")
        time.sleep(0.5)  # how long the lock is held is the case, not a wait for something
        other.execute("ROLLBACK")
        assert {c.result().status_code for c in calls} == {201}, "a short lock is nobody's business"
        made = gateway.state()["created_total"]
        other.execute("BEGIN IMMEDIATE")
        for answer in pool.map(lambda n: put(one, f"long-{n}"), range(20)):
            refused(answer)
        assert gateway.state()["created_total"] == made, "no sandbox without a row"
        assert put(one, "c0").status_code == 200, "reading needs no lock"
        other.execute("ROLLBACK")
    wait_until(lambda: one.is_ready(), 10, "readiness")
    assert put(one, "long-0").status_code == 201
    other.close()


# A54
def test_full_disk_refuses_creates_and_recovers(server, gateway, folder):
    with small_disk(folder / "disk", 4) as disk:
        settings = {**gateway.settings, "BINDERY_DATA_DIR": str(disk / "data")}
        one = server(settings=settings)
        assert put(one, "c0").status_code == 201
        ballast = fill(disk)
        made, n = gateway.state()["created_total"], 0
        while (answer := put(one, f"full-{n}")).status_code == 201:  # what still fits in the log
            n += 1
            assert n < 1000
        refused(answer)
        for k in range(5):  # a log that begins anew has room for some
            answer = put(one, f"refused-{k}")
            n += answer.status_code == 201
            if answer.status_code != 201:
                refused(answer)
        rows = one.http.get("/v1/bindings", params={"limit": 1000}).json()["bindings"]
        assert gateway.state()["created_total"] <= made + n + 6
        assert len(gateway.alive) <= len(rows), "no sandbox without a row"
        assert put(one, "c0").status_code == 200, "what is there is found"
        assert one.http.get("/v1/bindings").status_code == 200
        one.kill()
        two = server(settings=settings, ready=False)
        assert two.http.get("/healthz").status_code == 200, "it starts on a full disk"
        ballast.unlink()
        wait_until(lambda: two.is_ready(), 20, "readiness without a restart")
        assert put(two, "c0").status_code == 200
        assert put(two, "after").status_code == 201
        two.stop()
        check = sqlite3.connect(disk / "data" / "ledger.db")
        assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        check.close()


def test_read_only_file_ends_the_start_with_78(server, gateway, folder):
    with small_disk(folder / "disk", 16) as disk:
        one = server(settings={**gateway.settings, "BINDERY_DATA_DIR": str(disk / "data")})
        assert put(one, "c0").status_code == 201
        one.stop()
        before = (disk / "data" / "ledger.db").read_bytes()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        one.launch()
        assert one.wait() == 78, one.output()
        one.process = None
        assert "ead-only" in one.output()
        assert (disk / "data" / "ledger.db").read_bytes() == before


# ---- PostgreSQL -----------------------------------------------------------------------------------------


def test_slow_and_silent_postgres(server, gateway, postgres, folder):
    """Slow: everything works. Silent: 503 in time, also from /readyz; then it works again."""
    database = postgres.database()
    name = database.split("/")[3].split("?")[0]
    with SlowSocket(folder / ".s.PGSQL.5432", postgres.dir / ".s.PGSQL.5432") as between:
        url = f"postgresql:///{name}?host={folder}&user=postgres"
        one = server(settings={**gateway.settings, "BINDERY_LEDGER_URL": url})
        assert put(one, "c0").status_code == 201
        between.delay_s = 0.1
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            slow = list(pool.map(lambda n: put(one, f"slow-{n}"), range(8)))
        assert {answer.status_code for answer in slow} == {201}
        made = gateway.state()["created_total"]
        between.delay_s = None
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for answer in pool.map(lambda n: put(one, f"silent-{n}"), range(8)):
                refused(answer)
        assert gateway.state()["created_total"] == made, "no sandbox without a row"
        assert one.http.get("/healthz").status_code == 200
        wait_until(lambda: one.http.get("/readyz").status_code == 503, IN_TIME_S, "not ready")
        between.delay_s = 0.0
        wait_until(lambda: one.is_ready(), IN_TIME_S, "readiness without a restart")
        assert put(one, "c0").status_code == 200
        wait_until(lambda: put(one, "silent-0").status_code in (200, 201), 10, "what was refused")


def test_locked_table_is_refused_in_time(server, gateway, postgres):
    url = postgres.database()
    one = server(settings={**gateway.settings, "BINDERY_LEDGER_URL": url})
    assert put(one, "c0").status_code == 201
    holder = subprocess.Popen(
        ["psql", "-XAtq", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    holder.stdin.write("BEGIN; LOCK TABLE bindings IN ACCESS EXCLUSIVE MODE; SELECT 'held';\n")
    holder.stdin.flush()
    assert holder.stdout.readline().strip() == "held"
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        for answer in pool.map(lambda n: put(one, f"c{n}"), range(12)):
            refused(answer)
    assert one.http.get("/v1/workspaces").status_code == 200, "other tables are not concerned"
    holder.communicate("ROLLBACK;\n")
    assert put(one, "c0").status_code == 200
    assert put(one, "c1").status_code == 201


def test_failover_to_another_server(server, gateway, tmp_path_factory):
    """The first server dies; another one with its data takes over under its own address."""
    first = Postgres()
    if not first.available:
        first.close()
        pytest.skip("no PostgreSQL server program on this machine")
    second_dir = Path(str(first.dir) + "-b")
    second = None
    try:
        name = first.database().split("/")[3].split("?")[0]
        url = f"postgresql:///{name}?host={first.dir},{second_dir}&user=postgres"
        one = server(settings={**gateway.settings, "BINDERY_LEDGER_URL": url})
        assert put(one, "c0").status_code == 201
        first.kill()
        refused(put(one, "away"))
        second_dir.mkdir(mode=0o755)
        shutil.copytree(first.dir / "data", second_dir / "data")
        (second_dir / "data").chmod(0o700)
        (second_dir / "data" / "postmaster.pid").unlink(missing_ok=True)
        with (second_dir / "data" / "postgresql.conf").open("a") as conf:
            conf.write(f"unix_socket_directories = '{second_dir}'\n")
        if os.geteuid() == 0:
            subprocess.run(["chown", "-R", "postgres", str(second_dir)], check=True)
        second = Postgres(second_dir)
        wait_until(lambda: one.is_ready(), IN_TIME_S, "readiness without a restart")
        assert put(one, "c0").status_code == 200, "what was committed is there"
        assert put(one, "c1").status_code == 201
    finally:
        for each in (first, second):
            if each is not None:
                each.available = each is second
                each.close()
        shutil.rmtree(second_dir, ignore_errors=True)


# A54
def test_disk_that_fills_under_postgres(server, gateway, folder):
    with small_disk(folder / "pg", 160) as disk:
        database = Postgres(disk)
        if not database.available:
            pytest.skip("no PostgreSQL server program on this machine")
        try:
            url = database.database()
            one = server(settings={**gateway.settings, "BINDERY_LEDGER_URL": url})
            assert put(one, "c0").status_code == 201
            ballast = fill(disk)
            filler = ("CREATE TABLE IF NOT EXISTS ballast (x text);"
                      "INSERT INTO ballast SELECT repeat(md5(i::text), 200) "
                      "FROM generate_series(1,100000) AS i")
            while subprocess.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", url, "-c", filler],
                                 capture_output=True).returncode == 0:
                pass
            made, n = gateway.state()["created_total"], 0
            while (answer := put(one, f"full-{n}")).status_code == 201:
                n += 1
                assert n < 5000
            refused(answer)
            assert gateway.state()["created_total"] <= made + n + 1
            assert one.http.get("/healthz").status_code == 200
            ballast.unlink()
            with contextlib.suppress(AssertionError):
                database.start()  # where the full disk has ended it
            wait_until(lambda: one.is_ready(), 40, "readiness without a restart")
            assert put(one, "c0").status_code == 200
            wait_until(lambda: put(one, "after").status_code in (200, 201), 20, "creates again")
            rows = one.http.get("/v1/bindings", params={"limit": 1000}).json()["bindings"]
            active = {row["binding_ref"] for row in rows if row["status"] == "active"}
            assert {ref.split(":")[0] for ref in active} <= set(gateway.alive)
            one.stop()
        finally:
            database.kill()


# ---- what was stored is not believed --------------------------------------------------------------------


# A57
def test_stored_bindings_are_probed_after_a_restart(server, gateway):
    one = server(settings=gateway.settings)
    rows = [put(one, f"c{n}").json() for n in range(6)]
    one.stop()
    for row in rows[:3]:
        gateway.expire(row["binding_ref"].split(":")[0])
    one.start()
    one.wait_ready()
    for n, row in enumerate(rows):
        answer = one.http.post("/v1/leases", json={"binding_ref": row["binding_ref"]})
        assert answer.status_code == (404 if n < 3 else 201), answer.text
