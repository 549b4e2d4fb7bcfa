"""Dify API's client of the private control plane, as strict as the real one (its document, sections
2 and 6): complete bodies with explicit nulls, no redirects, response models that forbid extra and
missing keys, exceptions by status."""

from typing import Literal

import httpx
import pydantic


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)


Text = pydantic.constr(min_length=1)


class Binding(Model):
    binding_ref: Text
    workspace_ref: Text


class Snapshot(Model):
    snapshot_ref: Text


class Entry(Model):
    name: str
    type: Literal["file", "dir", "symlink", "other"]
    size: int | None
    mtime: int | None


class Listing(Model):
    path: str
    entries: list[Entry]
    truncated: bool


class Content(Model):
    path: str
    size: int | None
    truncated: bool
    binary: bool
    text: str | None


class HTTPError(Exception):
    def __init__(self, status: int, detail):
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail

    @property
    def code(self) -> str:
        assert isinstance(self.detail, dict) and set(self.detail) == {"code", "message"}
        assert self.detail["message"]
        return self.detail["code"]


class NotFoundError(HTTPError):
    pass


class ValidationError(HTTPError):
    pass


class TimedOut(Exception):
    pass


def detail_of(response: httpx.Response):
    try:
        payload = response.json()
    except ValueError:
        return response.text or response.reason_phrase
    return payload["detail"] if isinstance(payload, dict) and "detail" in payload else payload


class DifyAgentClient:
    def __init__(self, base_url: str, token: str | None = None, timeout=45.0):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._base = base_url.rstrip("/")
        self.http = httpx.Client(headers=headers, timeout=timeout, trust_env=False)

    def close(self):
        self.http.close()

    def post(self, path: str, body: dict, expected: int, model=None):
        try:
            response = self.http.post(
                self._base + path, json=body, headers={"Content-Type": "application/json"}
            )
        except httpx.TimeoutException as error:
            raise TimedOut from error
        if response.status_code >= 400:
            kinds = {404: NotFoundError, 422: ValidationError}
            kind = kinds.get(response.status_code, HTTPError)
            raise kind(response.status_code, detail_of(response))
        assert response.status_code == expected, response.status_code
        if model is None:
            assert response.content == b"", response.content
            return None
        assert response.headers["content-type"] == "application/json"
        return model.model_validate_json(response.content)

    def create(self, tenant_id="t", agent_id="a", binding_id="b", workspace_id="w",
               existing_workspace_ref=None, home_snapshot_ref=None) -> Binding:  # fmt: skip
        body = {
            "tenant_id": tenant_id,
            "agent_id": agent_id,
            "binding_id": binding_id,
            "workspace_id": workspace_id,
            "existing_workspace_ref": existing_workspace_ref,
            "home_snapshot_ref": home_snapshot_ref,
        }
        return self.post("/execution-bindings", body, 201, Binding)

    def destroy(self, binding_ref, destroy_workspace=True, workspace_ref=None) -> None:
        body = {
            "binding_ref": binding_ref,
            "destroy_workspace": destroy_workspace,
            "workspace_ref": workspace_ref,
        }
        self.post("/execution-bindings/destroy", body, 204)

    def snapshot(self, backend_binding_ref, home_snapshot_id="s", tenant_id="t", agent_id="a"):
        body = {
            "tenant_id": tenant_id,
            "agent_id": agent_id,
            "home_snapshot_id": home_snapshot_id,
            "backend_binding_ref": backend_binding_ref,
        }
        return self.post("/home-snapshots/from-binding", body, 201, Snapshot).snapshot_ref

    def delete_snapshot(self, ref) -> None:
        self.post("/home-snapshots/delete", {"snapshot_ref": ref}, 204)

    def list_files(self, backend_binding_ref, path=".") -> Listing:
        body = {"backend_binding_ref": backend_binding_ref, "path": path}
        return self.post("/execution-bindings/files/list", body, 200, Listing)

    def read_file(self, backend_binding_ref, path, max_bytes=262144) -> Content:
        body = {"backend_binding_ref": backend_binding_ref, "path": path, "max_bytes": max_bytes}
        return self.post("/execution-bindings/files/read", body, 200, Content)

    def download(self, backend_binding_ref, path, execution_context) -> None:
        body = {
            "backend_binding_ref": backend_binding_ref,
            "path": path,
            "execution_context": execution_context,
        }
        self.post("/execution-bindings/files/download", body, 200)
