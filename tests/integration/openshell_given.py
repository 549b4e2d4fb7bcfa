"""A real OpenShell gateway in place of the fake one, where BINDERY_TEST_OPENSHELL_ENDPOINT names it; see
docs/backends/openshell.md. What needs the fake's controls is skipped then."""

import contextlib
import os
import shutil
from pathlib import Path

import grpc
import openshell
import pytest

import harness
from openshell_fake import FakeOpenShell, SHELLCTL_TOKEN

OURS, THEIRS = "BINDERY_TEST_OPENSHELL_", "DIFY_AGENT_OPENSHELL_"
# of the test's variables, those that are settings of the backend
PASSED_ON = (
    *("WORKSPACE", "BEARER_TOKEN", "TLS_CA_PATH", "TLS_CLIENT_CERT_PATH", "TLS_CLIENT_KEY_PATH"),
    *("INSECURE", "SANDBOX_IMAGE", "DRIVER_CONFIG", "SHARED_MOUNT_PATH", "EGRESS_ALLOW"),
)


def given(name: str, default: str = "") -> str:
    return os.environ.get(OURS + name, default)


# seconds that a test allows are for the fake; a gateway that pulls images and starts containers is slower
PATIENCE = float(given("PATIENCE", "10" if given("ENDPOINT") else "1"))


def wait_until(condition, seconds: float, what: str):
    return harness.wait_until(condition, seconds * PATIENCE, what)


available = pytest.mark.skipif(
    not given("ENDPOINT")
    and (os.geteuid() != 0 or not shutil.which("bwrap") or not shutil.which("nsenter")),
    reason="the fake gateway's sandboxes need root, bubblewrap and nsenter",
)


class Seen(dict):
    """What a gateway tells of a sandbox."""

    def __missing__(self, key: str):
        pytest.skip(f"only the fake gateway tells {key}")


class GivenOpenShell:
    """The gateway of the environment, and a workspace of it that belongs to the tests: it must be empty
    before, and is empty afterwards. Use as a context manager."""

    python = given("PYTHON", "/usr/bin/python3")

    def __init__(self):
        self.endpoint, self.workspace = given("ENDPOINT"), given("WORKSPACE")
        if not self.workspace or not given("DRIVER_CONFIG"):
            raise pytest.UsageError(f"set {OURS}WORKSPACE and {OURS}DRIVER_CONFIG too")
        self._client = self.client()

    def __enter__(self) -> "GivenOpenShell":
        held = sorted(self.sandboxes)
        if held:
            raise pytest.UsageError(f"the tests' workspace {self.workspace} is in use: {held[:5]}")
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.sandboxes:
            with contextlib.suppress(grpc.RpcError):  # gone already
                self._client.delete(name, workspace=self.workspace)
        wait_until(lambda: not self.sandboxes, 60, "the workspace is empty again")
        self._client.close()

    def client(self) -> openshell.SandboxClient:
        ca, certificate, key = (
            Path(path) if path else None
            for path in map(given, ("TLS_CA_PATH", "TLS_CLIENT_CERT_PATH", "TLS_CLIENT_KEY_PATH"))
        )
        tls = None if given("INSECURE") == "true" else openshell.TlsConfig(ca, certificate, key)
        bearer = given("BEARER_TOKEN") or None
        return openshell.SandboxClient(self.endpoint, tls=tls, bearer_token=bearer, timeout=120)

    @property
    def settings(self) -> dict[str, str]:
        passed_on = {THEIRS + name: given(name) for name in PASSED_ON if given(name)}
        return {
            "DIFY_AGENT_RUNTIME_BACKEND": "openshell",
            THEIRS + "GATEWAY_ENDPOINT": self.endpoint,
            THEIRS + "SHELLCTL_AUTH_TOKEN": SHELLCTL_TOKEN,
            **passed_on,
        }

    @property
    def sandboxes(self) -> dict:
        return {
            one.name: Seen({"id": one.id, "phase": one.phase, "labels": dict(one.labels)})
            for one in self._client.list(workspace=self.workspace, limit=1000)
        }

    def check_sessions_ended(self) -> None:
        """A gateway does not tell."""

    def __getattr__(self, name: str):
        if name in vars(FakeOpenShell) or name == "control":
            pytest.skip("needs the controls of the fake gateway")
        raise AttributeError(name)


def open_gateway(bindery: Path, *options: str):
    """The gateway that the environment names, else a fake one; `options` are the fake's."""
    if not given("ENDPOINT"):
        return FakeOpenShell(bindery, *options)
    if options:
        pytest.skip("needs a fake gateway of its own")
    return GivenOpenShell()
