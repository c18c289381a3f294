"""`tts fit`: fits a performance model to recorded runs, which `auto` uses."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tts._core.display import visible
from tts.cli.runs import StoreFile, TrustPlaces

if TYPE_CHECKING:
    from tts.allocator.performance import PerformanceModel
    from tts.experiments.analysis.performance_fit import PerformanceData


def fit(
    studies: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STUDY]…", help="Names or ids of `tts runs`, of one model; else the newest."),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The performance model, JSON.")] = Path("performance.json"),
    unit: Annotated[str, typer.Option(help="Of cost, in which models are compared: usd, flops or tokens.")] = "usd",
    store: StoreFile = None,
    _: TrustPlaces = False,
) -> None:
    """Fit the accuracy of each strategy by difficulty and cost.

    Print how well the fit predicts held-out problems.

    Difficulty is read from recorded samples (`tts sample`), strategies from these and from runs on the same problems.
    Then --strategy "auto(model='FILE')" uses the model, for other problems than it was fitted to. Strategies may name
    models beside the policy, best_of_n(writer='large').
    """
    from tts.experiments.analysis.performance_fit import PerformanceData, described_keys, keys_of_import
    from tts.experiments.api import Study

    stored_studies = [Study.from_store(name, store=store) for name in studies or [None]]
    results = chain.from_iterable(study.results() for study in stored_studies)
    data = PerformanceData.of(results, unit=unit)
    imported = stored_studies[0].imported  # None: a study that this program ran
    if imported is not None:
        policy, task, models = keys_of_import(imported, data.cell)
    else:
        policy, task, models = described_keys(stored_studies[0].config, data.cell)
    model = data.fit(model=policy, task=task, models=models, source=", ".join(study.name for study in stored_studies))
    model.save(out)
    _print(data, model)
    typer.echo(f"\n{out}")


def _print(data: PerformanceData, model: PerformanceModel) -> None:
    """Print what was fitted, and how well it predicts."""
    from tts.experiments.analysis.performance_fit import PARTS, PILOTS
    from tts.experiments.output.tables import text_of
    from tts.experiments.output.words import list_facts

    mean_rate = model.population.weight @ model.population.rate
    facts, others = {"model": model.model, "task": model.task}, model.population.others
    if model.models:
        role_models = ", ".join(f"{role}={name}" for role, name in model.models.items())
        facts["beside it"] = f"{role_models}, by {model.unit}"
    facts |= {
        "verifiers": ", ".join(f"{role}={text}" for role, text in model.verifiers.items()) or "none",
        "problems": f"{model.problems:,}, one sample right {mean_rate:.1%} of the time",
        "wrong answers": f"{ {None: 'an unknown number', 0: 'endless'}.get(others, others) } beside the most tempting",
        "sample": f"{model.tokens:.1f} tokens",
        "first sample": "as the others" if model.first is None else f"at temperature {model.first:g}, which is better",
        "held out": f"a {PARTS}th of the problems at a time, predicted from {PILOTS} samples each",
    }
    rows = data.held_out()
    columns = {
        "strategy": [row.strategy for row in rows],
        "samples": [" to ".join(f"{size:.3g}" for size in row.sizes) for row in rows],  # the least and the most
        "accuracy": [f"{row.measured:.1%}" for row in rows],
        "predicted": [f"{row.predicted:.1%}" for row in rows],
        "calibration error": [f"{row.error:.1%}" for row in rows],
        "kept": ["yes" if row.strategy in model.curves else "no, plain samples are as good" for row in rows],
    }
    typer.echo(visible(list_facts(facts)))
    typer.echo(f"\n{visible(text_of(columns))}")
