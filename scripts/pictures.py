"""Draw the pictures of the documentation from searches that run now.

    python scripts/pictures.py [NAME ...] [--small] [--out docs/pictures]

The same weights and kind of processor give the same bytes.

- search.svg: the tree of a beam search as it grows.
- sharing.svg: keys and values that paths of REBASE share.
- budget.svg: the spend of a tree search, call by call.
- calibration.svg: scores of two verifiers against how often they are right.

All are of the embedded models, on test problems; with --small, of the toy.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import svg  # noqa: E402 - it lies beside this file
import trace_pictures  # noqa: E402

import tts  # noqa: E402
from tts.experiments.datasets.arithmetic import load  # noqa: E402
from tts.statistics import expected_calibration_error  # noqa: E402
from tts.statistics.discrimination import Calibration  # noqa: E402

# file -> the picture of a trace, the strategy, and the limit on tokens
SEARCHES: Mapping[str, tuple[Any, str, int]] = {
    "search": ("tree", "beam(n=8, branching=4) | weighted", 400),
    "sharing": ("kv", "rebase(n=16) | weighted", 800),
    "budget": ("budget", "mcts | weighted", 400),
}
NAMES = (*SEARCHES, "calibration")
_BINS, _SAMPLES = 10, 8
_STYLE = ".first{fill:var(--accent)}.second{fill:var(--other)}.diagonal{stroke:var(--line);stroke-width:1.5;stroke-dasharray:5 5}\n"  # noqa: E501


class Setting(NamedTuple):
    """The models and problems of the pictures.

    Args:
        model: The model.
        problem: The problem of the trees.
        task: The task of the problem.
        judged: The problems of the calibration.
        verifiers: The verifiers, by the name that is shown.
    """

    model: str
    problem: str
    task: str
    judged: Sequence[tts.Problem]
    verifiers: Mapping[str, str]


def setting(*, small: bool) -> Setting:
    """Return the models and problems of the pictures.

    Args:
        small: Whether the model is the toy, which takes no time.
    """
    if small:
        sums = load(limit=4, operations=2, digits=1, operators="+-", parentheses=False)
        return Setting("toy", "3 + 4 - 2", "arithmetic", sums, {"toy": "toy(error=0.2)"})
    problems = load(limit=150, split="test", operations=[2, 3, 4, 5, 6])
    odds = "confidence(measure='logprob', over='sum', odds=(1.41, 2.16))"
    return Setting(
        "pocket",
        "Reach 4 with 8 18 20 10.",
        "countdown",
        problems,
        {"process model": "process", "log-probability": odds},
    )


def search(where: Setting, picture: Any, strategy: str, tokens: int) -> str:
    """Return the picture of a search."""
    verifier = next(iter(where.verifiers.values())) if where.model == "toy" else None
    given: dict[str, Any] = {} if verifier is None else {"verifier": verifier}
    solved = tts.solve(where.problem, tokens, model=where.model, task=where.task, strategy=strategy, seed=0, **given)
    return trace_pictures.draw(solved.trace, picture)


def draw_calibration(where: Setting, verifier: str) -> Calibration:
    """Return how often samples are right, by their score."""
    problems = [tts.Problem(each.prompt, id=each.id, task=each.task) for each in where.judged]
    strategy = f"best_of_n(n={_SAMPLES}) | weighted"
    limits = tts.Budget(samples=_SAMPLES)
    solutions = tts.solve_many(problems, each=limits, model=where.model, verifier=verifier, strategy=strategy, seed=0)
    scored = [
        (c.scores["main"], c.answer == p.answer)
        for p, s in zip(where.judged, solutions, strict=True)
        for c in s.candidates
    ]
    known = [(score, right) for score, right in scored if not math.isnan(score)]
    return expected_calibration_error([score for score, _ in known], [right for _, right in known], _BINS)


def calibration(where: Setting) -> str:
    """Return the shares of right samples against scores, a point a bin, its area by the samples in it."""
    margin, top, side = 84.0, 60.0, 440.0
    body = [svg.words(24, 32, "When a verifier says p, how many are right?", "bold")]
    corners = f"M{svg.number(margin)} {svg.number(top)}V{svg.number(top + side)}H{svg.number(margin + side)}"
    body.append(
        f'<path class="axis" d="{corners}"/><path class="diagonal" d="M{margin} {top + side}L{margin + side} {top}"/>'
    )
    for share in (0, 0.5, 1):
        body.append(svg.words(margin - 10, top + side * (1 - share) + 7, f"{share:g}", "soft", anchor="end"))
        body.append(svg.words(margin + side * share, top + side + 26, f"{share:g}", "soft", anchor="middle"))
    body.append(svg.words(margin + side / 2, top + side + 52, "score", "soft", anchor="middle"))
    body.append(svg.words(margin + 8, top + 8, "share right", "soft"))
    texts: list[str] = []
    for number, (name, verifier) in enumerate(where.verifiers.items()):
        measured = draw_calibration(where, verifier)
        most = max(each.num for each in measured.table)
        kind = ("first", "second")[number]
        for each in measured.table:
            if each.num:
                x, y = svg.number(margin + side * each.score), svg.number(top + side * (1 - each.label))
                radius = svg.number(3 + 13 * math.sqrt(each.num / most))
                body.append(f'<circle class="{kind}" cx="{x}" cy="{y}" r="{radius}" fill-opacity="0.7"/>')
        row = top + side + 84 + 30 * number
        line = f"{name}: calibration error {measured.error:.2f}"
        words = svg.words(margin + 18, row, line)
        body.append(f'<circle class="{kind}" cx="{margin}" cy="{svg.number(row - 7)}" r="8"/>{words}')
        texts.append(line)
    samples = f"{len(where.judged)} problems, {_SAMPLES} samples each; larger: more samples"
    last = top + side + 84 + 30 * len(where.verifiers)
    body.append(svg.words(24, last, samples, "soft"))
    return svg.document(
        last + 20,
        "Scores of verifiers against shares of right samples",
        f"{'; '.join(texts)}. {samples}.",
        body,
        _STYLE,
    )


def draw(folder: Path, names: Sequence[str] = NAMES, *, small: bool) -> list[Path]:
    """Draw pictures into a folder, and return their paths."""
    where = setting(small=small)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        text = calibration(where) if name == "calibration" else search(where, *SEARCHES[name])
        (folder / f"{name}.svg").write_text(text, encoding="utf-8")
    return [folder / f"{name}.svg" for name in names]


def main() -> None:
    """Draw the pictures and print their paths."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; none: all")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("--small", action="store_true", help="on the toy, in seconds")
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"no picture {sorted(unknown)[0]!r}, but there are {', '.join(NAMES)}")
    for path in draw(options.out, options.names or NAMES, small=options.small):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
