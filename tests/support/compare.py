"""Random programs of whole solves, recorded field by field, to compare two versions of the code.

    python -m tests.support.compare record OUT.jsonl [--programs 2000] [--seed 0] [--only NUMBER ...]
    python -m tests.support.compare diff A.jsonl B.jsonl [--show 3]

A program is a strategy, stop rule, selection, budget, models, verifiers, problem and seed, drawn by its number alone.
Its outcome is all that equal seeds must repeat: texts, answers, scores, spend in every unit, the end, warnings, errors,
the ledger and the tree. Times are left out. Programs with a limit on `seconds` run on a clock that only their model
moves.

The file uses the public interface alone. It runs unchanged on another checkout or an installed wheel, which records
again what that version does:

    PYTHONPATH=OTHER_CHECKOUT python THIS_CHECKOUT/tests/support/compare.py record OUT.jsonl

`diff` counts what differs by field and strategy, shows the first cases of each field, and exits with 1 if anything
differs. A run of `--only NUMBER` repeats one program.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import random  # noqa: TID251 - it draws programs, not texts
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file: the files beside it must not stand for the package's or Python's own
    sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != Path(__file__).resolve().parent]

import tts
from tts import tasks
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import ToyLanguage

MANY_EVERY, POCKET_EVERY = 50, 100  # one program in so many is a `solve_many`, or runs on the embedded pair
SUMS = ("3 + 4", "3 + 4 - 2", "10 - 7 + 5 - 20", "1 + 1 + 1 + 1 + 1 + 1", "-5 + 2", "12 - 30 + 7 + 7 - 1")
QUESTIONS = ("What is 3 + 4?", "What is 12 + 7 * 3?", "What is 20 - 7 + 5 - 2?")
CODE = "```python\nprint(3 + 4)\n```\n"

# by strategy, texts with few rows, one of them sized by the budget where it can be
STRATEGIES: Mapping[str, Sequence[str]] = {
    "a_star": (
        "a_star(branching=3, expansions=9)", "a_star(branching=4, edge_cost='consistent', width=2, expansions=20)",
        "a_star(branching=2, edge_cost='unit', frontier='local', expansions=5)", "a_star(branching=3)",
        "a_star(goals=None)", "a_star",
    ),
    "ab_mcts": ("ab_mcts(n=5)", "ab_mcts(n=4, posterior='mixed')", "ab_mcts(n=4, posterior='beta')", "ab_mcts"),
    "adaptive": ("adaptive(n=5)", "adaptive(n=3, threshold=0.95, start=0.0)", "adaptive"),
    "answer_convergence": (
        "answer_convergence(n=3, k=2, tokens=1)", "answer_convergence(n=2, k=1, cue='so A: ', max_steps=3)",
        "answer_convergence",
    ),
    "archon": (
        "archon(n=3)", "archon(n=4, layers=['generate', 'verify', 'critique', 'rank'], keep=2)",
        "archon(n=2, layers=['generate', 'fuse', 'fuse'], fused=2)", "archon",
    ),
    "auto": ("auto(n=6)", "auto(n=3, pilots=1, price=0.0)", "auto"),
    "beam": (
        "beam(n=4, branching=2)", "beam(n=5, branching=4, lookahead=2, duplicates='keep')", "beam(n=3, max_steps=2)",
        "beam(n=4, branching=2, lookahead=1)", "beam",
    ),
    "best_of_n": ("best_of_n(n=6)", "best_of_n(n=3, temperature=0.5)", "best_of_n(n=12)", "best_of_n(n=1)",
        "best_of_n"),
    "budget_forcing": (
        "budget_forcing(n=3, thought_tokens=4)", "budget_forcing(n=2, thought_tokens=6, waits=2)",
        r"budget_forcing(n=2, thought_tokens=5, waits=1, wait='Wait\n', cue='A: ')", "budget_forcing(thought_tokens=4)",
    ),
    "cascade": (
        "cascade(models=['policy', 'policy'], samples=[2, 3], thresholds=[1.0])", "cascade(models=['policy', 'large'])",
        "cascade(models=['policy', 'large'], samples=[1, 2], thresholds=[0.7], verifier='main')",
    ),
    "deepconf_online": (
        "deepconf_online(n=6, warmup=3)", "deepconf_online(n=7, warmup=2, keep=90, consensus=2, width=3, tokens=4)",
        "deepconf_online",
    ),
    "diverse_beam": ("diverse_beam(n=4, groups=2, branching=2)",
        "diverse_beam(n=3, groups=3, branching=1, strength=0.0)", "diverse_beam"),
    "dvts": ("dvts(n=4, branching=2)", "dvts(n=5, branching=4, lookahead=1)", "dvts(n=3, max_steps=2)", "dvts"),
    "early_pruning": ("early_pruning(n=6)", "early_pruning(n=4, tokens=8, pruned=0.75)", "early_pruning"),
    "entropic_particle_filter": (
        "entropic_particle_filter(n=4)", "entropic_particle_filter(n=3, annealing='entropy', horizon=9, least_ess=1.0)",
        "entropic_particle_filter",
    ),
    "entropy_switching": (
        "entropy_switching(n=3, draft='policy')",
        "entropy_switching(n=2, draft='large', threshold=0.1, window=4, max_steps=3)",
        "entropy_switching(draft='large')",
    ),
    "ets": ("ets(n=4)", "ets(n=5, cost='tokens', embedder='ngrams(size=2)', coverage=9.0)", "ets(n=3, charge=0.0)",
        "ets"),
    "forest_of_thought": (
        "forest_of_thought(n=3, branching=2)", "forest_of_thought(n=1, width=2, votes=2, max_steps=2, corrections=0)",
    ),
    "fractured": ("fractured(n=2, depths=3)", "fractured(n=2, depths=2, answers=2, cue='A: ')", "fractured"),
    "guided_by_gut": (
        "guided_by_gut(n=4)", "guided_by_gut(n=3, branching=3, novelty=0, cool=0.5, levels=1, max_steps=3)",
        "guided_by_gut",
    ),
    "mcts": ("mcts(n=8, width=2)", "mcts(n=3, width=3, value='rollout', exploration=0.5, max_steps=3)", "mcts"),
    "mind_evolution": ("mind_evolution(n=2, generations=2)", "mind_evolution(n=3, islands=1, parents=3)"),
    "mixture_of_agents": (
        "mixture_of_agents(samples=3)", "mixture_of_agents(samples=2, layers=2, prompt='revise')",
        "mixture_of_agents(writers=['policy', 'large'], aggregator='large')",
    ),
    "mur": ("mur(n=3, branching=3)", "mur(n=2, branching=2, gamma=5, momentum=0.5, verifier='main', max_steps=3)",
        "mur"),
    "pacore": ("pacore(widths=[3])", "pacore(widths=[2, 2], message='conclusion', prompt='revise')", "pacore"),
    "parallel_probe": (
        "parallel_probe(n=4, every=6, stable=2, warmup=1, tokens=1)",
        "parallel_probe(n=3, every=4, stable=9, warmup=0, tokens=1)",
        "parallel_probe",
    ),
    "parallel_tempering": ("parallel_tempering(n=2)", "parallel_tempering(n=2, chains=3, sweeps=2, hottest=9.0)"),
    "particle_filter": (
        "particle_filter(n=4)", "particle_filter(n=3, resampling='residual', weight_temperature=2.0, max_steps=3)",
        "particle_filter(n=3, resample_below=0.5, target='last', twist=0.5, lookahead=1)", "particle_filter",
    ),
    "lookahead_power_sampling": (
        "lookahead_power_sampling(n=2, branching=2, rollouts=2)",
        "lookahead_power_sampling(n=1, alpha=2, block=5, branching=3, rollouts=1)",
    ),
    "particle_gibbs": ("particle_gibbs(n=3, sweeps=2)",
        "particle_gibbs(n=2, sweeps=3, returned='last')"),
    "phi_decoding": (
        "phi_decoding(n=3, beams=2, branching=2)",
        "phi_decoding(n=2, beams=2, branching=3, clusters=1, foresight=1, deviations=0, least=1, most=2, max_steps=3)",
    ),
    "power_sampling": ("power_sampling(chains=3, moves=2)", "power_sampling(chains=2, alpha=1.5, block=4, moves=1)"),
    "power_smc": ("power_smc(n=4)", "power_smc(n=3, alpha=1.5, block=4, resample_below=1, ramp=8)", "power_smc"),
    "program_aided": ("program_aided(n=1)", "program_aided(n=2, programs=1, characters=10, max_steps=2)"),
    "rebase": ("rebase(n=4)", "rebase(n=5, balance_temperature=0.01)", "rebase(n=3, max_steps=2)", "rebase"),
    "recursive_self_aggregation": (
        "recursive_self_aggregation(n=3, rounds=2, subset=2)",
        "recursive_self_aggregation(n=2, rounds=3, prompt='revise')",
    ),
    "self_consistency": ("self_consistency(n=6)", "self_consistency(n=3, temperature=0.5)", "self_consistency"),
    "self_refine": ("self_refine(n=2, rounds=1)", "self_refine(n=1, rounds=2, stop='9')", "self_refine"),
    "self_verification": ("self_verification(n=3, verifications=2)", "self_verification(n=4, law=[0.5, 0.5])"),
    "semantic_entropy": ("semantic_entropy(n=3, rounds=2)",
        "semantic_entropy(n=2, rounds=3, rule='secretary', prompt='revise', shown=1)"),
    "sequential_revision": ("sequential_revision(chains=2, length=2)",
        "sequential_revision(chains=1, length=3, shown=1)"),
    "single": ("single", "single(temperature=0.7)", "single(temperature=0.0)"),
    "spec_reason": (
        "spec_reason(n=3, draft='policy')",
        "spec_reason(n=2, draft='large', threshold=5, first=1, question='Its digit is ')",
        "spec_reason(draft='large')",
    ),
    "tree_of_thoughts": ("tree_of_thoughts(n=1, branching=2, votes=1)",
        "tree_of_thoughts(n=2, branching=3, votes=2, max_steps=2)"),
}  # fmt: skip
GUIDED = frozenset(  # refused without a verifier, or little else than sampling
    (
        "a_star", "ab_mcts", "adaptive", "beam", "deepconf_online", "dvts", "early_pruning",
        "entropic_particle_filter", "ets", "mcts",
        "mind_evolution", "parallel_tempering", "particle_filter", "particle_gibbs", "rebase",
    )
)  # fmt: skip
BY_TOKENS = frozenset(  # refused on functions
    (
        "budget_forcing", "entropy_switching", "fractured", "guided_by_gut", "lookahead_power_sampling", "mur",
        "phi_decoding", "power_sampling", "power_smc", "spec_reason",
    )
)  # fmt: skip
OWN = "random calls"  # the strategy of this file
STOP_RULES = (
    "entropy(threshold=0.5, least=2)", "first_finish(k=2)", "in_a_row(k=2)", "mixture_sprt", "never", "posterior",
    "posterior(threshold=0.7)", "sprt",
    "unanimous(window=2)", "unanimous(window=3)",
)  # fmt: skip
STOP_RULES_BY_SCORE = (
    "cges",
    "cges(threshold=0.8, answers=3)",
    "pandora(price=0.01)",
    "reasc",
    "score_threshold(threshold=0.7)",
)
SELECTIONS = (
    "last_finish",
    "majority",
    "majority(truncated='drop')",
    "medoid",
    "selective(threshold=0.5)",
    "shortest(k=2)",
)
SELECTIONS_BY_SCORE = (
    "best", "best(aggregate='min')", "best_of_majority(k=2)", "borda", "codet", "deepconf(keep=50.0)", "hierarchical",
    "majority_of_bests", "pessimistic", "rpc", "weighted", "weighted(aggregate='prod')",
)  # fmt: skip
SELECTIONS_BY_PAIRS = (
    "genselect",
    "knockout",
    "league(opponents=2)",
    "pairwise(most=3)",
    "pivot(k=1)",
    "swiss(matches=2)",
)
SIZES: Mapping[str, Callable[[random.Random], float]] = {
    "tokens": lambda rng: rng.choice((rng.randint(1, 300), 30, 100, 300, 1000, 3000)),
    "generated_tokens": lambda rng: rng.choice((rng.randint(1, 300), 30, 100, 300, 1000)),
    "verifier_tokens": lambda rng: rng.choice((rng.randint(1, 300), 30, 100, 1000)),
    "verifier_calls": lambda rng: rng.randint(1, 40),
    "samples": lambda rng: rng.randint(1, 30),
    "flops": lambda rng: rng.choice((1, 30, 300, 1000, 10000)),
    "usd": lambda rng: rng.choice((1e-9, 1e-7, 1e-6, 1e-5, 1e-3)),
    "seconds": lambda rng: rng.choice((0.5, 2.0, 30.0)),
}


# Models ---------------------------------------------------------------------------------------------------------------


@dataclass
class Clock:
    """A clock that stands still until it is moved."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def hash_parts(*parts: object) -> int:
    """Return 64 bits that depend on the parts alone."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode("utf-8", "backslashreplace"), digest_size=8).digest())


def write(ask: Any) -> tuple[str, int, bool]:
    """Return a text, its tokens, and whether the model ended by itself.

    The seed and the text so far decide the text. It is cut at the tokens that are allowed, which are words, and at the
    first stop text.
    """
    rng, prompt = random.Random(hash_parts(ask.seed, ask.text, ask.temperature)), str(ask.prompt)
    if "Verdict" in prompt:
        text = rng.choice(("It adds up. Verdict: Yes", "Verdict: No", "hard to say"))
    elif '"better"' in prompt:
        text = rng.choice(('{"better": "A"}', '{"better": "B"}', '{"better": "tie"}', "both"))
    elif '"score"' in prompt:
        text = rng.choice((f'{{"score": {rng.randint(0, 10)}}}', "good"))
    elif "python" in prompt and rng.random() < 0.3:
        text = CODE
    else:
        value = rng.choice((7, 7, 7, 8, 33))
        steps = "".join(f"Step {i} gives {rng.randint(0, 40)}.\n\n" for i in range(rng.randint(0, 4)))
        text = steps + rng.choice((f"The answer is \\boxed{{{value}}}.", f"A: {value}", "I do not know."))
    words = re.findall(r"\s*\S+\s*$|\s*\S+", text)
    kept = "".join(words[: ask.max_tokens])
    for stop in ask.stop:
        if (at := kept.find(stop)) >= 0:
            kept = kept[: at + len(stop)]
            return kept, min(len(words), ask.max_tokens, max(1, len(kept.split()))), False
    return kept, min(len(words), ask.max_tokens), len(words) <= ask.max_tokens


def function(kind: str, clock: Clock) -> Callable[[Any], Any]:
    """Return a model of a kind: "counts", "estimates", "resumes", "fails" or "waits".

    The model "waits" moves the clock.
    """

    async def model(ask: Any) -> Any:
        text, tokens, ended = write(ask)
        if kind == "estimates":
            return text
        if kind == "fails" and hash_parts("fails", ask.seed, ask.text) % 6 == 0:
            raise RuntimeError("the line is busy")
        if kind == "waits":
            clock.now += 0.01 * tokens
        return tts.Answer(text, tokens=tokens, finished=ended if kind in ("resumes", "waits") else True)

    return model


def write_in_thread(ask: Any) -> Any:
    """Return an answer; the model is no coroutine function, so it runs in threads."""
    text, tokens, ended = write(ask)
    return tts.Answer(text, tokens=tokens, finished=ended)


TOYS = ("toy", "toy", "toy", "toy-weak", "toy-thinking", "toy-priced")
FUNCTIONS = ("counts", "estimates", "resumes", "fails", "waits", "threaded")


def make_model(kind: str, clock: Clock) -> Any:
    """Return the model of a kind."""
    if kind in ("toy-weak", "toy-priced"):
        backend = ToyBackend(ToyLanguage(accuracy=0.5, mute=0.1))
        if kind == "toy-priced":  # dollars in units of 1e-15 a token
            backend.rates = dataclasses.replace(
                backend.rates, usd_in=15 * 10**7, usd_reused=5 * 10**7, usd_out=60 * 10**7
            )
        return backend
    return (
        kind
        if kind in ("toy", "toy-thinking", "pocket")
        else write_in_thread
        if kind == "threaded"
        else function(kind, clock)
    )


class Revising(type(tasks.get("arithmetic"))):  # pyright: ignore[reportUntypedBaseClass]
    """Arithmetic with prompts that show earlier solutions.

    The toy reads the last sum of a prompt, and so revises without looking.
    """

    def prompt(self, problem: Any, kind: str = "solve", texts: Sequence[str] = ()) -> Any:
        """Return the problem behind the earlier solutions."""
        return (
            problem.text if kind == "solve" else "".join(f"{text} again, " for text in texts) + f"asked: {problem.text}"
        )

    def typical_tokens(self, kind: str = "solve") -> int:
        """Return the usual length of a solution."""
        return super().typical_tokens("solve" if kind in ("revise", "fuse", "critique", "program") else kind)


# Verifiers ------------------------------------------------------------------------------------------------------------


def hash_score(problem: Any, text: str) -> float:
    """Return a score in [0, 1) that is a function of the text."""
    return hash_parts("score", text) * 2.0**-64


def failing_score(problem: Any, text: str) -> float:
    """Return such a score, but fail on one text in twelve."""
    if hash_parts("failing", text) % 12 == 0:
        raise ValueError("no score")
    return hash_score(problem, text)


class Asking(tts.Verifier):
    """Lets the policy write before it speaks: what it writes is charged as verifier tokens."""

    name = "asking"
    range = (-1.0, 1.0)

    async def score(self, problem: Any, trajectories: Sequence[Any], calls: Any) -> list[Any]:
        """Score by the length of the reply; a missing one is unknown."""
        prompts = [f"is {t.num_tokens} + {t.depth} right" for t in trajectories]
        replies = await calls.generate(prompts, max_tokens=6, sampling=tts.Sampling())
        return [
            tts.StepScores(whole=math.nan if reply is None else 1.0 if len(reply) % 2 else -1.0) for reply in replies
        ]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return the words of a prompt and the longest reply."""
        return 5 + 6


class Steps(tts.Verifier):
    """Scores steps by hashes, some of them unknown, and charges nothing."""

    name = "steps"

    async def score(self, problem: Any, trajectories: Sequence[Any], calls: Any) -> list[Any]:
        """Return one score a step of each path."""
        scores: list[Any] = []
        for t in trajectories:
            steps, text = [], ""
            for step in calls.task.split(t.full_text):
                text += step
                steps.append(math.nan if hash_parts("unknown", text) % 9 == 0 else hash_score(problem, text))
            scores.append(tts.StepScores(steps=tuple(steps)))
        return scores


VERIFIERS: Mapping[str, Callable[[], Any]] = {
    "none": dict,
    "hash": lambda: hash_score,
    "failing": lambda: failing_score,
    "asking": Asking,
    "steps": Steps,
    "two": lambda: {"main": Steps(), "second": hash_score},
    **{
        text: lambda text=text: text
        for text in (
            "toy(error=0.2)", "confidence", "confidence(measure='logprob', over='sum')", "checker", "judge(votes=2)",
            "genrm(votes=2, verdict='words')", "process", "probe", "self_evaluation",
            "self_evaluation(question='Again? ', yes='1', no='2', tokens=7)",
        )
    },
}  # fmt: skip
ON_TOYS = (
    "none", "none", "none", "toy(error=0.2)", "toy(error=0.2)", "hash", "failing", "asking", "asking", "steps", "two",
    "confidence",
    "confidence(measure='logprob', over='sum')", "checker",
    "self_evaluation(question='Again? ', yes='1', no='2', tokens=7)",
)  # fmt: skip
ON_FUNCTIONS = (
    "none",
    "none",
    "hash",
    "failing",
    "asking",
    "steps",
    "two",
    "judge(votes=2)",
    "judge(votes=2)",
    "genrm(votes=2, verdict='words')",
)
ON_POCKET = ("none", "process", "probe", "self_evaluation")


# A strategy -----------------------------------------------------------------------------------------------------------

_OPS = (
    "expand", "expand", "expand", "complete", "complete", "score", "score", "extend", "rollout", "keep", "drop",
    "finish", "open", "fork",
    "embed",
)  # fmt: skip
_UNTIL = (tts.STEP, tts.END, tts.Tokens(1), tts.Tokens(4), tts.Tokens(30), tts.Stops((" + ", "=")))
_TEXTS = ("Wait", "\nA: ", "", "3 + 4 = 7\n", "so, é ")
_AGGREGATES = ("last", "min", "prod", "mean")


class RandomCalls(tts.Strategy):
    """Calls a search at random, in any order, as its seed says."""

    sized_by_budget = ()

    def __init__(self, seed: int, verifiers: tuple[str, ...]) -> None:
        self.seed, self.verifiers = seed, verifiers

    def needs(self) -> tts.Needs:
        return tts.Needs(capabilities=("steps", "extend"), verifiers=self.verifiers)

    def __str__(self) -> str:
        return OWN

    async def run(self, search: Any) -> Any:
        """Make up to 14 calls on the paths that are known."""
        rng = random.Random(self.seed)
        calls = _Calls(search, rng, self.verifiers)
        for _ in range(rng.randint(2, 14)):
            await getattr(calls, rng.choice(_OPS))()
        return search.candidates


class _Calls:
    """The paths that a strategy of random calls knows, and what each call does with some of them."""

    def __init__(self, search: Any, rng: random.Random, verifiers: Sequence[str]) -> None:
        self.search, self.rng, self.verifiers = search, rng, verifiers
        self.known: list[Any] = [search.root]

    def open_paths(self) -> list[Any]:
        """Return the paths that can be continued, the latest 24 of those known."""
        return [t for t in self.known[-24:] if t.status == "active"]

    def pick_paths(self, most: int = 4) -> list[Any]:
        """Return some open paths; one may be listed twice."""
        return self.rng.choices(opened, k=self.rng.randint(1, most)) if (opened := self.open_paths()) else []

    async def expand(self) -> None:
        sampling: dict[str, Any] = {}
        if self.rng.random() < 0.3:
            sampling = {"temperature": self.rng.choice((0.0, 0.5)), "max_tokens": self.rng.randint(1, 40)}
        if ts := self.pick_paths():
            children = await self.search.expand(ts, self.rng.randint(1, 5), self.rng.choice(_UNTIL), **sampling)
            self.known += [child for of in children for child in of]

    async def complete(self) -> None:
        if ts := self.pick_paths():
            await self.search.complete(ts, self.rng.randint(1, 6))

    async def extend(self) -> None:
        if ts := self.pick_paths():
            self.known += await self.search.extend(ts, self.rng.choice(_TEXTS))

    async def score(self) -> None:
        ts = [t for t in self.rng.choices(self.known, k=self.rng.randint(1, 4)) if t.parent is not None]
        if self.verifiers and ts:
            await self.search.score(ts, self.rng.choice(self.verifiers), self.rng.choice(_AGGREGATES))

    async def rollout(self) -> None:
        if ts := self.pick_paths():
            ends = [end for end in await self.search.rollout(ts, self.rng.randint(1, 3)) if end.parent is not None]
            if self.verifiers and ends:
                await self.search.score(ends, self.verifiers[0])

    async def open(self) -> None:
        a, b = self.rng.randint(1, 9), self.rng.randint(1, 9)
        self.known.append(await self.search.open(self.rng.choice(("solve", "other")), prompt=f"{a} + {b}"))

    async def fork(self) -> None:
        if ended := [t for t in self.known if t.status == "finished" and len(t.token_ids) > 1]:
            t = self.rng.choice(ended)
            self.known.append(await self.search.fork(t, self.rng.randint(1, len(t.token_ids) - 1)))

    async def keep(self) -> None:
        if live := self.pick_paths(3):
            self.search.keep(live)
            self.known = [t for t in self.known if t.status != "active" or t in live]

    async def drop(self) -> None:
        if len(self.open_paths()) > 1:
            gone = self.rng.choice(self.open_paths())
            self.search.drop([gone])
            self.known = [t for t in self.known if t is not gone]

    async def finish(self) -> None:
        for t in [t for t in self.known if t.status != "active"][self.rng.randint(0, 2) :]:
            self.search.finish(t, weight=self.rng.choice((None, 0.5)))

    async def embed(self) -> None:
        await self.search.embed([t.full_text for t in self.open_paths()])


# Programs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """One call of `solve` or `solve_many`, in plain values.

    Args:
        number: The place in the sequence of a seed.
        strategy: The name by which differences are counted.
        plan: The text of the plan; with `OWN`, of its stop rule and selection alone.
        model: A kind of model.
        large: The kind of the second model, of the role "large"; "" for none.
        verifier: A key of `VERIFIERS`.
        task: The name of a task, or "revising".
        problems: The texts of the problems.
        budget: The limits, by unit.
        total: Whether the limits are those of all problems together.
        many: Whether `solve_many` is called.
        seed: The seed of the run.
        options: Further options of the solver.
        sampling: Fields of the sampling.
    """

    number: int
    strategy: str
    plan: str
    model: str
    large: str
    verifier: str
    task: str
    problems: tuple[str, ...]
    budget: Mapping[str, float]
    total: bool
    many: bool
    seed: int
    options: Mapping[str, Any]
    sampling: Mapping[str, Any]


def draw(seed: int, number: int) -> Program:
    """Return the program of a number, which depends on no other."""
    rng = random.Random(f"{seed} {number}")
    many, pocket = number % MANY_EVERY == 7, number % POCKET_EVERY == 99
    names = [*STRATEGIES, OWN, OWN, OWN, "best_of_n", "beam"]
    name = rng.choice(("auto", "auto", "best_of_n", rng.choice([*STRATEGIES]))) if many else names[number % len(names)]
    odd = rng.random() < 0.04  # is likely to be refused
    model = (
        "pocket" if pocket else rng.choice(FUNCTIONS if rng.random() < 0.4 and (odd or name not in BY_TOKENS) else TOYS)
    )
    if name == "budget_forcing" and not odd:
        model = "toy-thinking"
    on_function = model in FUNCTIONS
    verifier = rng.choice(ON_POCKET if pocket else ON_FUNCTIONS if on_function else ON_TOYS)
    if verifier == "none" and name in GUIDED and not odd:
        verifier = "process" if pocket else "hash"
    parts = [] if name == OWN else [rng.choice(STRATEGIES[name])]
    if verifier == "none" and "main" in "".join(parts) and not odd:
        verifier = "hash"
    scored = odd or verifier != "none"
    if rng.random() < 0.35:
        parts.append(rng.choice((*STOP_RULES, *STOP_RULES_BY_SCORE) if scored else STOP_RULES))
    if name not in ("auto", "self_consistency") and rng.random() < 0.5:
        if odd or (verifier.startswith("judge") and rng.random() < 0.5):
            parts.append(rng.choice(SELECTIONS_BY_PAIRS))
        else:
            parts.append(rng.choice((*SELECTIONS, *SELECTIONS_BY_SCORE) if scored else SELECTIONS))
    larges = (
        ("toy", "toy-weak") if name in BY_TOKENS else FUNCTIONS[:3] if on_function else ("toy", "toy-weak", "counts")
    )
    return Program(
        number=number, strategy=name, plan=" | ".join(parts), model=model, verifier=verifier,
        large=rng.choice(larges) if "large" in "".join(parts) else "",
        task="pocket" if pocket else rng.choice(("math", "math", "text")) if on_function else "revising",
        problems=tuple(rng.choices(QUESTIONS if on_function or pocket else SUMS, k=rng.randint(1, 6) if many else 1)),
        budget=draw_budget(rng, model, verifier), total=many and rng.random() < 0.65, many=many, seed=rng.randint(0, 9),
        options={
            **({"expected_tokens": rng.choice((1, 8, 40))} if rng.random() < 0.2 else {}),
            **({"on_error": "keep"} if rng.random() < 0.3 else {}),
            **({"concurrency": rng.choice((1, 2))} if many and rng.random() < 0.3 else {}),
        },
        sampling={
            **({"temperature": rng.choice((0.0, 0.6))} if rng.random() < 0.2 else {}),
            **({"max_tokens": rng.choice((1, 5, 12, 40))} if rng.random() < 0.25 else {}),
        },
    )  # fmt: skip


def draw_budget(rng: random.Random, model: str, verifier: str) -> dict[str, float]:
    """Return limits in one to three units that the model counts, and now and then in one that it does not."""
    units = ["tokens", "tokens", "generated_tokens", "samples"]
    units += ["verifier_tokens", "verifier_calls"] if verifier != "none" else []
    units += ["flops"] if model in TOYS else []
    units += ["usd"] * 3 if model == "toy-priced" else []
    units += ["seconds"] * 3 if model == "waits" else []
    if rng.random() < 0.03:
        units = ["flops", "usd", "verifier_calls"]
    limits = {unit: SIZES[unit](rng) for unit in sorted({rng.choice(units) for _ in range(rng.randint(1, 3))})}
    if not {"tokens", "generated_tokens", "samples"} & limits.keys():
        limits["samples"] = rng.randint(1, 20)  # so that every program is small
    if model == "pocket":
        limits["tokens"] = min(300, limits.get("tokens", 300))
    return limits


# Outcomes -------------------------------------------------------------------------------------------------------------

_TIMED = ("seconds", "work_seconds")
_CALL = ("kind", "model", "rows")
_NODE = (
    "parent",
    "kind",
    "model",
    "text",
    "tokens",
    "status",
    "stream",
    "pruned",
    "scratch",
    "scores",
    "answer",
    "candidate",
    "weight",
    "outcomes",
)
_SAME = (
    "answer",
    "answers",
    "abstained",
    "confidence",
    "stopped_by",
    "strategy",
    "oracle",
    "failures",
    "warnings",
    "reproducible",
)


def simplify(value: Any) -> Any:
    """Return a value as JSON has it: numbers to ten digits, addresses of objects left out."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return re.sub(r"0x[0-9a-f]+", "0x", value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): simplify(each) for key, each in value.items()}
    if isinstance(value, Iterable):
        return [simplify(each) for each in value]
    return float(f"{value:.10g}") if math.isfinite(value) else str(value)


def describe_error(failure: BaseException | None) -> list[str] | None:
    """Return the type and the text of an error."""
    return None if failure is None else [type(failure).__name__, simplify(str(failure))]


def usage_of(usage: Any) -> dict[str, Any]:
    """Return what was spent in every unit but time."""
    return {
        field.name: simplify(getattr(usage, field.name))
        for field in dataclasses.fields(usage)
        if field.name not in _TIMED
    }


def outcome_of(solution: Any) -> dict[str, Any]:
    """Return the fields of a solution that equal seeds must repeat."""
    trace = solution.trace
    return {
        **{name: simplify(getattr(solution, name)) for name in _SAME},
        "texts": [simplify(c.trajectory.full_text) for c in solution.candidates],
        "candidates": [
            simplify(
                [
                    c.answer,
                    c.answer_class,
                    c.index,
                    c.group,
                    c.scores,
                    c.weight,
                    c.trajectory.status,
                    c.trajectory.num_tokens,
                ]
            )
            for c in solution.candidates
        ],
        **{f"usage.{name}": value for name, value in usage_of(solution.usage).items()},
        "remaining": {unit: simplify(left) for unit, left in solution.remaining.items() if unit != "seconds"},
        "error": describe_error(solution.error),
        "calls": [[*(getattr(call, name) for name in _CALL), nonzero_usage(call.usage)] for call in trace.calls],
        "granted": [call.granted for call in trace.calls],
        "nodes": [simplify([getattr(node, name) for name in _NODE]) for node in trace.nodes],
        "kept_tokens": simplify(trace.kept_tokens),
        "reasons": simplify(trace.reasons),
    }


def nonzero_usage(usage: Any) -> dict[str, Any]:
    """Return what a call spent, without the units of which it spent nothing."""
    return {name: value for name, value in usage_of(usage).items() if value}


def solve(program: Program) -> list[dict[str, Any]]:
    """Run a program and return its outcomes, one a problem; one alone where it raises."""
    clock = Clock()
    verifiers = VERIFIERS[program.verifier]()
    roles = tuple(verifiers) if isinstance(verifiers, Mapping) else ("main",)
    plan: Any = program.plan
    if program.strategy == OWN:
        parsed = tts.parse(" | ".join(("single", program.plan)) if program.plan else "single")
        plan = tts.Plan(
            RandomCalls(hash_parts("calls", program.number, program.seed), roles), parsed.stopping, parsed.selection
        )
    models = {"policy": make_model(program.model, clock)}
    if program.large:
        models["large"] = make_model(program.large, clock)
    try:
        with tts.Solver(
            models,
            verifiers,
            task=Revising() if program.task == "revising" else program.task,
            sampling=tts.Sampling(**program.sampling),
            allow_oracle=True,
            clock=clock,
            **program.options,
        ) as solver:
            limits, problems = (
                tts.Budget(**program.budget),
                [tts.Problem(text, answer="7") for text in program.problems],
            )
            if not program.many:
                return [outcome_of(solver.solve(problems[0], limits, strategy=plan, seed=program.seed))]
            given = {"budget": limits} if program.total else {"each": limits}
            return [outcome_of(each) for each in solver.solve_many(problems, strategy=plan, seed=program.seed, **given)]
    except Exception as failure:  # noqa: BLE001 - whatever is raised is an outcome
        partial = getattr(failure, "partial", None)
        return [{"raised": describe_error(failure), **({} if partial is None else outcome_of(partial))}]


def digest(value: Any) -> str:
    """Return a short digest of plain values."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def record(out: Path, numbers: Iterable[int], seed: int) -> None:
    """Run programs and write one line for each: the program, a digest of its outcomes, and the outcomes."""
    began, covered, raised, whole = time.perf_counter(), Counter[str](), 0, hashlib.blake2b(digest_size=8)
    with out.open("w", encoding="utf-8") as file:
        for number in numbers:
            program = draw(seed, number)
            outcomes = solve(program)
            covered[program.strategy] += 1
            raised += "raised" in outcomes[0]
            line = {"program": dataclasses.asdict(program), "digest": digest(outcomes), "outcomes": outcomes}
            whole.update(line["digest"].encode())
            file.write(json.dumps(line) + "\n")
    tts.close()
    sys.stdout.write(
        f"{covered.total()} programs of {len(covered)} strategies in {time.perf_counter() - began:.0f} s, {raised} of "
        "them raised; "
        f"digest {whole.hexdigest()}; recorded by {Path(tts.__file__).parent}\n"
    )


# Differences ----------------------------------------------------------------------------------------------------------


def read(path: Path) -> dict[int, dict[str, Any]]:
    """Return the lines of a record by the numbers of their programs."""
    with path.open(encoding="utf-8") as file:
        return {line["program"]["number"]: line for line in map(json.loads, file)}


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield (field, value in a, value in b) of two lines of one program.

    Each field comes once, at its first problem that differs.
    """
    if a["program"] != b["program"]:
        yield "program", a["program"], b["program"]
        return
    if len(a["outcomes"]) != len(b["outcomes"]):
        yield "outcomes", len(a["outcomes"]), len(b["outcomes"])
        return
    seen: set[str] = set()
    for left_outcome, right_outcome in zip(a["outcomes"], b["outcomes"], strict=True):
        one, other = comparable(left_outcome, right_outcome), comparable(right_outcome, left_outcome)
        for field in {**one, **other}:
            if field not in seen and (left := one.get(field)) != (right := other.get(field)):
                seen.add(field)
                yield field, left, right


def comparable(one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an outcome without what its usage counts and the other's, of another version, does not."""
    unknown = {name.removeprefix("usage.") for name in one.keys() - other.keys() if name.startswith("usage.")}
    if not unknown or "calls" not in one:
        return one
    calls = [
        [*call[:-1], {name: value for name, value in call[-1].items() if name not in unknown}] for call in one["calls"]
    ]
    return {
        **{name: value for name, value in one.items() if name.removeprefix("usage.") not in unknown},
        "calls": calls,
    }


def first_difference(a: Any, b: Any) -> str:
    """Return where two values first differ, as text of one line."""
    place = ""
    while isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        at = next(i for i, (one, other) in enumerate(zip(a, b, strict=True)) if one != other)
        a, b, place = a[at], b[at], f"{place}[{at}]"
    if isinstance(a, list) and isinstance(b, list):
        return f"{place} {len(a)} entries -> {len(b)}: {json.dumps(a)[:160]} -> {json.dumps(b)[:160]}"
    return f"{place} {json.dumps(a)[:240]} -> {json.dumps(b)[:240]}"


def diff(a: Path, b: Path, show: int) -> int:
    """Print what differs between two records, by field and strategy; return the exit code."""
    left, right = read(a), read(b)
    by_field: dict[str, Counter[str]] = defaultdict(Counter)
    cases: dict[str, list[str]] = defaultdict(list)
    unequal: set[int] = set()
    for number in sorted(left.keys() & right.keys()):
        for field, one, other in differences(left[number], right[number]):
            unequal.add(number)
            strategy = left[number]["program"]["strategy"]
            by_field[field][strategy] += 1
            cases[field].append(f"    {number} {strategy}: {first_difference(one, other)}")
    alone = sorted(left.keys() ^ right.keys())
    lines = [
        f"{len(left.keys() & right.keys())} programs in both, {len(unequal)} of them unequal; {len(alone)} in one "
        "record alone"
    ]
    for field, counts in sorted(by_field.items(), key=lambda item: -item[1].total()):
        lines.append(
            f"{field}: {counts.total()} ({', '.join(f'{name} {count}' for name, count in counts.most_common())})"
        )
        lines += cases[field][:show]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if unequal or alone else 0


def main() -> int:
    """Run the command that is given; return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("record", help="run programs and write what they did")
    writing.add_argument("out", type=Path)
    writing.add_argument("--programs", type=int, default=2000)
    writing.add_argument("--seed", type=int, default=0, help="of the sequence of programs")
    writing.add_argument("--only", type=int, nargs="+", metavar="NUMBER", help="these programs of the sequence alone")
    reading = commands.add_parser("diff", help="print what differs between two records")
    reading.add_argument("a", type=Path)
    reading.add_argument("b", type=Path)
    reading.add_argument("--show", type=int, default=3, help="cases of each field")
    given = parser.parse_args()
    if given.command == "diff":
        return diff(given.a, given.b, given.show)
    record(given.out, given.only or range(given.programs), given.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
