"""`tts patch`: a repository's task to a patch; `tts workspace`: removal of what killed processes left."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from tts._core.display import one_visible_line, visible
from tts.budget.units import format_usd
from tts.cli.boundary import FAILED, warn, within_boundary
from tts.cli.model_options import (
    Settings,
    Url,
    named_model,
    settings_of,
)
from tts.cli.solve import show_search
from tts.cli.terminal import messages as message_console
from tts.cli.terminal import table

if TYPE_CHECKING:
    from tts.solver.live import Event
    from tts.types import Candidate, Solution, Usage
    from tts_addons.agents.patch_tests import PatchTests
    from tts_addons.agents.suites import RunsSuites

_DEMO_PROMPT = "Fix leap.py: years divisible by 100 are leap years only if 400 divides them."
_DEMO_FILES = {
    "leap.py": "def is_leap(year):\n    return year % 4 == 0 and year % 100 == 0 or year % 400 == 0\n",
    "test_leap.py": (
        "from leap import is_leap\n\n\ndef test_years():\n"
        "    assert [is_leap(year) for year in (1900, 2000, 2023, 2024)] == [False, True, False, True]\n"
    ),
}


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
    n: Annotated[int, typer.Option("-n", min=1, help="Runs of the agent.")] = 8,
    budget: Annotated[
        list[str] | None, typer.Option(help="Further limits by unit: usd=2,seconds=600,tokens=20000; repeatable.")
    ] = None,
    revision: Annotated[str, typer.Option(help="The revision that agents begin from.")] = "HEAD",
    include_changes: Annotated[
        bool, typer.Option("--include-changes", help="Begin from changed tracked files too.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Agents at once.")] = 4,
    run_seconds: Annotated[
        float | None, typer.Option(help="The most seconds of a run, after which it is cut; none unless given.")
    ] = None,
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
    from tts.solver.solver import Solver
    from tts.trace.trace import check_path
    from tts_addons.agents.patch_tests import PatchTests
    from tts_addons.agents.workspace import Workspace

    _check_patch_options(prompt, repo, tests, hidden, demo=demo, apply=apply)
    if trace is not None:
        check_path(trace)
    settings = settings_of(model_option)
    agent_model = named_model(model, url, settings)
    limits = parse_budget(f"samples={n}", *(budget or ()))
    if (agent_model is not None or url is not None) and limits.limits.keys() <= {"samples"}:
        warn("nothing limits the agent's calls of the model: give --budget tokens=, usd=, requests= or seconds=")
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
            folder,
            agent=agent,
            model=agent_model,
            url=url,
            revision=revision,
            include_changes=include_changes,
            jobs=jobs,
            run_seconds=run_seconds,
        ) as workspace,
    ):
        untracked = workspace.store.untracked
        if untracked:
            warn(f"{len(untracked)} untracked files are left out, such as {one_visible_line(untracked[0])}")

        def search(on_event: Callable[[Event], None] | None) -> Solution:
            with Solver(workspace, verifier or "none", strategy=plan, budget=limits, on_event=on_event) as solver:
                return solver.solve(prompt or _DEMO_PROMPT, limits, seed=seed)

        show_search(
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
    candidates = {candidate.trajectory.path[:2][-1].node: candidate for candidate in solution.candidates}
    runs = candidates if solution.trace is None else [run.node for run in solution.trace.nodes if run.parent == 0]
    for number, node in enumerate(sorted(runs), 1):
        candidate = candidates.get(node)
        if candidate is None:
            rows.add_row(str(number), "-", "", "", "none", "the run failed")
            continue
        first_number = first_numbers.setdefault(candidate.answer_class, number)
        duplicate_of = str(first_number) if first_number < number and candidate.answer is not None else ""
        tokens = f"{candidate.trajectory.num_tokens or '-'}"
        why = "" if _outcome(candidate) == "pass" else one_visible_line(notes.get(candidate.index, ""))
        why = f"cut by a limit; {why}".rstrip("; ") if candidate.truncated else why
        rows.add_row(str(number), _outcome(candidate), tokens, duplicate_of, _summary(candidate.answer), why)
    message_console().print(rows)
    message_console().print(_spend(solution.usage))
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


def _spend(usage: Usage) -> str:
    """Return what all runs have spent, in words. Without tokens, the agents' own calls of models are unknown."""
    written = usage.generated_tokens + usage.cancelled_tokens
    if not written:
        return f"spent: {usage.seconds:,.1f} s; calls of models are unknown"
    usd = "unknown dollars" if usage.usd is None else format_usd(usage.usd)
    reused = f" ({usage.reused_tokens:,} more read again)" if usage.reused_tokens else ""
    tokens = f"{usage.prompt_tokens:,} tokens read{reused}, {written:,} written in {usage.requests or 0:,} requests"
    return f"spent: {tokens}, {usd}, {usage.seconds:,.1f} s"


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


workspace = typer.Typer(help="Clean up after programs that forked repositories.", no_args_is_help=True)


@workspace.command("clean")
@within_boundary
def clean_workspaces() -> None:
    """Remove states and forks of processes that were killed. Those of running processes stay."""
    from tts_addons.agents.store import clean

    removed = clean()
    for store in removed:
        typer.echo(f"removed {store}")
    typer.echo(f"{len(removed)} workspace{'' if len(removed) == 1 else 's'} removed")
