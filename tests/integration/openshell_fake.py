"""Starts the fake OpenShell gateway (tests/fakes/openshell_gateway) and speaks its control routes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import openshell

from harness import wait_until

FAKES = Path(__file__).resolve().parents[1] / "fakes"
SHELLCTL_TOKEN = "shellctl-token-of-the-tests"


class FakeOpenShell:
    """One fake gateway process. Use as a context manager."""

    workspace = "default"
    python = sys.executable  # of the sandboxes

    def __init__(self, bindery: Path, *options: str):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "openshell_gateway", "--bindery", str(bindery), *options],
            env={**os.environ, "PYTHONPATH": str(FAKES), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        word, grpc_port, control_port = self._process.stdout.readline().split()
        assert word == "listening"
        host = options[options.index("--host") + 1] if "--host" in options else "127.0.0.1"
        self.endpoint = f"{host}:{grpc_port}"
        self.control = httpx.Client(
            base_url=f"http://127.0.0.1:{control_port}", trust_env=False, timeout=30
        )

    def __enter__(self) -> "FakeOpenShell":
        return self

    def __exit__(self, *_: object) -> None:
        self.control.close()
        self._process.terminate()
        self._process.wait(30)
        self._process.stdout.close()

    @property
    def settings(self) -> dict[str, str]:
        prefix = "DIFY_AGENT_OPENSHELL_"
        config = {"docker": {"mounts": [{"type": "volume", "source": "s", "target": "/mnt/dify-agent-shared"}]}}
        return {
            "DIFY_AGENT_RUNTIME_BACKEND": "openshell",
            prefix + "GATEWAY_ENDPOINT": self.endpoint,
            prefix + "INSECURE": "true",
            prefix + "DRIVER_CONFIG": json.dumps(config),
            prefix + "SHELLCTL_AUTH_TOKEN": SHELLCTL_TOKEN,
        }

    def fault(self, *rules: dict) -> None:
        self.control.put("/faults", json=list(rules)).raise_for_status()

    def set(self, **values) -> None:
        self.control.put("/settings", json=values).raise_for_status()

    def phase(self, name: str, phase: str, **more) -> None:
        self.control.put("/phase", json={"name": name, "phase": phase, **more}).raise_for_status()

    def vanish(self, name: str) -> None:
        self.control.post("/vanish", json={"name": name}).raise_for_status()

    def restart(self, **how) -> None:
        self.control.post("/restart", json=how).raise_for_status()

    def forget(self) -> None:
        self.control.post("/forget", json={}).raise_for_status()

    def cut(self) -> None:
        self.control.post("/cut", json={}).raise_for_status()

    def state(self) -> dict:
        return self.control.get("/state").raise_for_status().json()

    def client(self) -> openshell.SandboxClient:
        return openshell.SandboxClient(self.endpoint)

    def check_sessions_ended(self) -> None:
        wait_until(lambda: self.state()["sessions"] == 0, 5, "sessions revoked")

    @property
    def sandboxes(self) -> dict:
        return self.state()["sandboxes"]

    def calls(self, method: str) -> int:
        return self.state()["calls"].get(method, 0)
