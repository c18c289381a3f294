"""`tts verifiers`: the tokens that a reward model reads, and the quality of recorded scores.

The tokens are those that the model reads of a solution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tts._core.display import one_visible_line, visible
from tts.cli.boundary import boundary, warn, within_boundary
from tts.cli.runs import AsJson, RunStudy, StoreFile, TrustPlaces
from tts.cli.terminal import output, table

if TYPE_CHECKING:
    from rich.console import Console

    from tts.verifiers.reward.renderer import RenderedSolution

verifiers = typer.Typer(help="List verifiers, or inspect them.")

Name = Annotated[str, typer.Argument(help="A record of this package, or the path of a YAML file with one.")]
Text = Annotated[str, typer.Option(help="A solution; - reads standard input, @FILE a file.")]
Asked = Annotated[str, typer.Option("--problem", help="The problem it solves; - and @FILE as for the solution.")]
Weights = Annotated[
    str | None, typer.Option(help="A folder or Hub name of its tokenizer and weights; else as the record says.")
]
TaskName = Annotated[
    str | None, typer.Option("--task", help="Cuts the solution into steps; else that of the model's record.")
]


@verifiers.callback(invoke_without_command=True)
def list_verifiers(context: typer.Context) -> None:
    """List the verifiers with their parameters, or inspect them with a command.

    `tts strategies NAME` shows one.
    """
    if context.invoked_subcommand is None:
        from tts.cli.strategies import list_parts
        from tts.verifiers import VERIFIERS

        with boundary(debug=False):
            list_parts(VERIFIERS, output())


@verifiers.command()
@within_boundary
def check(
    name: Name, text: Text, problem: Asked = "What is 3 + 4?", weights: Weights = None, task: TaskName = None
) -> None:
    """Show the tokens of a solution that a reward model reads, and the position of each step's score.

    Only the tokenizer of the model is loaded. A record that does not fit the
    tokenizer is refused, as before a search.
    """
    from tts import tasks
    from tts.cli.arguments import read_problem
    from tts.models import registry
    from tts.types import Problem
    from tts.verifiers.reward import record as reward_record
    from tts.verifiers.reward.pretrained import tokenizer_of
    from tts.verifiers.reward.renderer import SolutionRenderer

    record = reward_record.load(name)
    model = registry.get(weights or record.model)
    if not task:
        task = registry.get(record.model).task if record.model in registry.RECORDS else "math"
    solution_task = tasks.get(task)
    problem_text, solution = read_problem(problem), read_problem(text)
    tokenizer = tokenizer_of(model)
    steps = [solution] if record.kind == "outcome" else solution_task.split(solution)
    prompt = Problem(solution_task.prompt(Problem(problem_text)))
    rendered = SolutionRenderer(record, tokenizer).render(problem_text, steps, prompt=prompt.text)
    console = output()
    console.print(f"{record.name}: {record.kind} model of {record.model} ({record.architecture})", soft_wrap=True)
    _show_tokens(console, rendered, tokenizer)
    _show_steps(console, rendered, steps, tokenizer)


@verifiers.command()
@within_boundary
def report(
    run: RunStudy = None,
    *,
    role: Annotated[str | None, typer.Option(help="Only the verifier of this role, such as main; else all.")] = None,
    aggregate: Annotated[
        str, typer.Option(help="How step scores are aggregated: last, min, prod, mean or model.")
    ] = "last",
    as_json: AsJson = False,
    store: StoreFile = None,
    _: TrustPlaces = False,
) -> None:
    """Report the quality of a study's verifiers on recorded candidates with reference answers.

    For each: discrimination by step and within problems; calibration; correlation with length; the gain of selection by
    its scores; the limit for unlimited tries; and advice in one sentence. Pools of samples are the best evidence: tts
    sample.
    """
    from tts.experiments.api import Study
    from tts.experiments.verifier_report import report as reporting

    with Study.from_store(run, store=store).open_store("this is not its final report") as (opened, study):
        quality = reporting.verifier_report(opened.results(study.id), role=role, aggregate=aggregate)
    if quality.passed_over:
        reasons = "; ".join(f"{count:,} {reason}" for reason, count in quality.passed_over.items())
        warn(f"{sum(quality.passed_over.values()):,} results are not looked at: {reasons}")
    typer.echo(reporting.as_json(quality) if as_json else visible(reporting.as_text(quality)))


def _show_tokens(console: Console, rendered: RenderedSolution, tokenizer: Any) -> None:
    """Print every token, and the positions where scores are read."""
    first_steps: dict[int, int] = {}  # position of a score -> the first step that it scores
    for step, score_position in enumerate(rendered.at):
        if score_position is not None:
            first_steps.setdefault(score_position, step)
    line = "problem:"
    for position, token in enumerate(rendered.ids):
        if position == rendered.prompt and position > 0:  # the first token after the problem
            console.print(line, soft_wrap=True)
            line = "steps:  "
        line += f" {one_visible_line(tokenizer.convert_ids_to_tokens(token))}"
        if position in first_steps:
            console.print(f"{line} <- step {first_steps[position] + 1}, position {position}", soft_wrap=True)
            line = "        "
    if not rendered.ids:
        console.print("nothing is shown to the model")


def _show_steps(console: Console, rendered: RenderedSolution, steps: list[str], tokenizer: Any) -> None:

    listed = table("step", "text", "position", "token", "id", "why not", numbers=["step", "position", "id"])
    for number, (step, position, reason) in enumerate(zip(steps, rendered.at, rendered.why, strict=True), start=1):
        shown_step = visible(repr(step if len(step) <= 60 else f"{step[:59]}…"))
        if position is None:
            listed.add_row(str(number), shown_step, "unknown", "", "", visible(reason))
            continue
        token_id = rendered.ids[position]
        token = repr(tokenizer.convert_ids_to_tokens(token_id))
        listed.add_row(str(number), shown_step, str(position), token, str(token_id), visible(reason))
    console.print(listed)
    console.print(f"{len(rendered.ids)} tokens, {rendered.prompt} of them the problem's")
