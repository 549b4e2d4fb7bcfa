"""Faults on command: rules that match requests, and what is done to a matched one.

A rule is a JSON object:

    {"method": "POST", "path": "^/v1/sandboxes$", "skip": 0, "times": 1, "probability": 1.0,
     "when": "before" | "after", "fault": "status", …}

`when` says whether the request takes effect first ("after": only the answer is spoiled). Faults
and their fields:

    delay          seconds
    status         status, body (JSON value or text), headers ({name: value}), content_type
    html           status (502): an HTML error page, as a proxy in between would send
    cut            close the connection without an answer
    reset          the same with RST
    cut_headers    close in the middle of the head
    cut_body       close in the middle of the body
    garbage        bytes that are no HTTP
    not_json       200 with text that is no JSON
    replace        200/201 with the JSON value `body` in place of the real answer
    drip           one byte every `seconds`
    hang           never answer
    redirect       307 to `location`
"""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import dataclass, field
from typing import Any

from .wire import Connection, Request, Response

HTML = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>\n"

# What the random mode draws from: (method, path, rule). Each with the same probability.
EVERY_FAULT: list[dict[str, Any]] = [
    {"fault": "delay", "seconds": 0.2},
    {"fault": "status", "status": 500},
    {"fault": "status", "status": 503, "headers": {"Retry-After": "1"}},
    {"fault": "status", "status": 429, "headers": {"Retry-After": "1"}},
    {"fault": "html"},
    {"fault": "cut"},
    {"fault": "cut", "when": "after"},
    {"fault": "reset"},
    {"fault": "reset", "when": "after"},
    {"fault": "cut_headers", "when": "after"},
    {"fault": "cut_body", "when": "after"},
    {"fault": "garbage"},
    {"fault": "garbage", "when": "after"},
    {"fault": "not_json", "when": "after"},
    {"fault": "replace", "body": {"sandboxId": 7, "job_id": 7}, "when": "after"},
    {"fault": "replace", "body": {"sandboxId": "", "job_id": ""}, "when": "after"},
    {"fault": "replace", "body": [1, 2, 3], "when": "after"},
    {"fault": "drip", "seconds": 0.002, "when": "after"},
    {"fault": "redirect", "location": "http://127.0.0.1:9/elsewhere"},
]


@dataclass
class Rule:
    fault: str
    method: str = ".*"
    path: str = ".*"
    skip: int = 0
    times: int = -1  # -1: for ever
    probability: float = 1.0
    when: str = "before"
    fields: dict[str, Any] = field(default_factory=dict)
    hits: int = 0

    @classmethod
    def parse(cls, value: dict[str, Any]) -> "Rule":
        known = {"fault", "method", "path", "skip", "times", "probability", "when"}
        rule = cls(**{k: v for k, v in value.items() if k in known})
        rule.fields = {k: v for k, v in value.items() if k not in known}
        return rule

    def takes(self, request: Request) -> bool:
        if not re.fullmatch(self.method, request.method) or not re.search(self.path, request.path):
            return False
        if self.probability < 1.0 and random.random() >= self.probability:
            return False
        self.hits += 1
        if self.hits <= self.skip:
            return False
        return self.times < 0 or self.hits <= self.skip + self.times


class Faults:
    """The rules in force. The first that takes a request wins."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []

    def load(self, values: list[dict[str, Any]]) -> None:
        self.rules = [Rule.parse(value) for value in values]

    def load_random(self, probability: float) -> None:
        self.rules = [Rule.parse({**value, "probability": probability}) for value in EVERY_FAULT]

    def pick(self, request: Request) -> Rule | None:
        return next((rule for rule in self.rules if rule.takes(request)), None)


async def spoil(connection: Connection, rule: Rule, answer: Response | None) -> Response | None:
    """Do what the rule says. `answer` is the real one for "after" rules. Returns what is still to
    be sent, or None when the rule has sent all there is."""
    name, f = rule.fault, rule.fields
    head, body = answer.encode() if answer else (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", b"{}")
    if name == "delay":
        await asyncio.sleep(f.get("seconds", 1))
        return answer
    if name == "hang":
        await asyncio.sleep(3600)
        return None
    if name == "status":
        value = f.get("body", {"reason": "fault", "message": "injected"})
        pairs = list(f.get("headers", {}).items())
        if isinstance(value, str):
            return Response(f["status"], value.encode(), f.get("content_type", "text/plain"), pairs)
        made = Response.json(f["status"], value)
        made.headers += pairs
        return made
    if name == "html":
        return Response(f.get("status", 502), HTML, "text/html")
    if name == "not_json":
        return Response(200, b"this is not JSON", "application/json")
    if name == "replace":
        return Response.json(answer.status if answer and answer.status != 204 else 200, f["body"])
    if name == "redirect":
        return Response(307, b"", headers=[("Location", f["location"])])
    if name == "garbage":
        await connection.send(b"\x00\x01\x02 not http at all\r\n\r\n")
        connection.cut()
    elif name == "cut":
        connection.cut()
    elif name == "reset":
        connection.reset()
    elif name == "cut_headers":
        await connection.send(head[: max(10, len(head) // 2)])
        connection.cut()
    elif name == "cut_body":
        await connection.send(head + body[: len(body) // 2])
        connection.cut()
    elif name == "drip":
        await connection.drip(head + body, f.get("seconds", 0.01))
    else:
        raise ValueError(f"unknown fault {name!r}")
    return None
