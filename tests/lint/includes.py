#!/usr/bin/env python3
"""Who may include whom (docs/architecture.md): reads every #include under src/ and fails on an edge
that the tables below do not allow."""

import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.MULTILINE)

CORE = ["core/runtime", "core/domain"]
# folder under src/ -> the folders that it may include besides itself
FOLDERS = {
    "core/runtime": [],
    "core/domain": ["core/runtime"],
    "http": CORE,
    "gc": CORE,
    "backends/shellctl": CORE,
    "backends/local": [*CORE, "backends/shellctl"],
    "backends/enterprise": [*CORE, "backends/shellctl"],
    "backends/openshell": [*CORE, "backends/shellctl"],
    "backends/e2b": [*CORE, "backends/shellctl"],
    # a program of its own in the same executable; it serves HTTP (docs/adr)
    "backends/shellctld": [*CORE, "http"],
    "runner": ["backends/shellctld"],  # the small program that runs one job
    "": ["*"],  # the wiring: src/*.c
}
# library header -> the only files that may include it
LIBRARIES = {
    "evhtp.h": ["http/server.c", "http/gate.c"],
    "evhtp/": ["http/server.c", "http/gate.c"],
    "curl/": ["core/runtime/http_client_curl*"],
    "http_parser.h": ["core/runtime/http_reply.[ch]"],
    "nghttp2/": ["core/runtime/h2_*.[ch]"],
    "sqlite3.h": ["gc/*", "backends/shellctld/*"],
    "libpq-fe.h": ["gc/*"],
    "protobuf-c/": ["backends/openshell/*", "core/runtime/grpc*"],
    "seccomp.h": ["backends/shellctld/*"],
}


def folder_of(path: str) -> str | None:
    """The component that a path under src/ belongs to; None when the tables do not know it."""
    parent = Path(path).parent.as_posix()
    while parent != ".":
        if parent in FOLDERS:
            return parent
        parent = Path(parent).parent.as_posix()
    return "" if "/" not in path else None


def problems_of(path: Path):
    name = path.relative_to(TOP / "src").as_posix()
    here = folder_of(name)
    if here is None:
        yield f"src/{name}: its folder has no row in tests/lint/includes.py"
        return
    allowed = FOLDERS[here]
    for quote, target in INCLUDE.findall(path.read_text()):
        line = f"src/{name} includes {target}"
        for header, users in LIBRARIES.items():
            if target.startswith(header) and not any(Path(name).match(user) for user in users):
                yield f"{line}: only {', '.join(users)} may"
        if quote != '"':
            continue
        if not (TOP / "src" / target).exists():
            if not target.endswith(".pb-c.h"):
                yield f"{line}: no such file under src/ (write the path from src/)"
            continue
        there = folder_of(target)
        if there == "" and here != "":
            yield f"{line}: nothing includes the wiring"
        elif there != here and "*" not in allowed and there not in allowed:
            yield f"{line}: {here} may include only itself, {', '.join(allowed) or 'nothing else'}"


def main() -> int:
    sources = sorted(p for p in (TOP / "src").rglob("*") if p.suffix in (".c", ".h", ".def"))
    problems = [problem for path in sources for problem in problems_of(path)]
    print("\n".join(problems) if problems else f"{len(sources)} files in order")
    return 1 if problems or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
