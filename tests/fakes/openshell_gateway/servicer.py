"""The methods (wire contract sections 4 and 8). Everything else is UNIMPLEMENTED by the base class."""

from __future__ import annotations

import asyncio
import time
import uuid

import grpc
from openshell._proto import openshell_pb2 as pb
from openshell._proto import openshell_pb2_grpc as rpc

from . import limits
from .limits import Refused
from .sandboxes import Box, Boxes, phase

Code = grpc.StatusCode
STREAMS_PER_TOKEN, STREAMS_PER_SANDBOX = 3, 20


class Gateway(rpc.OpenShellServicer):
    def __init__(self, boxes: Boxes, faults, version: str):
        self.boxes, self.faults, self.version = boxes, faults, version

    # ---- records --------------------------------------------------------------------------------

    def by_name(self, request) -> Box:
        if not request.name:
            raise limits.invalid("name is required")
        box = self.boxes.find(request.name, request.workspace)
        if box is None:
            raise Refused(Code.NOT_FOUND, "sandbox not found")
        return box

    def by_id(self, sandbox_id: str) -> Box:
        if not sandbox_id:
            raise limits.invalid("sandbox_id is required")
        box = self.boxes.by_id.get(sandbox_id)
        if box is None:
            raise Refused(Code.NOT_FOUND, "sandbox not found")
        return box

    def ready(self, sandbox_id: str) -> Box:
        box = self.by_id(sandbox_id)
        if not box.is_ready():
            raise Refused(Code.FAILED_PRECONDITION, "sandbox is not ready")
        return box

    # ---- lifecycle ------------------------------------------------------------------------------

    async def Health(self, request, context):
        return pb.HealthResponse(status=1, version=self.version)

    async def CreateSandbox(self, request, context):
        limits.check_create(request)
        if request.workspace not in ("", "default", "tests"):
            raise Refused(Code.NOT_FOUND, "workspace not found")
        name = request.name or uuid.uuid4().hex[:12]
        if self.boxes.find(name, request.workspace):
            raise Refused(Code.ALREADY_EXISTS, f"sandbox {name} already exists")
        box = await self.boxes.create(request, name)
        return pb.SandboxResponse(sandbox=box.record)

    async def GetSandbox(self, request, context):
        return pb.SandboxResponse(sandbox=self.by_name(request).record)

    async def ListSandboxes(self, request, context):
        wanted = dict(
            pair.strip().split("=", 1) for pair in request.label_selector.split(",") if pair.strip()
        )
        limit = min(request.limit or 100, 1000)
        rows = sorted(
            (
                box.record
                for box in self.boxes.by_id.values()
                if box.record.metadata.workspace == (request.workspace or "default")
                and all(box.record.metadata.labels.get(k) == v for k, v in wanted.items())
            ),
            key=lambda record: (record.metadata.created_at_ms, record.metadata.name),
        )
        return pb.ListSandboxesResponse(sandboxes=rows[request.offset : request.offset + limit])

    async def DeleteSandbox(self, request, context):
        box = self.by_name(request)
        if box.phase != phase("DELETING"):
            await self.boxes.set_phase(box, "DELETING")
            asyncio.create_task(self._delete_later(box))
        return pb.DeleteSandboxResponse(deleted=True)

    async def _delete_later(self, box: Box) -> None:
        await self.boxes.take_down(box)
        await asyncio.sleep(self.faults.deleting_s)
        await self.boxes.remove(box)

    async def StopSandbox(self, request, context):
        box = self.by_name(request)
        if box.phase == phase("STOPPED"):
            return pb.SandboxResponse(sandbox=box.record)
        if box.phase not in (phase("READY"), phase("STOPPING")):
            raise Refused(Code.FAILED_PRECONDITION, "sandbox cannot be stopped now")
        await self.boxes.set_phase(box, "STOPPING", "Stopping")
        await self.boxes.take_down(box)
        await self.boxes.set_phase(box, "STOPPED", "Stopped")
        return pb.SandboxResponse(sandbox=box.record)

    async def StartSandbox(self, request, context):
        box = self.by_name(request)
        if box.phase == phase("READY"):
            return pb.SandboxResponse(sandbox=box.record)
        if box.phase not in (phase("STOPPED"), phase("STARTING")):
            raise Refused(Code.FAILED_PRECONDITION, "sandbox cannot be started now")
        if box.phase == phase("STOPPED"):
            await self.boxes.set_phase(box, "STARTING", "Starting")
            box.starting = asyncio.create_task(self.boxes.bring_up(box))
        return pb.SandboxResponse(sandbox=box.record)

    async def WatchSandbox(self, request, context):
        box = self.by_id(request.id)
        seen = -1
        while True:
            if box.id not in self.boxes.by_id:
                raise Refused(Code.CANCELLED, "sandbox is gone")
            if box.record.metadata.resource_version != seen:
                seen = box.record.metadata.resource_version
                yield pb.SandboxStreamEvent(sandbox=box.record)
                if request.stop_on_terminal and box.is_ready():
                    return
            async with self.boxes.changed:
                await self.boxes.changed.wait()
            if not request.follow_status:
                seen = box.record.metadata.resource_version

    # ---- exec -----------------------------------------------------------------------------------

    async def ExecSandbox(self, request, context):
        limits.check_exec(request)
        box = self.ready(request.sandbox_id)
        line = limits.exec_line(request)
        process = await self.boxes.run(box, line, request.tty)
        events: asyncio.Queue = asyncio.Queue(64)

        async def pump(stream, kind) -> None:
            while data := await stream.read(4096):
                await events.put(pb.ExecSandboxEvent(**{kind: {"data": data}}))

        async def feed() -> None:
            try:
                process.stdin.write(request.stdin)
                await process.stdin.drain()
                process.stdin.close()
            except ConnectionError:
                pass

        pumps = [
            asyncio.create_task(pump(process.stdout, "stdout")),
            asyncio.create_task(pump(process.stderr, "stderr")),
        ]
        asyncio.create_task(feed())
        lost = asyncio.create_task(box.broken.wait())
        ended = asyncio.create_task(process.wait())
        deadline = time.monotonic() + request.timeout_seconds if request.timeout_seconds else None
        try:
            while True:
                getter = asyncio.create_task(events.get())
                left = None if deadline is None else max(0, deadline - time.monotonic())
                done, _ = await asyncio.wait(
                    {getter, lost, ended} if not ended.done() else {getter, lost},
                    timeout=left if not ended.done() else 0.2,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if getter in done:
                    yield getter.result()
                    continue
                getter.cancel()
                if lost in done:
                    raise Refused(Code.UNAVAILABLE, "relay lost")
                if ended.done() and events.empty():
                    yield pb.ExecSandboxEvent(exit={"exit_code": exit_code(process.returncode)})
                    return
                if deadline is not None and time.monotonic() >= deadline:
                    yield pb.ExecSandboxEvent(exit={"exit_code": 124})
                    return
        finally:
            lost.cancel()
            for task in pumps:
                task.cancel()

    # ---- sessions and forwards ------------------------------------------------------------------

    async def CreateSshSession(self, request, context):
        box = self.ready(request.sandbox_id)
        session = self.boxes.open_session(box)
        return pb.CreateSshSessionResponse(
            sandbox_id=box.id,
            token=session.token,
            gateway_host="0.0.0.0",
            gateway_port=17670,
            gateway_scheme="http",
            expires_at_ms=session.expires_at_ms,
        )

    async def RevokeSshSession(self, request, context):
        if not request.token:
            raise limits.invalid("token is required")
        session = self.boxes.sessions.get(request.token)
        if session:
            session.revoked = True
        return pb.RevokeSshSessionResponse(revoked=session is not None)

    def admit(self, init) -> tuple[Box, object]:
        limits.check_forward(init)
        box = self.ready(init.sandbox_id)
        session = self.boxes.sessions.get(init.authorization_token.strip())
        now = time.time() * 1000
        if (
            session is None
            or session.revoked
            or session.sandbox_id != box.id
            or (session.expires_at_ms and session.expires_at_ms <= now)
        ):
            raise Refused(Code.UNAUTHENTICATED, "invalid session token")
        if session.streams >= STREAMS_PER_TOKEN or box.forwards >= STREAMS_PER_SANDBOX:
            self.faults.limit_hits += 1
            raise Refused(Code.RESOURCE_EXHAUSTED, "too many forwards")
        return box, session

    async def ForwardTcp(self, requests, context):
        frames = aiter(requests)
        first = await anext(frames, None)
        if first is None or first.WhichOneof("payload") != "init":
            raise limits.invalid("the first frame must be init")
        box, session = self.admit(first.init)
        session.streams += 1
        box.forwards += 1
        self.faults.forwards_peak = max(self.faults.forwards_peak, box.forwards)
        try:
            await context.send_initial_metadata(())
            try:
                reader, writer = await self.boxes.connect(box, first.init.tcp.port)
            except OSError as exc:
                raise Refused(Code.UNAVAILABLE, "target connection failed") from exc
            half_closed = asyncio.Event()

            async def outward() -> None:
                async for frame in frames:
                    if frame.WhichOneof("payload") != "data":
                        break
                    writer.write(frame.data)
                    await writer.drain()
                if writer.can_write_eof():
                    writer.write_eof()
                half_closed.set()

            sender = asyncio.create_task(outward())
            lost = asyncio.create_task(box.broken.wait())
            try:
                while True:
                    read = asyncio.create_task(reader.read(65536))
                    await asyncio.wait({read, lost}, return_when=asyncio.FIRST_COMPLETED)
                    if lost.done():
                        read.cancel()
                        raise Refused(Code.UNAVAILABLE, "relay lost")
                    data = read.result()
                    if not data:
                        break
                    yield pb.TcpForwardFrame(data=data)
                # the target's end is not passed on before the client's (8.12)
                closed = asyncio.create_task(half_closed.wait())
                await asyncio.wait({closed, lost}, return_when=asyncio.FIRST_COMPLETED)
                closed.cancel()
            finally:
                sender.cancel()
                lost.cancel()
                writer.close()
        finally:
            session.streams -= 1
            box.forwards -= 1


def exit_code(code: int) -> int:
    return 128 - code if code < 0 else code
