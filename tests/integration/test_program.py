"""The command line itself: usage, version, and `bindery health` against a server of this test."""

import http.server
import socketserver
import subprocess
import threading

import pytest

import harness


def run(bindery, *args, **env):
    return subprocess.run([bindery, *args], capture_output=True, text=True, timeout=30, env=env)


def test_version_and_usage(bindery):
    assert run(bindery, "version").stdout.startswith("bindery ")
    assert "health" in run(bindery, "--help").stdout
    nothing = run(bindery)
    assert nothing.returncode == 64 and "usage:" in nothing.stderr
    unknown = run(bindery, "serv")
    assert unknown.returncode == 64 and "serv" in unknown.stderr


class Answer(http.server.BaseHTTPRequestHandler):
    statuses = {"/healthz": 200, "/readyz": 503}

    def do_GET(self):
        self.send_response(self.statuses.get(self.path, 404))
        self.end_headers()

    def address_string(self):
        return "peer"

    def log_message(self, *args):
        pass


class UnixServer(socketserver.UnixStreamServer):
    pass


@pytest.fixture(params=["tcp", "unix"])
def peer(request, folder):
    """The address of a server that lives and is not ready."""
    if request.param == "unix":
        address = f"unix:{folder}/s"
        server = UnixServer(f"{folder}/s", Answer)
    else:
        server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
        address = f"0.0.0.0:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield address
    server.shutdown()
    server.server_close()


def test_health_of_a_live_server(bindery, peer):
    assert run(bindery, "health", BINDERY_LISTEN=peer).returncode == 0


def test_health_of_a_server_that_is_not_ready(bindery, peer):
    done = run(bindery, "health", "--ready", BINDERY_LISTEN=f"{peer},127.0.0.1:1")
    assert done.returncode == 1 and "503" in done.stdout


@pytest.mark.parametrize(
    "listen", ["127.0.0.1:{port}", "unix:/nowhere/s", "nonsense", "unix:" + "x" * 200]
)
def test_health_where_nobody_listens(bindery, listen):
    listen = listen.format(port=harness.free_port())
    done = run(bindery, "health", BINDERY_LISTEN=listen)
    assert done.returncode == 1 and listen in done.stderr


def test_health_refuses_other_arguments(bindery):
    assert run(bindery, "health", "--deep").returncode == 64
