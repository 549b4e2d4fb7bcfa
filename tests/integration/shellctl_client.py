"""A shellctl client as strict as the real SDK (shellctl protocol, section 13): models that forbid
extra and missing keys, its paths, bodies, timeouts and way of decoding.

Used against the daemon itself and, unmodified, through a lease's data plane.
"""

import contextlib
import os
import re
from typing import Literal

import httpx
import pydantic

Status = Literal["created", "starting", "running", "exited", "terminated", "failed", "lost"]
TERMINAL = ("exited", "terminated", "failed", "lost")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True)


def check_time(value: str | None) -> str | None:
    assert value is None or TIME.fullmatch(value), value
    return value


class JobResult(Model):
    job_id: str
    done: bool
    status: Status
    exit_code: int | None
    output_path: str
    output: str
    offset: int
    truncated: bool

    @pydantic.model_validator(mode="after")
    def check(self):
        assert self.done == (self.status in TERMINAL)
        assert (self.exit_code is not None) == (self.status == "exited")
        assert self.output_path.startswith("/")
        return self


class JobStatusView(Model):
    job_id: str
    status: Status
    done: bool
    exit_code: int | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    offset: int

    _times = pydantic.field_validator("created_at", "started_at", "ended_at")(check_time)

    @pydantic.model_validator(mode="after")
    def check(self):
        assert self.done == (self.status in TERMINAL) == (self.ended_at is not None)
        assert (self.exit_code is not None) == (self.status == "exited")
        return self


class JobInfo(Model):
    job_id: str
    status: Status
    created_at: str
    started_at: str = ""
    ended_at: str = ""

    @pydantic.field_validator("created_at", "started_at", "ended_at")
    @classmethod
    def _time(cls, value):
        return check_time(value)  # never null, never empty when given


class JobList(Model):
    jobs: list[JobInfo]


class Deleted(Model):
    job_id: str
    deleted: Literal[True]


class Health(Model):
    status: Literal["ok"]


class ShellctlClientError(Exception):
    def __init__(self, status_code: int, code: str, message: str):
        super().__init__(f"{code} ({status_code}): {message}")
        self.status_code = status_code
        self.code = code
        self.message = message


class ShellctlClient:
    def __init__(
        self,
        base_url="http://127.0.0.1:8765",
        token: str | None = None,
        client: httpx.Client | None = None,
        output_limit=8192,
        idle_flush_seconds=0.5,
        headers: dict[str, str] | None = None,
    ):
        self._base = base_url.rstrip("/")
        token = os.environ.get("SHELLCTL_AUTH_TOKEN", "") if token is None else token
        self._auth = {"Authorization": f"Bearer {token}"} if token else {}
        self._routing = headers or {}
        self._owned = client is None
        self._http = client or httpx.Client(follow_redirects=True, timeout=30, trust_env=False)
        self._window = {"output_limit": output_limit, "idle_flush_seconds": idle_flush_seconds}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self._owned:
            self._http.close()

    # the raw request, for tests of what the SDK would never send

    def request(self, method, path, auth=True, timeout=None, **options) -> httpx.Response:
        headers = {**self._routing, **(self._auth if auth else {}), **options.pop("headers", {})}
        if timeout is not None:
            options["timeout"] = timeout
        return self._http.request(method, self._base + path, headers=headers, **options)

    def _call(self, model, method, path, **options):
        response = self.request(method, path, **options)
        try:
            payload = response.json()
        except ValueError:
            raise ShellctlClientError(response.status_code, "invalid_json", response.text) from None
        if response.status_code >= 400:
            error = payload.get("error") if isinstance(payload, dict) else None
            if isinstance(error, dict) and "code" in error:
                assert set(payload) == {"error"} and set(error) == {"code", "message"}, payload
                raise ShellctlClientError(response.status_code, error["code"], error["message"])
            raise ShellctlClientError(response.status_code, "request_failed", response.text)
        if not isinstance(payload, dict):
            raise ShellctlClientError(response.status_code, "invalid_payload", response.text)
        assert response.status_code == 200, response.status_code
        assert response.headers["content-type"] == "application/json"
        return model.model_validate(payload)

    @staticmethod
    def _read_timeout(seconds: float) -> httpx.Timeout:
        return httpx.Timeout(30, read=seconds + 10)

    def health(self) -> Health:
        return self._call(Health, "GET", "/healthz", auth=False)

    def run(
        self, script, cwd=None, env=None, terminal=None, mode=None, timeout=30.0, **window
    ) -> JobResult:
        assert 0 < timeout <= 300
        body = {"script": script, "timeout": timeout, **self._window, **window}
        optional = {"cwd": cwd, "env": env, "terminal": terminal, "mode": mode}
        body |= {key: value for key, value in optional.items() if value is not None}
        return self._call(
            JobResult, "POST", "/v1/jobs/run", json=body, timeout=self._read_timeout(timeout)
        )

    def wait(self, job_id, offset=0, timeout=30.0, **window) -> JobResult:
        body = {"offset": offset, "timeout": timeout, **self._window, **window}
        return self._call(
            JobResult,
            "POST",
            f"/v1/jobs/{job_id}/wait",
            json=body,
            timeout=self._read_timeout(timeout),
        )

    def input(self, job_id, text, offset=0, timeout=30.0, **window) -> JobResult:
        body = {"text": text, "offset": offset, "timeout": timeout, **self._window, **window}
        return self._call(
            JobResult,
            "POST",
            f"/v1/jobs/{job_id}/input",
            json=body,
            timeout=self._read_timeout(timeout),
        )

    def tail(self, job_id, output_limit=8192) -> JobResult:
        path = f"/v1/jobs/{job_id}/log/tail"
        return self._call(JobResult, "GET", path, params={"output_limit": output_limit})

    def status(self, job_id) -> JobStatusView:
        return self._call(JobStatusView, "GET", f"/v1/jobs/{job_id}")

    def list(self, **params) -> list[JobInfo]:
        return self._call(JobList, "GET", "/v1/jobs", params=params).jobs

    def terminate(self, job_id, grace_seconds=5.0) -> JobStatusView:
        return self._call(
            JobStatusView,
            "POST",
            f"/v1/jobs/{job_id}/terminate",
            json={"grace_seconds": grace_seconds},
            timeout=self._read_timeout(grace_seconds),
        )

    def delete(self, job_id, force=False, grace_seconds: float | None = None) -> Deleted:
        params = {"force": "true" if force else "false"}
        if grace_seconds is not None:
            params["grace_seconds"] = str(grace_seconds)
        grace = 5.0 if grace_seconds is None else grace_seconds
        timeout = self._read_timeout(grace) if force else None
        path = f"/v1/jobs/{job_id}"
        return self._call(Deleted, "DELETE", path, params=params, timeout=timeout)

    # what its callers do with it

    def finish(self, result: JobResult, timeout=60.0) -> tuple[JobResult, str]:
        """Wait on until the job has ended and everything is read; the last result and all output.
        A window that is truncated must advance."""
        output = result.output
        while result.truncated or not result.done:
            offset = result.offset
            result = self.wait(result.job_id, offset=offset, timeout=timeout)
            assert not result.truncated or result.offset > offset, "a window that stands still"
            output += result.output
        return result, output

    def run_to_end(self, script, **options) -> tuple[JobResult, str]:
        return self.finish(self.run(script, **options))


# ---- for tests ------------------------------------------------------------------------------------


def client_of(daemon, **options) -> ShellctlClient:
    """A client of a harness.Daemon."""
    return ShellctlClient(daemon.url, token=daemon.token, **options)


@contextlib.contextmanager
def fails(status: int, code: str):
    """What is called inside must end in this error."""
    try:
        yield
    except ShellctlClientError as error:
        assert (error.status_code, error.code) == (status, code), str(error)
        assert error.message
    else:
        raise AssertionError(f"no error; expected {status} {code}")
