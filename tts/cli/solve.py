"""`tts solve`: one problem from its text to a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from tts.cli.boundary import FAILED, INTERRUPTED, Debug, boundary, report
from tts.cli.model_options import ModelName, Settings, Url, named_model, settings_of
from tts.cli.runs import TrustPlaces

if TYPE_CHECKING:
    from tts.backends.base import Sampling
    from tts.models.registry import ModelRecord
    from tts.solver.live import Event
    from tts.solver.model_cache import Model
    from tts.types import Solution


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
        models, server = _models(named_model(model, url, settings_of(model_option)), url, verifier)
        sampling = _sampling(temperature=temperature, max_tokens=max_tokens)
        posed = Problem(
            read_prompt(problem, system=system, messages=messages, few_shot=few_shot, template=template), answer=answer
        )
        if trace is not None:
            check_path(trace)

        def search(on_event: Callable[[Event], None] | None) -> Solution:
            with Solver(
                models,
                verifier,
                backend=backend,
                url=server,
                task=task,
                strategy=strategy,
                sampling=sampling,
                allow_oracle=allow_oracle,
                expected_tokens=expected_tokens,
                on_event=on_event,
                budget=limits,
            ) as solver:
                return solver.solve(posed, limits, seed=seed)

        show_search(search, lambda solution: _show(solution, trace, print_as, explain=explain), debug=debug)


def _models(
    policy: ModelRecord | str | None, url: str | None, verifier: str | None
) -> tuple[Mapping[str, Model] | Model | None, str | None]:
    """Return the models as `Solver` takes them, and the url: the policy, and models that the verifier names.

    Each of these models has its own name as its role.
    """
    from tts.models import registry
    from tts.solver.model_cache import DEFAULT_MODEL, make_verifiers
    from tts.verifiers.base import members_of

    scorers = (make_verifiers(verifier) or {}).values()
    members = [member for scorer in scorers for member in (members_of(scorer) or (scorer,))]
    named = {member.model: member.model for member in members if member.model != "policy"}
    if not named:
        return policy, url
    default_name = DEFAULT_MODEL if url is None else ""
    own = registry.resolve(policy or default_name, url) if isinstance(policy, str | None) else policy
    return {"policy": own, **named}, None


def _sampling(**chosen: Any) -> Sampling:
    from tts.backends.base import Sampling

    return Sampling(**{name: value for name, value in chosen.items() if value is not None})


def show_search(
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
