"""The Enterprise sandbox gateway's protocol, with faults on command.

    python3 -m enterprise_gateway --listen 127.0.0.1:0 --token T [--bindery PATH]

Prints `listening PORT` when ready. With --bindery each sandbox runs a real `bindery shellctl
serve`; without it jobs are canned. Control routes, never subject to faults:

    PUT    /__fake/faults        [rule, …]                 see faults.py
    PUT    /__fake/random        {"probability": 0.01}     every fault, each with this probability
    GET    /__fake/sandboxes     {"alive": [id, …], "created_total": n, "jobs": n,
                                   "unanswered": ids whose create's answer was spoiled}
    DELETE /__fake/sandboxes/ID  the sandbox expires (its next use is answered sandbox_expired)
    GET    /__fake/log           [{"method", "path", "headers", "body"}, …] and forgets it
    PUT    /__fake/token         {"token": "…"}            rotate the key
    PUT    /__fake/reset         no sandboxes, no faults
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from urllib.parse import unquote

from .faults import Faults, spoil
from .sandboxes import Sandboxes, envelope
from .wire import Closed, Connection, Request, Response

LOG_LIMIT = 20000


class Gateway:
    def __init__(self, token: str, bindery: str | None):
        self.token = token
        self.sandboxes = Sandboxes(bindery)
        self.faults = Faults()
        self.log: list[dict[str, object]] = []
        self.open_connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        self.open_connections += 1
        try:
            while True:
                request = await connection.read_request()
                response = await self.answer(connection, request)
                if response:
                    await connection.send(b"".join(response.encode()))
        except (Closed, ConnectionError, asyncio.CancelledError):
            pass  # gone, or the gateway stops
        finally:
            self.open_connections -= 1
            writer.close()

    async def answer(self, connection: Connection, request: Request) -> Response | None:
        if request.path.startswith("/__fake/"):
            return await self.control(request)
        if len(self.log) < LOG_LIMIT:
            self.log.append(
                {
                    "method": request.method,
                    "path": request.path,
                    "headers": request.raw_headers,
                    "body": request.body.decode("utf-8", "replace"),
                }
            )
        rule = self.faults.pick(request)
        if rule is None:
            return await self.handle(request)
        if rule.when == "after":
            answer = await self.handle(request)
            if request.path == "/v1/sandboxes" and answer.status == 201:
                self.sandboxes.unanswered.add(json.loads(answer.body)["sandboxId"])
            return await spoil(connection, rule, answer)
        spoilt = await spoil(connection, rule, None)
        if spoilt is None and rule.fault == "delay":
            return await self.handle(request)
        return spoilt

    # ---- the protocol ---------------------------------------------------------------------------

    async def handle(self, request: Request) -> Response:
        if self.token and request.headers.get("x-inner-api-key") != self.token:
            return Response.json(401, {"reason": "unauthorized", "message": "bad X-Inner-Api-Key"})
        if request.path.startswith("/proxy/"):
            return await self.proxy(request)
        if request.path == "/v1/sandboxes" and request.method == "POST":
            return await self.create(request)
        parts = request.path.split("/")
        if parts[1:3] == ["v1", "sandboxes"] and len(parts) == 4 and request.method == "DELETE":
            gone = await self.sandboxes.remove(unquote(parts[3]))
            return Response(204) if gone else not_found("no such sandbox")
        if parts[1:3] == ["v1", "sandboxes"] and parts[4:] == ["home-snapshots"]:
            return self.snapshot(request, unquote(parts[3]))
        if parts[1:3] == ["v1", "home-snapshots"] and request.method == "DELETE":
            ref = unquote(request.path.removeprefix("/v1/home-snapshots/"))
            return Response(204) if self.sandboxes.snapshots.pop(ref, None) else not_found("no such snapshot")
        return not_found("no such route")

    async def create(self, request: Request) -> Response:
        try:
            body = json.loads(request.body)
            tenant = body["tenantId"]
        except (ValueError, KeyError, TypeError):
            return Response.json(400, {"reason": "bad_request", "message": "tenantId is required"})
        ref = body.get("homeSnapshotRef")
        if ref is not None and ref not in self.sandboxes.snapshots:
            return not_found("no such snapshot")
        sandbox = await self.sandboxes.create(tenant, ref)
        return Response.json(201, {"sandboxId": sandbox.id})

    def snapshot(self, request: Request, sandbox_id: str) -> Response:
        if sandbox_id not in self.sandboxes.alive:
            return not_found("no such sandbox")
        body = json.loads(request.body)
        ref = f"snap/{body['tenantId']}/{body['homeSnapshotId']}"
        self.sandboxes.snapshots[ref] = sandbox_id
        return Response.json(201, {"snapshotRef": ref})

    async def proxy(self, request: Request) -> Response:
        health = request.path == "/proxy/healthz"
        bearer = request.headers.get("authorization", "")
        if self.token and not health and bearer != f"Bearer {self.token}":
            return Response.json(401, envelope("unauthorized", "bad bearer"))
        sandbox_id = request.headers.get("x-sandbox-id", "")
        sandbox = self.sandboxes.alive.get(sandbox_id)
        if sandbox is None:
            code = "sandbox_expired" if sandbox_id in self.sandboxes.expired else "sandbox_not_found"
            return Response.json(404, envelope(code, "the sandbox is gone"))
        return await self.sandboxes.shellctl(sandbox, request)

    # ---- control --------------------------------------------------------------------------------

    async def control(self, request: Request) -> Response:
        what = (request.method, request.path.removeprefix("/__fake/"))
        if what == ("PUT", "faults"):
            self.faults.load(json.loads(request.body))
        elif what == ("PUT", "random"):
            self.faults.load_random(json.loads(request.body)["probability"])
        elif what == ("PUT", "reset"):
            self.faults.load([])
            self.log = []
            await self.sandboxes.remove_all()
        elif what == ("PUT", "token"):
            self.token = json.loads(request.body)["token"]
        elif what == ("GET", "log"):
            log, self.log = self.log, []
            return Response.json(200, log)
        elif what == ("GET", "sandboxes"):
            alive = self.sandboxes.alive
            jobs = sum(len(sandbox.jobs) for sandbox in alive.values())
            answer = {"alive": list(alive), "created_total": self.sandboxes.created_total, "jobs": jobs}
            answer["unanswered"] = list(self.sandboxes.unanswered)
            answer["connections"] = self.open_connections
            answer["snapshots"] = list(self.sandboxes.snapshots)
            return Response.json(200, answer)
        elif request.method == "DELETE" and what[1].startswith("sandboxes/"):
            await self.sandboxes.remove(what[1].removeprefix("sandboxes/"), expired=True)
        else:
            return not_found("no such control route")
        return Response(204)


def not_found(message: str) -> Response:
    return Response.json(404, {"reason": "not_found", "message": message})


async def main() -> None:
    parser = argparse.ArgumentParser(description="fake Enterprise sandbox gateway")
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--token", default="")
    parser.add_argument("--bindery", help="executable for real sandboxes; canned ones without")
    options = parser.parse_args()
    gateway = Gateway(options.token, options.bindery)
    host, port = options.listen.rsplit(":", 1)
    server = await asyncio.start_server(gateway.serve, host, int(port), backlog=4096)
    print("listening", server.sockets[0].getsockname()[1], flush=True)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    server.close()
    await gateway.sandboxes.remove_all()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(130)
