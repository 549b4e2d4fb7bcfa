"""Builds the image, runs it alone and by compose.yaml, and looks at both from outside."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
import uuid
from pathlib import Path

import httpx
import pytest

TOP = Path(__file__).resolve().parents[2]
HARDENED = [
    "--read-only",
    "--cap-drop",
    "ALL",
    "--security-opt",
    "no-new-privileges",
    "--tmpfs",
    "/tmp:mode=1777",
]


def sh(*words, check=True, timeout=900, **env):
    done = subprocess.run(
        [str(word) for word in words],
        cwd=TOP,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if check:
        assert done.returncode == 0, f"{words}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done


def engine_answers() -> bool:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return sh("docker", "version", check=False, timeout=30).returncode == 0
    return False


if not engine_answers():
    pytest.skip("no Docker engine answers", allow_module_level=True)


def compose_command() -> list[str]:
    if sh("docker", "compose", "version", check=False).returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    pytest.skip("no docker compose here")


def free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.2)


def inspect(container, path):
    return json.loads(
        sh("docker", "inspect", "--format", "{{json " + path + "}}", container).stdout
    )


class Api:
    """One published service."""

    def __init__(self, port):
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60)

    def is_ready(self):
        with contextlib.suppress(httpx.TransportError):
            return self.http.get("/readyz").status_code == 200
        return False

    def post(self, path, body, status):
        answer = self.http.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def create(self):
        one = {
            "tenant_id": "t",
            "agent_id": "a",
            "binding_id": str(uuid.uuid4()),
            "workspace_id": str(uuid.uuid4()),
        }
        return self.post("/execution-bindings", one, 201)

    def run(self, binding, script):
        lease = self.post("/v1/leases", {"binding_ref": binding["binding_ref"]}, 201)["lease_id"]
        result = self.post(f"/v1/leases/{lease}/commands", {"script": script}, 200)
        assert self.http.delete(f"/v1/leases/{lease}").status_code == 204
        assert (result["status"], result["exit_code"]) == ("exited", 0), result
        return result["output"]

    def destroy(self, binding):
        self.post("/execution-bindings/destroy", {**binding, "destroy_workspace": True}, 204)


@pytest.fixture(scope="session")
def image():
    """Built once; the tag is this run's own."""
    sh(TOP / "scripts/make-base-image")
    tag = f"bindery-test:{os.getpid()}"
    # the host's network: where the host reaches its package source, the build does too
    sh("docker", "build", "--network", "host", "--tag", tag, ".", timeout=1200, DOCKER_BUILDKIT="0")
    yield tag
    sh("docker", "rmi", "--force", tag, check=False)


@pytest.fixture(scope="module")
def container(image):
    name, port = f"bindery-test-{os.getpid()}", free_port()
    sh(
        "docker",
        "run",
        "--detach",
        "--name",
        name,
        *HARDENED,
        "--health-interval",
        "1s",
        "--publish",
        f"127.0.0.1:{port}:5050",
        image,
    )
    api = Api(port)
    try:
        wait_until(api.is_ready, 60, lambda: sh("docker", "logs", name).stderr)
        yield name, api
    finally:
        sh("docker", "rm", "--force", "--volumes", name, check=False)


def test_it_is_not_root_and_its_file_system_is_read_only(container):
    name, _ = container
    assert sh("docker", "exec", name, "id", "-u").stdout.strip() == "10001"
    assert sh("docker", "exec", name, "touch", "/usr/local/x", check=False).returncode != 0


def test_its_health_check_turns_healthy(container):
    name, _ = container
    wait_until(
        lambda: inspect(name, ".State.Health.Status") == "healthy",
        30,
        lambda: inspect(name, ".State.Health"),
    )


def test_isolation_is_reported(container):
    _, api = container
    ready = api.http.get("/readyz").json()
    assert "isolation" in json.dumps(ready), ready


def test_a_whole_lifecycle(container):
    _, api = container
    binding = api.create()
    api.run(binding, "echo kept > note")
    assert "kept" in api.run(binding, "cat note")
    api.destroy(binding)
    gone = api.http.post("/v1/leases", json={"binding_ref": binding["binding_ref"]})
    assert gone.status_code == 404, gone.text


def test_one_binding_cannot_read_another(container):
    _, api = container
    mine, other = api.create(), api.create()
    where = api.run(other, "echo secret > $HOME/s && echo secret > s && pwd").strip()
    seen = api.run(mine, f"cat {where}/s /proc/*/root{where}/s 2>/dev/null || echo refused")
    assert "secret" not in seen and "refused" in seen
    api.destroy(mine)
    api.destroy(other)


def test_the_first_process_reaps_what_jobs_leave(container):
    name, api = container
    binding = api.create()
    for _ in range(3):
        api.run(binding, "(sh -c 'sleep 0.2' &) ; true")
    api.destroy(binding)
    states = "cat /proc/[0-9]*/stat 2>/dev/null | sed 's/.*) //' | cut -c1"
    zombies = lambda: "Z" in sh("docker", "exec", name, "sh", "-c", states).stdout
    wait_until(lambda: not zombies(), 10, lambda: sh("docker", "top", name).stdout)


def test_sigterm_ends_it_in_order(container):
    name, _ = container
    sh("docker", "stop", "--time", "40", name)
    assert inspect(name, ".State.ExitCode") == 0, sh("docker", "logs", name).stderr[-4000:]


def test_state_survives_compose_down_and_up(image):
    compose, port = compose_command(), free_port()
    compose += ["--project-name", f"bindery-test-{os.getpid()}"]
    env = {"BINDERY_IMAGE": image, "BINDERY_PORT": str(port)}
    api = Api(port)
    logs = lambda: sh(*compose, "logs", check=False, **env).stdout[-4000:]
    try:
        sh(*compose, "up", "--detach", "--no-build", **env)
        wait_until(api.is_ready, 60, logs)
        binding = api.create()
        api.run(binding, "echo kept > note")
        sh(*compose, "down", **env)
        sh(*compose, "up", "--detach", "--no-build", **env)
        wait_until(api.is_ready, 60, logs)
        assert "kept" in api.run(binding, "cat note")
        api.destroy(binding)
    finally:
        sh(*compose, "down", "--volumes", check=False, **env)
