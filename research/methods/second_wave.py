"""Methods of the second wave on the embedded pair, under equal totals of tokens.

    python -m research.methods.second_wave [--limit 100] [--seeds 2] [--budgets 204 816] [--jobs 1] [--store FILE]
        [--out FOLDER]

Totals include what verifiers read. The command writes `second_wave.md`. Parameters are the defaults, but for sizes
that fit these budgets; none was chosen here. The command takes half an hour of one core. If it was stopped, it goes on
where it ended.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")


from research.methods import arguments as shared
from research.methods import running
from research.methods.choosing import Choices, canonical_name
from research.methods.measuring import point_difference
from research.methods.plans import GUIDE
from research.stamps import stamp_line
from tts.errors import TTSError
from tts.experiments.analysis.curves import Curve
from tts.experiments.store.store import Store, default_store
from tts.statistics import Difference, holm

NOTHING, CONTROL = "nothing", "control"
PATH = "confidence(measure='logprob', over='sum', odds=(1.0, 0.0))"
VOTE, WEIGHTED = "best_of_n | majority", "best_of_n | weighted"
# by what scores: plans, each held against the first of its group
PLANS: dict[str, tuple[str, ...]] = {
    NOTHING: (
        VOTE,
        "mur(branching=4) | majority",
        "guided_by_gut | majority",
        "phi_decoding(beams=2, branching=2) | majority",
        "power_sampling(moves=2, block=16) | majority",
        "power_sampling(moves=2) | majority",
        "lookahead_power_sampling(block=16, branching=2, rollouts=2) | majority",
    ),
    PATH: (WEIGHTED, "best_of_n | majority_of_bests", "ab_mcts", "mur(branching=4, verifier='main') | weighted"),
    # scored by the process model: a difference that is known to be there, seen by the same means
    CONTROL: (VOTE, WEIGHTED),
    GUIDE: (
        "particle_filter | weighted",
        "particle_filter(resample_below=0.5) | weighted",
        "particle_filter(lookahead=1) | weighted",
        "particle_filter(target='last', twist=0.5) | weighted",
    ),
}
# of an interval's length: a difference that is seen four times in five at the level of 5 %
_POWER = (1.96 + 0.84) / (2 * 1.96)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A plan at a budget.

    Args:
        plan: The plan.
        budget: The limit on all tokens.
        accuracy: The accuracy with its interval, as a text.
        tokens: The tokens spent on a problem, in the mean.
        difference: The difference to the first plan of its group; None: the plan is the first.
        p: The p-value, corrected over the group.
    """

    plan: str
    budget: int
    accuracy: str
    tokens: float
    difference: Difference | None = None
    p: float | None = None


def rows_of(curves: dict[str, Curve], plans: Sequence[str], budgets: Sequence[int]) -> list[Row]:
    """Return a row for each plan of a group and budget."""
    rows: list[Row] = []
    base = curves[canonical_name(plans[0], curves)]
    for plan in plans:
        curve = curves[canonical_name(plan, curves)]
        for point, budget in enumerate(sorted(budgets)):
            accuracy = curve.accuracy[point]
            accuracy_text = f"{100 * accuracy.value:.1f} [{100 * accuracy.low:.1f}, {100 * accuracy.high:.1f}]"
            row = Row(plan=plan, budget=budget, accuracy=accuracy_text, tokens=float(curve.costs["tokens"][point]))
            rows.append(
                row
                if curve is base
                else dataclasses.replace(row, difference=point_difference(curve, point, base, point))
            )
    corrected = iter(holm([row.difference.p for row in rows if row.difference is not None]).tolist())
    return [row if row.difference is None else dataclasses.replace(row, p=next(corrected)) for row in rows]


def page(
    groups: dict[str, list[Row]], flags: str, *, limit: int, seeds: int, operations: Sequence[int]
) -> Iterator[str]:
    """Yield the lines of the page."""
    yield from (
        "# Methods of the second wave, on the embedded pair",
        "",
        stamp_line(f"python -m research.methods.second_wave {flags}"),
        "",
    )
    yield (
        f"{limit} problems, expressions of {min(operations)} to {max(operations)} operations; seeds: {seeds}. The "
        "budget limits all tokens. A difference is to the first plan with the same scores, and p is corrected over "
        "these plans. Parameters were not tuned. A row whose interval contains 0 says nothing about gains below "
        "*detectable*. The *control* is a vote and a weighted one, which are known to differ."
    )
    yield from ("", "| scores | plan | budget | spent | accuracy | difference | detectable | p |")
    yield "| :-- | :-- | --: | --: | :-- | :-- | --: | --: |"
    for verifier, rows in groups.items():
        for row in rows:
            gap, detectable, p = "–", "–", "–"
            if row.difference is not None:
                mean = row.difference.mean
                gap, p = f"{100 * mean.value:+.1f} [{100 * mean.low:+.1f}, {100 * mean.high:+.1f}]", f"{row.p:.3f}"
                detectable = f"{100 * _POWER * (mean.high - mean.low):.1f}"
            scores = verifier if verifier in (NOTHING, CONTROL) else verifier.partition("(")[0]
            plan = row.plan.replace("|", "\\|")
            cells = f"{row.budget} | {row.tokens:.0f} | {row.accuracy} | {gap} | {detectable} | {p}"
            yield f"| {scores} | `{plan}` | {cells} |"
    yield from ("", f"*Confidence* is `{PATH}`; *process*, and the control's scores, `{GUIDE}`.")


def measure_group(verifier: str, options: argparse.Namespace, operations: Sequence[int]) -> list[Row]:
    """Run what is missing of a group, and return its rows."""
    problems = {"split": "test", "operations": list(operations), "limit": options.limit}
    name = f"second-wave-{list(PLANS).index(verifier)}"
    study = running.make_study(
        name,
        problems,
        PLANS[verifier],
        {"tokens": options.budgets},
        seeds=options.seeds,
        verifier={NOTHING: "none", CONTROL: GUIDE}.get(verifier, verifier),
    )
    path = options.store or default_store()
    number = running.run(study, path, options.jobs)
    with Store(path) as store:
        found = running.curves_by_budget(store.results(number, drawn=False))
        curves = {strategy: curve for (strategy, _), curve in found.items()}
    return rows_of(curves, PLANS[verifier], options.budgets)


def main() -> None:
    """Run what is missing, and write the page."""
    options = arguments()
    try:
        operations = Choices.load(options.choices).operations
        groups = {verifier: measure_group(verifier, options, operations) for verifier in PLANS}
    except TTSError as failure:
        raise SystemExit(str(failure)) from None
    flags = f"--limit {options.limit} --seeds {options.seeds} --budgets {' '.join(map(str, options.budgets))}"
    lines = page(groups, flags, limit=options.limit, seeds=options.seeds, operations=operations)
    shared.write_page(options.out, "second_wave.md", lines)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = shared.parser(__doc__, limit=100, seeds=2)
    parser.add_argument("--budgets", type=int, nargs="+", default=[204, 816], help="of all tokens")
    return parser.parse_args()


if __name__ == "__main__":
    main()
