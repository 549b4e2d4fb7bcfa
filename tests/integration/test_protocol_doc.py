"""The examples of docs/protocol.md are sent in order, and their answers are as the page says."""

import json
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
EXAMPLE = re.compile(r"```http\n(.*?)```", re.DOTALL)
ANY = "…"


def fill(text: str, names: dict[str, str]) -> str:
    return re.sub(r"\$(\w+)", lambda m: names[m.group(1)], text)


def compare(want, got, names: dict[str, str], where: str) -> None:
    """`$name` keeps the value the first time and demands it again later."""
    if want == ANY:
        return
    if isinstance(want, str) and want.startswith("$"):
        assert isinstance(got, str) and got, where
        assert names.setdefault(want[1:], got) == got, where
    elif isinstance(want, dict):
        assert isinstance(got, dict), f"{where}: {got}"
        open_ended = ANY in want
        named = {key: value for key, value in want.items() if key != ANY}
        assert named.keys() <= got.keys(), f"{where}: {got}"
        assert open_ended or named.keys() == got.keys(), f"{where}: {got}"
        for key, value in named.items():
            compare(value, got[key], names, f"{where}.{key}")
    elif isinstance(want, list):
        assert isinstance(got, list) and len(got) == len(want), f"{where}: {got}"
        for index, value in enumerate(want):
            compare(value, got[index], names, f"{where}[{index}]")
    else:
        assert want == got, f"{where}: {got}"


def run(server, example: str, names: dict[str, str]) -> None:
    asked, answered = example.strip().split("\n\n", 1)
    first, *lines = asked.split("\n")
    method, path = fill(first, names).split(" ")
    headers = {}
    while lines and re.match(r"[A-Z][\w-]*: ", lines[0]):
        name, value = fill(lines.pop(0), names).split(": ", 1)
        headers[name] = value
    body = fill("\n".join(lines), names)
    if body:
        headers["Content-Type"] = "application/json"
    answer = server.http.request(method, path, content=body or None, headers=headers)

    status, *rest = answered.split("\n")
    assert answer.status_code == int(status), f"{first}: {answer.status_code} {answer.text}"
    if rest:
        compare(json.loads("\n".join(rest)), answer.json(), names, first)
    else:
        assert answer.content == b"", first


def test_the_examples_are_true(server):
    one = server(token="a-token-of-this-test")
    names: dict[str, str] = {}
    examples = EXAMPLE.findall(PAGE.read_text())
    assert len(examples) > 10
    for example in examples:
        run(one, example, names)
