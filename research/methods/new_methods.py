"""Later selections, stop rules and strategies beside their baselines.

    TTS_DATA_DIR=… python -m research.methods.new_methods [--problems 120] [--draws 60] [--out FOLDER]

The command replays selections by score and by length, and the stop rule `pandora`, on two recorded pools. It holds
tournaments with a judge whose errors are known. It runs `parallel_probe` and `diverse_beam` on the toy at equal
tokens. It writes `new_methods.md`, and takes ten minutes of one core.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

import tts
from research.recorded.pools import pool
from research.stamps import stamp_line
from tts.errors import TTSError
from tts.experiments.analysis.replay import ReplayedCurve
from tts.randomness import hash64
from tts.statistics import Difference, Estimate, clustered_mean, paired_difference

RESULTS = Path(__file__).parents[2] / "docs/results"
POOLS = {
    "crucible": "MATH-500, Qwen2.5-1.5B, scores of a process model",
    "bestofn": "GSM8K, Qwen2.5-0.5B, mean log-probabilities",
}
SIZE = 16
SELECTIONS = (
    "majority", "best", "weighted", "weighted(temperature=0.1)", "pessimistic", "shortest", "last_finish",
)  # fmt: skip
STOPS = ("never", "pandora(price=0.01, least=4, horizon=16)", "pandora(price=0.001, least=4, horizon=16)")
JUDGED = (
    "majority",
    "knockout",
    "league(opponents=1)",
    "swiss(matches=1)",
    "league(opponents=2)",
    "swiss",
    "genselect",
)
CHANCES = (0.6, 0.75, 0.9)
N = 8
TOY = {
    300: ("best_of_n | majority", "parallel_probe(every=8, stable=2, warmup=1, tokens=1)", "diverse_beam(branching=3)"),
    900: ("best_of_n | majority", "parallel_probe(every=8, stable=2, warmup=1, tokens=1)", "diverse_beam(branching=3)"),
}


def judged_accuracy(selection: str, chance: float, problems: int, seed: int = 0) -> tuple[list[float], float]:
    """Return whether each problem is solved with a judge of a known law, and the mean verifier calls.

    Samples of a problem are right with a chance of its own, from .1 to .6, and wrong samples give one of four answers.
    A
    judge that is shown several solutions names a right one with the odds chance / (1 - chance) over each wrong one,
    whatever their order.
    """
    odds, solved, calls = chance / (1 - chance), list[float](), list[int]()
    for i in range(problems):
        share = 0.1 + 0.5 * (i + 0.5) / problems

        def model(ask: tts.Ask, i: int = i, share: float = share) -> str:
            prompt = str(ask.prompt)
            rng = np.random.default_rng(hash64(seed, i, prompt, ask.seed))
            shown = re.findall(r"The answer is (\d)\.", prompt)
            if '{"reason"' not in prompt:
                return f"The answer is {0 if rng.random() < share else rng.integers(1, 5)}."
            weights = np.array([odds if answer == "0" else 1.0 for answer in shown])
            named = int(rng.choice(len(shown), p=weights / weights.sum()))
            return f'{{"best": {named + 1}}}' if '"best"' in prompt else f'{{"better": "{"AB"[named]}"}}'

        problem = tts.Problem(f"Problem {i}", answer="0")
        solution = tts.solve(
            problem,
            tts.Budget(samples=1000),
            backend=model,
            task="math",
            verifier="judge(votes=1)",
            strategy=f"best_of_n(n={N}) | {selection}",
            seed=seed,
        )
        solved.append(float(solution.answer == "0"))
        calls.append(solution.usage.verifier_calls)
    return solved, float(np.mean(calls))


def toy_accuracy(plan: str, tokens: int, problems: int) -> list[float]:
    """Return whether the toy solves each of some sums within so many tokens each."""
    rng = np.random.default_rng(1)
    sums = [rng.integers(1, 20, 10).tolist() for _ in range(problems)]
    problems_of_sums = [
        tts.Problem(" + ".join(map(str, of)), answer=f"{sum(of)}", id=f"{i}") for i, of in enumerate(sums)
    ]
    solutions = tts.solve_many(
        problems_of_sums, each=tts.Budget(tokens=tokens), model="toy", verifier="none", strategy=plan
    )
    return [float(one.answer == problem.answer) for one, problem in zip(solutions, problems_of_sums, strict=True)]


def format_percent(one: Estimate) -> str:
    """Return an accuracy in percent, with its interval."""
    return f"{100 * one.value:.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]"


def format_points(one: Difference) -> str:
    """Return a difference in points with its interval, and McNemar's p-value."""
    return f"{100 * one.mean.value:+.1f} [{100 * one.mean.low:+.1f}, {100 * one.mean.high:+.1f}] | {one.mcnemar:.3f}"


def compare(rows: Mapping[str, Sequence[float]], base: str) -> dict[str, str]:
    """Return the cells of accuracy, difference to a baseline and McNemar's p-value, by row."""
    cells: dict[str, str] = {}
    for name, values in rows.items():
        rng = np.random.default_rng(0)
        accuracy = format_percent(clustered_mean(values, rng=rng, bounds=(0.0, 1.0)))
        cells[name] = f"{accuracy} | " + (
            "– | –" if name == base else format_points(paired_difference(values, rows[base], rng=rng))
        )
    return cells


def page(problems: int, draws: int) -> Iterator[str]:
    """Yield the lines of the page."""
    yield from ("# Later selections and strategies beside their baselines", "")
    yield from (stamp_line(f"python -m research.methods.new_methods --problems {problems} --draws {draws}"), "")
    yield (
        "p is from McNemar's exact test, not corrected for the number of tests. The defaults of `pessimistic`, and the "
        "temperature 0.1 of `weighted`, were tried on these pools, which favours them."
    )
    yield from recorded_tables(draws)
    yield from judge_table(problems)
    yield from toy_table(problems)


def recorded_tables(draws: int) -> Iterator[str]:
    """Yield the tables of the recorded pools."""
    selections, rules = list[str](), list[str]()
    sizes: list[str] = []
    for name, words in POOLS.items():
        recorded = pool(name)
        size = min(SIZE, max(len(one.drawn) for one in recorded.problems))
        sizes.append(f"{words}: {len(recorded.problems)} problems, {size} samples")
        short = words.partition(",")[0]
        curves = recorded.replay(["random choice", *(f"best_of_n | {one}" for one in SELECTIONS)], [size], draws=draws)
        cells = compare({one.curve.label: one.curve.shares[0].tolist() for one in curves}, "best_of_n | majority")
        selections += [
            f"| {short} | `{label.removeprefix('best_of_n | ')}` | {cell} |" for label, cell in cells.items()
        ]
        stops = recorded.replay([f"best_of_n | {one} | best" for one in STOPS], [size], draws=draws)
        cells = compare(
            {one.curve.label: one.curve.shares[0].tolist() for one in stops}, f"best_of_n | {STOPS[0]} | best"
        )
        for rule, one, cell in zip(STOPS, stops, cells.values(), strict=True):
            samples, tokens = (mean_cost(one, axis) for axis in ("samples", "generated_tokens"))
            rules.append(f"| {short} | `{rule}` | {cell} | {samples} | {tokens} |")
    yield from (
        "",
        "## Recorded samples",
        "",
        f"{'; '.join(sizes)}. Differences are to `majority`, then to `never`.",
        "",
    )
    yield from ("| pool | selection | accuracy | difference | p |", "| :-- | :-- | :-- | :-- | --: |", *selections)
    yield from (
        "",
        "Stop rules before `best`:",
        "",
        "| pool | stop rule | accuracy | difference | p | samples | tokens |",
    )
    yield from ("| :-- | :-- | :-- | :-- | --: | --: | --: |", *rules)


def mean_cost(one: ReplayedCurve, axis: str) -> str:
    """Return a mean cost of a problem."""
    return f"{float(one.curve.costs[axis][0]):,.1f}"


def judge_table(problems: int) -> Iterator[str]:
    """Yield the table of judges of a known law."""
    yield from ("", "## Judges of a known law", "")
    yield (
        f"{problems} problems, {N} samples each. The judge prefers a right solution to a wrong one with a known "
        "chance. A comparison is two replies, one in each order; so is the question of `genselect`. Differences are "
        "to `majority`."
    )
    yield from ("", "| judge right | tournament | accuracy | difference | p | comparisons |")
    yield "| --: | :-- | :-- | :-- | --: | --: |"
    for chance in CHANCES:
        outcomes = {name: judged_accuracy(name, chance, problems) for name in JUDGED}
        cells = compare({name: solved for name, (solved, _) in outcomes.items()}, "majority")
        yield from (f"| {chance} | `{name}` | {cell} | {outcomes[name][1]:.1f} |" for name, cell in cells.items())


def toy_table(problems: int) -> Iterator[str]:
    """Yield the table of strategies on the toy."""
    yield from (
        "",
        "## Strategies on the toy, without a verifier",
        "",
        f"{problems} sums of ten numbers. The budget is in tokens.",
        "",
    )
    yield from ("| budget | plan | accuracy | difference | p |", "| --: | :-- | :-- | :-- | --: |")
    for tokens, plans in TOY.items():
        cells = compare({plan: toy_accuracy(plan, tokens, problems) for plan in plans}, plans[0])
        yield from (f"| {tokens} | `{plan.replace('|', chr(92) + '|')}` | {cell} |" for plan, cell in cells.items())


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=120, help="of the judges and the toy")
    parser.add_argument("--draws", type=int, default=60, help="random orders of a pool")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    try:
        lines = list(page(options.problems, options.draws))
    except TTSError as failure:
        raise SystemExit(str(failure)) from None
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "new_methods.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(options.out / "new_methods.md")


if __name__ == "__main__":
    main()
