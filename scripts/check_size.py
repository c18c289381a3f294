"""Fail where a file of the package is over 400 lines, a function over 60, or `hasattr` decides anything in tts/search/.

An entry of the allow-list names its reason; it is seen in review.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

FILE_LIMIT, FUNCTION_LIMIT = 400, 60
# "path" or "path:function" -> why it may be longer
ALLOWED: dict[str, str] = {}


def main() -> int:
    """Print what is too long; return the exit code."""
    faults: list[str] = []
    for path in sorted(Path().glob("[!.]*/**/*.py")):
        if path.parts[0] not in ("tts", "tests", "benchmarks", "examples", "scripts") or path.is_symlink():
            continue
        text = path.read_text(encoding="utf-8")
        if (lines := text.count("\n")) > FILE_LIMIT and str(path) not in ALLOWED:
            faults.append(f"{path}: {lines} lines, but at most {FILE_LIMIT}")
        if path.is_relative_to("tts/search") and "hasattr(" in text:
            faults.append(f"{path}: hasattr, but behaviour goes by protocols")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > FUNCTION_LIMIT and f"{path}:{node.name}" not in ALLOWED:
                    faults.append(f"{path}:{node.lineno}: {node.name} has {size} lines, but at most {FUNCTION_LIMIT}")
    sys.stdout.write("".join(fault + "\n" for fault in faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
