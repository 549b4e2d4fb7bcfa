"""Sandboxes as namespaces: bubblewrap holds a mount, network and pid namespace per sandbox with its
own /home/dify; commands enter it with nsenter, forwards connect inside its network namespace. Needs
root, as a gateway's driver does."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import sys
import struct
import tempfile
import termios
import time
import uuid
from dataclasses import dataclass, field

from openshell._proto import openshell_pb2 as pb

PHASE = pb.SandboxPhase
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


def phase(name: str) -> int:
    return PHASE.Value(f"SANDBOX_PHASE_{name}")


@dataclass
class Session:
    token: str
    sandbox_id: str
    expires_at_ms: int
    revoked: bool = False
    streams: int = 0


@dataclass
class Box:
    """One sandbox: the record and, while it runs, its namespaces."""

    record: pb.Sandbox
    directory: str
    holder: asyncio.subprocess.Process | None = None
    pid: int = 0
    starting: asyncio.Task | None = None
    booting: asyncio.Task | None = None
    forwards: int = 0
    broken: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def id(self) -> str:
        return self.record.metadata.id

    @property
    def name(self) -> str:
        return self.record.metadata.name

    @property
    def phase(self) -> int:
        return self.record.status.phase

    def is_ready(self) -> bool:
        return self.phase == phase("READY")


@dataclass
class Command:
    """A process in a sandbox with the ends of its streams."""

    process: asyncio.subprocess.Process
    stdin: asyncio.StreamWriter
    outputs: list[tuple[asyncio.StreamReader, str]]
    terminal: int | None = None

    @staticmethod
    def set_size(terminal: int, rows: int, columns: int) -> None:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows: int, columns: int) -> None:
        if self.terminal is not None:
            self.set_size(self.terminal, rows, columns)

    def hang_up(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGHUP)

    def forget(self) -> None:
        """Nobody listens any more; the process goes on."""
        self.terminal = None
        if not self.stdin.is_closing():
            self.stdin.close()


async def terminal_streams(master: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await loop.connect_read_pipe(lambda: protocol, os.fdopen(os.dup(master), "rb", 0))
    transport, flow = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(master, "wb", 0)
    )
    return reader, asyncio.StreamWriter(transport, flow, reader, loop)


class Boxes:
    """All sandboxes, by id; names are unique per workspace while a record exists."""

    def __init__(self, shellctl: str, ready_delay_s: float, session_ttl_s: float):
        self.by_id: dict[str, Box] = {}
        self.sessions: dict[str, Session] = {}
        self.ready_delay_s, self.session_ttl_s = ready_delay_s, session_ttl_s
        self.root = tempfile.mkdtemp(prefix="fosg-")
        self.shared = os.path.join(self.root, "shared")
        os.makedirs(os.path.join(self.shared, "home-snapshots"))
        self.wrapper = os.path.join(self.root, "shellctl")
        with open(self.wrapper, "w", encoding="utf-8") as out:
            out.write(
                "#!/bin/sh\nBINDERY_LOCAL_ISOLATION=none "
                'exec /usr/local/bin/bindery shellctl "$@"\n'
            )
        os.chmod(self.wrapper, 0o755)
        # bound into each sandbox: where it lies here may be hidden there
        self.programs = [os.path.realpath(shellctl)]
        runner = os.path.join(os.path.dirname(self.programs[0]), "bindery-runner")
        if os.path.exists(runner):
            self.programs.append(runner)
        self.changed = asyncio.Condition()
        self.threads = concurrent.futures.ThreadPoolExecutor(32)

    def find(self, name: str, workspace: str) -> Box | None:
        workspace = workspace or "default"
        for box in self.by_id.values():
            if box.name == name and box.record.metadata.workspace == workspace:
                return box
        return None

    async def touch(self, box: Box) -> None:
        box.record.metadata.resource_version += 1
        async with self.changed:
            self.changed.notify_all()

    async def set_phase(self, box: Box, name: str, reason: str = "", message: str = "") -> None:
        box.record.status.phase = phase(name)
        del box.record.status.conditions[:]
        condition = box.record.status.conditions.add(type="Ready", reason=reason, message=message)
        condition.status = "True" if name == "READY" else "False"
        await self.touch(box)

    # ---- life -----------------------------------------------------------------------------------

    async def create(self, request: pb.CreateSandboxRequest, name: str) -> Box:
        record = pb.Sandbox(spec=request.spec)
        meta = record.metadata
        meta.id, meta.name = str(uuid.uuid4()), name
        meta.workspace = request.workspace or "default"
        meta.created_at_ms, meta.resource_version = int(time.time() * 1000), 1
        meta.labels.update(request.labels)
        meta.annotations.update(request.annotations)
        record.status.phase = phase("PROVISIONING")
        box = Box(record, os.path.join(self.root, meta.id))
        os.makedirs(os.path.join(box.directory, "home"))
        self.by_id[box.id] = box
        box.starting = asyncio.create_task(self.bring_up(box))
        return box

    async def bring_up(self, box: Box) -> None:
        await asyncio.sleep(self.ready_delay_s)
        # given up half-way, bubblewrap could leave its child behind: it is always brought up, then ended
        box.booting = asyncio.create_task(self.boot(box))
        await asyncio.shield(box.booting)
        if box.phase == phase("DELETING"):
            return
        box.record.status.main_process_instance_id = str(uuid.uuid4())
        await self.set_phase(box, "READY", "DependenciesReady")

    async def boot(self, box: Box) -> None:
        box.broken = asyncio.Event()
        read_end, write_end = os.pipe()
        home = os.path.join(box.directory, "home")
        box.holder = await asyncio.create_subprocess_exec(
            *("bwrap", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev"),
            *("--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/home", "--bind", home, "/home/dify"),
            # this Python runs in sandboxes as well, also where /tmp or /home holds it
            *("--ro-bind", sys.prefix, sys.prefix),
            *("--tmpfs", "/mnt", "--bind", self.shared, "/mnt/dify-agent-shared"),
            *("--tmpfs", "/usr/local/bin", "--ro-bind", self.wrapper, "/usr/local/bin/shellctl"),
            *(
                word
                for path in self.programs
                for word in ("--ro-bind", path, "/usr/local/bin/" + os.path.basename(path))
            ),
            *("--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
            *("--info-fd", str(write_end), "/bin/sh", "-c", "echo up; exec sleep infinity"),
            pass_fds=(write_end,),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        os.close(write_end)
        with os.fdopen(read_end) as info:
            box.pid = json.loads(await asyncio.to_thread(info.read))["child-pid"]
        # the pid is told before the mounts are made: the command within runs only after them
        await box.holder.stdout.readline()

    async def take_down(self, box: Box) -> None:
        """Processes, streams and sessions end; the files stay."""
        if box.starting:
            box.starting.cancel()
        if box.booting:
            await asyncio.wait([box.booting])
        box.broken.set()
        for token in [t for t, s in self.sessions.items() if s.sandbox_id == box.id]:
            del self.sessions[token]
        if box.holder and box.holder.returncode is None:
            # the namespace's first process too: bubblewrap binds it to its own end only after `up`
            with contextlib.suppress(ProcessLookupError):
                if box.pid:
                    os.kill(box.pid, signal.SIGKILL)
                box.holder.kill()
            await box.holder.wait()
        box.holder, box.pid = None, 0

    async def remove(self, box: Box) -> None:
        await self.take_down(box)
        self.by_id.pop(box.id, None)
        shutil.rmtree(box.directory, ignore_errors=True)
        async with self.changed:
            self.changed.notify_all()

    async def clear(self) -> None:
        for box in list(self.by_id.values()):
            await self.remove(box)
        for name in os.listdir(self.shared):
            shutil.rmtree(os.path.join(self.shared, name))
        os.makedirs(os.path.join(self.shared, "home-snapshots"))

    async def close(self) -> None:
        await self.clear()
        shutil.rmtree(self.root, ignore_errors=True)

    # ---- inside ---------------------------------------------------------------------------------

    async def run(self, box: Box, line: str, size: tuple[int, int] | None) -> Command:
        """A login bash with this line; `size` (rows, columns) asks for a terminal."""
        environment = {
            "HOME": "/home/dify",
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "TERM": "xterm" if size else "dumb",
        }
        if "ASAN_OPTIONS" in os.environ:
            environment["ASAN_OPTIONS"] = os.environ["ASAN_OPTIONS"]
        argv = (
            *("nsenter", "--target", str(box.pid), "--mount", "--net", "--pid", "--ipc", "--uts"),
            *("--root", "--wdns=/home/dify", "/bin/bash", "-l", "-c", line),
        )
        pipe = asyncio.subprocess.PIPE
        if size is None:
            process = await asyncio.create_subprocess_exec(
                *argv, env=environment, stdin=pipe, stdout=pipe, stderr=pipe
            )
            outputs = [(process.stdout, "stdout"), (process.stderr, "stderr")]
            return Command(process, process.stdin, outputs)
        master, slave = os.openpty()
        Command.set_size(master, *size)
        process = await asyncio.create_subprocess_exec(
            *argv, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        reader, writer = await terminal_streams(master)
        return Command(process, writer, [(reader, "stdout")], master)

    async def connect(self, box: Box, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        def dial() -> socket.socket:
            mine = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            theirs = os.open(f"/proc/{box.pid}/ns/net", os.O_RDONLY)
            try:
                if LIBC.setns(theirs, CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
                try:
                    return socket.create_connection(("127.0.0.1", port), 5)
                finally:
                    LIBC.setns(mine, CLONE_NEWNET)
            finally:
                os.close(mine)
                os.close(theirs)

        made = await asyncio.get_running_loop().run_in_executor(self.threads, dial)
        made.setblocking(False)
        return await asyncio.open_connection(sock=made)

    def open_session(self, box: Box) -> Session:
        expires = int((time.time() + self.session_ttl_s) * 1000) if self.session_ttl_s else 0
        session = Session(str(uuid.uuid4()), box.id, expires)
        self.sessions[session.token] = session
        return session
