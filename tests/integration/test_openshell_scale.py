"""The OpenShell backend with many leases at once, and what becomes of them in bad times: the
gateway's restart, a cut network, a bearer that expires, Bindery's own sudden end. The sandboxes are
answers only (light.py of the fake). Full size with BINDERY_TEST_FULL=1; `-s` shows the figures."""

import asyncio
import collections
import concurrent.futures
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import threading
import time

import httpx
import pytest

import harness
from harness import wait_until
from openshell_fake import FakeOpenShell

FULL = os.environ.get("BINDERY_TEST_FULL") == "1"
READY = 2

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("bwrap") or not shutil.which("nsenter"),
    reason="the fake gateway needs root",
)


def full(large, small):
    return large if FULL else small


def explained(answer: httpx.Response) -> str:
    """The code of an answer that says what happened; "" of a good one."""
    if answer.status_code == 200:
        return ""
    said = answer.json().get("error") or answer.json()
    assert answer.status_code >= 500 and len(said["message"]) > 20, answer.text
    return said["code"]


def figures(**values) -> None:
    print(" ".join(f"{key}={value}" for key, value in values.items()))


@pytest.fixture
def gateway(bindery):
    with FakeOpenShell(bindery, "--light", "--ready-delay", "0") as one:
        yield one


@pytest.fixture
def front(server, gateway):
    return server(settings=gateway.settings)


class Crowd:
    """Many callers of one Bindery, each with a binding of its own."""

    def __init__(self, front, size: int):
        self.front, self.size = front, size
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self.http = front.new_client(limits=limits, timeout=120)
        self.pool = concurrent.futures.ThreadPoolExecutor(size)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pool.shutdown()
        self.http.close()

    def every(self, call, items) -> list:
        return list(self.pool.map(call, items))

    def create(self) -> list[dict]:
        return self.every(self.create_one, range(self.size))

    def create_one(self, n: int) -> dict:
        spec = {"tenant_id": "t", "agent_id": "a", "binding_id": f"b{n}", "workspace_id": f"w{n}"}
        answer = self.http.post("/execution-bindings", json=spec)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def acquire_one(self, refs: dict) -> dict:
        began = time.monotonic()
        answer = self.http.post("/v1/leases", json={"binding_ref": refs["binding_ref"]})
        assert answer.status_code == 201, answer.text
        return {**answer.json(), "waited": time.monotonic() - began}

    def leases(self) -> list[dict]:
        return self.every(self.acquire_one, self.create())

    def echo(self, lease: dict, data: bytes = b"1") -> httpx.Response:
        path = f"/v1/leases/{lease['lease_id']}/shellctl/echo"
        token = {"Authorization": f"Bearer {lease['shellctl']['token']}"}
        return self.http.post(path, content=data, headers=token)

    def works(self, lease: dict) -> bool:
        answer = self.echo(lease)
        return answer.status_code == 200 and answer.content == b"1"

    @contextlib.contextmanager
    def in_use(self, leases: list[dict], pause_s: float):
        """Meanwhile each lease is used again and again; yields how often which answer came."""
        answers, over = collections.Counter(), threading.Event()

        def use(lease):
            while not over.is_set():
                answer = self.echo(lease)
                answers[answer.status_code, explained(answer)] += 1
                time.sleep(pause_s)

        users = [self.pool.submit(use, lease) for lease in leases]
        try:
            yield answers
        finally:
            over.set()
        for user in users:
            user.result(120)

    def come_back(self, leases: list[dict], seconds: float = 60) -> None:
        wait_until(lambda: all(self.every(self.works, leases)), seconds, "every lease works again")

    def release(self, leases: list[dict]) -> None:
        def one(lease):
            return self.http.delete(f"/v1/leases/{lease['lease_id']}").status_code

        assert set(self.every(one, leases)) == {204}


def at_rest(gateway) -> None:
    """Nothing is left of the leases at the gateway."""

    def quiet():
        state = gateway.state()
        forwards = sum(box["forwards"] for box in state["sandboxes"].values())
        return state["sessions"] == 0 and forwards == 0

    wait_until(quiet, 30, "no session and no forward is left")


def is_sanitized(front) -> bool:
    """AddressSanitizer keeps freed memory for a while: how much there is says nothing then."""
    with open(f"/proc/{front.pid}/maps") as maps:
        return "libasan" in maps.read()


def resident_kib(front) -> int:
    with open(f"/proc/{front.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


# ---- size ---------------------------------------------------------------------------------------------


def test_many_cold_starts_at_once(front, gateway):
    size, cold_s = full(200, 25), full(5.0, 1.0)
    with Crowd(front, size) as crowd:
        refs = crowd.create()
        calls = gateway.state()["calls"]
        gateway.set(ready_delay=cold_s)
        began = time.monotonic()
        leases = crowd.every(crowd.acquire_one, refs)
        took = time.monotonic() - began
        state = gateway.state()
        made = {name: n - calls.get(name, 0) for name, n in state["calls"].items()}
        waits = sorted(lease["waited"] for lease in leases)
        own_ms = re.findall(r"POST route=/v1/leases path=\S+ status=201 ms=([\d.]+)", front.output())
        figures(
            leases=size,
            cold_start_s=cold_s,
            all_after_s=round(took, 2),
            p50_s=round(waits[size // 2], 2),
            max_s=round(waits[-1], 2),
            max_own_s=round(max(map(float, own_ms)) / 1000, 2),
            gets_each=round(made["GetSandbox"] / size, 1),
            connections=state["connections_peak"],
        )
        assert made["StartSandbox"] == made["ExecSandbox"] == size
        assert made.get("WatchSandbox", 0) == 0
        assert state["connections_peak"] <= 4, "waits share connections"
        assert state["running_peak"] <= 2 * size
        assert made["GetSandbox"] <= size * (6 + 3 * cold_s)
        assert all(crowd.every(crowd.works, leases))
        crowd.release(leases)
    at_rest(gateway)


async def hold(front, leases, each: int, held: asyncio.Event, go: asyncio.Event) -> int:
    """`each` streaming answers of every lease, all open at once; how many gave their first byte."""
    host, _, port = front.listen.rpartition(":")
    begun = 0

    async def one(lease):
        nonlocal begun
        reader, writer = await asyncio.open_connection(host, int(port))
        path = f"/v1/leases/{lease['lease_id']}/shellctl/hold"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        assert await reader.readexactly(1) == b"x"
        begun += 1
        if begun == each * len(leases):
            held.set()
        await go.wait()
        writer.close()

    await asyncio.gather(*(one(lease) for lease in leases for _ in range(each)))
    return begun


def test_many_live_tunnels(front, gateway):
    boxes, each = full(50, 5), 10
    with Crowd(front, boxes + 1) as crowd:
        *leases, other = crowd.leases()
        before = resident_kib(front)

        async def run():
            held, go = asyncio.Event(), asyncio.Event()
            holding = asyncio.create_task(hold(front, leases, each, held, go))
            waiting = asyncio.create_task(held.wait())
            await asyncio.wait({holding, waiting}, return_when="FIRST_COMPLETED", timeout=120)
            assert held.is_set(), "not every tunnel was held"
            state = await asyncio.to_thread(gateway.state)
            grown = resident_kib(front) - before
            live = sum(box["forwards"] for box in state["sandboxes"].values())
            assert await asyncio.to_thread(crowd.works, other)
            go.set()
            assert await holding == boxes * each
            return state, grown, live

        state, grown, live = asyncio.run(run())
        figures(
            tunnels=live,
            kib_each=round(grown / live, 1),
            connections=state["connections_peak"],
            limit_hits=state["limit_hits"],
        )
        assert live == boxes * each and state["limit_hits"] == 0
        assert state["connections_peak"] <= 2 + live // 100
        assert is_sanitized(front) or grown < live * 256, "memory of a live tunnel"
        crowd.release([*leases, other])
    at_rest(gateway)


def test_a_long_download_beside_small_exchanges(front, gateway):
    size = full(1 << 30, 48 << 20)
    with Crowd(front, 4) as crowd:
        big, small = crowd.leases()[:2]

        def small_times(until) -> list[float]:
            times = []
            while not until(len(times)):
                began = time.monotonic()
                assert crowd.works(small)
                times.append(time.monotonic() - began)
            return sorted(times)

        alone = small_times(lambda n: n >= full(2000, 200))
        before = resident_kib(front)
        over, peak = threading.Event(), [0]

        def download() -> int:
            got, path = 0, f"/v1/leases/{big['lease_id']}/shellctl/bytes/{size}"
            with crowd.http.stream("GET", path) as answer:
                for chunk in answer.iter_raw(1 << 20):
                    got += len(chunk)
                    peak[0] = max(peak[0], resident_kib(front))
            over.set()
            return got

        began = time.monotonic()
        job = crowd.pool.submit(download)
        beside = small_times(lambda n: over.is_set() or job.done())
        assert job.result() == size
        took = time.monotonic() - began
        p99 = [times[len(times) * 99 // 100] for times in (alone, beside)]
        figures(
            mib=size >> 20,
            mib_per_s=round((size >> 20) / took),
            beside=len(beside),
            p99_alone_ms=round(p99[0] * 1000, 2),
            p99_beside_ms=round(p99[1] * 1000, 2),
            ratio=round(p99[1] / p99[0], 1),
            grown_mib=round((peak[0] - before) / 1024, 1),
        )
        assert len(beside) >= 10, "the download starved the small exchanges"
        assert p99[1] < took / 3, "a small exchange waited for the download"
        assert is_sanitized(front) or peak[0] - before < 64 << 10, "the download is streamed, not kept"


# ---- bad times ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lose", [False, True], ids=["survive", "lost"])
def test_a_gateway_restart_under_live_leases(front, gateway, lose):
    with Crowd(front, full(100, 12)) as crowd:
        leases = crowd.leases()
        assert all(crowd.every(crowd.works, leases))
        with crowd.in_use(leases, 0.05) as answers:
            gateway.restart(closed=full(3.0, 1.0), lose=lose)
            time.sleep(full(6, 3))
        figures(leases=len(leases), lose=lose, answers=dict(answers))
        assert any(status != 200 for status, _ in answers), "the restart was felt"
        wait_until(
            lambda: all(box["phase"] == READY for box in gateway.sandboxes.values()), 30, "READY"
        )
        if lose:  # nothing runs in the sandboxes: each answer says so, and another lease starts it
            answer = crowd.echo(leases[0])
            assert answer.status_code >= 500 and "target connection failed" in answer.text
            refs = [{"binding_ref": lease["binding_ref"]} for lease in leases]
            crowd.release(crowd.every(crowd.acquire_one, refs))
        crowd.come_back(leases)
        crowd.release(leases)
    at_rest(gateway)
    assert gateway.state()["limit_hits"] == 0


def test_a_bearer_that_expires_under_live_leases(server, bindery):
    with FakeOpenShell(bindery, "--light", "--ready-delay", "0", "--bearer", "token-one") as gateway:
        bearer = {"DIFY_AGENT_OPENSHELL_BEARER_TOKEN": "token-one"}
        front = server(settings={**gateway.settings, **bearer})
        with Crowd(front, full(100, 12)) as crowd:
            leases = crowd.leases()

            async def while_expired():
                held, go = asyncio.Event(), asyncio.Event()
                holding = asyncio.create_task(hold(front, leases, 1, held, go))
                await asyncio.wait_for(held.wait(), 60)
                await asyncio.to_thread(gateway.set, bearer="token-two")
                answers = await asyncio.to_thread(crowd.every, crowd.echo, leases)
                state = await asyncio.to_thread(gateway.state)
                live = sum(box["forwards"] for box in state["sandboxes"].values())
                go.set()
                await holding
                return answers, live

            answers, live = asyncio.run(while_expired())
            assert live == len(leases), "what runs is not cut"
            for answer in answers:
                assert answer.status_code >= 500 and "invalid credentials" in answer.text, answer.text
            refs = [{"binding_ref": lease["binding_ref"]} for lease in leases]

            def acquire(one):
                return crowd.http.post("/v1/leases", json=one)

            for answer in crowd.every(acquire, refs):
                assert answer.json()["detail"]["code"] == "backend_auth", answer.text
            assert "BEARER_TOKEN" in crowd.http.get("/readyz").text
            gateway.set(bearer="token-one")
            crowd.come_back(leases)
            assert front.is_ready()
            crowd.release(leases)
        at_rest(gateway)
        assert "token-one" not in front.output()


def test_bindery_killed_with_live_tunnels(front, gateway):
    with Crowd(front, full(100, 12)) as crowd:
        leases = crowd.leases()

        async def kill():
            held, go = asyncio.Event(), asyncio.Event()
            holding = asyncio.create_task(hold(front, leases, 2, held, go))
            await asyncio.wait_for(held.wait(), 60)
            await asyncio.to_thread(front.kill)
            go.set()
            await holding

        asyncio.run(kill())
    wait_until(
        lambda: not any(box["forwards"] for box in gateway.sandboxes.values()), 30, "no forward left"
    )
    front.start().wait_ready()
    with Crowd(front, len(leases)) as crowd:
        crowd.come_back(leases)
        crowd.release(leases)
        assert crowd.echo(leases[0]).status_code == 410
    # what the dead process had not revoked ends with its time to live
    assert gateway.state()["sessions"] <= 2 * len(leases)


class Network:
    """A network namespace of its own, on a wire that can be cut."""

    def __init__(self, folder):
        tag = hashlib.sha256(str(folder).encode()).hexdigest()[:6]
        self.name, self.outside, self.inside = f"b-{tag}", f"bo{tag}", f"bi{tag}"
        octet = int(tag[:2], 16)
        self.here, self.there = f"10.211.{octet}.1", f"10.211.{octet}.2"
        for words in (
            f"netns add {self.name}",
            f"link add {self.outside} type veth peer name {self.inside} netns {self.name}",
            f"addr add {self.here}/24 dev {self.outside}",
            f"link set {self.outside} up",
            f"-n {self.name} addr add {self.there}/24 dev {self.inside}",
            f"-n {self.name} link set {self.inside} up",
            f"-n {self.name} link set lo up",
        ):
            self.ip(words)

    @staticmethod
    def ip(words: str) -> None:
        subprocess.run(["ip", *words.split()], check=True, capture_output=True)

    def cut_for(self, seconds: float) -> None:
        self.ip(f"link set {self.outside} down")
        time.sleep(seconds)
        self.ip(f"link set {self.outside} up")

    def close(self) -> None:
        subprocess.run(["ip", "link", "del", self.outside], capture_output=True)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)


@pytest.fixture
def network(folder):
    try:
        one = Network(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield one
    one.close()


def test_a_cut_network_under_live_leases(bindery, folder, programs, network):
    cut_s = full(20, 4)
    options = ("--light", "--ready-delay", "0", "--host", network.here)
    with FakeOpenShell(bindery, *options) as gateway:
        inside = folder / "bindery-inside"
        inside.write_text(f'#!/bin/sh\nexec ip netns exec {network.name} {bindery} "$@"\n')
        inside.chmod(0o755)
        listen = f"unix:{folder}/listen.sock"
        settings = {
            **gateway.settings,
            "BINDERY_LISTEN": listen,
            "BINDERY_DATA_DIR": str(folder / "data"),
        }
        front = harness.Server(inside, folder / "cut", ["serve"], settings, listen, None)
        programs.append(front)
        front.start().wait_ready()
        with Crowd(front, full(100, 12)) as crowd:
            crowd.http.close()
            transport = httpx.HTTPTransport(
                uds=listen.removeprefix("unix:"), limits=httpx.Limits(max_connections=None)
            )
            crowd.http = httpx.Client(transport=transport, base_url="http://bindery", timeout=120)
            leases = crowd.leases()
            before = resident_kib(front)
            with crowd.in_use(leases, 0.1) as answers:
                network.cut_for(cut_s)
            crowd.come_back(leases)
            grown = resident_kib(front) - before
            figures(leases=len(leases), cut_s=cut_s, answers=dict(answers), grown_kib=grown)
            assert is_sanitized(front) or grown < 64 << 10
            crowd.release(leases)
        at_rest(gateway)
