"""Two bindings on one sandbox daemon, under each isolation that works here, as root and as a user:
neither reaches the other's files, processes or sockets, nor the daemon's; bombs and floods of one
leave the other and the daemon alone."""

import contextlib
import os
import shutil
import socket
import time
from pathlib import Path

import harness
import pytest
from harness import wait_until
from shellctl_client import ShellctlClient

STDIO = {"mode": "stdio"}
NOBODY = 65534


class Places:
    """A daemon on a private socket, with bindings a and b."""

    def __init__(self, bindery, folder, policy, user, settings):
        if user == "nobody":
            os.chown(folder, NOBODY, NOBODY)
        self.user, self.folder = user, folder
        settings = {
            "BINDERY_LOCAL_ISOLATION": policy,
            "SHELLCTL_AUTH_TOKEN": "the-daemons-token",
            "AWS_SECRET_ACCESS_KEY": "the-operators-secret",
            **settings,
        }
        arguments = ["shellctl", "serve", "--listen", f"unix:{folder}/state/s"]
        arguments += ["--state-dir", str(folder / "state")]
        program = bindery
        if user == "nobody":
            identity = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            arguments = [*identity, str(bindery), *arguments]
            program = Path(shutil.which("setpriv"))
        (folder / "state").mkdir(mode=0o700)
        listen, token = f"unix:{folder}/state/s", "the-daemons-token"
        self.daemon = harness.Daemon(program, folder / "daemon", arguments, settings, listen, token)
        if user == "nobody":
            for name in ("state", "daemon"):
                os.chown(folder / name, NOBODY, NOBODY)

    def binding(self, name) -> ShellctlClient:
        folders = {"Home": self.folder / "homes" / name, "Workspace": self.folder / "work" / name}
        for path in folders.values():
            path.parent.mkdir(mode=0o711, exist_ok=True)
            path.mkdir(mode=0o700)
            if self.user == "nobody":
                os.chown(path.parent, NOBODY, NOBODY)
                os.chown(path, NOBODY, NOBODY)
        headers = {f"X-Bindery-{what}": str(path) for what, path in folders.items()}
        return ShellctlClient(
            "http://x", token=self.daemon.token, client=self.daemon.http, headers=headers
        )


@pytest.fixture(params=["auto", "landlock"])
def policy(request):
    return request.param


@pytest.fixture(params=["root", "nobody"] if os.geteuid() == 0 else ["self"])
def places(request, bindery, folder, programs, policy):
    def make(**settings):
        made = Places(bindery, folder, policy, request.param, settings)
        programs.append(made.daemon)
        made.daemon.launch()
        wait_until(
            lambda: not made.daemon.running or made.daemon.is_healthy(), 20, "answer of the daemon"
        )
        if not made.daemon.running:
            words = made.daemon.output()
            made.daemon.process = None
            pytest.skip(f"{policy} does not work here: {words.strip()[-300:]}")
        return made

    return make


def complete(client, script):
    """Run to the end: the last status and exit code, and all of the output."""
    last, output = client.finish(client.run(script, timeout=30, **STDIO))
    return last.status, last.exit_code, output


def test_nothing_of_the_other_binding_or_the_daemon(places):
    place = places()
    a, b = place.binding("a"), place.binding("b")
    folder = place.folder
    b.run("echo b-secret > $HOME/s; echo b-secret > s; chmod 666 s", **STDIO)
    sleeper = b.run("SECRET=b-secret exec sleep 300", timeout=0.3, **STDIO).job_id
    pids = " ".join(str(pid) for pid in harness.descendants(os.getpid()))
    attack = f"""
        for path in homes/b/s work/b/s state/shellctl.db; do
            cat {folder}/$path 2>/dev/null && echo "read $path"
        done
        for path in homes/b work/b state state/jobs; do
            ls {folder}/$path 2>/dev/null | grep . && echo "list $path"
        done
        echo x 2>/dev/null >> {folder}/work/b/s; rm -rf {folder}/work/b/s {folder}/state 2>/dev/null
        for pid in {pids}; do
            kill -KILL $pid 2>/dev/null
            tr '\\0' '\\n' < /proc/$pid/environ 2>/dev/null
        done | grep -e secret -e token && echo "read an environment"
        env | grep -e secret -e token
        cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -e secret -e token
        true
    """
    assert complete(a, attack) == ("exited", 0, "")
    assert b.status(sleeper).status == "running"
    assert b.run("cat s $HOME/s", **STDIO).output == "b-secret\nb-secret\n"
    assert place.daemon.is_healthy()
    b.delete(sleeper, force=True, grace_seconds=0)


def test_no_socket_of_the_host(places):
    place = places()
    a = place.binding("a")
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as tcp:
        probe = f"""
import os, socket
for family, address in ((socket.AF_INET, ("127.0.0.1", {tcp.getsockname()[1]})),
                        (socket.AF_UNIX, "{place.folder}/state/s")):
    try:
        socket.socket(family).connect(address)
        print("reached", address)
    except OSError:
        pass
print("done")
"""
        assert complete(a, f"python3 - <<'E'\n{probe}E") == ("exited", 0, "done\n")


def test_a_bomb_stays_in_its_binding(places):
    place = places(BINDERY_JOB_MAX_PROCESSES="60")
    a, b = place.binding("a"), place.binding("b")
    # The shell itself forks nothing once the bomb is lit: it must not die of what it set off.
    bomb = a.run("b() { b | b & }; sleep 300 & (b) & wait", timeout=0.5, **STDIO).job_id
    begun = time.monotonic()
    assert complete(b, "true | true && echo fine") == ("exited", 0, "fine\n")
    assert place.daemon.is_healthy()
    assert a.terminate(bomb, grace_seconds=0).status == "terminated"
    assert time.monotonic() - begun < 30
    assert complete(a, "true | true && echo fine") == ("exited", 0, "fine\n")


def test_memory_stays_in_its_binding(places):
    place = places(BINDERY_JOB_MAX_MEMORY_MIB="64")
    a = place.binding("a")
    status, _, output = complete(a, "head -c 300M /dev/zero | tail -c 290M | wc -c")
    assert status == "exited" and output.strip() != str(290 << 20)


def test_jobs_give_way_to_the_service(places):
    assert complete(places(BINDERY_JOB_NICE="7").binding("a"), "nice") == ("exited", 0, "7\n")


def test_ordinary_work(places):
    """What agents do all day must work under every isolation."""
    a = places().binding("a")
    script = """
        set -e
        mkdir -p src && cd src
        printf 'print(6 * 7)\\n' > main.py
        python3 main.py
        git init -q . 2>/dev/null && git -c user.name=a -c user.email=a@b add . && \
            git -c user.name=a -c user.email=a@b commit -qm first && git log --format=%s
        tar cf ../src.tar . && tar tf ../src.tar | grep main.py
        python3 -c 'import tempfile; tempfile.TemporaryFile().write(b"x")'
        if : > /dev/shm/x; then  # without a mount namespace there is no shared memory
            python3 -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1, -2]))'
        else
            echo "[1, 2]"
        fi 2>/dev/null
        echo to-stderr > /dev/stderr; echo to-stdout > /dev/stdout
        diff <(echo 1) <(echo 1) 2>/dev/null || true
        whoami >/dev/null || id -u >/dev/null
        date >/dev/null; sleep 0.01; seq 3 | xargs -n1 echo | sort -r | head -1
    """
    status, code, output = complete(a, "#!/bin/bash\n" + script)
    assert (status, code) == ("exited", 0), output
    expected = ["42", "./main.py", "[1, 2]", "to-stdout", "3"]
    assert [line for line in output.splitlines() if line != "first"] == expected
    assert ("first" in output) == (shutil.which("git") is not None)
    assert complete(a, "cat src/main.py")[2] == "print(6 * 7)\n", "and it is there in the next job"


def test_the_whole_service(server, policy):
    """From binding to command through the server, whose own folder is closed to others."""
    one = server(settings={"BINDERY_LOCAL_ISOLATION": policy})
    facts = one.http.get("/readyz").text
    assert '"isolated":true' in facts, facts
    ids = {"tenant_id": "t", "agent_id": "a", "binding_id": "b", "workspace_id": "w"}
    binding = one.http.post("/execution-bindings", json=ids).json()
    lease = one.http.post("/v1/leases", json={"binding_ref": binding["binding_ref"]}).json()
    commands = f"/v1/leases/{lease['lease_id']}/commands"
    for script, output in (("echo kept > f; echo $HOME > ~/h", ""), ("cat f", "kept\n")):
        result = one.http.post(commands, json={"script": script}).json()
        assert (result["status"], result["exit_code"], result["output"]) == ("exited", 0, output)
    result = one.http.post(commands, json={"script": f"cat {one.folder}/data/*; id -u"}).json()
    assert "lease" not in result["output"] and result["output"].splitlines()[-1] != "0"


def test_refused_without_isolation_says_what_to_do(bindery, folder, programs):
    """State that every job could read is refused, with words and a status for settings."""
    if os.geteuid() != 0:
        pytest.skip("needs to write below /opt")
    state = Path("/opt/bindery-test-state")
    daemon = harness.Daemon(
        bindery,
        folder / "daemon",
        ["shellctl", "serve", "--listen", f"unix:{folder}/s", "--state-dir", str(state)],
        {},
        f"unix:{folder}/s",
        None,
    )
    programs.append(daemon)
    try:
        daemon.launch()
        status = daemon.wait(20)
        daemon.process = None
        assert status != 0
        assert "/opt/bindery-test-state" in daemon.output() and "choose another" in daemon.output()
    finally:
        shutil.rmtree(state, ignore_errors=True)
