"""TLS between the OpenShell backend and its gateway: who is trusted, who is refused and with which
words, and that no secret gets into them. The fake gateway serves certificates of authorities made
here; whatever passes for the backend passes for the official SDK, and the reverse."""

import contextlib
import os
import shutil
import socket
import ssl
import threading

import grpc
import openshell
import pytest

from certificates import Authority
from harness import wait_until
from openshell_fake import FakeOpenShell, SHELLCTL_TOKEN

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("bwrap") or not shutil.which("nsenter"),
    reason="the fake gateway's sandboxes need root, bubblewrap and nsenter",
)

PREFIX = "DIFY_AGENT_OPENSHELL_"
SPEC = {"tenant_id": "t1", "agent_id": "a1", "binding_id": "b1", "workspace_id": "w1"}
HERE = "IP:127.0.0.1,DNS:localhost"
BEARER = "bearer-secret-of-the-tests"


@pytest.fixture
def authority(folder):
    return Authority(folder)


@pytest.fixture
def strangers(folder):
    return Authority(folder, "strangers")


@pytest.fixture
def gateway(bindery, authority):
    """Factory of a fake gateway on TLS: server certificate and key, fake's options."""
    with contextlib.ExitStack() as stack:

        def make(*options, server=None) -> FakeOpenShell:
            certificate, key = server or authority.issue("server", HERE)
            for path, name in ((certificate, "server.crt"), (key, "server.key")):
                if path.name != name:
                    shutil.copy(path, authority.folder / name)
            tls = ("--tls", str(authority.folder), *options)
            return stack.enter_context(FakeOpenShell(bindery, *tls))

        yield make


def settings(gateway, authority=None, client=None, **more) -> dict[str, str]:
    chosen = {**gateway.settings, PREFIX + "INSECURE": "false"}
    if authority is not None:
        chosen[PREFIX + "TLS_CA_PATH"] = str(authority.certificate)
    if client is not None:
        chosen[PREFIX + "TLS_CLIENT_CERT_PATH"] = str(client[0])
        chosen[PREFIX + "TLS_CLIENT_KEY_PATH"] = str(client[1])
    return chosen | {PREFIX + name: value for name, value in more.items()}


def create(front, **changes):
    return front.http.post("/execution-bindings", json={**SPEC, **changes})


def works(front) -> None:
    """A binding made, used for many bytes each way, and destroyed."""
    made = create(front)
    assert made.status_code == 201, made.text
    refs = made.json()
    lease = front.http.post("/v1/leases", json={"binding_ref": refs["binding_ref"]})
    assert lease.status_code == 201, lease.text
    base = f"/v1/leases/{lease.json()['lease_id']}"
    script = f"# {'x' * 200000}\nhead -c 900000 /dev/zero | tr '\\0' y"
    ran = front.http.post(f"{base}/commands", json={"script": script, "mode": "stdio"})
    assert ran.status_code == 200 and ran.json()["output"] == "y" * 900000
    assert front.http.delete(base).status_code == 204
    gone = front.http.post("/execution-bindings/destroy", json={**refs, "destroy_workspace": True})
    assert gone.status_code == 204


def refused(server, chosen, *words) -> str:
    """The service starts, is not ready, and says why there, to a caller, and in the log."""
    front = server(settings=chosen, ready=False)

    def said():
        answer = front.http.get("/readyz", timeout=5)
        assert answer.status_code == 503
        return "has not answered yet" not in answer.text and answer.text

    why = wait_until(said, 10, "the reason")
    made = create(front)
    assert made.status_code in (502, 503), made.text
    for word in words:
        assert word in why and word in made.text, (word, why, made.text)
    check_secrets(front, why, made.text)
    return why


def check_secrets(front, *texts) -> None:
    for text in (front.output(), *texts):
        for secret in (BEARER, SHELLCTL_TOKEN, "PRIVATE KEY"):
            assert secret not in text


def sdk(gateway, authority, client=None, **more) -> openshell.SandboxClient:
    certificate, key = client or (None, None)
    tls = openshell.TlsConfig(authority.certificate, certificate, key)
    return openshell.SandboxClient(gateway.endpoint, tls=tls, timeout=5, **more)


def sdk_refused(*args, code=grpc.StatusCode.UNAVAILABLE, **more) -> None:
    with sdk(*args, **more) as client, pytest.raises(grpc.RpcError) as caught:
        client.list(workspace="default")
    assert caught.value.code() == code


# ---- the server's certificate ---------------------------------------------------------------------------


def test_the_right_authority_passes(server, gateway, authority):
    one = gateway()
    works(server(settings=settings(one, authority)))
    with sdk(one, authority) as client:
        assert client.health().status == 1


def test_the_name_is_checked_as_well_as_the_address(server, gateway, authority):
    one = gateway(server=authority.issue("server", "DNS:localhost"))
    port = one.endpoint.rpartition(":")[2]
    by_name = settings(one, authority, GATEWAY_ENDPOINT=f"localhost:{port}")
    works(server(settings=by_name))
    refused(server, settings(one, authority), "certificate is not accepted", "IP address mismatch")
    sdk_refused(one, authority)


def test_a_foreign_name_is_refused(server, gateway, authority):
    one = gateway(server=authority.issue("server", "DNS:other.example,IP:127.0.0.2"))
    port = one.endpoint.rpartition(":")[2]
    chosen = settings(one, authority, GATEWAY_ENDPOINT=f"localhost:{port}")
    refused(server, chosen, "certificate is not accepted", "hostname mismatch")


def test_a_foreign_authority_is_refused(server, gateway, authority, strangers):
    one = gateway()
    refused(server, settings(one, strangers), "certificate is not accepted", "issuer certificate")
    refused(server, settings(one), "certificate is not accepted", "issuer certificate")
    sdk_refused(one, strangers)
    assert one.calls("CreateSandbox") == 0


def test_an_expired_certificate_is_refused(server, gateway, authority):
    one = gateway(server=authority.issue("server", HERE, days=-1))
    refused(server, settings(one, authority), "certificate is not accepted", "expired")
    sdk_refused(one, authority)


def test_a_certificate_renewed_under_a_running_service(server, gateway, authority, bindery):
    one = gateway(server=authority.issue("server", HERE, days=-1))
    port = one.endpoint.rpartition(":")[2]
    front = server(settings=settings(one, authority), ready=False)
    wait_until(lambda: "expired" in front.http.get("/readyz").text, 10, "refused")
    one.__exit__()
    gateway("--port", port)
    front.wait_ready(20)
    works(front)


# ---- the client's certificate ---------------------------------------------------------------------------


def test_a_client_certificate_passes(server, gateway, authority):
    one = gateway("--mtls")
    client = authority.issue("client")
    works(server(settings=settings(one, authority, client)))
    with sdk(one, authority, client) as peer:
        assert peer.health().status == 1


def test_a_missing_client_certificate_is_refused(server, gateway, authority):
    one = gateway("--mtls")
    refused(server, settings(one, authority), "client certificate")
    sdk_refused(one, authority)


@pytest.mark.parametrize("kind", ["foreign", "expired"])
def test_a_bad_client_certificate_is_refused(server, gateway, authority, strangers, kind):
    one = gateway("--mtls")
    client = strangers.issue("client") if kind == "foreign" else authority.issue("client", days=-1)
    refused(server, settings(one, authority, client), "client certificate")
    sdk_refused(one, authority, client)


def test_files_that_cannot_be_used_end_the_start(server, gateway, authority, folder):
    one = gateway()
    client, other = authority.issue("client"), authority.issue("other")
    empty = folder / "empty.crt"
    empty.touch()
    for chosen, words in (
        (settings(one, authority, (client[0], other[1])), "does not fit"),
        (settings(one, authority, (empty, client[1])), str(empty)),
        (settings(one, TLS_CA_PATH=str(folder / "nowhere")), "nowhere"),
        (settings(one, TLS_CA_PATH=str(empty)), str(empty)),
        (settings(one, TLS_CLIENT_CERT_PATH=str(client[0])), "KEY_PATH"),
    ):
        front = server(settings=chosen, start=False)
        front.launch()
        assert front.wait() != 0
        front.process = None
        assert words in front.output(), front.output()
        check_secrets(front)


# ---- the bearer, and no TLS -------------------------------------------------------------------------------


def test_a_bearer_over_tls(server, gateway, authority):
    one = gateway("--bearer", BEARER)
    front = server(settings=settings(one, authority, BEARER_TOKEN=BEARER))
    works(front)
    one.set(bearer="another")
    made = create(front, binding_id="b2", workspace_id="w2")
    assert made.status_code == 502 and made.json()["detail"]["code"] == "backend_auth"
    assert "BEARER_TOKEN" in wait_until(
        lambda: front.http.get("/readyz").status_code == 503 and front.http.get("/readyz").text,
        10,
        "the service is not ready",
    )
    check_secrets(front, made.text)


def test_a_bearer_and_a_client_certificate(server, gateway, authority):
    one = gateway("--mtls", "--bearer", BEARER)
    client = authority.issue("client")
    works(server(settings=settings(one, authority, client, BEARER_TOKEN=BEARER)))
    with sdk(one, authority, client, bearer_token=BEARER) as peer:
        assert peer.list(workspace="default") == []
    sdk_refused(one, authority, client, code=grpc.StatusCode.UNAUTHENTICATED)


def test_plaintext_to_a_tls_gateway(server, gateway):
    one = gateway("--bearer", BEARER)
    chosen = settings(one, INSECURE="true", BEARER_TOKEN=BEARER)
    refused(server, chosen, one.endpoint, "expect TLS")


def test_tls_to_a_plaintext_gateway(server, bindery, authority):
    with FakeOpenShell(bindery) as one:
        refused(server, settings(one, authority), one.endpoint, "does not speak TLS")


@contextlib.contextmanager
def peer_on(context):
    """Settings for a peer that makes TLS handshakes in this context and speaks nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = listener.accept()
                    with contextlib.suppress(OSError), context.wrap_socket(peer, True) as tls:
                        tls.recv(100)

        threading.Thread(target=serve, daemon=True).start()
        endpoint = f"127.0.0.1:{listener.getsockname()[1]}"

        class Peer:
            settings = {
                "DIFY_AGENT_RUNTIME_BACKEND": "openshell",
                PREFIX + "GATEWAY_ENDPOINT": endpoint,
                PREFIX + "DRIVER_CONFIG": '{"docker": {}}',
                PREFIX + "SHELLCTL_AUTH_TOKEN": SHELLCTL_TOKEN,
            }

        yield Peer


@pytest.fixture
def context(authority):
    one = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    one.load_cert_chain(*authority.issue("server", HERE))
    one.set_alpn_protocols(["h2"])
    return one


def test_a_peer_without_http2(server, authority, context):
    context.set_alpn_protocols(["http/1.1"])
    with peer_on(context) as peer:
        why = refused(server, settings(peer, authority), "HTTP/2")
        assert peer.settings[PREFIX + "GATEWAY_ENDPOINT"] in why


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_what_a_peer_says_of_our_certificate_is_told(server, authority, strangers, context, version):
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.certificate)
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    with peer_on(context) as peer:
        refused(server, settings(peer, authority), "client certificate")
        foreign = settings(peer, authority, strangers.issue("client"))
        # with TLS 1.3 the connection's reset may overtake the alert
        words = ["client certificate"] + ["unknown ca"] * (version == "TLSv1_2")
        refused(server, foreign, *words)
