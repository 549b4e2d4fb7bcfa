"""The OpenShell gateway's gRPC interface, with the official SDK's messages and grpcio, and faults on
command. Sandboxes are namespaces with a real shell and a real shellctl in them; root only. With
--light they are answers only (light.py), for hundreds at once.

    python3 -m openshell_gateway --bindery PATH [--ready-delay 0.1] [--bearer T] [--tls DIR [--mtls]]
                                 [--light] [--host 127.0.0.1] [--port 0]

Prints `listening GRPC_PORT CONTROL_PORT`. The clients' side is a TCP relay in front of grpcio, so
that connections can be cut and the port closed without losing the sandboxes. Control routes:

    PUT  /faults     [rule, …]            see faults.py
    PUT  /settings   {"ready_delay": s, "deleting": s, "bearer": "…"}
    GET  /state      sandboxes, sessions, calls by method, limit hits
    PUT  /phase      {"name", "phase", "reason"?, "for"?}   force a phase, for some seconds
    POST /vanish     {"name"}             the record disappears
    POST /forget     {}                   every session token is unknown from now on
    POST /cut        {}                   every connection drops
    POST /restart    {"closed": s, "lose": bool}   port closed for s; processes lost or not
    POST /reset      {}                   no sandboxes, no faults, no snapshots
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
from pathlib import Path

import grpc
from openshell._proto import openshell_pb2_grpc as rpc

from .faults import Faults, Interceptor
from .light import LightBoxes
from .sandboxes import Boxes
from .servicer import Gateway


class Relay:
    """Clients connect here; each connection is carried to grpcio's own port."""

    def __init__(self, inner_port: int, host: str, port: int):
        self.host = host
        self.inner_port = inner_port
        self.writers: set[asyncio.StreamWriter] = set()
        self.server: asyncio.Server | None = None
        self.port, self.peak = port, 0

    async def open(self) -> None:
        self.server = await asyncio.start_server(self.carry, self.host, self.port, backlog=1024)
        self.port = self.server.sockets[0].getsockname()[1]

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.inner_port)
            self.writers |= {writer, inner_writer}
            self.peak = max(self.peak, len(self.writers) // 2)
            await asyncio.gather(
                self.copy(reader, inner_writer), self.copy(inner_reader, writer)
            )
            self.writers -= {writer, inner_writer}

    async def copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(262144):
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self) -> None:
        for writer in list(self.writers):
            writer.transport.abort()

    async def close_for(self, seconds: float) -> None:
        self.server.close()
        self.cut()
        await asyncio.sleep(seconds)
        await self.open()


class Control:
    """JSON over HTTP, one request a connection."""

    def __init__(self, gateway: Gateway, boxes: Boxes, faults: Faults, relay: Relay, auth: Interceptor):
        self.gateway, self.boxes, self.faults, self.relay = gateway, boxes, faults, relay
        self.auth = auth

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = head.split(" ", 2)
        length = next(
            (int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length")),
            0,
        )
        body = json.loads(await reader.readexactly(length) or b"null")
        answer = json.dumps(await self.handle(method, path, body)).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n"
            + f"Content-Length: {len(answer)}\r\n\r\n".encode()
            + answer
        )
        await writer.drain()
        writer.close()

    async def handle(self, method: str, path: str, body):
        if path == "/faults":
            self.faults.load(body)
        elif path == "/settings":
            self.boxes.ready_delay_s = body.get("ready_delay", self.boxes.ready_delay_s)
            self.boxes.session_ttl_s = body.get("session_ttl", self.boxes.session_ttl_s)
            self.faults.deleting_s = body.get("deleting", self.faults.deleting_s)
            self.auth.bearer = body.get("bearer", self.auth.bearer)
            self.gateway.version = body.get("version", self.gateway.version)
        elif path == "/phase":
            asyncio.create_task(self.force_phase(body))
        elif path == "/vanish":
            await self.boxes.remove(self.boxes.find(body["name"], body.get("workspace", "")))
        elif path == "/forget":
            self.boxes.sessions.clear()
        elif path == "/cut":
            self.relay.cut()
        elif path == "/restart":
            asyncio.create_task(self.restart(body))
        elif path == "/reset":
            self.faults.load([])
            await self.boxes.clear()
        return self.state()

    async def force_phase(self, body) -> None:
        box = self.boxes.find(body["name"], body.get("workspace", ""))
        before = box.phase
        await self.boxes.set_phase(box, body["phase"], body.get("reason", ""), body.get("message", ""))
        if "for" in body:
            await asyncio.sleep(body["for"])
            box.record.status.phase = before
            await self.boxes.touch(box)

    async def restart(self, body) -> None:
        running = [box for box in self.boxes.by_id.values() if box.is_ready()]
        for box in running:
            await self.boxes.set_phase(box, "PROVISIONING", "DependenciesNotReady")
            if body.get("lose"):
                await self.boxes.take_down(box)
        await self.relay.close_for(body.get("closed", 0.5))
        for box in running:
            if body.get("lose"):
                box.starting = asyncio.create_task(self.boxes.bring_up(box))
            else:
                await self.boxes.set_phase(box, "READY", "DependenciesReady")

    def state(self) -> dict:
        return {
            "sandboxes": {
                box.name: {
                    "id": box.id,
                    "phase": box.phase,
                    "labels": dict(box.record.metadata.labels),
                    "forwards": box.forwards,
                }
                for box in self.boxes.by_id.values()
            },
            "sessions": sum(not s.revoked for s in self.boxes.sessions.values()),
            "calls": self.faults.calls,
            "limit_hits": self.faults.limit_hits,
            "forwards_peak": self.faults.forwards_peak,
            "connections": len(self.relay.writers) // 2,
            "connections_peak": self.relay.peak,
            "running_peak": self.faults.running_peak,
        }


def credentials(folder: Path, mtls: bool) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials(
        [((folder / "server.key").read_bytes(), (folder / "server.crt").read_bytes())],
        root_certificates=(folder / "ca.crt").read_bytes() if mtls else None,
        require_client_auth=mtls,
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description="fake OpenShell gateway")
    parser.add_argument("--bindery", required=True)
    parser.add_argument("--ready-delay", type=float, default=0.1)
    parser.add_argument("--session-ttl", type=float, default=86400)
    parser.add_argument("--bearer", default="")
    parser.add_argument("--version", default="0.0.110")
    parser.add_argument("--light", action="store_true")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tls", type=Path)
    parser.add_argument("--mtls", action="store_true")
    options = parser.parse_args()

    faults = Faults()
    kind = LightBoxes if options.light else Boxes
    boxes = kind(options.bindery, options.ready_delay, options.session_ttl)
    gateway = Gateway(boxes, faults, options.version, "https" if options.tls else "http")
    auth = Interceptor(faults, options.bearer)
    server = grpc.aio.server(
        interceptors=[auth],
        options=[
            ("grpc.max_concurrent_streams", 200),
            ("grpc.max_receive_message_length", 8 << 20),
            ("grpc.keepalive_time_ms", 20000),
            ("grpc.keepalive_timeout_ms", 10000),
            ("grpc.http2.min_ping_interval_without_data_ms", 1000),
            ("grpc.keepalive_permit_without_calls", 1),
        ],
    )
    rpc.add_OpenShellServicer_to_server(gateway, server)
    if options.tls:
        inner = server.add_secure_port("127.0.0.1:0", credentials(options.tls, options.mtls))
    else:
        inner = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    relay = Relay(inner, options.host, options.port)
    await relay.open()
    faults.cut = relay.cut
    control = Control(gateway, boxes, faults, relay, auth)
    http = await asyncio.start_server(control.serve, "127.0.0.1", 0)
    print("listening", relay.port, http.sockets[0].getsockname()[1], flush=True)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    http.close()
    relay.server.close()
    await server.stop(0)
    await boxes.close()


if __name__ == "__main__":
    asyncio.run(main())
