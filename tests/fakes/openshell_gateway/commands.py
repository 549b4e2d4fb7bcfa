"""Exec, both forms (wire contract 8.8 and 8.9): a login bash in the sandbox; whoever stops listening
does not stop the process."""

from __future__ import annotations

import asyncio
import contextlib
import time

import grpc
from openshell._proto import openshell_pb2 as pb

from . import limits
from .limits import Refused
from .sandboxes import Box, Command

LAST_OUTPUT_S = 3.0  # a child in the background may hold the output open: no longer than this


def exit_code(code: int) -> int:
    return 128 - code if code < 0 else code


class Running:
    """A command's events in order: its output, then its exit; Refused when the relay is lost."""

    def __init__(self, box: Box, command: Command, timeout_s: float):
        self.box, self.command = box, command
        self.deadline = time.monotonic() + timeout_s if timeout_s else None
        self.queue: asyncio.Queue = asyncio.Queue(64)
        self.tasks = [asyncio.create_task(self.watch(box.broken))]
        self.pumps = [
            asyncio.create_task(self.pump(reader, kind)) for reader, kind in command.outputs
        ]
        self.tasks.append(asyncio.create_task(self.finish()))

    async def pump(self, reader: asyncio.StreamReader, kind: str) -> None:
        with contextlib.suppress(OSError):  # a terminal ends with EIO
            while data := await reader.read(4096):
                await self.queue.put(pb.ExecSandboxEvent(**{kind: {"data": data}}))

    async def finish(self) -> None:
        code = await self.command.process.wait()
        await asyncio.wait(self.pumps, timeout=LAST_OUTPUT_S)
        await self.queue.put(pb.ExecSandboxEvent(exit={"exit_code": exit_code(code)}))

    async def watch(self, broken: asyncio.Event) -> None:
        await broken.wait()
        await self.queue.put(Refused(grpc.StatusCode.UNAVAILABLE, "relay lost"))

    def lose(self) -> None:
        """The caller's request side ended early (8.9)."""
        self.queue.put_nowait(Refused(grpc.StatusCode.UNAVAILABLE, "exec stream ended without exit"))

    async def events(self):
        try:
            while True:
                left = None if self.deadline is None else max(0, self.deadline - time.monotonic())
                try:
                    event = await asyncio.wait_for(self.queue.get(), left)
                except asyncio.TimeoutError:
                    event = pb.ExecSandboxEvent(exit={"exit_code": 124})
                if isinstance(event, Refused):
                    raise event
                yield event
                if event.WhichOneof("payload") == "exit":
                    return
        finally:
            for task in [*self.tasks, *self.pumps]:
                task.cancel()
            self.command.forget()


class Commands:
    """The exec methods; mixed into Gateway."""

    async def ExecSandbox(self, request, context):
        limits.check_exec(request)
        box = self.ready(request.sandbox_id)
        line = limits.exec_line(request)
        command = await self.boxes.run(box, line, (1, 1) if request.tty else None)

        async def feed() -> None:
            with contextlib.suppress(OSError):
                command.stdin.write(request.stdin)
                await command.stdin.drain()
                if not request.tty:  # a terminal sees no end of input
                    command.stdin.close()

        feeding = asyncio.create_task(feed())
        async for event in Running(box, command, request.timeout_seconds).events():
            yield event
        feeding.cancel()

    async def ExecSandboxInteractive(self, requests, context):
        frames = aiter(requests)
        first = await anext(frames, None)
        if first is None or first.WhichOneof("payload") != "start":
            raise limits.invalid("the first message must be start")
        start = first.start
        limits.check_message(first)
        limits.check_exec(start)
        box = self.ready(start.sandbox_id)
        size = (start.rows or 24, start.cols or 80) if start.tty else None
        command = await self.boxes.run(box, limits.exec_line(start), size)
        running = Running(box, command, start.timeout_seconds)

        async def feed() -> None:
            async for frame in frames:
                kind = frame.WhichOneof("payload")
                if frame.ByteSize() > limits.MESSAGE_MAX:
                    break
                if kind == "resize":
                    command.resize(frame.resize.rows, frame.resize.cols)
                elif kind == "stdin":
                    with contextlib.suppress(OSError):
                        command.stdin.write(frame.stdin)
                        await command.stdin.drain()
            running.lose()
            command.hang_up()

        feeding = asyncio.create_task(feed())
        try:
            async for event in running.events():
                yield event
        finally:
            feeding.cancel()
