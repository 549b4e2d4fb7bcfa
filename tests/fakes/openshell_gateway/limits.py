"""The gateway's validation rules (wire contract section 7), each a function that raises Refused."""

from __future__ import annotations

import contextlib
import ipaddress
import re

import grpc

NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
ENV_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MESSAGE_MAX = 1 << 20


class Refused(Exception):
    """A call that ends with a status."""

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code, self.message = code, message


def invalid(message: str) -> Refused:
    return Refused(grpc.StatusCode.INVALID_ARGUMENT, message)


def check_message(request) -> None:
    if request.ByteSize() > MESSAGE_MAX:
        raise Refused(grpc.StatusCode.OUT_OF_RANGE, "message larger than 1 MiB")


def check_name(name: str) -> None:
    if len(name.encode()) > 19 or not NAME.fullmatch(name) or "--" in name:
        raise invalid(f"invalid sandbox name {name!r}")


def check_label(key: str, value: str) -> None:
    prefix, _, name = key.rpartition("/")
    if len(key) > 253 or len(prefix) > 253 or len(name) > 63 or not LABEL_NAME.fullmatch(name):
        raise invalid(f"invalid label key {key!r}")
    if len(value) > 63 or (value and not LABEL_NAME.fullmatch(value)):
        raise invalid(f"invalid label value {value!r}")


def parse_selector(text: str) -> dict[str, str]:
    pairs = [pair.strip() for pair in text.split(",") if pair.strip()]
    if len(pairs) > 64:
        raise invalid("more than 64 pairs in the label selector")
    wanted = {}
    for pair in pairs:
        key, is_equal, value = (part.strip() for part in pair.partition("="))
        if not is_equal or key.endswith("!") or value.startswith("="):
            raise invalid("a label selector knows key=value only")
        check_label(key, value)
        wanted[key] = value
    return wanted


def page(records, request) -> list:
    """The records that a list request asks for, oldest first (7.6)."""
    wanted = parse_selector(request.label_selector).items()
    rows = sorted(
        (one for one in records if all(one.metadata.labels.get(k) == v for k, v in wanted)),
        key=lambda one: (one.metadata.created_at_ms, one.metadata.name),
    )
    return rows[request.offset : request.offset + min(request.limit or 100, 1000)]


def check_environment(
    environment, *, value_max: int, count_max: int | None, allowed: tuple[str, ...] = ()
) -> None:
    if count_max is not None and len(environment) > count_max:
        raise invalid("too many environment variables")
    for key, value in environment.items():
        reserved = key.startswith("OPENSHELL_") and key not in allowed
        if not ENV_KEY.fullmatch(key) or len(key) > 256 or reserved:
            raise invalid(f"invalid environment key {key!r}")
        if len(value.encode()) > value_max or re.search(r"[\0\r\n]", value):
            raise invalid(f"invalid value of {key!r}")


def check_policy(policy) -> None:
    files = policy.filesystem
    paths = [*files.read_only, *files.read_write]
    if policy.ByteSize() > 262144 or len(paths) > 256:
        raise invalid("policy too large")
    for path in paths:
        if not path.startswith("/") or len(path) > 4096 or ".." in path.split("/"):
            raise invalid(f"invalid policy path {path!r}")
    if "/" in files.read_write:
        raise invalid("/ cannot be writable")
    for name, rule in policy.network_policies.items():
        if name.startswith("_provider_"):
            raise invalid("reserved rule name")
        for endpoint in rule.endpoints:
            ports = list(endpoint.ports) or [endpoint.port]
            if not endpoint.host or not all(1 <= port <= 65535 for port in ports):
                raise invalid(f"invalid endpoint in {name!r}")
            if endpoint.protocol == "rest" and not (endpoint.rules or endpoint.access):
                raise invalid("an L7 protocol needs access or rules")


def check_create(request) -> None:
    if not request.HasField("spec"):
        raise invalid("spec is required")
    spec = request.spec
    if request.name:
        check_name(request.name)
    for key, value in request.labels.items():
        check_label(key, value)
    if len(request.annotations) > 128:
        raise invalid("too many annotations")
    for key, value in request.annotations.items():
        check_label(key, "")
        if len(value) > 8192:
            raise invalid("annotation too long")
    check_environment(spec.environment, value_max=8192, count_max=128)
    check_environment(spec.template.environment, value_max=8192, count_max=128)
    if len(spec.log_level) > 32 or len(spec.providers) > 32:
        raise invalid("log_level or providers too long")
    if spec.providers:
        raise Refused(grpc.StatusCode.FAILED_PRECONDITION, "provider not found")
    if len(spec.command) > 256 or any("\0" in word or len(word) > 32768 for word in spec.command):
        raise invalid("invalid command")
    gpu = spec.resource_requirements.gpu
    if gpu.HasField("count") and gpu.count == 0:
        raise invalid("gpu count must be at least 1")
    template = spec.template
    if any(len(text) > 1024 for text in (template.image, template.runtime_class_name)):
        raise invalid("template text too long")
    if any(part.ByteSize() > 65536 for part in (template.resources, template.driver_config)):
        raise invalid("template too large")
    if spec.HasField("policy"):
        check_policy(spec.policy)


def check_exec(request) -> None:
    if not request.sandbox_id:
        raise invalid("sandbox_id is required")
    if not 1 <= len(request.command) <= 1024:
        raise invalid("command must have 1 to 1024 items")
    if any("\0" in word or len(word.encode()) > 32768 for word in request.command):
        raise invalid("invalid command item")
    check_environment(
        request.environment, value_max=32768, count_max=None, allowed=("OPENSHELL_PYFUNC_B64",)
    )
    if len(request.workdir) > 4096 or re.search(r"[\0\r\n]", request.workdir):
        raise invalid("invalid workdir")


def check_forward(init) -> None:
    if not init.sandbox_id:
        raise invalid("sandbox_id is required")
    if init.WhichOneof("target") is None:
        raise invalid("target is required")
    if init.HasField("tcp"):
        host = init.tcp.host.strip().lower()
        if not 1 <= init.tcp.port <= 65535:
            raise invalid("invalid port")
        loopback = host in ("localhost", "::1")
        with contextlib.suppress(ValueError):
            loopback = loopback or ipaddress.IPv4Address(host).is_loopback
        if not loopback:
            raise invalid("only loopback targets")


def exec_line(request) -> str:
    """The line that the supervisor's bash gets (8.8)."""

    def word(text: str) -> str:
        if text and re.fullmatch(r"[A-Za-z0-9./_-]+", text):
            return text
        return "'" + text.replace("'", "'\"'\"'") + "'"

    parts = [f"{key}={word(value)}" for key, value in sorted(request.environment.items())]
    parts += [word(item) for item in request.command]
    line = " ".join(parts)
    if request.workdir:
        line = f"cd {word(request.workdir)} && {line}"
    if len(line.encode()) > 262144:
        raise invalid("command line too long")
    return line
