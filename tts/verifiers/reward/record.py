"""Records of reward models, as YAML files.

A record describes what a model is shown and where its scores are read.

A record states the layout of problem and steps, and the separator after a step. It also states the token at which the
score is read, and what is read there. Separators and labels are texts and not token ids, because an id is right for one
tokenizer only. Each text must encode to the number of tokens that the record states; this is checked when the model is
loaded.

A record has no code. `records/` has those of this package; `load` takes the name of one, or the path of a YAML file.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tts._common.yaml_text import read_yaml
from tts.budget.budget import Rates
from tts.errors import ConfigError, unknown_name

SUFFIX = ".yaml"
Text = Annotated[str, Field(min_length=1)]
Layout = Literal["text", "parts", "reply", "turns"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Separator(_Strict):
    """The separator after every step; the score is read at its last token.

    Args:
        text: The separator.
        tokens: The number of its tokens.
        within: Treatment of a step whose text contains the separator. "refuse": the scores of it and of later steps are
            NaN, because the model would take a part of it for a step. "keep": it is read as it is (for example a
            newline within a step).
    """

    text: Text
    tokens: int = Field(default=1, ge=1, le=16)
    within: Literal["refuse", "keep"] = "refuse"


class Template(_Strict):
    """The layout of a problem and its steps. White space at the ends of steps is removed.

    Fields of `prompt`: `{problem}` is the problem's text, `{prompt}` the task's prompt for the policy, `{bos}` the
    tokenizer's beginning-of-sequence token as text. In the layout "turns", `{step}` is the first step.

    Args:
        layout: One of
            "text": the prompt, then steps and separators, encoded as one text;
            "parts": the same, with prompt, steps and separators encoded separately;
            "reply": a chat, in which steps and separators are one message of the assistant;
            "turns": a chat with one message of the user for each step, each followed by the message `answer` of the
            assistant; the score is read where the answer would start.
        prompt: Text before the steps ("reply": the user's message; "turns": the first message, with the first step in
            it).
        system: System message of the chat; None: none.
        between: Text between a separator and the next step ("text", "reply").
        separator: What stands after each step; None for "turns" and for outcome models.
        answer: The assistant's message after every step, for "turns".
    """

    layout: Layout
    prompt: Text = "{problem}"
    system: str | None = None
    between: str = ""
    separator: Separator | None = None
    answer: str = ""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        chat = self.layout in ("reply", "turns")
        if "{problem}" not in self.prompt and "{prompt}" not in self.prompt:
            raise ValueError(f"prompt is {self.prompt!r}, but must hold {{problem}} or {{prompt}}")
        if self.system is not None and not chat:
            raise ValueError(f"system is for chats, but the layout is {self.layout!r}")
        if self.between and self.layout not in ("text", "reply"):
            raise ValueError(f"between is for the layouts text and reply, but the layout is {self.layout!r}")
        if (self.layout == "turns") != bool(self.answer):
            raise ValueError(f"answer is {self.answer!r}, but the layout 'turns' needs one, and no other has one")
        if (self.layout == "turns") != ("{step}" in self.prompt):
            raise ValueError(
                f"prompt is {self.prompt!r}, but {{step}} belongs into that of the layout 'turns', and of no other"
            )
        if self.layout == "turns" and self.separator is not None:
            raise ValueError("separator is given, but the layout 'turns' has none: a turn ends each step")
        return self


class Labels(_Strict):
    """A readout of next-token probabilities: the score is the probability of one label among all labels.

    Args:
        good: The label whose probability is the score.
        bad: The other labels.
        tokens: The number of tokens of each label: one.
    """

    kind: Literal["labels"] = "labels"
    good: Text
    bad: tuple[Text, ...] = Field(min_length=1)
    tokens: Literal[1] = 1

    @model_validator(mode="after")
    def _check_distinct(self) -> Self:
        if len({self.good, *self.bad}) != 1 + len(self.bad):
            raise ValueError(f"good is {self.good!r} and bad {self.bad}, but all labels must differ")
        return self


class Layer(_Strict):
    """One linear layer of a head: the names of its tensors in the model's weights.

    The `bias` is None if it has none.
    """

    weight: Text
    bias: Text | None = None


class Head(_Strict):
    """A readout of the last hidden state: linear layers with ReLU between them.

    Args:
        layers: The layers from the hidden state to the outputs.
        outputs: The number of outputs of the last layer.
        activation: "softmax" over the outputs, "sigmoid" of the score's output, or "none".
        good: Index of the score's output, from 0.
        file: File with the tensors; "": they are in the model's weights.
    """

    kind: Literal["head"] = "head"
    layers: tuple[Layer, ...] = Field(min_length=1)
    outputs: int = Field(default=1, ge=1)
    activation: Literal["none", "sigmoid", "softmax"] = "sigmoid"
    good: int = Field(default=0, ge=0)
    file: str = ""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.good >= self.outputs:
            raise ValueError(f"good is {self.good}, but the head has {self.outputs} outputs, counted from 0")
        if self.activation == "softmax" and self.outputs < 2:
            raise ValueError("activation is 'softmax', but the softmax of one output is always 1")
        return self


class RewardRecord(_Strict):
    """A reward model, its layout and its readout.

    Args:
        name: The name of the record.
        model: A name of the models' registry, a Hub name, or a folder.
        kind: "process": one score for each step; "outcome": one score of the whole solution, read at the last token of
            its layout.
        architecture: `model_type` of the model's configuration; any other is refused when the model is loaded.
        template: See `Template`.
        readout: See `Labels` and `Head`.
        aggregation: The aggregation of the scores of steps to the score of the whole, for `aggregate="model"`.
        max_tokens: Most tokens that the model is shown; None: what its configuration allows. The scores of steps beyond
            are NaN.
        parameters: Weights used for one token, for FLOPs.
        licence: SPDX identifier or the licence's name; "": not stated.
        source: Where the fields are from.
        notes: Advice for users.
    """

    name: Annotated[str, Field(pattern=r"[A-Za-z0-9][\w.-]*")]
    model: Text
    kind: Literal["process", "outcome"] = "process"
    architecture: Text
    template: Template
    readout: Annotated[Labels | Head, Field(discriminator="kind")]
    aggregation: Literal["last", "min", "prod", "mean"] = "last"
    max_tokens: int | None = Field(default=None, ge=1)
    parameters: int | None = Field(default=None, ge=1)
    licence: str = ""
    source: Text
    notes: str = ""

    @model_validator(mode="after")
    def _reads(self) -> Self:
        is_outcome = self.kind == "outcome"
        has_separator = self.template.separator is not None
        if is_outcome and has_separator:
            raise ValueError("separator is given, but an outcome model reads the whole solution as one")
        if not is_outcome and not has_separator and self.template.layout != "turns":
            raise ValueError("separator is missing, but a process model is read at one after each step")
        return self

    @property
    def rates(self) -> Rates:
        """The cost of a token, by the number of parameters."""
        return Rates(flops=None if self.parameters is None else 2 * self.parameters)

    @property
    def range(self) -> tuple[float, float]:
        """The least and greatest score."""
        bare = isinstance(self.readout, Head) and self.readout.activation == "none"
        return (float("-inf"), float("inf")) if bare else (0.0, 1.0)


def names() -> list[str]:
    """Return the sorted names of the records in this package."""
    return sorted(entry.name.removesuffix(SUFFIX) for entry in _folder().iterdir() if entry.name.endswith(SUFFIX))


def load(name: str) -> RewardRecord:
    """Return a record of this package by its name, or of a YAML file by its path.

    Raises:
        ConfigError: there is no such record or file, or the file is not a valid record.
        MissingDependency: PyYAML is not installed.
    """
    if name in names():
        return parse((_folder() / f"{name}{SUFFIX}").read_text(encoding="utf-8"), f"the record {name!r}")
    if not name.endswith((SUFFIX, ".yml")):
        raise unknown_name("reward model", name, names())
    try:
        text = Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "it is not UTF-8 text"
        raise ConfigError(
            f"the record {name!r} cannot be read: {reason}",
            hint=f"give the path of a YAML file, or one of {', '.join(names())}",
        ) from None
    return parse(text, f"the record {name!r}")


def parse(text: str, what: str) -> RewardRecord:
    """Return the record in a YAML text; `what` names the text in messages.

    Raises:
        ConfigError: the text is not a valid record.
    """
    try:
        data = read_yaml(text, "record of a reward model", extra="engine")
    except ConfigError as failure:
        raise ConfigError(f"{what}: {failure.cause}", hint=failure.hint) from None
    if not isinstance(data, dict):
        raise ConfigError(
            f"{what} is a {type(data).__name__}, but must be fields with values",
            hint="see the records in tts/verifiers/reward/records/",
        )
    try:
        return RewardRecord.model_validate(data)
    except ValidationError as failure:
        fault = failure.errors()[0]
        field_path = ".".join(str(part) for part in fault["loc"])
        message = fault["msg"].removeprefix("Value error, ")
        raise ConfigError(
            f"{what} does not fit{': ' + field_path if field_path else ''}: {message}",
            hint="see the records in tts/verifiers/reward/records/",
        ) from None


def _folder() -> Any:
    return resources.files("tts.verifiers.reward") / "records"
