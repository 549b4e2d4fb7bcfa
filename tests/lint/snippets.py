#!/usr/bin/env python3
"""Code in the documents is cut from files that are compiled and tested: a block that stands below
`<!-- FILE -->` must occur in FILE, word for word."""

import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
SNIPPET = re.compile(r"<!-- ([^ ]+) -->\n```\w*\n(.*?)```", re.DOTALL)


def main() -> int:
    problems = []
    count = 0
    for document in sorted(TOP.glob("docs/**/*.md")):
        for source, text in SNIPPET.findall(document.read_text()):
            count += 1
            if text not in (TOP / source).read_text():
                first = text.splitlines()[0]
                problems.append(f"{document.relative_to(TOP)}: not in {source}: {first} …")
    print("\n".join(problems) if problems else f"{count} snippets in order")
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main())
