"""`tts solve`: one problem from its text to a table; `tts patch`: a repository's task to a patch."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from tts.cli.boundary import FAILED, INTERRUPTED, Debug, boundary, report, warn
from tts.cli.model_options import (
    ExtraBody,
    KeyFrom,
    ModelName,
    NoProbe,
    Rpm,
    Settings,
    Tpm,
    Url,
    named_model,
    settings_of,
)
from tts.cli.runs import TrustPlaces
from tts.cli.terminal import messages as message_console
from tts.cli.terminal import table
from tts.display import one_visible_line, visible

if TYPE_CHECKING:
    from tts.backends.base import Sampling
    from tts.backends.workspace.suites import RunsSuites
    from tts.solver.problem_run import Event
    from tts.types import Candidate, Solution
    from tts.verifiers.patch_tests import PatchTests


_DEMO_PROMPT = "Fix leap.py: years divisible by 100 are leap years only if 400 divides them."
_DEMO_FILES = {
    "leap.py": "def is_leap(year):\n    return year % 4 == 0 and year % 100 == 0 or year % 400 == 0\n",
    "test_leap.py": (
        "from leap import is_leap\n\n\ndef test_years():\n"
        "    assert [is_leap(year) for year in (1900, 2000, 2023, 2024)] == [False, True, False, True]\n"
    ),
}


class Solve(TyperCommand):
    """The command that takes "-5 + 3" for a problem, not for an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments, and read one that begins with a negative number as text, not as an option.

        A space before a minus sign that a number or a parenthesis follows makes the argument text. It changes no
        number.
        """
        return super().parse_args(ctx, [re.sub(r"^(?=-[\d(])", " ", arg) for arg in args])


Given = Annotated[
    str | None,
    typer.Argument(
        metavar="PROBLEM", help="Text, a file of it (@FILE in any case), or - for standard input.", show_default=False
    ),
]


def solve(  # noqa: PLR0913 - the options of the command
    problem: Given = None,
    *,
    budget: Annotated[
        list[str] | None, typer.Option(help="Tokens, or limits by unit: tokens=2000,seconds=30; else 2000; repeatable.")
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help="Such as best_of_n(n=8) | majority; else auto, which chooses.")
    ] = None,
    model: ModelName = None,
    backend: Annotated[str | None, typer.Option(help="What runs the model, if not its own backend.")] = None,
    url: Url = None,
    model_option: Settings = None,
    key_from: KeyFrom = None,
    no_probe: NoProbe = False,
    rpm: Rpm = None,
    tpm: Tpm = None,
    extra_body: ExtraBody = None,
    task: Annotated[
        str | None, typer.Option(help="How the problem is asked and answered: math, text, …; else the model's.")
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A system message; @FILE for a file of it.")
    ] = None,
    messages: Annotated[
        str | None, typer.Option(metavar="FILE", help="Earlier chat messages, JSON; the problem is the last turn.")
    ] = None,
    few_shot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Worked examples, JSON lines: question and solution.")
    ] = None,
    template: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A text with {problem} in it; @FILE for a file of it.")
    ] = None,
    verifier: Annotated[
        str | None, typer.Option(help="What scores candidates: process, probe, …, or none; else the model's.")
    ] = None,
    allow_oracle: Annotated[
        bool, typer.Option("--allow-oracle", help="Let a verifier see the reference answer.")
    ] = False,
    answer: Annotated[str | None, typer.Option(help="The reference answer, for verifiers that need it.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy; 0.8 unless given.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens of one row.")] = None,
    expected_tokens: Annotated[
        int | None, typer.Option(help="Usual length of a solution, by which the first rows are sized.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same solution.")] = 0,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say why the strategy went on as it did, and why it stopped.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As --print json.")] = False,
    printed: Annotated[
        str, typer.Option("--print", metavar="WHAT", help="table, json, or alone: solution (its text), answer.")
    ] = "table",
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the search: FILE.html is a page, FILE.json has all data.")
    ] = None,
    debug: Debug = False,
    _: TrustPlaces = False,
) -> None:
    """Solve one problem within a hard budget.

    A search that ends without an answer is a result: it shows "none", says why, and exits with 0.
    """
    with boundary(debug=debug):
        from tts.cli.arguments import parse_budget, read_prompt
        from tts.cli.result import printing
        from tts.solver.solver import Solver
        from tts.trace.trace import check_path
        from tts.types import Problem

        limits, print_as = parse_budget(*(budget or ("2000",))), printing(printed, as_json=as_json)
        settings = settings_of(
            model_option, key_from=key_from, no_probe=no_probe, rpm=rpm, tpm=tpm, extra_body=extra_body
        )
        chosen_model = named_model(model, url, settings)
        sampling = _sampling(temperature=temperature, max_tokens=max_tokens)
        posed = Problem(
            read_prompt(problem, system=system, messages=messages, few_shot=few_shot, template=template), answer=answer
        )
        if trace is not None:
            check_path(trace)

        def search(on_event: Callable[[Event], None] | None) -> Solution:
            with Solver(
                chosen_model,
                verifier,
                backend=backend,
                url=url,
                task=task,
                strategy=strategy,
                sampling=sampling,
                allow_oracle=allow_oracle,
                expected_tokens=expected_tokens,
                on_event=on_event,
                budget=limits,
            ) as solver:
                return solver.solve(posed, limits, seed=seed)

        _end(search, lambda solution: _show(solution, trace, print_as, explain=explain), debug=debug)


def _sampling(**chosen: Any) -> Sampling:
    from tts.backends.base import Sampling

    return Sampling(**{name: value for name, value in chosen.items() if value is not None})


def _end(
    search: Callable[[Callable[[Event], None] | None], Solution], show: Callable[[Solution], None], *, debug: bool
) -> None:
    """Search and show the solution, also after an interruption or a failure.

    Raises:
        typer.Exit: the search was interrupted or failed.
    """
    from tts.cli.terminal import progress
    from tts.errors import VerifierError
    from tts.solver.event_loop import Interrupted

    try:
        with progress() as on_event:
            solution = search(on_event)
    except Interrupted as interrupted:
        if interrupted.partial is None:
            raise
        show(interrupted.partial)
        raise typer.Exit(INTERRUPTED) from None
    except VerifierError as failure:
        if failure.partial is None:
            raise
        solution = failure.partial
    show(solution)
    if solution.error is not None:
        report(solution.error, debug=debug)
        raise typer.Exit(FAILED)


def _show(solution: Solution, trace: Path | None, print_as: str, *, explain: bool) -> None:
    """Save the trace of a solution, and print the solution even if the save fails."""
    from tts.cli.result import PRINTED

    try:
        if trace is not None and solution.trace is not None:
            solution.trace.save(trace)
    finally:
        PRINTED[print_as](solution, explain=explain)


def patch(  # noqa: PLR0913 - the options of the command
    prompt: Annotated[str | None, typer.Argument(help="The task; not with --demo.", show_default=False)] = None,
    *,
    repo: Annotated[Path | None, typer.Option(help="A folder in the repository; the current one unless given.")] = None,
    tests: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="The suite that chooses, such as 'pytest -q'; else a vote.")
    ] = None,
    hidden: Annotated[
        Path | None, typer.Option(help="Files of tests that agents do not get, copied over for the run.")
    ] = None,
    agent: Annotated[
        str,
        typer.Option(
            help="toy; a harness such as mini-swe-agent; the YAML file of one; or command:PATH for a program of yours."
        ),
    ] = "toy",
    model: Annotated[
        str | None, typer.Option(help="The model that the agent calls, which the budget pays.", show_default=False)
    ] = None,
    url: Url = None,
    model_option: Settings = None,
    key_from: KeyFrom = None,
    n: Annotated[int, typer.Option("-n", min=1, help="Runs of the agent.")] = 8,
    budget: Annotated[
        list[str] | None, typer.Option(help="Further limits by unit: usd=2,seconds=600,tokens=20000; repeatable.")
    ] = None,
    revision: Annotated[str, typer.Option(help="The revision that agents begin from.")] = "HEAD",
    include_changes: Annotated[
        bool, typer.Option("--include-changes", help="Begin from changed tracked files too.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Agents at once.")] = 4,
    seed: Annotated[int, typer.Option(help="The same seed gives the same patches of an agent that draws by it.")] = 0,
    apply: Annotated[bool, typer.Option("--apply", help="Apply the patch to the repository's files.")] = False,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the search: FILE.html is a page, FILE.json has all data.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Mend a small repository by the toy agent, to see how it works.")
    ] = False,
) -> None:
    """Run an agent several times on a repository, and write the patch that is chosen to standard output.

    With tests, a patch that passes all is chosen; without them, the most frequent one. The repository is only read,
    except by --apply. Exit code 1: no patch, or none that passes the tests.
    """
    from tts.cli.arguments import parse_budget
    from tts.serve.leases.workspace import Workspace
    from tts.solver.solver import Solver
    from tts.trace.trace import check_path
    from tts.verifiers.patch_tests import PatchTests

    _check_patch_options(prompt, repo, tests, hidden, demo=demo, apply=apply)
    if trace is not None:
        check_path(trace)
    settings = settings_of(model_option, key_from=key_from)
    agent_model = None if model is None and url is None and not settings else named_model(model, url, settings)
    limits = parse_budget(f"samples={n}", *(budget or ()))
    test_command = "pytest -q" if demo else tests
    verifier: PatchTests | None = None
    plan = f"best_of_n(n={n}) | majority"
    if test_command is not None:
        verifier = PatchTests(command=test_command, hidden=None if hidden is None else str(hidden))
        plan = f"best_of_n(n={n}) | best"
    accepted: list[Solution] = []
    with (
        _repository(repo, demo=demo) as folder,
        Workspace(
            folder, agent=agent, model=agent_model, revision=revision, include_changes=include_changes, jobs=jobs
        ) as workspace,
    ):
        untracked = workspace.store.untracked
        if untracked:
            warn(f"{len(untracked)} untracked files are left out, such as {one_visible_line(untracked[0])}")

        def search(on_event: Callable[[Event], None] | None) -> Solution:
            with Solver(workspace, verifier or "none", strategy=plan, budget=limits, on_event=on_event) as solver:
                return solver.solve(prompt or _DEMO_PROMPT, limits, seed=seed)

        _end(
            search,
            lambda solution: accepted.extend(_show_patch(solution, trace, verifier, workspace)),
            debug=False,
        )
        if not accepted:
            raise typer.Exit(FAILED)
        if apply:
            accepted[0].apply()
            message_console().print("the patch is applied")


def _check_patch_options(
    prompt: str | None, repo: Path | None, tests: str | None, hidden: Path | None, *, demo: bool, apply: bool
) -> None:
    from tts.errors import ConfigError

    if demo and any(option is not None for option in (prompt, repo, tests, hidden)):
        raise ConfigError(
            "--demo has a task, a repository and tests of its own",
            hint="leave out PROMPT, --repo, --tests and --hidden",
        )
    if demo and apply:
        raise ConfigError(
            "--apply has nothing to change with --demo, whose repository is removed", hint="leave out --apply"
        )
    if not demo and prompt is None:
        raise ConfigError(
            "there is no task", hint="say what to mend, for example: tts patch 'Fix the date parser', or try --demo"
        )
    if hidden is not None and tests is None:
        raise ConfigError("--hidden has no tests to run", hint="give --tests COMMAND")


@contextmanager
def _repository(repo: Path | None, *, demo: bool) -> Generator[Path]:
    """Yield the folder of the repository; the demonstration's repository is made for the block."""
    if not demo:
        yield repo or Path()
        return
    with TemporaryDirectory(prefix="tts-demo-") as folder:
        for name, text in _DEMO_FILES.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        yield Path(folder)


def _show_patch(
    solution: Solution, trace: Path | None, verifier: PatchTests | None, workspace: RunsSuites
) -> Iterator[Solution]:
    """Write the table of runs to standard error, and the chosen patch to standard output.

    Args:
        solution: The solution that the search found. One that was interrupted is tested here.
        trace: The file of the trace; None: no trace is saved.
        verifier: The tests that an accepted patch passes; None: any patch is accepted.
        workspace: The workspace, which keeps the outcomes of tests.

    Yields:
        The solution, only if it has an accepted patch.
    """
    if trace is not None and solution.trace is not None:
        solution.trace.save(trace)
    notes: dict[int, str] = {}
    if verifier is not None:
        solution, notes = _test_candidates(solution, verifier, workspace)
    rows = table("run", "tests", "tokens", "same as", "patch", "why", numbers=("run", "tokens", "same as"))
    first_numbers: dict[int | None, int] = {}
    candidates = sorted(solution.candidates, key=lambda c: c.index)
    for number, candidate in enumerate(candidates, 1):
        first_number = first_numbers.setdefault(candidate.answer_class, number)
        duplicate_of = str(first_number) if first_number < number and candidate.answer is not None else ""
        tokens = f"{candidate.trajectory.num_tokens:,}"
        why = "" if _outcome(candidate) == "pass" else one_visible_line(notes.get(candidate.index, ""))
        rows.add_row(str(number), _outcome(candidate), tokens, duplicate_of, _summary(candidate.answer), why)
    message_console().print(rows)
    for line in solution.warnings:
        if solution.target is None or line != solution.target.refusal:  # it is told below
            warn(line)
    if solution.answer is None:
        warn(f"none of {len(solution.candidates)} runs has a patch")
    elif verifier is not None and _outcome(solution.candidates[0]) != "pass":
        warn(f"none of {len(solution.candidates)} runs has a patch that passes the tests")
    else:
        typer.echo(visible(solution.answer) if sys.stdout.isatty() else solution.answer.encode(), nl=False)
        yield solution


def _test_candidates(
    solution: Solution, verifier: PatchTests, workspace: RunsSuites
) -> tuple[Solution, dict[int, str]]:
    """Return a solution and the note of each tested candidate; after an interruption, all are tested, best first."""
    notes: dict[int, str] = {}
    candidates: list[Candidate] = []
    is_interrupted = solution.stopped_by == "interrupted"
    for candidate in solution.candidates:
        scores = dict(candidate.scores)
        if _outcome(candidate) != "-" or (is_interrupted and candidate.answer is not None):
            score = verifier.score_patch(workspace, candidate.answer)  # a known outcome is not run again
            notes[candidate.index] = score.note
            scores["main"] = math.nan if score.whole is None else score.whole
        candidates.append(replace(candidate, scores=scores))
    if is_interrupted:
        candidates.sort(key=lambda candidate: _outcome(candidate) != "pass")
        answer = candidates[0].answer if candidates else None
        solution = replace(solution, answer=answer, candidates=tuple(candidates))
    return solution, notes


def _outcome(candidate: Candidate) -> str:
    score = candidate.scores.get("main", math.nan)
    if math.isnan(score):
        return "-"
    return "pass" if score == 1 else "fail"


def _summary(patch: str | None) -> str:
    """Return a patch in a few words: its files, and the lines that it adds and removes."""
    from tts.tasks.patch import files_of

    lines, files = (patch or "").split("\n"), files_of(patch or "")
    added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
    return f"+{added} -{removed} in {one_visible_line(', '.join(files))}" if files else "none"
