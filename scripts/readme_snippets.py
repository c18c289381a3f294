"""Run the README's Python snippets, each in a process of its own, in the current directory.

A snippet stands under a comment that names the extra that it needs: `<!-- needs: core -->` or
`<!-- needs: engine -->`. Snippets of the core must run. The others must run too if their extra is installed. If it is
not, with `--bare`, they must end in one line that says how to install it. A comment after a `print` is what the call
prints, up to a comma.

    python readme_snippets.py README.md [--bare]
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PRINTED = re.compile(r"^print\(.*\)  # (.+)$", re.MULTILINE)
SNIPPET = re.compile(r"<!-- needs: (\w+) -->\n```python\n(.*?)```", re.DOTALL)


def check(extra: str, code: str, *, bare: bool) -> str:
    """Run one snippet and return what is wrong with it, or ""."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    last = done.stderr.strip().rsplit("\n", 1)[-1]
    if extra == "core" or not bare:
        return _difference(code, done.stdout) if done.returncode == 0 else f"failed: {last}"
    hint = f"pip install 'test-time-search[{extra}]'"
    return (
        ""
        if done.returncode != 0 and hint in last
        else f"should end in the hint {hint!r}, but ended in: {last or done.stdout}"
    )


def _difference(code: str, printed: str) -> str:
    """Return what is wrong with what was printed beside the comments of its code, or ""."""
    wanted = [one.partition(", ")[0].strip() for one in PRINTED.findall(code)]
    lines = printed.splitlines()
    if len(wanted) > len(lines):
        return f"printed {len(lines)} lines, but has {len(wanted)} comments that say what is printed"
    wrong = [
        (one, line) for one, line in zip(wanted, lines, strict=False) if line != one and not line.startswith(f"{one} ")
    ]
    return "; ".join(f"printed {line!r}, but says {one!r}" for one, line in wrong)


def main() -> int:
    """Run every snippet; return the exit code."""
    path, bare = Path(sys.argv[1]), "--bare" in sys.argv[2:]
    snippets = SNIPPET.findall(path.read_text(encoding="utf-8"))
    if not snippets:
        sys.stdout.write(f"{path} has no snippets\n")
        return 1
    faults = 0
    for number, (extra, code) in enumerate(snippets, 1):
        wrong = check(extra, code, bare=bare)
        faults += bool(wrong)
        sys.stdout.write(f"snippet {number} ({extra}): {wrong or 'ok'}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
