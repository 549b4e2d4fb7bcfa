"""Faults on command and the interceptor that applies them and turns Refused into a status.

A rule is a JSON object {"method": "ExecSandbox", "fault": …, "skip": 0, "times": 1, …}:

    status     code ("UNAVAILABLE"), message: before the method runs, or with "when": "after" in
               place of its answer (unary)
    delay      seconds, then the method
    hang       never answer
    abort      the connection is cut: every stream on it ends without a status (unary: "when")
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import Any

import grpc

from .limits import Refused, check_message


@dataclasses.dataclass
class Rule:
    method: str
    fault: str
    when: str = "before"
    skip: int = 0
    times: int = 1
    code: str = "UNAVAILABLE"
    message: str = "injected"
    seconds: float = 1.0
    hits: int = 0

    def takes(self, method: str) -> bool:
        if self.method not in (method, "*"):
            return False
        self.hits += 1
        return self.hits > self.skip and (self.times < 0 or self.hits <= self.skip + self.times)


# A sandbox's supervisor calls these; a user never may (wire contract 4.3).
SUPERVISOR_ONLY = {
    *("ReportPolicyStatus", "GetSandboxProviderEnvironment", "PushSandboxLogs"),
    *("ConnectSupervisor", "ReportMainProcessExit", "RelayStream", "SubmitPolicyAnalysis"),
    *("IssueSandboxToken", "RefreshSandboxToken"),
}


class Faults:
    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.calls: dict[str, int] = {}
        self.deleting_s = 0.0
        self.limit_hits = 0
        self.forwards_peak = 0
        self.running = self.running_peak = 0  # calls of all methods but ForwardTcp
        self.cut = lambda: None  # set by __main__: drop every connection

    def load(self, values: list[dict[str, Any]]) -> None:
        self.rules = [Rule(**value) for value in values]

    def pick(self, method: str) -> Rule | None:
        self.calls[method] = self.calls.get(method, 0) + 1
        return next((rule for rule in self.rules if rule.takes(method)), None)


class Interceptor(grpc.aio.ServerInterceptor):
    """Auth, size limit, faults, and statuses, around every method."""

    def __init__(self, faults: Faults, bearer: str):
        self.faults, self.bearer = faults, bearer

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        if handler is None:
            return None
        method = details.method.rsplit("/", 1)[1]
        metadata = dict(details.invocation_metadata)

        async def prologue(context) -> Rule | None:
            wanted = f"Bearer {self.bearer}"
            if self.bearer and method != "Health" and metadata.get("authorization") != wanted:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "invalid credentials")
            if method in SUPERVISOR_ONLY:
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, "for supervisors only")
            rule = self.faults.pick(method)
            if rule and rule.when == "before":
                await self.apply(rule, context)
            return rule

        if handler.stream_unary:
            return grpc.stream_unary_rpc_method_handler(
                lambda requests, context: prologue(context),
                handler.request_deserializer,
                handler.response_serializer,
            )
        if handler.response_streaming:
            inner = handler.unary_stream or handler.stream_stream

            async def stream(request, context):
                try:
                    with self.counted(method):
                        await prologue(context)
                        if handler.unary_stream:
                            check_message(request)
                        async for item in inner(request, context):
                            yield item
                except Refused as refused:
                    await context.abort(refused.code, refused.message)

            make = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
            return make(stream, handler.request_deserializer, handler.response_serializer)

        async def unary(request, context):
            try:
                with self.counted(method):
                    rule = await prologue(context)
                    check_message(request)
                    answer = await handler.unary_unary(request, context)
                    if rule and rule.when == "after":
                        await self.apply(rule, context)
                    return answer
            except Refused as refused:
                await context.abort(refused.code, refused.message)

        return grpc.unary_unary_rpc_method_handler(
            unary, handler.request_deserializer, handler.response_serializer
        )

    @contextlib.contextmanager
    def counted(self, method: str):
        if method == "ForwardTcp":
            yield
            return
        self.faults.running += 1
        self.faults.running_peak = max(self.faults.running_peak, self.faults.running)
        try:
            yield
        finally:
            self.faults.running -= 1

    async def apply(self, rule: Rule, context) -> None:
        if rule.fault == "status":
            await context.abort(grpc.StatusCode[rule.code], rule.message)
        elif rule.fault == "delay":
            await asyncio.sleep(rule.seconds)
        elif rule.fault == "hang":
            await asyncio.sleep(3600)
        elif rule.fault == "abort":
            self.faults.cut()
            await asyncio.sleep(3600)
