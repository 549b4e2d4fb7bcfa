"""Helpers of the tests that use the embedded sandbox through `bindery serve`."""

from types import SimpleNamespace

import harness

TOKEN = "a-token-of-this-test"


def new_server(bindery, folder, data_dir=None) -> harness.Server:
    listen = f"127.0.0.1:{harness.free_port()}"
    settings = {
        "BINDERY_LISTEN": listen,
        "BINDERY_DATA_DIR": str(data_dir or folder / "data"),
        "DIFY_AGENT_API_TOKEN": TOKEN,
        "BINDERY_ACCESS_LOG": "false",
    }
    return harness.Server(bindery, folder / "home", ["serve"], settings, listen, TOKEN)


def lease_of(server, binding_ref: str) -> SimpleNamespace:
    """A lease as the client wants its daemon: a URL and a token."""
    answer = server.http.post("/v1/leases", json={"binding_ref": binding_ref})
    assert answer.status_code == 201, answer.text
    lease = answer.json()
    shellctl = lease["shellctl"]
    return SimpleNamespace(
        url=shellctl["base_url"],
        token=shellctl["token"],
        id=lease["lease_id"],
        layout=lease["layout"],
        pid=server.pid,
    )
