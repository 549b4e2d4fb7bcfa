"""Sandboxes that are answers only, for hundreds at once: no process, every exec ends with 0, and the
forwarded port answers HTTP by itself once an exec has brought it up:

    GET  …/healthz      ok
    POST …/echo         the body again
    GET  …/bytes/N      N bytes
    GET  …/hold         a first byte, then nothing until the caller goes
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

from .sandboxes import Box, Boxes, Command

BLOCK = b"x" * (256 << 10)


class Ended:
    """A process that has ended well, and its standard input."""

    returncode = 0

    async def wait(self) -> int:
        return 0

    def send_signal(self, _: int) -> None:
        pass

    def write(self, _: bytes) -> None:
        pass

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass

    def is_closing(self) -> bool:
        return True


class LightBoxes(Boxes):
    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.up: set[str] = set()
        self.serving: set[asyncio.Task] = set()

    async def boot(self, box: Box) -> None:
        box.broken = asyncio.Event()

    async def take_down(self, box: Box) -> None:
        self.up.discard(box.id)
        await super().take_down(box)

    async def run(self, box: Box, line: str, size) -> Command:
        self.up.add(box.id)
        ended, output = Ended(), asyncio.StreamReader()
        output.feed_eof()
        return Command(ended, ended, [(output, "stdout")])

    async def connect(self, box: Box, port: int):
        if box.id not in self.up:
            raise ConnectionRefusedError
        ours, theirs = socket.socketpair()
        for one in (ours, theirs):
            one.setblocking(False)
        serving = asyncio.create_task(self.serve(*await asyncio.open_connection(sock=theirs)))
        self.serving.add(serving)
        serving.add_done_callback(self.serving.discard)
        return await asyncio.open_connection(sock=ours)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self.answer(head.decode(), reader, writer)
        writer.close()

    async def answer(self, head: str, reader, writer) -> None:
        lengths = [line[15:] for line in head.split("\r\n") if line[:15].lower() == "content-length:"]
        body = await reader.readexactly(int(lengths[0])) if lengths else b""
        path = head.split(" ", 2)[1]
        start = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
        if path.endswith("/hold"):
            writer.write(start % 2 + b"x")
            await writer.drain()
            await reader.read(1)
            raise ConnectionAbortedError
        if "/bytes/" in path:
            left = int(path.rpartition("/")[2])
            writer.write(start % left)
            while left > 0:
                writer.write(BLOCK[:left])
                left -= len(BLOCK)
                await writer.drain()
            return
        body = b'{"status":"ok"}' if path.endswith("/healthz") else body
        writer.write(start % len(body) + body)
        await writer.drain()
