"""How to split a total between solutions and verdicts: accuracy over a grid at equal totals.

    python -m research.methods.splits [--limit 150] [--samples 32] [--draws 50] [--price X] [--run N] [--verdicts M]
        [--out FOLDER]

The grid has S solutions with V sampled verdicts each. The command draws one pool of samples a problem on the
validation split of the embedded pair. Verdicts are sampled from P(right) by the policy's own judgement.

With `--run N --role main`, the command reads the pools of a stored study whose verifier has that role. `--verdicts M`
says that its scores are shares of M verdicts, such as those of `genrm(votes=M, verdict='words')`.

The command writes `splits.md`, with the law that the strategy `self_verification` takes. It takes a few minutes of one
core. If it was stopped, it goes on where it ended.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from research.methods import arguments as shared
from research.methods import running
from research.methods.choosing import Choices
from research.stamps import stamp_line
from tts.errors import ConfigError, TTSError
from tts.experiments.analysis.pools import ProblemPool, pools_of
from tts.experiments.store.store import Store, default_store
from tts.experiments.study import config
from tts.experiments.study.config import StudyConfig

TOTALS = (1, 2, 4, 8, 16, 32)  # in solutions
VOTES = (0, 1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Solved:
    """The pool of one problem.

    Args:
        kinds: The class of each sample's answer [N]; -1: it has none.
        right: Whether each sample is right [N].
        yes: The chance of "yes" to each sample, or its share of known verdicts [N]; NaN: unknown.
    """

    kinds: NDArray[np.int64]
    right: NDArray[np.bool_]
    yes: NDArray[np.float64]


def pool_arrays(pool: ProblemPool, role: str) -> Solved:
    """Return a pool as arrays."""
    kinds = [-1 if one.answer_class is None else one.answer_class for one in pool.drawn]
    yes = [one.scores.get(role, math.nan) for one in pool.drawn]
    return Solved(np.array(kinds), np.array([one.right is True for one in pool.drawn]), np.array(yes))


def accuracy(
    problem: Solved, n: int, votes: int, draws: int, rng: np.random.Generator, verdicts: int | None = None
) -> float:
    """Return how often n samples of a pool with some verdicts each choose a right answer.

    The mean is over random subsets and verdicts. Answers are weighed as in `self_verification`, by
    (yes + 1/2) / (votes + 1). Of equal weights, the first answer wins.

    Args:
        problem: The pool.
        n: The number of samples.
        votes: The number of verdicts of each sample.
        draws: The number of subsets.
        rng: The generator.
        verdicts: The number of verdicts that a share is of, from which `votes` are drawn without replacement; None:
            verdicts are drawn from a chance.
    """
    hits = 0
    for _ in range(draws):
        chosen = rng.permutation(len(problem.kinds))[:n]
        kinds, yes = problem.kinds[chosen], problem.yes[chosen]
        known = ~np.isnan(yes)
        chance = np.where(known, yes, 0.0)
        if verdicts is None:
            counts = rng.binomial(votes, chance)
        else:
            approved = np.rint(chance * verdicts).astype(np.int64)
            counts = rng.hypergeometric(approved, verdicts - approved, votes) if votes else np.zeros(n, np.int64)
        weights = np.where(known, (counts + 0.5) / (votes + 1), 0.5)
        voters = np.flatnonzero(kinds >= 0)
        if not len(voters):
            continue
        totals: dict[int, float] = {}
        for i in voters:
            totals[int(kinds[i])] = totals.get(int(kinds[i]), 0.0) + float(weights[i])
        winner = max(totals, key=lambda kind: round(totals[kind], 9))
        hits += bool(problem.right[chosen][kinds == winner].any())
    return hits / draws


Grid = Mapping[tuple[int, int], NDArray[np.float64]]  # (total, votes) -> accuracy of each problem


def grid(
    problems: Sequence[Solved],
    totals: Sequence[int],
    votes: Sequence[int],
    price: float,
    draws: int,
    verdicts: int | None = None,
) -> dict[tuple[int, int], NDArray[np.float64]]:
    """Return the accuracy of each problem at each total and number of verdicts that pool and total pay.

    Args:
        problems: The pools.
        totals: The totals, in solutions.
        votes: The numbers of verdicts.
        price: The price of a verdict, in solutions.
        draws: The number of subsets.
        verdicts: The number of verdicts that a share is of; None: verdicts are drawn from a chance.
    """
    most = min(len(problem.kinds) for problem in problems)
    accuracies: dict[tuple[int, int], NDArray[np.float64]] = {}
    for total in totals:
        for v in votes:
            n = solutions(total, v, price)
            if not 1 <= n <= most or (verdicts is not None and v > verdicts) or (n == 1 and v):
                continue
            rng = np.random.default_rng([total, v])
            accuracies[total, v] = np.array([accuracy(problem, n, v, draws, rng, verdicts) for problem in problems])
    return accuracies


def solutions(total: int, votes: int, price: float) -> int:
    """Return S of S (1 + price V) = total, rounded down."""
    return math.floor(total / (1 + price * votes) + 1e-9)


def best_votes(accuracies: Grid, total: int) -> int:
    """Return the verdicts of the best split of a total; of equal ones the fewest."""
    return max(
        (v for t, v in accuracies if t == total), key=lambda v: (round(float(accuracies[total, v].mean()), 9), -v)
    )


def law(accuracies: Grid) -> tuple[float, float]:
    """Return scale and exponent of V = scale C^exponent through the best splits.

    The fit is by least squares of logarithms, and the exponent is kept in [0, 1]. Totals at which no verdicts are best
    are
    left out. (0, 0) is returned if no verdicts are best at half of the totals.
    """
    totals = sorted({total for total, _ in accuracies if total > 1})
    points = [(total, v) for total in totals if (v := best_votes(accuracies, total))]
    if 2 * len(points) <= len(totals):
        return 0.0, 0.0
    x, y = np.log(np.array(points, dtype=np.float64)).T
    spread = ((x - x.mean()) ** 2).sum()
    exponent = float(np.clip(((x - x.mean()) * (y - y.mean())).sum() / spread, 0.0, 1.0)) if spread else 0.0
    return float(np.exp(y.mean() - exponent * x.mean())), exponent


def format_mean(values: NDArray[np.float64]) -> str:
    """Return a mean in percent with its 95 % interval by problem."""
    half = 1.96 * values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{100 * values.mean():.1f} ± {100 * half:.1f}"


def page(accuracies: Grid, price: float, flags: str, about: str, *, measured: bool = True) -> Iterator[str]:
    """Yield the lines of the page.

    Args:
        accuracies: The accuracies.
        price: The price of a verdict, in solutions.
        flags: The options of the command.
        about: The sentence on the problems.
        measured: Whether the price is that of the pool.
    """
    source = ", measured on the pool: the tokens of a verdict over those of a solution" if measured else ", as given"
    scale, exponent = law(accuracies)
    totals, votes = sorted({total for total, _ in accuracies}), sorted({v for _, v in accuracies})
    yield from ("# Solving or verifying", "", stamp_line(f"python -m research.methods.splits {flags}"), "")
    yield (
        f"{about} A total of C pays S solutions with V verdicts each: S (1 + lambda V) = C. lambda is "
        f"{price:.3f}{source}. V = 0 is the plain vote. A verdict is one token; one with a chain of thought costs far "
        "more. The gain is that of the best split over the vote."
    )
    gains = [
        accuracies[total, top] - accuracies[total, 0]
        for total in totals
        if (top := best_votes(accuracies, total)) and (total, 0) in accuracies
    ]
    is_seen = any(gain.mean() > 1.96 * gain.std(ddof=1) / math.sqrt(len(gain)) for gain in gains)
    noise = "" if is_seen else ", which may be noise: no best split gains more than its interval"
    yield from ("", f"The law of the best splits: `self_verification(law=[{scale:.2f}, {exponent:.2f}])`{noise}.")
    yield from (
        "",
        f"| C | {' | '.join(f'V = {v}' for v in votes)} | best V | gain |",
        f"|{' :-- |' * (len(votes) + 3)}",
    )
    for total in totals:
        cells = [format_mean(accuracies[total, v]) if (total, v) in accuracies else "–" for v in votes]
        top = best_votes(accuracies, total)
        gain = format_mean(accuracies[total, top] - accuracies[total, 0]) if top and (total, 0) in accuracies else "–"
        yield f"| {total} | {' | '.join(cells)} | {top} | {gain} |"


def price_of(pools: Sequence[ProblemPool], verdicts: int | None) -> float:
    """Return the tokens of a verdict over those of a solution, in the mean over a pool's distinct texts."""
    drawn = [one for pool in pools for one in pool.drawn if one.same is None]
    read, written = (np.mean([getattr(one, name) for one in drawn]) for name in ("verifier_tokens", "tokens"))
    return float(read / written / (verdicts or 1))


def study(choices: Choices, limit: int, samples: int) -> StudyConfig:
    """Return the study that draws the pair's pools."""
    return config.study_config(
        {
            "name": "splits",
            "models": "pocket",
            "verifiers": "self_evaluation",
            "problems": {
                "dataset": "arithmetic",
                "split": "validation",
                "operations": choices.operations,
                "limit": limit,
            },
            "strategies": ["best_of_n | best"],
            "budgets": {"samples": [samples]},
            "seeds": 1,
            "record": {"candidates": True},
            "concurrency": 16,
        }
    )


def main() -> None:
    """Draw what is missing, and write the page."""
    options = arguments()
    path = options.store or default_store()
    try:
        number = options.run or running.run(
            study(Choices.load(options.choices), options.limit, options.samples), path, options.jobs
        )
        with Store(path) as store:
            pools = [pool for pool in pools_of(store.results(number)).pools if pool.has(options.role)]
        if not pools:
            raise ConfigError(f"role is {options.role!r}, but no pool of run {number} has scores of it")
        price = price_of(pools, options.verdicts) if options.price is None else options.price
        problems = [pool_arrays(pool, options.role) for pool in pools]
        accuracies = grid(problems, TOTALS, VOTES, price, options.draws, options.verdicts)
    except TTSError as failure:
        raise SystemExit(str(failure)) from None
    flags = f"--limit {options.limit} --samples {options.samples} --draws {options.draws}" + (
        "" if options.price is None else f" --price {options.price}"
    )
    own = "validation split of the embedded pair; verdicts are drawn from the policy's own judgement of each solution"
    about = (
        f"{len(problems)} problems, {len(problems[0].kinds)} samples each: "
        f"{own if options.run is None else f'run {options.run}'}."
    )
    shared.write_page(options.out, "splits.md", page(accuracies, price, flags, about, measured=options.price is None))


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = shared.parser(__doc__, limit=150, samples=32, draws=50)
    parser.add_argument("--price", type=float, help="of a verdict, in solutions; without: measured on the pool")
    parser.add_argument("--run", type=int, help="number of a stored study, in place of the pair's")
    parser.add_argument("--role", default="main", help="of the verifier")
    parser.add_argument("--verdicts", type=int, help="that a score is a share of; without: a score is a chance")
    return parser.parse_args()


if __name__ == "__main__":
    main()
