"""The comparison as a page and two figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from research.methods import plans
from research.methods.choosing import Choices
from research.methods.claims import Claim, claims, live_ratio, points
from research.methods.measuring import BASELINE, LIVE_BASELINES, TRACED, Measured, point_difference, strongest_baseline
from research.stamps import stamp_line
from tts.experiments.analysis.comparing import gain
from tts.experiments.analysis.curves import AXES, Curve
from tts.experiments.analysis.replay import CHANCE, COVERAGE
from tts.experiments.output import plots
from tts.statistics import Estimate

# by the axis, the file without its ending
FIGURES = {"generated_tokens": "methods_generated", "tokens": "methods_total"}
GAIN_AXES = ("generated_tokens", "tokens", "flops")
NEVER = "–"
_FULL = 0.8  # of its budget; a method that spends less is named, with why


def write(choices: Choices, measured: Measured, folder: Path) -> None:
    """Write the page and its figures."""
    for axis, name in FIGURES.items():
        figure = plots.draw(_panels(measured.curves), axis, bands=False, front=False)
        for ending in (".png", ".svg"):
            plots.save(figure, folder / f"{name}{ending}")
    (folder / "methods.md").write_text("\n".join(page(choices, measured)) + "\n", encoding="utf-8")


def _panels(curves: Mapping[str, Curve]) -> list[Curve]:
    """Return the curves by panel, the baseline in each."""
    made: list[Curve] = []
    for panel, names in plans.PANELS.items():
        replayed = [*plans.REPLAYED, CHANCE, COVERAGE] if panel == "sampling" else [BASELINE]
        shown = [curves[name] for name in (*replayed, *names)]
        made += [dataclasses.replace(_cut_to_size(curve), group=panel) for curve in shown]
    return made


def _cut_to_size(curve: Curve) -> Curve:
    """Return a replayed curve up to the largest budget of the live curves."""
    if curve.kind == "live":
        return curve
    at = [i for i, samples in enumerate(curve.costs["samples"]) if samples <= plans.BUDGETS[-1]]
    costs = {axis: cost[at] for axis, cost in curve.costs.items()}
    return dataclasses.replace(curve, costs=costs, accuracy=[curve.accuracy[i] for i in at], shares=curve.shares[at])


def page(choices: Choices, measured: Measured) -> Iterator[str]:
    """Yield the lines of the page."""
    yield from (
        "# Search methods on the embedded pair",
        "",
        stamp_line(f"python -m research.methods --limit {measured.problems} --seeds {measured.seeds}"),
        "[Methods by verifier](methods_by_verifier.md) has searches by how often a verifier errs.",
        "",
        f"{measured.problems} problems, plain expressions of {_span(choices.operations)} operations with operands to "
        f"99; {measured.seeds} seed(s). The process model of `pocket` (`{plans.GUIDE}`) guides and chooses, or the "
        f"policy's own judgement where a name says *{plans.SELF_EVALUATED[2:]}*. The limit is on generated tokens: "
        f"{', '.join(map(str, plans.BUDGETS))} plain samples' worth, at {choices.sample} tokens each. Replayed rows "
        f"are of pools of {plans.POOL} samples, which no limit cuts. Differences are to the more accurate live "
        f"best-of-N at that budget ({_baselines(measured)}), those of these two and of replayed rows to `weighted`; p "
        "is corrected over all rows. *KV* is the most live tokens (*peak*) and the mean over levels (*kept*), of "
        f"{TRACED} problems, for {' and '.join(plans.KEPT)} of all.",
        "",
        "## What is claimed of them",
        "",
    )
    yield from _claims(claims(measured))
    yield from ("", *_ets(measured), "", "## All points", "")
    for axis, name in FIGURES.items():
        yield f"![Accuracy against {AXES[axis].title}, by method]({name}.svg)"
    yield ""
    yield from _table(measured)
    yield from ("", "## What the accuracy of best-of-N costs", "", *_gains(measured))
    yield from ("", f"## Who spends less than {_FULL:.0%} of a budget of four samples and more, and why", "")
    yield from _early_stops(measured)
    yield from ("", "## Plans", "", "| method | plan |", "| :-- | :-- |")
    yield from (
        f"| {name} | {code(plan)} |" for name, plan in {**plans.REPLAYED, **plans.LIVE, **choices.chosen}.items()
    )


def _gains(measured: Measured) -> Iterator[str]:
    """Yield the table of costs at equal accuracy, in tokens and in FLOPs."""
    base = max(LIVE_BASELINES, key=lambda name: measured.rows_of(name)[-1].accuracy.value)
    yield f"How many times less a method spends than `{plans.LIVE[base]}`, at the highest accuracy that both reach."
    yield from ("", "| method | at | generated | total | FLOPs |", "| :-- | --: | :-- | :-- | :-- |")
    for name in dict.fromkeys(row.name for row in measured.rows if row.kind == "live"):
        found = [
            gain(measured.curves[name], measured.curves[base], axis, rng=np.random.default_rng(0)) for axis in GAIN_AXES
        ]
        if name != base and found[0] is not None:
            cells = [NEVER if one is None else _ratio(one.ratio) for one in found]
            yield f"| {name} | {100 * found[0].accuracy:.1f} % | {' | '.join(cells)} |"


def _ratio(one: Estimate) -> str:
    return f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"


def _baselines(measured: Measured) -> str:
    return ", ".join(
        f"`{plans.LIVE[strongest_baseline(measured.rows, size)].split(' | ')[1]}` at {size}" for size in plans.BUDGETS
    )


def _span(operations: Sequence[int]) -> str:
    return (
        f"{operations[0]} to {operations[-1]}"
        if len(operations) == operations[-1] - operations[0] + 1
        else ", ".join(map(str, operations))
    )


def _claims(found: Sequence[Claim]) -> Iterator[str]:
    for one in found:
        yield f"- {one.text}: **{one.verdict}**."
        yield from (f"  - {figure}" for figure in one.figures)


def _ets(measured: Measured) -> Iterator[str]:
    """Yield the table of ETS beside REBASE."""
    yield "| ETS | budget | minus REBASE | times fewer live tokens | candidates are REBASE's |"
    yield "| :-- | --: | :-- | :-- | :-- |"
    for name in (name for name in plans.KEPT if name != "rebase"):
        for i, row in enumerate(measured.rows_of(name)):
            gap = points(point_difference(measured.curves[name], i, measured.curves["rebase"], i).mean)
            copies, kept = measured.copies.get((name, row.size)), live_ratio(measured, name, row.size)
            same = NEVER
            if copies is not None:
                same = f"{100 * copies.value:.0f} [{100 * copies.low:.0f}, {100 * copies.high:.0f}] %"
            fewer = NEVER if kept is None else _ratio(kept)
            yield f"| {name} | {row.size} | {gap.removesuffix(' points')} | {fewer} | {same} |"


def _table(measured: Measured) -> Iterator[str]:
    yield (
        "| method | points | budget | accuracy | generated | verifier | total | calls | KV peak | KV kept | "
        "difference | p (Holm) |"
    )
    yield "| :-- | :-- | --: | :-- | --: | --: | --: | --: | --: | --: | :-- | --: |"
    for row in measured.rows:
        cells = [
            row.name,
            row.kind,
            str(row.size),
            share(row.accuracy),
            f"{row.generated:.0f}",
            f"{row.verifier:.0f}",
            f"{row.total:.0f}",
            _number(row.calls),
            _number(row.peak),
            _number(row.kept),
            NEVER if row.difference is None else points(row.difference.mean).removesuffix(" points"),
            NEVER if row.p is None else "< 0.001" if row.p < 0.001 else f"{row.p:.3f}",
        ]
        yield f"| {' | '.join(cells)} |"


def _number(value: float | None) -> str:
    return NEVER if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def code(plan: str) -> str:
    """Return a plan as code within a table, whose cells a bar would end."""
    return f"`{plan}`".replace("|", "\\|")


def share(one: Estimate) -> str:
    """Return a share in percent with its interval."""
    return f"{100 * one.value:.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]"


def _early_stops(measured: Measured) -> Iterator[str]:
    yield "| method | budget | spent | stopped by |"
    yield "| :-- | --: | --: | :-- |"
    for row in measured.rows:
        if row.limit is not None and row.size >= 4 and row.generated < _FULL * row.limit:
            total = sum(row.stops.values())
            stops = ", ".join(f"{reason} {count / total:.0%}" for reason, count in list(row.stops.items())[:3])
            yield f"| {row.name} | {row.size} | {row.generated / row.limit:.0%} | {stops} |"
