"""Labels of steps by rollouts.

Solutions are written from each prefix of a path to their ends, and the share of right ones is its value.

Source: Wang et al., "Math-Shepherd: Verify and Reinforce LLMs Step-by-step without Human Annotations" (2312.08935): the
hard estimate is whether any of k completions is right, the soft one the share of right ones. Luo et al., "Improve
Mathematical Reasoning in Language Models by Automated Process Supervision" (2406.06592, OmegaPRM): a binary search for
the first step after which no completion is right, which takes about log2 of the steps. Differs:
- Prefixes that paths share are rolled out once, and all rollouts share the keys and values of their prefixes.
- The value of a whole path is its own verdict, and costs nothing.
- OmegaPRM's tree search for the states that are rolled out next is left out: which paths are labelled is the caller's
  choice.
- The binary search takes a prefix before a hopeful one as hopeful, as in the paper, without rollouts of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from tts.budget.account import Account
from tts.budget.budget import Budget
from tts.checks import check_choice, check_int
from tts.errors import CapabilityError, ConfigError
from tts.experiments.run.candidates import judge_answer
from tts.search.ends import SearchEnded
from tts.search.needs import Needs
from tts.search.parts import Selection, Strategy
from tts.search.search import Search
from tts.search.selections.majority import Majority
from tts.solver.solver import Solver
from tts.types import Candidate, Problem, Prompt, Solution, Trajectory, Usage
from tts_addons.training.filters import Filters
from tts_addons.training.records import PathSample, SearchRows
from tts_addons.training.writing import Exported, export_searches

Steps = tuple[str, ...]
METHODS: Final = ("each", "first_error")
_NEEDS: Final = Needs(capabilities=("steps", "extend"))
_ESTIMATE: Final = "soft: the share of right rollouts, or 1 or 0 as the hard label where a binary search asked for none"
_LEAST_SHARE: Final = 1e-9  # the lowest share of a step that some rollout calls right


@dataclass(frozen=True, slots=True)
class LabelledPath:
    """A path with the values of its steps.

    Args:
        steps: The texts of the steps.
        soft: The share in [0, 1] of right rollouts after each step; None: the budget did not reach it, or a binary
            search did not ask.
        hard: Whether the path up to each step may still end right; None: unknown.
        right: Whether the path itself ends right.
    """

    steps: Steps
    soft: tuple[float | None, ...]
    hard: tuple[bool | None, ...]
    right: bool


@dataclass(frozen=True, slots=True)
class StepLabels:
    """The labels of some paths of one problem.

    Args:
        paths: The paths, in the order given.
        rollouts: The rollouts that ended, in all.
        usage: The cost of the rollouts.
        stopped_by: Why the rollouts ended, as in `Solution`.
    """

    paths: tuple[LabelledPath, ...]
    rollouts: int
    usage: Usage
    stopped_by: str
    problem: Problem = field(repr=False)
    prompt: Prompt = field(repr=False)
    model: str = field(repr=False)
    origin: str = field(repr=False)
    seed: int = field(repr=False)
    budget: str = field(repr=False)

    def export(self, path: str | Path, *others: StepLabels) -> Exported:
        """Write rows of the form "trl-prm" with a card; paths with an unknown step are left out.

        The soft label of a step is its share of right rollouts. Where a binary search asked for none, the soft label
        is 1 or 0, as the hard label. The card says so.
        An existing file is replaced.

        Args:
            path: The file; it ends in .jsonl or .parquet.
            others: Labels of other problems, whose rows follow in the same file.

        Raises:
            ConfigError: The path has another ending, labels are of several models, or every labelled path has an
                unknown step.
        """
        labels = (self, *others)
        if not any(_values(path) for one in labels for path in one.paths):
            raise ConfigError(
                f"no path has a label of each of its steps (stopped by: {labels[0].stopped_by})",
                hint="give label_steps a larger budget; if it is done, a larger k",
            )
        facts = {
            "labels": _ESTIMATE,
            "rollouts": f"{sum(one.rollouts for one in labels):,}",
            "tokens of rollouts": f"{sum(one.usage.tokens for one in labels):,}",
        }
        filters = Filters(judge="score", threshold=_LEAST_SHARE)
        return export_searches((one._record() for one in labels), path, "trl-prm", filters, facts=facts)

    def _record(self) -> SearchRows:
        """Return the labelled paths as a search whose scores are the labels."""
        samples = [
            PathSample(prompt=self.prompt, text="".join(path.steps), steps=path.steps, values=_values(path))
            for path in self.paths
        ]
        return SearchRows(
            problem=self.problem.id or self.problem.text,
            prompt=self.prompt,
            reference=self.problem.answer,
            model=self.model,
            strategy=self.origin,
            seed=self.seed,
            budget=self.budget,
            samples=samples,
        )


def _values(path: LabelledPath) -> tuple[float, ...]:
    known = [
        (1.0 if hard else 0.0) if soft is None else soft
        for soft, hard in zip(path.soft, path.hard, strict=True)
        if hard is not None
    ]
    return tuple(known) if len(known) == len(path.steps) else ()


def label_steps(
    found: Solution,
    budget: Budget | Account | float | Mapping[str, Any],
    *,
    solver: Solver,
    k: int = 8,
    method: str = "each",
    seed: int = 0,
) -> StepLabels:
    r"""Label the steps of a solution's candidates by rollouts from their prefixes.

    Args:
        found: A solution whose problem has a reference answer.
        budget: The budget of all rollouts together.
        solver: The writer of the rollouts, with its task and temperature.
        k: The rollouts from each prefix, at least 1.
        method: "each": every step has a value; "first_error": a binary search for the first step after which no rollout
            is right.
        seed: The seed of the rollouts.

    Returns:
        The labels of each candidate, in draw order. Steps that the budget did not reach are None.

    Raises:
        ConfigError: The problem has no reference answer, `k` is below 1, the method is unknown, or as `Solver.solve`.
        CapabilityError: The model's backend cannot continue a given text.

    Example:
        >>> import tts
        >>> problem = tts.Problem("3 + 4 - 2", answer="5")
        >>> with tts.Solver("toy") as solver:
        ...     found = solver.solve(problem, 400, strategy="best_of_n(n=2)")
        ...     labels = tts.label_steps(found, 2000, solver=solver, k=4)
        >>> labels.paths[0].steps, labels.paths[0].hard
        (('3 + 4 = 7\n', '7 - 2 = 5\n', 'A: 5'), (True, True, True))
    """
    check_int("k", k, 1, optional=False)
    check_choice("method", method, METHODS)
    if found.problem.answer is None:
        raise ConfigError(
            "the problem has no reference answer, but rollouts are judged by it", hint="give Problem(..., answer=...)"
        )
    setup = solver.prepare(found.problem, Budget(samples=1), strategy="single").setup
    task, backend = setup.task, setup.backends["policy"]
    if missing := _NEEDS.missing(backend.caps):
        raise CapabilityError(
            f"label_steps needs a model that continues a given text, but the backend {backend.name!r} lacks {missing}",
            hint="give a solver of a server that continues texts, or of a local model",
        )
    judge = cache(lambda answer: judge_answer(answer, task, found.problem))

    def is_right(candidate: Candidate) -> bool:
        return judge(candidate.answer) is True

    candidates = sorted(found.candidates, key=lambda candidate: candidate.index)
    paths = [tuple(task.split(c.trajectory.full_text)) for c in candidates]
    rights = [is_right(c) for c in candidates]
    values: dict[Steps, list[bool]] = {}
    rollouts = StepRollouts(
        paths=tuple(paths), rights=tuple(rights), k=k, method=method, is_right=is_right, values=values
    )
    solution = solver.solve(found.problem, budget, strategy=rollouts, seed=seed)
    if solution.error is not None and not values:
        raise solution.error
    return StepLabels(
        paths=tuple(rollouts.label(path, right=right) for path, right in zip(paths, rights, strict=True)),
        rollouts=sum(map(len, values.values())),
        usage=solution.usage,
        stopped_by=solution.stopped_by,
        problem=found.problem,
        prompt=task.prompt(found.problem.without_answer()),
        model=found.model,
        origin=f"label_steps(k={k}, method={method!r}) of {found.strategy}",
        seed=seed,
        budget=solution.trace.budget,
    )


@dataclass(frozen=True, kw_only=True)
class StepRollouts(Strategy):
    """Rolls out the prefixes of paths, each once.

    Args:
        paths: The paths in steps.
        rights: Whether each path ends right.
        k: The rollouts of a prefix.
        method: As in `label_steps`.
        is_right: A function that judges a rollout.
        values: The mapping that takes the verdicts of the rollouts of each prefix, as they end.
    """

    paths: tuple[Steps, ...]
    rights: tuple[bool, ...]
    k: int
    method: str
    is_right: Callable[[Candidate], bool]
    values: dict[Steps, list[bool]]

    def needs(self) -> Needs:
        """Texts that are continued."""
        return _NEEDS

    def default_selection(self, *, verified: bool) -> Selection:
        """Return `majority`: nothing is chosen among rollouts, and no verifier is to score them."""
        del verified
        return Majority()

    def __str__(self) -> str:
        """The method alone: paths are no parameters of a text."""
        return f"step_rollouts(k={self.k}, method={self.method!r})"

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Roll out prefixes until the method needs no more of them.

        Raises:
            SearchEnded: The budget is used up.
        """
        nodes: dict[Steps, Trajectory] = {(): search.root}
        for path, right in zip(self.paths, self.rights, strict=True):
            if self.method == "each":
                for count in range(1, len(path)):
                    await self._is_hopeful(search, nodes, path[:count])
            elif not right:
                await self._find_first_error(search, nodes, path)
        return search.candidates

    async def _find_first_error(self, search: Search, nodes: dict[Steps, Trajectory], path: Steps) -> None:
        """Search for the first hopeless prefix of a path, one without a right rollout.

        Throughout, the prefix of `low` steps is hopeful, and the prefix of `high` steps is hopeless.
        """
        low, high = 0, len(path)
        while high - low > 1:
            middle = (low + high) // 2
            if await self._is_hopeful(search, nodes, path[:middle]):
                low = middle
            else:
                high = middle

    async def _is_hopeful(self, search: Search, nodes: dict[Steps, Trajectory], prefix: Steps) -> bool:
        """Return whether any of k rollouts from a prefix is right; they are drawn at the first call."""
        if prefix in self.values:
            return any(self.values[prefix])
        parent = nodes[()]
        for place, step in enumerate(prefix):
            steps = prefix[: place + 1]
            if steps not in nodes:
                (nodes[steps],) = await search.extend([parent], step)
            parent = nodes[steps]
        num_before = len(search.candidates)
        try:
            await search.complete([nodes[prefix]], n=self.k)
        except SearchEnded:
            rollouts = search.candidates[num_before:]
            if len(rollouts) == self.k:  # all rollouts ended, so the values are known
                self.values[prefix] = [self.is_right(rollout) for rollout in rollouts]
            raise
        self.values[prefix] = [self.is_right(rollout) for rollout in search.candidates[num_before:]]
        return any(self.values[prefix])

    def label(self, path: Steps, *, right: bool) -> LabelledPath:
        """Return a path with the labels of its steps, as far as they are known.

        Args:
            path: The steps of the path.
            right: Whether the path ends right.
        """
        shares = [self._share(path[:count]) for count in range(1, len(path))]
        if path:
            shares.append(float(right))
        if self.method == "each":
            hard: list[bool | None] = [None if share is None else share > 0 for share in shares]
            return LabelledPath(steps=path, soft=tuple(shares), hard=tuple(hard), right=right)
        last_hopeful = max((i for i, share in enumerate(shares) if share is not None and share > 0), default=-1)
        first_hopeless = min((i for i, share in enumerate(shares) if share == 0), default=len(path))
        if first_hopeless - last_hopeful <= 1:
            hard = [i <= last_hopeful for i in range(len(path))]
        else:  # the budget ended the binary search, or rollouts misjudged an early prefix
            hard = [None] * len(path)
        return LabelledPath(steps=path, soft=tuple(shares), hard=tuple(hard), right=right)

    def _share(self, prefix: Steps) -> float | None:
        verdicts = self.values.get(prefix)
        return None if not verdicts else sum(verdicts) / len(verdicts)
