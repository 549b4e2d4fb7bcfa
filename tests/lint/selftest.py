#!/usr/bin/env python3
"""The lints can fail: each is copied into a small tree with one fault and must name it, and into the
same tree without the fault and must pass."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
GOOD = {
    "src/main.c": '#include "gc/collector.h"\n#include "http/server.h"\n',
    "src/core/runtime/op.h": "#include <stdint.h>\n",
    "src/core/domain/lease.h": '#include "core/runtime/op.h"\n',
    "src/http/server.h": '#include "core/domain/lease.h"\n',
    "src/http/server.c": '#include "http/server.h"\n#include <evhtp.h>\n',
    "src/gc/collector.h": '#include "core/domain/lease.h"\n',
    "src/backends/local/create.c": '#include "core/domain/lease.h"\n',
}
# lint, file, its content, a word of the complaint
FAULTS = [
    ("includes.py", "src/core/runtime/x.c", '#include "core/domain/lease.h"\n', "core/runtime may include only itself"),
    ("includes.py", "src/core/domain/x.c", '#include "http/server.h"\n', "core/domain may include only"),
    ("includes.py", "src/gc/x.c", '#include "http/server.h"\n', "gc may include only"),
    ("includes.py", "src/http/x.c", '#include "gc/collector.h"\n', "http may include only"),
    ("includes.py", "src/backends/local/x.c", '#include "http/server.h"\n', "backends/local may include only"),
    ("includes.py", "src/backends/e2b/x.c", '#include "backends/local/create.c"\n', "backends/e2b may include only"),
    ("includes.py", "src/http/x.c", "  #  include <evhtp.h>\n", "evhtp.h: only"),
    ("includes.py", "src/http/x.c", "#include <curl/curl.h>\n", "curl/curl.h: only"),
    ("includes.py", "src/core/domain/x.c", "#include <sqlite3.h>\n", "sqlite3.h: only"),
    ("includes.py", "src/core/domain/x.c", '#include "lease.h"\n', "no such file under src/"),
    ("includes.py", "src/core/domain/x.c", '#include "main.c"\n', "nothing includes the wiring"),
    ("includes.py", "src/novel/x.c", "\n", "has no row"),
    ("lengths.py", "src/gc/x.c", "\n" * 501, "src/gc/x.c has 501 lines"),
    ("lengths.py", "tests/x.c", "\n" * 1201, "tests/x.c has 1201 lines"),
    ("words.py", "src/gc/x.c", "/* TO" + "DO: later */\n", "a note to self"),
    ("words.py", "src/gc/x.c", "int x; \n", "white space at its end"),
    ("words.py", "src/gc/x.c", "int x;", "no newline at its end"),
    ("words.py", "docs/x.md", "[here](nowhere.md)\n", "leads nowhere"),
    ("snippets.py", "docs/x.md", "<!-- src/main.c -->\n```c\nint other;\n```\n", "not in src/main.c"),
    ("format", "src/gc/x.c", "int  x ;\n", "x.c:1"),
]


def write(top: Path, name: str, text: str) -> None:
    path = top / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def run(lint: str, files: dict[str, str]) -> tuple[int, str]:
    """The lint's exit code and words over a tree of these files."""
    with tempfile.TemporaryDirectory(prefix="bindery-lint-") as folder:
        top = Path(folder)
        for name, text in files.items():
            write(top, name, text)
        (top / "tests/lint").mkdir(parents=True, exist_ok=True)
        copy = shutil.copy(HERE / lint, top / "tests/lint" / lint)
        shutil.copy(HERE.parents[1] / ".clang-format", top)
        for command in (["init", "-q"], ["add", "."]) if lint == "words.py" else ():
            subprocess.run(["git", "-C", top, *command], check=True, capture_output=True)
        done = subprocess.run([copy], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


def main() -> int:
    problems = []
    good = dict(GOOD)
    good["docs/page.md"] = "[main](../src/main.c)\n\n<!-- src/main.c -->\n```c\n" + GOOD["src/main.c"] + "```\n"
    for lint in sorted({fault[0] for fault in FAULTS}):
        code, words = run(lint, good)
        if code != 0:
            problems.append(f"{lint} fails on a tree in order: {words}")
    for lint, name, text, complaint in FAULTS:
        code, words = run(lint, good | {name: text})
        if code == 0 or complaint not in words:
            problems.append(f"{lint} does not see the fault in {name} ({complaint}): {code} {words}")
    print("\n".join(problems) if problems else f"{len(FAULTS)} faults seen")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
