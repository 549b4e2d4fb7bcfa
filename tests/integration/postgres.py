"""A throwaway PostgreSQL server for the tests; databases in it are the tests' own."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import harness

SCRIPT = Path(__file__).resolve().parents[1] / "support" / "postgres"
NO_SERVER = 77


class Postgres:
    """One server, started by the first use. `available` is False where there is no program. `folder`:
    where it lives, its data perhaps there already; a temporary one by default."""

    def __init__(self, folder: Path | None = None):
        self.dir = folder or Path(tempfile.mkdtemp(prefix="bindery-pg-"))
        self._databases = 0
        self.available = self._run("start") == 0

    def _run(self, action: str) -> int:
        done = subprocess.run([SCRIPT, action, str(self.dir)], stdin=subprocess.DEVNULL)
        assert done.returncode in (0, NO_SERVER), f"{action}: {done.returncode}"
        if action == "start" and done.returncode == 0:
            pid = (self.dir / "data" / "postmaster.pid").read_text().split()[0]
            harness.spared.add(int(pid))
        return done.returncode

    def url(self, database: str) -> str:
        return f"postgresql:///{database}?host={self.dir}&user=postgres"

    def database(self) -> str:
        """Connection string of a new, empty one."""
        self._databases += 1
        name = f"t{self._databases}"
        self.sql("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def sql(self, database: str, text: str) -> str:
        url = database if ":" in database else self.url(database)
        done = subprocess.run(
            ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", url, "-c", text],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def kill(self) -> None:
        self._run("kill")

    def start(self) -> None:
        self._run("start")

    def close(self) -> None:
        if self.available:
            self._run("kill")
        shutil.rmtree(self.dir, ignore_errors=True)
