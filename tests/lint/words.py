#!/usr/bin/env python3
"""What has no place in the repository: notes to self, white space at line ends, files without a
last newline, links in the documents that lead nowhere."""

import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
NOTE = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
TEXT = {".c", ".h", ".def", ".py", ".md", ".txt", ".cmake", ".yaml", ".yml", ".json", ".proto", ""}


def tracked() -> list[Path]:
    listing = subprocess.run(
        ["git", "-c", f"safe.directory={TOP}", "-C", TOP, "ls-files", "-z"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [TOP / name for name in listing.split("\0") if name]


def problems_of(path: Path):
    name = path.relative_to(TOP).as_posix()
    if path.suffix not in TEXT or "corpus" in path.parts or not path.is_file() or path.is_symlink():
        return
    text = path.read_text(errors="replace")
    if text and not text.endswith("\n"):
        yield f"{name}: no newline at its end"
    for number, line in enumerate(text.splitlines(), 1):
        if NOTE.search(line):
            yield f"{name}:{number}: a note to self: {line.strip()}"
        if line != line.rstrip() and path.name != "LICENSE":
            yield f"{name}:{number}: white space at its end"
    if path.suffix == ".md":
        for target in LINK.findall(text):
            if "://" not in target and not (path.parent / target).exists():
                yield f"{name}: leads nowhere: {target}"


def main() -> int:
    problems = [problem for path in tracked() for problem in problems_of(path)]
    print("\n".join(problems) if problems else "in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
