"""What the file of a performance model must hold: every field is checked before anything goes by it.

A damaged file is refused in one line: which field of which file has which value, what the rule is, and what cures it.

Shapes: G success rates, L lures, B sizes, D width of hidden states.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Final, Self

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from tts._common.scopes import file_scope
from tts._common.sections import Section, main_fault, refusal
from tts.allocator.difficulty import LURES, RATES, Population
from tts.allocator.gauges import Gauge, PromptProbe, Reading
from tts.allocator.performance_file import FORMAT, PLAIN, REFIT, Unit, draws_plain, other_models
from tts.errors import ConfigError, TTSError, quote
from tts.search.needs import needs_of
from tts.search.parts import Plan
from tts.search.plan import parse

_ROUNDED: Final = 1e-5  # of numbers that are written with six digits
_LARGE: Final = 2**63  # what no number of a file reaches
_BY_RATE: Final = Field(min_length=len(RATES), max_length=len(RATES))
_BY_LURE: Final = Field(min_length=len(LURES), max_length=len(LURES))

_Text = Annotated[str, Field(min_length=1)]
_Number = Annotated[float, Field(gt=-_LARGE, lt=_LARGE)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Least0 = Annotated[_Number, Field(ge=0)]
_Above0 = Annotated[_Number, Field(gt=0)]
_Six = Annotated[list[_Number], Field(min_length=6, max_length=6)]


class _Part(Section):
    model_config = ConfigDict(allow_inf_nan=False)


class _Population(_Part):
    rates: Annotated[list[_Share], _BY_RATE]
    share: Annotated[list[Annotated[list[_Least0], _BY_LURE]], _BY_RATE]
    problems: Annotated[int, Field(ge=0, lt=_LARGE)]
    others: Annotated[int, Field(ge=0, lt=_LARGE)] | None = None

    @model_validator(mode="after")
    def check(self) -> Self:
        """Refuse other success rates than those of this version, and shares that do not sum to 1."""
        for place, (given_rate, rate) in enumerate(zip(self.rates, RATES.tolist(), strict=True)):
            if abs(given_rate - rate) > _ROUNDED:
                raise ConfigError(
                    f"rates[{place}] is {given_rate:g}, but must be {rate:.6f}, the success rate that this version has "
                    "there"
                )
        if not abs(np.sum(self.share) - 1) <= _ROUNDED * np.size(self.share):
            raise ConfigError(f"share sums to {np.sum(self.share):.6g}, but must sum to 1: it is of all problems")
        return self


class _Curve(_Part):
    sizes: Annotated[list[_Above0], Field(min_length=1)]
    accuracy: Annotated[list[list[_Share]], _BY_RATE]
    error: Annotated[list[list[_Least0]], _BY_RATE]
    limits: list[_Above0] | None = None
    costs: Annotated[list[list[_Above0]], _BY_RATE] | None = None

    @model_validator(mode="after")
    def check(self) -> Self:
        """Refuse sizes that do not rise, rows without one value a size, and limits below the sizes."""
        if self.sizes != sorted(set(self.sizes)):
            raise ConfigError(f"sizes is {quote(self.sizes)}, but each must be above the size before it")
        for name, table in (("accuracy", self.accuracy), ("error", self.error), ("costs", self.costs or ())):
            for place, row in enumerate(table):
                if len(row) != len(self.sizes):
                    raise ConfigError(
                        f"{name}[{place}] has {len(row)} values, but must have {len(self.sizes)}, one a size"
                    )
        if self.limits is None:
            return self
        if len(self.limits) != len(self.sizes):
            raise ConfigError(f"limits has {len(self.limits)} values, but must have {len(self.sizes)}, one a size")
        for place, (limit, size) in enumerate(zip(self.limits, self.sizes, strict=True)):
            if limit < size * (1 - _ROUNDED):
                raise ConfigError(
                    f"limits[{place}] is {limit:g}, but must be at least {size:g}, the size that it allowed"
                )
        return self


class _Piloted(_Part):
    limits: Annotated[list[_Above0], Field(min_length=1)]
    accuracy: list[_Share]

    @model_validator(mode="after")
    def check(self) -> Self:
        """Refuse limits that do not rise, and limits without one accuracy each."""
        if self.limits != sorted(set(self.limits)):
            raise ConfigError(f"limits is {quote(self.limits)}, but each must be above the limit before it")
        if len(self.accuracy) != len(self.limits):
            raise ConfigError(
                f"accuracy has {len(self.accuracy)} values, but must have {len(self.limits)}, one a limit"
            )
        return self


class _File(_Part):
    format: int
    model: _Text
    task: _Text
    verifiers: dict[str, _Text]
    source: _Text
    problems: Annotated[int, Field(ge=1, lt=_LARGE)]
    tokens: _Above0
    first: Annotated[float, Field(ge=0, le=100)] | None = None
    models: dict[str, _Text] = Field(default_factory=dict)
    unit: Unit = "tokens"
    population: _Population
    curves: dict[str, _Curve]
    gauges: dict[Reading, Annotated[_Six, AfterValidator(lambda numbers: Gauge(*numbers))]] = Field(
        default_factory=dict
    )
    probe: Annotated[list[_Number], Field(min_length=2)] | None = None  # weights and a bias
    piloted: _Piloted | None = None

    @field_validator("format")
    @classmethod
    def check_format(cls, value: int) -> int:
        """Refuse another format, of which the other fields may be other ones."""
        if value != FORMAT:
            raise ConfigError(f"it is {value}, but must be {FORMAT}, the format that this version reads")
        return value

    @model_validator(mode="after")
    def check(self) -> Self:
        """Refuse curves of strategies that cannot be chosen, and a probe without its gauge."""
        if (self.probe is None) != ("probe" not in self.gauges):
            has, lacks = ("gauges.probe", "probe") if self.probe is None else ("probe", "gauges.probe")
            raise ConfigError(f"it has {has} and no {lacks}, but the gauge reads what the probe says")
        plans = [self._plan(name) for name in self.curves]
        if not any(map(draws_plain, plans)):
            curve_names = ", ".join(self.curves) or "nothing"
            raise ConfigError(f"curves is of {curve_names}, but must have one of {PLAIN}, which draws plain samples")
        return self

    def _plan(self, name: str) -> Plan:
        """Return the plan of a curve.

        Raises:
            ConfigError: the name is of no strategy that `auto` may choose here.
        """
        try:
            plan = parse(name, file_scope())
        except TTSError as failure:
            cure = "or install the package that has it"
            raise ConfigError(
                f"curves.{name} is of no strategy that is here: {failure.cause}",
                hint=f"{failure.hint}; {cure}" if failure.hint else cure,
            ) from None
        if plan.strategy.registered_as == "auto":
            raise ConfigError(f"curves.{name} is of auto, but must be of a strategy that auto may choose")
        for role in other_models(plan.strategy):
            if role not in self.models:
                raise ConfigError(f"curves.{name} writes with the role {role!r}, but models has no model of it")
        if plan.stopping is not None and needs_of(plan.stopping).verifiers:
            raise ConfigError(
                f"curves.{name} has the stop rule {plan.stopping}, but auto runs those alone that read no verifier",
                hint="such as first_finish or sprt",
            )
        return plan


def fields_of(text: str, *, file: str = "", cure: str = REFIT) -> dict[str, Any]:
    """Return the fields of the `PerformanceModel` that a text holds as JSON, by name.

    A curve is a tuple of the fields of `PerformanceCurve`: sizes [B], accuracy [G, B], its error [G, B], limits [B] or
    None, and costs [G, B] or None. A piloted curve is a tuple of limits and accuracy.

    Args:
        text: The JSON text.
        file: The name of the file with the text, for errors; "": there is no file.
        cure: The cure for a damaged text, for errors.

    Raises:
        ConfigError: the text is no such model; the error names a field that is wrong.
    """
    try:
        data = _File.model_validate_json(text)
    except ValidationError as failure:
        faults: Any = failure.errors(include_url=False)
        format_faults = [fault for fault in faults if fault["loc"] == ("format",)]
        fault = format_faults[0] if format_faults else main_fault(failure)
        field_refusal = refusal(fault, _File, "the file")
        cause = f"it is no JSON: {fault['ctx']['error']}" if fault["type"] == "json_invalid" else field_refusal.cause
        model_text = f"the performance model {file!r}" if file else "the performance model"
        hints = [hint for hint in (cure, field_refusal.hint) if hint]
        raise ConfigError(f"{model_text}: {cause}", hint="; ".join(hints)) from None
    fields = {name: value for name, value in data if name != "format"}
    grid, share = Population.from_rates(np.ones(len(RATES))), np.array(data.population.share)
    problems, others = data.population.problems, data.population.others
    weight = share.ravel() / share.sum()
    fields["population"] = dataclasses.replace(grid, weight=weight, problems=problems, others=others)
    fields["curves"] = {
        name: tuple(None if values is None else np.array(values) for _, values in curve)
        for name, curve in data.curves.items()
    }
    if data.piloted is not None:
        fields["piloted"] = np.array(data.piloted.limits), np.array(data.piloted.accuracy)
    if data.probe is not None:
        *weights, bias = data.probe
        fields["probe"] = PromptProbe(weight=np.array(weights), bias=bias)
    return fields
