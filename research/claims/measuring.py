"""The figures behind the claims: curves of every method by every verifier, live tokens, and pools."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from research.claims import plans
from research.methods import running
from research.methods.measuring import Names, kept_tokens
from tts.errors import ConfigError
from tts.experiments.analysis.curves import Curve, curves_of
from tts.experiments.analysis.pools import pool_study, pools_of
from tts.experiments.analysis.replay import replay
from tts.experiments.store.store import Store
from tts.experiments.study.config import StudyConfig, study_config

FILE = "claims_choices.json"
ACCURATE = 0.02  # that a plan may lie below the best of a grid where another figure decides among them
Curves = Mapping[tuple[str, str], Curve]  # by verifier and method


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the validation split decided.

    Args:
        problems: The number of problems.
        seeds: The number of seeds.
        plans: The plan of each method.
        stepwise: The name of the best stepwise method.
        single: The name of the best single method.
        alpha: The alpha of best-of-majority.
        tried: The accuracy of each plan in percent, and for plans of ETS the live tokens too.
    """

    problems: int
    seeds: int
    plans: Mapping[str, str]
    stepwise: str
    single: str
    alpha: float
    tried: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])

    def save(self, folder: Path) -> None:
        """Write the choices as JSON."""
        (folder / FILE).write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Choices:
        """Return the choices of a folder.

        Raises:
            ConfigError: The folder has none.
        """
        try:
            return cls(**json.loads((folder / FILE).read_text(encoding="utf-8")))
        except OSError:
            raise ConfigError(f"{folder / FILE} cannot be read", hint="run --choose first") from None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The comparison on the test split.

    Args:
        curves: The curves of live runs.
        ruled: The curves of the same methods where each has the rules too.
        kept: The live tokens of each problem, by verifier, method and budget.
        pools: The curves of best-of-N and best-of-majority by the learnt verifier, at `POOL_SIZES`.
        problems: The number of problems.
        seeds: The number of seeds.
    """

    curves: Curves
    ruled: Curves
    kept: Mapping[tuple[str, str, int], Mapping[str, float]]
    pools: Mapping[str, Curve]
    problems: int
    seeds: int


@dataclass(frozen=True)
class Lab:
    """What runs studies.

    Args:
        store: The store of their results.
        jobs: The number of processes.
        problems: The number of problems of each study.
        seeds: The number of seeds of each study.
    """

    store: Path
    jobs: int
    problems: int
    seeds: int

    def study(
        self,
        name: str,
        verifiers: Mapping[str, Mapping[str, str]],
        strategies: Sequence[str],
        budgets: Any,
        **more: Any,
    ) -> StudyConfig:
        """Return a study of countdowns.

        Args:
            name: The name of the study.
            verifiers: The verifiers of each model, by the name of the model.
            strategies: The plans.
            budgets: The limits.
            more: The split, and the number of traces that are recorded.
        """
        problems = {
            "dataset": "countdown",
            "split": more["split"],
            "numbers": [plans.NUMBERS],
            "limit": self.problems,
            "seed": plans.FRESH,
        }
        return study_config(
            {
                "name": f"claims-{name}",
                "models": {shown: {"model": "pocket", "verifiers": dict(of)} for shown, of in verifiers.items()},
                "problems": problems,
                "strategies": list(dict.fromkeys(strategies)),
                "budgets": budgets,
                "seeds": self.seeds,
                "record": {"traces": more.get("traces", 0)},
                "concurrency": running.CONCURRENCY,
            }
        )

    def curves(self, study: StudyConfig, names: Mapping[str, str]) -> Curves:
        """Run what a study lacks, and return its curves.

        Args:
            study: The study.
            names: The names of methods by their plans.
        """
        number, known = running.run(study, self.store, self.jobs), Names(names)
        with Store(self.store) as store:
            found = curves_of(store.results(number, drawn=False), rng=np.random.default_rng(0))
        return {(one.model, known[one.strategy]): dataclasses.replace(one, label=known[one.strategy]) for one in found}

    def live_tokens(self, study: StudyConfig, names: Mapping[str, str]) -> dict[tuple[str, str, int], dict[str, float]]:
        """Return the mean live tokens over the levels of each search, for a study that has been run."""
        number, known = running.run(study, self.store, 1), Names(names)
        grouped: dict[tuple[str, str, int], list[Any]] = {}
        with Store(self.store) as store:
            for one in store.results(number, drawn=False):
                place = one.cell.model, known[one.cell.strategy], int(one.cell.budget["generated_tokens"])
                grouped.setdefault(place, []).append(one)
            return {place: kept_tokens(store, of) for place, of in grouped.items()}

    def pools(self, split: str, alphas: Sequence[float]) -> dict[str, Curve]:
        """Return best-of-N and best-of-majority at each alpha, replayed from one pool of samples a problem."""
        wanted = self.study(
            f"pool-{split}",
            _select_verifiers(plans.LEARNT),
            [plans.SAMPLED[plans.BEST_OF_N]],
            {"samples": [plans.POOL]},
            split=split,
        )
        number = running.run(pool_study(wanted, plans.POOL), self.store, self.jobs)
        with Store(self.store) as store:
            pools = pools_of(store.results(number)).pools
        texts = {
            "best": "best_of_n | best",
            **{f"alpha {a:g}": f"best_of_n | best_of_majority(alpha={a:g})" for a in alphas},
        }
        found = replay(pools, list(texts.values()), plans.POOL_SIZES)
        return {name: one.curve for name, one in zip(texts, found, strict=True)}


def _select_verifiers(*names: str) -> dict[str, Mapping[str, str]]:
    return {name: plans.VERIFIERS[name] for name in names}


def _value(curve: Curve, point: int = -1) -> float:
    return 100 * curve.accuracy[point].value


def choose(lab: Lab) -> Choices:
    """Choose parameters by the learnt verifier on the validation split; the first among equals.

    For ETS, the charge with the fewest live tokens is taken, among those whose accuracy is at most two points below the
    best.
    """

    def try_grid(name: str, grid: Sequence[str], traces: int = 0) -> tuple[dict[str, float], StudyConfig]:
        budgets = {"generated_tokens": [plans.TRIED_AT]}
        study = lab.study(name, _select_verifiers(plans.LEARNT), grid, budgets, split="validation", traces=traces)
        return {
            plan: _value(curve) for (_, plan), curve in lab.curves(study, {plan: plan for plan in grid}).items()
        }, study

    everything, _ = try_grid(
        "grids", [*plans.SAMPLED.values(), *(plan for grid in plans.GRIDS.values() for plan in grid)]
    )
    chosen = {name: max(grid, key=everything.__getitem__) for name, grid in plans.GRIDS.items()}
    charged = plans.ets_grid(chosen["rebase"])
    charges, study = try_grid("charges", charged, lab.problems)
    kept = {
        plan: float(np.mean(list(of.values())))
        for (_, plan, _), of in lab.live_tokens(study, {plan: plan for plan in charged}).items()
    }
    good = [plan for plan in charged if charges[plan] >= max(charges.values()) - 100 * ACCURATE]
    chosen["ets"] = min(good, key=kept.__getitem__)
    everything |= charges
    replayed = lab.pools("validation", plans.ALPHAS)
    alpha = max(plans.ALPHAS, key=lambda a: _value(replayed[f"alpha {a:g}"]))
    stepwise = max(chosen, key=lambda name: everything[chosen[name]])
    single = max(everything, key=everything.__getitem__)
    names = {plan: name for name, plan in {**plans.SAMPLED, **chosen}.items()}
    return Choices(
        problems=lab.problems,
        seeds=lab.seeds,
        plans={**plans.SAMPLED, **chosen},
        stepwise=stepwise,
        single=names.get(single, stepwise),
        alpha=alpha,
        tried={plan: [value, kept[plan]] if plan in kept else [value] for plan, value in everything.items()},
    )


def _auto_study(lab: Lab) -> StudyConfig:
    return lab.study(
        "auto", _select_verifiers(plans.LEARNT), [plans.AUTO], {"generated_tokens": list(plans.BUDGETS)}, split="test"
    )


def measure_auto(lab: Lab, choices: Choices) -> Measured:
    """Run what is missing of `auto` and of two other methods on the test split, and return the comparison.

    The other two are best-of-N and the best single method.
    """
    names = {choices.plans[name]: name for name in (plans.BEST_OF_N, choices.single)}
    study = lab.study(
        "beside-auto",
        _select_verifiers(plans.LEARNT),
        list(names),
        {"generated_tokens": list(plans.BUDGETS)},
        split="test",
    )
    curves = {**lab.curves(study, names), **lab.curves(_auto_study(lab), {plans.AUTO: "auto"})}
    return Measured(curves=curves, ruled={}, kept={}, pools={}, problems=lab.problems, seeds=lab.seeds)


def measure(lab: Lab, choices: Choices, verifiers: Sequence[str]) -> Measured:
    """Run what is missing on the test split, and return the comparison."""
    limits = {"generated_tokens": list(plans.BUDGETS)}
    names = {plan: name for name, plan in choices.plans.items()}
    traced = {plan: name for plan, name in names.items() if name in ("rebase", "ets")}
    others = {plan: name for plan, name in names.items() if plan not in traced}
    kept_study = lab.study(
        "kept", _select_verifiers(*verifiers), list(traced), limits, split="test", traces=lab.problems
    )
    curves = {**lab.curves(kept_study, traced)}
    curves |= lab.curves(
        lab.study("methods", _select_verifiers(*verifiers), list(others), limits, split="test"), others
    )
    curves |= lab.curves(_auto_study(lab), {plans.AUTO: "auto"})
    with_rules = {plans.LEARNT: {**plans.VERIFIERS[plans.LEARNT], plans.RULES: plans.RULES}}
    ruled = {plans.add_rules(plan): name for plan, name in names.items() if name != plans.MAJORITY}
    return Measured(
        curves=curves,
        ruled=lab.curves(lab.study("ruled", with_rules, list(ruled), limits, split="test"), ruled),
        kept=lab.live_tokens(kept_study, traced),
        pools=lab.pools("test", [choices.alpha]),
        problems=lab.problems,
        seeds=lab.seeds,
    )
