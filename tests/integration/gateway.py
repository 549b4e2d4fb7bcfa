"""Starts the fake Enterprise gateway (tests/fakes/enterprise_gateway) and speaks its control routes."""

import os
import subprocess
import sys
from pathlib import Path

import httpx

FAKES = Path(__file__).resolve().parents[1] / "fakes"
TOKEN = "gateway-secret-of-the-tests"


class FakeGateway:
    """One fake gateway process. `real_sandboxes` is the executable whose shellctl runs in each
    sandbox; without it jobs are canned. Use as a context manager."""

    def __init__(self, token: str = TOKEN, real_sandboxes: Path | None = None, port: int = 0):
        command = [sys.executable, "-m", "enterprise_gateway", "--token", token]
        command += ["--listen", f"127.0.0.1:{port}"]
        if real_sandboxes:
            command += ["--bindery", str(real_sandboxes)]
        self.token = token
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(FAKES), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        word, port_text = self._process.stdout.readline().split()
        assert word == "listening"
        self.url = f"http://127.0.0.1:{port_text}"
        self.control = httpx.Client(base_url=self.url + "/__fake", trust_env=False, timeout=30)

    def __enter__(self) -> "FakeGateway":
        return self

    def __exit__(self, *_: object) -> None:
        self.control.close()
        self._process.terminate()
        self._process.wait(30)
        self._process.stdout.close()

    @property
    def settings(self) -> dict[str, str]:
        """Settings of a Bindery in front of it."""
        return {
            "DIFY_AGENT_RUNTIME_BACKEND": "enterprise",
            "DIFY_AGENT_ENTERPRISE_SANDBOX_GATEWAY_ENDPOINT": self.url,
            "DIFY_AGENT_ENTERPRISE_SANDBOX_GATEWAY_AUTH_TOKEN": self.token,
        }

    def fault(self, *rules: dict) -> None:
        """Put exactly these rules in force; none takes all back."""
        self.control.put("/faults", json=list(rules)).raise_for_status()

    def random_faults(self, probability: float) -> None:
        self.control.put("/random", json={"probability": probability}).raise_for_status()

    def state(self) -> dict:
        return self.control.get("/sandboxes").raise_for_status().json()

    @property
    def alive(self) -> list[str]:
        return self.state()["alive"]

    def expire(self, sandbox_id: str) -> None:
        self.control.delete(f"/sandboxes/{sandbox_id}").raise_for_status()

    def log(self) -> list[dict]:
        """Requests since the last look."""
        return self.control.get("/log").raise_for_status().json()

    def count(self, method: str, path: str, log: list[dict] | None = None) -> int:
        entries = self.log() if log is None else log
        return sum(e["method"] == method and e["path"] == path for e in entries)
