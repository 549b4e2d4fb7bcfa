#!/usr/bin/env python3
"""The reference pages in docs/ say what the tables say.

tests/lint/pages.py BINDERY            fails when a page is stale
tests/lint/pages.py BINDERY --write    writes them anew
"""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ["errors", "metrics", "settings"]


def main() -> int:
    binary, write = sys.argv[1], "--write" in sys.argv
    stale = []
    for name in PAGES:
        made = subprocess.run([binary, "docs", name], capture_output=True, check=True).stdout
        page = DOCS / f"{name}.md"
        if write:
            page.write_bytes(made)
        elif not page.exists() or page.read_bytes() != made:
            stale.append(name)
    if stale:
        print(f"stale: {', '.join(stale)}; run tests/lint/pages.py {binary} --write")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
