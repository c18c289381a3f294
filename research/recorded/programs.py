"""Programs of CodeGen-16B with the tests that it wrote: run in the sandbox, and chosen by CodeT.

Source: Chen et al., "CodeT: Code Generation with Generated Tests" (2207.10397), from the authors' code. At most 5 tests
of each text count, each as often as it was written. Programs that pass the same tests are one group. The group of
greatest sqrt(programs) x tests wins.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tts.search.algorithms.agreement import ConsensusSet, consensus_sets
from tts_addons.code.sandbox import ProgramOutcome, SandboxLimits, run
from tts_addons.code.written import HARNESS, SECONDS, read_outcomes, with_tests

TESTS_OF_A_TEXT = 5
ORDERS = 200  # random subsets of the programs
_STOPS = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
_LIMITS = SandboxLimits(seconds=SECONDS)


@dataclass(frozen=True, slots=True)
class ProgramProblem:
    """A problem with programs and tests that a model wrote.

    Args:
        name: The name of the problem.
        prompt: The beginning of every program.
        check: The data set's tests.
        programs: The completions, in order of drawing.
        tests: The tests that the model wrote, with how often it wrote each.
    """

    name: str
    prompt: str
    check: str
    programs: tuple[str, ...]
    tests: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a program does.

    Args:
        right: Whether the program passes the data set's tests.
        passed: Whether it passes each of the written tests, a character each; "": the program did not end.
    """

    right: bool
    passed: str


def problems(folder: Path, every: int) -> list[ProgramProblem]:
    """Return the problems of the folder `codet`, one of every `every`."""
    known = {row["prompt"]: row for row in _rows(folder / "HumanEval_for_code_generation.jsonl")}
    programs = {row["prompt"]: row["samples"] for row in _rows(folder / "humaneval_codegen16b_n100_solutions.jsonl")}
    # the prompt of tests is the problem's, and a sentence more
    written = {
        row["prompt"].partition("    pass\n\n# check the")[0]: row["samples"]
        for row in _rows(folder / "humaneval_codegen16b_n100_tests.jsonl")
    }
    problem_list: list[ProgramProblem] = []
    for prompt, row in list(known.items())[::every]:
        tests = Counter(
            test for text in written[prompt] for test in written_tests(text, row["entry_point"])[:TESTS_OF_A_TEXT]
        )
        check = f"{row['test']}\ncheck({row['entry_point']})\n"
        problem_list.append(
            ProgramProblem(row["task_id"], prompt, check, tuple(map(_cut, programs[prompt])), dict(tests))
        )
    return problem_list


def verdicts(problem: ProgramProblem, kept: Path) -> list[Verdict]:
    """Return the verdict of each program.

    Verdicts of programs that ran before are read from a file, and new verdicts are added to the file.
    """
    known = {row["key"]: Verdict(row["right"], row["passed"]) for row in (_rows(kept) if kept.exists() else ())}
    verdict_list: list[Verdict] = []
    for program in problem.programs:
        key = hashlib.sha256(json.dumps([problem.name, program, list(problem.tests), HARNESS]).encode()).hexdigest()
        if key not in known:
            known[key] = _verdict(problem, program)
            kept.parent.mkdir(parents=True, exist_ok=True)
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, **asdict(known[key])}) + "\n")
        verdict_list.append(known[key])
    return verdict_list


def _verdict(problem: ProgramProblem, program: str) -> Verdict:
    result = run(with_tests(problem.prompt + program, list(problem.tests)), problem.check, _LIMITS)
    return Verdict(result.outcome is ProgramOutcome.PASSED, read_outcomes(result.output, len(problem.tests)))


def agreement(weights: Sequence[int], told: Sequence[Verdict], order: Sequence[int]) -> dict[str, float]:
    """Return the chance that each way of choosing among the drawn programs is right.

    The program of a group is drawn evenly from the group.

    Args:
        weights: How often each test was written.
        told: The verdicts of all programs.
        order: The places of the programs that are drawn.
    """
    passed = [sum(w for w, one in zip(weights, told[i].passed, strict=False) if one == "1") for i in order]
    sets = consensus_sets([told[i].passed for i in order], passed)
    ways: dict[str, Callable[[ConsensusSet], float]] = {
        "CodeT": lambda of: of.score,
        "most tests": lambda of: of.tests,
        "largest group": lambda of: len(of.members),
    }
    return {way: float(np.mean([told[order[i]].right for i in max(sets, key=by).members])) for way, by in ways.items()}


def mean_agreement(
    weights: Sequence[int], told: Sequence[Verdict], sizes: Sequence[int], draws: int, rng: np.random.Generator
) -> Iterator[dict[str, float]]:
    """Yield, for each size, the mean of `agreement` over random subsets of the programs."""
    orders = [rng.permutation(len(told)).tolist() for _ in range(draws)]
    for size in sizes:
        found = [agreement(weights, told, order[:size]) for order in orders]
        yield {way: float(np.mean([one[way] for one in found])) for way in found[0]}


def written_tests(text: str, name: str) -> list[str]:
    """Return the assertions of a written text that name the function and are Python."""
    parts = [
        _cut(f"assert {part}".strip()).strip()
        for part in f"assert {text}".split("assert ")
        if name in part and part.strip()
    ]
    return [part for part in parts if _can_compile(part)]


def _can_compile(test: str) -> bool:
    try:
        compile(test, "test", "exec")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


def _cut(text: str) -> str:
    """Return a completion up to where it begins something else."""
    return text[: min((place for stop in _STOPS if (place := text.find(stop)) >= 0), default=len(text))]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)
