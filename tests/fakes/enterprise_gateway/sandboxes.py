"""The sandboxes that the fake believes alive: real ones run an embedded shellctl each, canned ones
answer every job as done. What is alive here is the ground truth of the tests."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import time
import uuid
from dataclasses import dataclass, field

from .wire import Request, Response, exchange_unix


@dataclass
class Sandbox:
    id: str
    tenant_id: str
    created: float = field(default_factory=time.time)
    directory: str = ""
    process: asyncio.subprocess.Process | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)
    jobs: dict[str, bool] = field(default_factory=dict)
    snapshot_ref: str | None = None

    @property
    def socket(self) -> str:
        return os.path.join(self.directory, "s")


class Sandboxes:
    """Creates, finds and removes them. `bindery` is the executable whose `shellctl serve` runs in
    real sandboxes; None makes canned ones."""

    def __init__(self, bindery: str | None):
        self.bindery = bindery
        self.alive: dict[str, Sandbox] = {}
        self.expired: set[str] = set()
        self.snapshots: dict[str, str] = {}
        self.created_total = 0
        self.unanswered: set[str] = set()

    async def create(self, tenant_id: str, snapshot_ref: str | None) -> Sandbox:
        sandbox = Sandbox("sb-" + uuid.uuid4().hex, tenant_id, snapshot_ref=snapshot_ref)
        self.alive[sandbox.id] = sandbox
        self.created_total += 1
        if self.bindery:
            await self._start(sandbox)
        sandbox.started.set()
        return sandbox

    async def _start(self, sandbox: Sandbox) -> None:
        sandbox.directory = tempfile.mkdtemp(prefix="bgw-")
        home = os.path.join(sandbox.directory, "h")
        os.mkdir(home)
        env = {"PATH": os.environ["PATH"], "HOME": home, "BINDERY_LOCAL_ISOLATION": "none"}
        if "ASAN_OPTIONS" in os.environ:
            env["ASAN_OPTIONS"] = os.environ["ASAN_OPTIONS"]
        sandbox.process = await asyncio.create_subprocess_exec(
            *(self.bindery, "shellctl", "serve", "--listen", f"unix:{sandbox.socket}"),
            *("--state-dir", os.path.join(sandbox.directory, "state")),
            env=env,
            stderr=asyncio.subprocess.DEVNULL,
        )
        for _ in range(500):
            if os.path.exists(sandbox.socket):
                return
            await asyncio.sleep(0.01)
        raise RuntimeError("the sandbox's shellctl did not start")

    async def remove(self, sandbox_id: str, *, expired: bool = False) -> bool:
        sandbox = self.alive.pop(sandbox_id, None)
        if sandbox is None:
            return False
        if expired:
            self.expired.add(sandbox_id)
        if sandbox.process:
            await sandbox.started.wait()
            if sandbox.process.returncode is None:
                sandbox.process.terminate()
            try:
                await asyncio.wait_for(sandbox.process.wait(), 5)
            except asyncio.TimeoutError:
                sandbox.process.kill()
            shutil.rmtree(sandbox.directory, ignore_errors=True)
        return True

    async def remove_all(self) -> None:
        for sandbox_id in list(self.alive):
            await self.remove(sandbox_id)

    async def shellctl(self, sandbox: Sandbox, request: Request) -> Response:
        path = request.path.removeprefix("/proxy")
        if sandbox.process:
            return await exchange_unix(sandbox.socket, request, path)
        return canned(sandbox, request, path)


def job_result(job_id: str) -> dict[str, object]:
    return {
        "job_id": job_id,
        "done": True,
        "status": "exited",
        "exit_code": 0,
        "output_path": f"/home/dify/.local/share/shellctl/jobs/{job_id}/output.log",
        "output": "",
        "offset": 0,
        "truncated": False,
    }


def canned(sandbox: Sandbox, request: Request, path: str) -> Response:
    """shellctl as far as a lease cycle needs it: every job is done at once and said nothing."""
    if path == "/healthz":
        return Response.json(200, {"status": "ok"})
    if request.method == "POST" and path == "/v1/jobs/run":
        if not json.loads(request.body or b"{}").get("script"):
            return Response.json(400, envelope("invalid_request", "script is required"))
        job_id = uuid.uuid4().hex[:16]
        sandbox.jobs[job_id] = True
        return Response.json(200, job_result(job_id))
    job_id = path.removeprefix("/v1/jobs/").split("/")[0]
    if job_id not in sandbox.jobs:
        return Response.json(404, envelope("job_not_found", "Unknown job id"))
    if request.method == "DELETE":
        del sandbox.jobs[job_id]
        return Response.json(200, {"job_id": job_id, "deleted": True})
    return Response.json(200, job_result(job_id))


def envelope(code: str, message: str) -> dict[str, object]:
    return {"error": {"code": code, "message": message}}
