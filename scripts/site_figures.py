"""The figures of the methods' pages, from searches that run when the figures are drawn.

    python scripts/site_figures.py NAME [...] [--out FOLDER]

Each run gives the same bytes. A strategy or a stop rule has the tree of its search. A selection has the candidates and
their weights, and a verifier has their scores. All searches are of the toy on one sum, under one budget and seed. Where
replies or programs are wanted, a function stands in the toy's place. Figures of verifiers of the embedded models are in
docs/pictures/, and are drawn once, since they take a model.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import svg  # noqa: E402 - it lies beside this file
import trace_pictures  # noqa: E402

import tts  # noqa: E402
from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES  # noqa: E402
from tts.search.plan import parse  # noqa: E402
from tts.tasks.arithmetic.task import ArithmeticTask  # noqa: E402
from tts.verifiers import VERIFIERS  # noqa: E402

SUM = tts.Problem("10 - 7 + 5 + 3 - 4", "7")
TOKENS, SAMPLES, SEED = tts.Budget(tokens=800), tts.Budget(samples=200), 0
EMBEDDED = ("process", "probe", "self_evaluation", "reward")
_PLANS = {
    "a_star": "a_star(branching=3, goals=1)",
    "ab_mcts": "ab_mcts(n=8)",
    "adaptive": "adaptive(n=8)",
    "answer_convergence": "answer_convergence(n=3, k=2, tokens=1)",
    "archon": "archon(n=4, keep=2)",
    "auto": "auto(n=16)",
    "beam": "beam(n=8, branching=4)",
    "best_of_n": "best_of_n(n=8)",
    "budget_forcing": "budget_forcing(n=4, thought_tokens=40, waits=1)",
    "cascade": "cascade(models=['policy', 'large'], samples=[3, 5], thresholds=[1.0])",
    "deepconf_online": "deepconf_online(n=8, warmup=3, keep=50, tokens=6)",
    "diverse_beam": "diverse_beam(n=4, branching=3)",
    "dvts": "dvts(n=8, branching=4)",
    "early_pruning": "early_pruning(n=8, tokens=10)",
    "entropic_particle_filter": "entropic_particle_filter(n=8)",
    "entropy_switching": "entropy_switching(n=4, threshold=0.1)",
    "ets": "ets(n=8)",
    "forest_of_thought": "forest_of_thought(n=2, branching=2)",
    "fractured": "fractured(n=3, depths=3)",
    "guided_by_gut": "guided_by_gut(n=4)",
    "lookahead_power_sampling": "lookahead_power_sampling(n=2, block=6, branching=2, rollouts=2)",
    "mcts": "mcts(n=8, width=3)",
    "mind_evolution": "mind_evolution(n=2, generations=2)",
    "mixture_of_agents": "mixture_of_agents(samples=4)",
    "mur": "mur(n=2, branching=3, gamma=5)",
    "pacore": "pacore(widths=[4, 2])",
    "parallel_probe": "parallel_probe(n=4, every=6, stable=2, warmup=1, tokens=1)",
    "parallel_tempering": "parallel_tempering(n=3)",
    "particle_filter": "particle_filter(n=8)",
    "particle_gibbs": "particle_gibbs(n=4, sweeps=2)",
    "phi_decoding": "phi_decoding(n=2, beams=2, branching=2)",
    "power_sampling": "power_sampling(chains=2, moves=2, block=8)",
    "power_smc": "power_smc(n=6, block=6)",
    "program_aided": "program_aided(n=3, sandbox='none')",
    "rebase": "rebase(n=8)",
    "recursive_self_aggregation": "recursive_self_aggregation(n=3, rounds=2, subset=2)",
    "self_consistency": "self_consistency(n=8)",
    "self_refine": "self_refine(n=2, rounds=2)",
    "self_verification": "self_verification(n=4, verifications=2)",
    "semantic_entropy": "semantic_entropy(n=3, rounds=2)",
    "sequential_revision": "sequential_revision(chains=2, length=3)",
    "single": "single",
    "spec_reason": "spec_reason(n=3, threshold=5, question='Its digit is ')",
    "tree_of_thoughts": "tree_of_thoughts(n=2, branching=2, votes=1)",
}
_RULES = {
    "pandora": "pandora(price=0.05, least=4)",
    "mixture_sprt": "mixture_sprt",
    "sprt": "sprt",
    "unanimous": "unanimous(window=3)",
}
_SELECTIONS = {"deepconf": "deepconf(keep=50)", "rpc": "rpc(least=4)", "selective": "selective(threshold=0.5)"}
_VERIFIERS = {
    "toy": "toy(error=0.1, seed=1)",
    "ensemble": "ensemble(members=['toy(error=0.1, seed=1)', 'confidence'])",
    "genrm": "genrm(votes=4, verdict='words')",
    "multi_aspect": "multi_aspect(verdict='words')",
    "code": "code(tests='assert double(2) == 4; assert double(3) == 6', credit='share', sandbox='none')",
    "tests": "tests(command='pytest -q', credit='share')",
}
_BARS = ".bar{fill:var(--soft);fill-opacity:.45}.good{fill:var(--win)}\n"


@dataclass(frozen=True)
class Setting:
    """A search that is drawn.

    Args:
        plan: The plan.
        problem: The problem.
        models: The models.
        verifier: The verifier; "none": without one.
        task: The task.
        told: The words for the model.
        limits: The budget.
    """

    plan: str
    problem: tts.Problem = SUM
    models: Any = "toy"
    verifier: Any = "none"
    task: Any = "arithmetic"
    told: str = "the toy"
    limits: tts.Budget = TOKENS

    def solve(self) -> tts.Solution:
        """Return the solution."""
        with tts.Solver(self.models, self.verifier, task=self.task, allow_oracle=True) as solver:
            return solver.solve(self.problem, self.limits, strategy=self.plan, seed=SEED)


@dataclass(frozen=True)
class Figure:
    """A picture, what was run, and a line of what that cost; none where it was not run now."""

    picture: str
    caption: str
    spent: Sequence[str]

    @property
    def words(self) -> str:
        """What stands for it: the description in it."""
        found = re.search(r"<desc[^>]*>(.*?)</desc>", self.picture, re.DOTALL)
        return re.sub(r"[\[\]\n]", " ", found[1]) if found else ""


class Shown(ArithmeticTask):
    """Sums with prompts that show earlier solutions, of which the toy reads the sum alone."""

    def prompt(self, problem: tts.Problem, kind: str = "solve", texts: Sequence[str] = ()) -> str:
        """Return the earlier solutions, and the sum."""
        del kind
        return "".join(f"{text} again, " for text in texts) + problem.text

    def typical_tokens(self, kind: str = "solve") -> int:
        """Return those of a solution."""
        return super().typical_tokens("step" if kind == "step" else "solve")


def names() -> list[str]:
    """Return all parts that have a figure, by name."""
    return [name for registry in (STRATEGIES, STOP_RULES, SELECTIONS, VERIFIERS) for name in registry.names()]


def figure(name: str, *, fresh: bool = False) -> Figure:
    """Return the figure of a strategy, stop rule, selection or verifier.

    Args:
        name: The name of the part.
        fresh: Whether figures of the embedded models are drawn too.
    """
    setting = setting_of(name)
    called = f"`{setting.plan}`" + ("" if setting.verifier == "none" else f" with the verifier `{setting.verifier}`")
    place = " --out docs/pictures" if name in EMBEDDED else ""
    caption = (
        f"{called} on `{setting.problem.text}` by {setting.told}, under `{setting.limits}` with seed {SEED}. "
        f"Drawn by `python scripts/site_figures.py {name}{place}`."
    )
    if name in EMBEDDED and not fresh:
        return Figure((ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8"), caption, ())
    solved = setting.solve()
    if name in STRATEGIES.names() or name in STOP_RULES.names():
        picture = trace_pictures.draw(solved.trace, "still")
    else:
        picture = bars(solved, scored=name in VERIFIERS.names())
    return Figure(picture, caption, [f"Spent: {format_cost(solved)}."])


def setting_of(name: str) -> Setting:
    """Return what is run for a part."""
    if name in STRATEGIES.names():
        return _strategy_setting(name)
    if name in STOP_RULES.names():
        rule = _RULES.get(name, name)
        return _add_verifier(Setting(f"best_of_n(n=16) | {rule} | majority"), parse(f"single | {rule}").stopping)
    if name in SELECTIONS.names():
        return _selection_setting(name)
    return _verifier_setting(name)


def _strategy_setting(name: str) -> Setting:
    if name == "program_aided":
        return _function_setting(Setting(_PLANS[name]), _programs, "a function that writes programs")
    roles = {"cascade": "large", "entropy_switching": "draft", "spec_reason": "draft"}
    models: Any = (
        "toy-thinking"
        if name == "budget_forcing"
        else {"policy": "toy", roles[name]: "toy"}
        if name in roles
        else "toy"
    )
    told = "the toy that thinks" if name == "budget_forcing" else "two toys" if name in roles else "the toy"
    made = Setting(_PLANS[name], models=models, told=told, task=Shown())
    if name == "deepconf_online":
        return replace(made, verifier="confidence")
    return _add_verifier(made, parse(made.plan).strategy)


def _selection_setting(name: str) -> Setting:
    made = Setting(f"best_of_n(n=8) | {_SELECTIONS.get(name, name)}")
    if name in ("genselect", "knockout", "league", "pairwise", "pivot", "swiss"):
        return _function_setting(replace(made, verifier="judge(votes=1)"), _compares, "a function that compares")
    if name == "codet":
        return _function_setting(
            replace(made, verifier=_VERIFIERS["code"]), _doubles, "a function that writes programs"
        )
    if name in ("deepconf", "rpc"):
        return replace(made, verifier="confidence")
    return _add_verifier(made, SELECTIONS.get(name)())


def _verifier_setting(name: str) -> Setting:
    made = Setting("best_of_n(n=8) | weighted", verifier=_VERIFIERS.get(name, name))
    if name in EMBEDDED:
        return replace(
            made,
            problem=tts.Problem("What is 12 + 7 * 3 - 8?", "25"),
            models="pocket",
            task=None,
            told="the embedded model",
        )
    if name in ("judge", "genrm", "multi_aspect"):
        return _function_setting(made, _judges, "a function that answers and judges")
    if name == "code":
        return _function_setting(made, _doubles, "a function that writes programs")
    if name == "tests":
        task = tts.Problem("Fix add.py")
        return replace(
            made,
            problem=task,
            models=_repository(),
            task=None,
            told="the toy agent in a small repository",
            limits=SAMPLES,
        )
    return made


def _repository() -> tts.Workspace:
    """Return forks of a folder with a wrong function and its tests, for the toy agent.

    They are removed when the interpreter ends.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "add.py").write_text("def add(a, b):\n    return a - b\n", encoding="utf-8")
        tests = (
            "from add import add\n\ndef test_sum():\n    assert add(2, 2) == 4\n\ndef test_zero():\n    assert "
            "add(1, 0) == 1\n"
        )
        Path(folder, "test_add.py").write_text(tests, encoding="utf-8")
        return tts.Workspace(folder, agent="toy")


def _add_verifier(made: Setting, part: Any) -> Setting:
    """Return a setting with the toy's verifier where a part scores."""
    scores = getattr(part, "verifiers", ()) or getattr(part, "verifier", None)
    return replace(made, verifier=_VERIFIERS["toy"]) if scores else made


def _function_setting(made: Setting, model: Callable[[tts.Ask], str], told: str) -> Setting:
    """Return a setting with a function in the place of the model."""
    problem = tts.Problem("What is 3 + 4?", "7") if model is not _doubles else tts.Problem("Double a number.")
    return replace(
        made, problem=problem, models=model, task="math" if model is not _doubles else "text", told=told, limits=SAMPLES
    )


def _programs(ask: tts.Ask) -> str:
    return "The answer is 7." if ask.text else f"```python\nprint(3 + {4 + ask.seed % 2})\n```\n"


def _doubles(ask: tts.Ask) -> str:
    return f"def double(x): return {('x * 2', 'x ** 2', 'x + 3')[ask.seed % 3]}"


def _compares(ask: tts.Ask) -> str:
    prompt = str(ask.prompt)
    if '"best"' in prompt:
        shown = re.findall(r"answer is (\d)", prompt)
        return f'{{"best": {1 + shown.index(min(shown))}}}'
    if "better" not in prompt:
        return f"The answer is {7 + ask.seed % 3}."
    first = re.findall(r"answer is (\d)", prompt)[:2]
    return f'{{"better": "{"A" if first == sorted(first) else "B"}"}}'


def _judges(ask: tts.Ask) -> str:
    prompt, luck = str(ask.prompt), ask.seed % 5
    right = "answer is 7" in prompt
    if "Verdict" in prompt:
        return f"Verdict: {'Yes' if right == (luck > 0) else 'No'}"
    return (
        f'{{"score": {5 + luck if right else luck}}}'
        if "score" in prompt
        else f"The answer is {7 if ask.seed % 3 else 8}."
    )


def format_cost(solved: tts.Solution) -> str:
    """Return what a solution cost, in a line."""
    usage = solved.usage
    read = (
        f", {usage.verifier_tokens:,} verifier tokens in {usage.verifier_calls:,} calls" if usage.verifier_calls else ""
    )
    return (
        f"{usage.samples:,} samples, {usage.generated_tokens:,} generated tokens{read}; ended by: {solved.stopped_by}"
    )


def bars(solved: tts.Solution, *, scored: bool) -> str:
    """Return the candidates, a line each.

    Args:
        solved: The solution.
        scored: Whether a candidate has its score; otherwise it has its weight in the selection.
    """
    margin, right, top, row = 240.0, 520.0, 74.0, 34.0
    values = [c.scores.get("main", math.nan) if scored else c.weight for c in solved.candidates]
    known = [value for value in values if math.isfinite(value)]
    least, most = min([0.0, *known]), max([1e-9, *known])
    title = "score of each candidate" if scored else "weight of each candidate"
    body = [svg.words(24, 32, svg.cut(solved.problem.text, 52), "bold"), svg.words(margin, 62, title, "soft")]
    won: list[str] = []
    for number, (candidate, value) in enumerate(zip(solved.candidates, values, strict=True)):
        good = candidate.answer == (solved.problem.answer if scored and solved.problem.answer else solved.answer)
        y = top + row * number
        body.append(svg.words(24, y + 20, svg.cut(candidate.answer or "no answer", 19), "mono"))
        if math.isfinite(value):
            wide = svg.number(max(1.0, (right - margin) * (value - least) / (most - least)))
            kind = "good" if good else "bar"
            body.append(
                f'<rect class="{kind}" x="{svg.number(margin)}" y="{svg.number(y)}" width="{wide}" height="24"/>'
            )
        text = f"{value:.3g}" if math.isfinite(value) else "none"
        body.append(svg.words(right + 14, y + 20, text, "win bold" if good else ""))
        won.append(f"{candidate.answer or 'no answer'} {text}")
    bottom = top + row * len(values) + 30
    answer = "no answer" if solved.answer is None else f"answer: {svg.cut(solved.answer, 40)}"
    green = "the right answer" if scored and solved.problem.answer else "the chosen answer"
    body += [svg.words(24, bottom, answer, "win bold"), svg.words(24, bottom + 30, f"green: {green}", "soft")]
    text = (
        f"Candidates with the {'score' if scored else 'weight'} of each: "
        f"{', '.join(svg.cut(one, 40) for one in won)}; {answer}."
    )
    return svg.document(bottom + 50, f"{title.capitalize()}: {solved.problem.text}", text, body, _BARS)


def main() -> None:
    """Draw figures into a folder and print their paths."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="+", metavar="NAME", help="strategies, stop rules, selections, verifiers")
    parser.add_argument("--out", type=Path, default=Path())
    options = parser.parse_args()
    if unknown := set(options.names) - set(names()):
        parser.error(f"no part is called {sorted(unknown)[0]!r}; `tts strategies` lists them")
    for name in options.names:
        path = options.out / f"{name}.svg"
        path.write_text(figure(name, fresh=True).picture, encoding="utf-8")
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
