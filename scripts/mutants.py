"""Change one place of the code at a time, and see whether a quick test notices.

    python scripts/mutants.py --draw 80 --seed 0   # a line for each mutant, then the count
    python scripts/mutants.py --draw 80 --seed 0 --only 3 17   # those of these numbers, once more

A mutant is a copy of the repository with one change: a comparison, an operator, a number, a `not`, a jump, a returned
value or a call that is removed. Each line of code that has a place is drawn with the same chance. Texts, errors,
annotations and decorators stay as they are. The quickest tests come first, the others only for what survives them.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SPINE = ["plan_rows", "writer", "rows", "calls", "costs", "scoring", "completion", "finishing", "reading", "lengths"]
FILES = [*sorted(ROOT.glob("tts/budget/*.py")), *(ROOT / f"tts/search/{name}.py" for name in SPINE)]
FIRST = ["tests/budget/test_account.py", "tests/search/test_plan_rows.py", "tests/golden", "tests/laws/test_streams.py"]
THEN = ["tests/search/test_*.py", "tests/budget/test_*.py", "tests/laws/test_*.py", "tests/search/selections/test_*.py",
        "tests/search/stop_rules/test_*.py", "tests/solver/test_*.py", "tests/verifiers/test_*.py"]  # fmt: skip
# of a processor, and of a clock, after which a stage is stopped: then the mutant is killed
SECONDS, PATIENCE = 300, 900
_SWAPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,), ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.FloorDiv,), ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,), ast.Mod: (ast.Mult,), ast.And: (ast.Or,), ast.Or: (ast.And,),
    ast.Break: (ast.Continue,), ast.Continue: (ast.Break,),
}  # fmt: skip
_SKIPPED = (ast.Raise, ast.Assert, ast.JoinedStr)
_SKIPPED_FIELDS = ("annotation", "returns", "decorator_list")


class Mutant(NamedTuple):
    """One change of one file, with its number there, its line, and the code before and after."""

    path: Path
    number: int
    line: int
    change: str


def list_mutants(path: Path) -> list[Mutant]:
    """Return each mutant of a file, in the order of its code."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [Mutant(path, number, *change) for number, change in enumerate(_changes(tree, 1))]


def write_mutant(mutant: Mutant) -> str:
    """Return the code of the whole file with the change."""
    tree = ast.parse(mutant.path.read_text(encoding="utf-8"))
    next(itertools.islice(_changes(tree, 1), mutant.number, None))
    return ast.unparse(tree)  # the change is undone only when the next one is asked for


def _changes(node: ast.AST, line: int) -> Iterator[tuple[int, str]]:
    """Make each change below a node in turn, and yield its line and what it is."""
    line = getattr(node, "lineno", line)
    if isinstance(node, _SKIPPED):
        return
    for field, value in ast.iter_fields(node):
        if field in _SKIPPED_FIELDS:
            continue
        items: list[Any] | None = value if isinstance(value, list) else None
        holder: Any = node.__dict__ if items is None else items
        for place in [field] if items is None else range(len(items)):
            child = holder[place]
            if not isinstance(child, ast.AST):
                continue
            for new in _replacements(child):
                is_operator = isinstance(child, ast.operator | ast.cmpop | ast.boolop)
                before = ast.unparse(node if is_operator else child)
                holder[place] = new
                after = ast.unparse(node if is_operator else new)
                yield getattr(child, "lineno", line), f"{before}  ->  {after}"
                holder[place] = child
            yield from _changes(child, line)


def _replacements(node: Any) -> list[ast.AST]:
    if type(node) in _SWAPS:
        return [new() for new in _SWAPS[type(node)]]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        return [node.operand]
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return [ast.Constant(not node.value)]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return [ast.Constant(node.value + 1)]
    if isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) not in ("None", "False"):
        return [ast.Return(ast.Constant(None))]
    return [ast.Pass()] if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await) else []


def draw_mutants(files: Sequence[Path], count: int, seed: int) -> list[Mutant]:
    """Return mutants of different lines, drawn at random with the same chance for each line that has one."""
    lines: dict[tuple[Path, int], list[Mutant]] = {}
    for path in files:
        for mutant in list_mutants(path):
            lines.setdefault((path, mutant.line), []).append(mutant)
    chance, keys = np.random.default_rng(seed), sorted(lines)
    drawn = chance.choice(len(keys), min(count, len(keys)), replace=False)
    return [lines[keys[index]][chance.integers(len(lines[keys[index]]))] for index in drawn]


def run_tests(root: Path) -> str | None:
    """Return what ended the quick tests of a copy of the repository; None: they all pass."""
    first = [str(path) for name in FIRST for path in sorted(root.glob(name))]
    then = [str(path) for pattern in THEN for path in sorted(root.glob(pattern)) if str(path) not in first]
    options = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-m", "not slow and not gpu and not docs"]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    for tests in (first, then):
        command = [sys.executable, "-m", "pytest", *options, *tests]
        with subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True) as process:
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (SECONDS, SECONDS))
            try:
                shown, _ = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                return "time"
        if process.returncode:
            lines = [line for line in shown.splitlines() if line.startswith(("FAILED", "ERROR"))]
            return lines[0].split(" - ")[0] if lines else f"exit {process.returncode}"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw mutants, run the tests of each and write what became of it; return 1 where one survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="*", help="the numbers of the mutants that are run")
    given = parser.parse_args(arguments)
    drawn = list(enumerate(draw_mutants(FILES, given.draw, given.seed)))
    drawn = [one for one in drawn if given.only is None or one[0] in given.only]
    killed = 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "copy"
        shutil.copytree(ROOT, root, symlinks=True, ignore=shutil.ignore_patterns(".*", "build", "shared"))
        for number, mutant in drawn:
            path = root / mutant.path.relative_to(ROOT)
            text = path.read_text(encoding="utf-8")
            path.write_text(write_mutant(mutant), encoding="utf-8")
            end = run_tests(root)
            path.write_text(text, encoding="utf-8")
            killed += end is not None
            name = path.relative_to(root)
            sys.stdout.write(f"{number} {name}:{mutant.line}: {mutant.change}: {end or 'SURVIVES'}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{killed} of {len(drawn)} killed\n")
    return killed < len(drawn)


if __name__ == "__main__":
    sys.exit(main())
