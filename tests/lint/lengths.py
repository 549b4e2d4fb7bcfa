#!/usr/bin/env python3
"""A file that grows beyond its limit holds two subjects: split it."""

import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
LIMITS = {"src": 500, "tests": 1200}  # lines; a test file may be a long list of cases
# path -> lines that it may have until it is split; empty is the rule
EXCEPTIONS: dict[str, int] = {}


def main() -> int:
    problems = []
    count = 0
    for folder, limit in LIMITS.items():
        for path in sorted((TOP / folder).rglob("*.[ch]")):
            name = path.relative_to(TOP).as_posix()
            lines = path.read_bytes().count(b"\n")
            count += 1
            if lines > EXCEPTIONS.get(name, limit):
                problems.append(f"{name} has {lines} lines; {limit} are allowed")
    print("\n".join(problems) if problems else f"{count} files in order")
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main())
