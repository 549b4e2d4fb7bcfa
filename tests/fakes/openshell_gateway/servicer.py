"""The methods (wire contract sections 4 and 8). Everything else is UNIMPLEMENTED by the base class."""

from __future__ import annotations

import asyncio
import time
import uuid

import grpc
from openshell._proto import openshell_pb2 as pb
from openshell._proto import openshell_pb2_grpc as rpc

from . import limits
from .commands import Commands
from .limits import Refused
from .sandboxes import Box, Boxes, phase
from .workspaces import Workspaces

Code = grpc.StatusCode
STREAMS_PER_TOKEN, STREAMS_PER_SANDBOX = 3, 20
DEFAULT_IMAGE = "openshell/base:latest"
MAIN_PROCESS_SINCE = (0, 0, 111)


def version_triple(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("-")[0].split("."))


class Gateway(Commands, Workspaces, rpc.OpenShellServicer):
    def __init__(self, boxes: Boxes, faults, version: str, scheme: str = "http"):
        Workspaces.__init__(self)
        self.boxes, self.faults, self.version, self.scheme = boxes, faults, version, scheme

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
        self.workspace_for_create(request.workspace)
        name = request.name or uuid.uuid4().hex[:12]
        if self.boxes.find(name, request.workspace):
            raise Refused(Code.ALREADY_EXISTS, f"sandbox {name} already exists")
        box = await self.boxes.create(request, name)
        spec = box.record.spec
        spec.template.image = spec.template.image or DEFAULT_IMAGE
        if version_triple(self.version) >= MAIN_PROCESS_SINCE and not spec.command:
            spec.command.extend(["/bin/bash", "-l"])
            spec.tty = True
        return pb.SandboxResponse(sandbox=box.record)

    async def GetSandbox(self, request, context):
        return pb.SandboxResponse(sandbox=self.by_name(request).record)

    async def ListSandboxes(self, request, context):
        if request.all_workspaces and request.workspace:
            raise limits.invalid("workspace and all_workspaces exclude each other")
        if not request.all_workspaces:
            self.workspace_named(request.workspace)
        records = [
            box.record
            for box in self.boxes.by_id.values()
            if request.all_workspaces
            or box.record.metadata.workspace == (request.workspace or "default")
        ]
        return pb.ListSandboxesResponse(sandboxes=limits.page(records, request))

    async def DeleteSandbox(self, request, context):
        box = self.by_name(request)
        return await asyncio.shield(asyncio.create_task(self.delete(box)))

    async def delete(self, box: Box) -> pb.DeleteSandboxResponse:
        async with box.gate:
            if box.phase != phase("DELETING"):
                await self.boxes.set_phase(box, "DELETING")
                asyncio.create_task(self._delete_later(box))
        return pb.DeleteSandboxResponse(deleted=True)

    async def _delete_later(self, box: Box) -> None:
        await self.boxes.take_down(box)
        await asyncio.sleep(self.faults.deleting_s)
        await self.boxes.remove(box)

    # stop, start and delete take their turn at a sandbox, and run on without the caller (8.4, 8.6)

    async def StopSandbox(self, request, context):
        box = self.by_name(request)
        return await asyncio.shield(asyncio.create_task(self.stop(box)))

    async def stop(self, box: Box) -> pb.SandboxResponse:
        async with box.gate:
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
        return await asyncio.shield(asyncio.create_task(self.start(box)))

    async def start(self, box: Box) -> pb.SandboxResponse:
        async with box.gate:
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
        meta = box.record.metadata
        seen = meta.resource_version
        yield pb.SandboxStreamEvent(sandbox=box.record)
        while not (request.stop_on_terminal and box.is_ready()):
            async with self.boxes.changed:
                while box.id in self.boxes.by_id and (
                    meta.resource_version == seen or not request.follow_status
                ):
                    await self.boxes.changed.wait()
            if box.id not in self.boxes.by_id:
                raise Refused(Code.CANCELLED, "sandbox is gone")
            seen = meta.resource_version
            yield pb.SandboxStreamEvent(sandbox=box.record)

    # ---- sessions and forwards ------------------------------------------------------------------

    async def CreateSshSession(self, request, context):
        box = self.ready(request.sandbox_id)
        session = self.boxes.open_session(box)
        return pb.CreateSshSessionResponse(
            sandbox_id=box.id,
            token=session.token,
            gateway_host="0.0.0.0",
            gateway_port=17670,
            gateway_scheme=self.scheme,
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

    async def outward(self, frames, writer, half_closed: asyncio.Event) -> None:
        async for frame in frames:
            if frame.WhichOneof("payload") != "data" or frame.ByteSize() > limits.MESSAGE_MAX:
                break
            writer.write(frame.data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        half_closed.set()

    async def break_off(self, broken, reader, half_closed: asyncio.Event) -> None:
        await broken.wait()
        reader.set_exception(ConnectionAbortedError())
        half_closed.set()

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
            tasks = [
                asyncio.create_task(self.outward(frames, writer, half_closed)),
                asyncio.create_task(self.break_off(box.broken, reader, half_closed)),
            ]
            try:
                while data := await reader.read(65536):
                    yield pb.TcpForwardFrame(data=data)
                # the target's end is not passed on before the client's (8.12)
                await half_closed.wait()
            except ConnectionError as exc:
                raise Refused(Code.UNAVAILABLE, "relay lost") from exc
            finally:
                for task in tasks:
                    task.cancel()
                writer.close()
            if box.broken.is_set():
                raise Refused(Code.UNAVAILABLE, "relay lost")
        finally:
            session.streams -= 1
            box.forwards -= 1

