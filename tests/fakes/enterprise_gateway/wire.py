"""HTTP/1.1 on asyncio streams with the handles that a fault needs: cut, reset, drip, garbage."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from dataclasses import dataclass, field

MAX_HEAD = 64 * 1024


@dataclass
class Request:
    method: str
    path: str
    query: str
    headers: dict[str, str]
    raw_headers: list[tuple[str, str]]
    body: bytes
    number: int = 0


@dataclass
class Response:
    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def json(cls, status: int, value: object, **headers: str) -> "Response":
        pairs = [(name.replace("_", "-"), text) for name, text in headers.items()]
        return cls(status, json.dumps(value).encode() + b"\n", headers=pairs)

    def encode(self) -> tuple[bytes, bytes]:
        lines = [f"HTTP/1.1 {self.status} X", f"Content-Length: {len(self.body)}"]
        if self.status != 204:
            lines.append(f"Content-Type: {self.content_type}")
        lines += [f"{name}: {value}" for name, value in self.headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode(), self.body


class Closed(Exception):
    """The peer went away or the fake cut the connection."""


class Connection:
    """One client connection; a handler may end it in the middle of anything."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer = reader, writer

    async def read_request(self) -> Request:
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError) as exc:
            raise Closed from exc
        line, *rest = head[:-4].decode("latin-1").split("\r\n")
        method, target, _version = line.split(" ", 2)
        raw = [tuple(part.strip() for part in item.split(":", 1)) for item in rest]
        headers = {name.lower(): value for name, value in raw}
        path, _, query = target.partition("?")
        body = b""
        try:
            if "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            elif "chunked" in headers.get("transfer-encoding", ""):
                body = await self._read_chunks()
        except (asyncio.IncompleteReadError, ConnectionError) as exc:
            raise Closed from exc
        return Request(method, path, query, headers, raw, body)

    async def _read_chunks(self) -> bytes:
        parts = []
        while size := int((await self.reader.readline()).split(b";")[0], 16):
            parts.append(await self.reader.readexactly(size))
            await self.reader.readexactly(2)
        while (await self.reader.readline()).strip():
            pass
        return b"".join(parts)

    async def send(self, data: bytes) -> None:
        try:
            self.writer.write(data)
            await self.writer.drain()
        except ConnectionError as exc:
            raise Closed from exc

    async def drip(self, data: bytes, interval_s: float) -> None:
        for byte in data:
            await self.send(bytes([byte]))
            await asyncio.sleep(interval_s)

    def cut(self) -> None:
        """End with FIN."""
        self.writer.close()
        raise Closed

    def reset(self) -> None:
        """End with RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
        raise Closed


async def exchange_unix(socket_path: str, request: Request, path: str) -> Response:
    """Pass one request on to a server on a unix socket, on a connection of its own."""
    reader, writer = await asyncio.open_unix_connection(socket_path)
    try:
        dropped = {"host", "connection", "content-length", "transfer-encoding", "authorization"}
        target = path + (f"?{request.query}" if request.query else "")
        lines = [f"{request.method} {target} HTTP/1.1", "Host: sandbox", "Connection: close"]
        lines += [f"{n}: {v}" for n, v in request.raw_headers if n.lower() not in dropped]
        lines.append(f"Content-Length: {len(request.body)}")
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + request.body)
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
        status = int(head[0].split(" ")[1])
        headers = {k.strip().lower(): v.strip() for k, v in (h.split(":", 1) for h in head[1:])}
        if "content-length" in headers:
            body = await reader.readexactly(int(headers["content-length"]))
        else:
            body = await reader.read()
        return Response(status, body, headers.get("content-type", "application/json"))
    finally:
        writer.close()
