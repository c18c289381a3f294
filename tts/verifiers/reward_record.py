"""What a published reward model needs to be asked rightly, as data: a record in a YAML file, for ours, theirs and yours.

Idea: everything that peers write as code for each reward model is here a few named texts: how the problem and the steps are
    laid out, what stands behind a step, at which token the score is read, and what is read there. Separators and labels are
    texts, never token ids: an id is right for one tokenizer only and wrong without a word for all others. When the model is
    loaded, each text must be as many tokens as the record states, else the record is refused.

    A record is data: nothing in it is run. `records/` holds ours; `load` takes the name of one, or the path of a YAML file.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tts.errors import ConfigError, missing_extra, unknown_name

FOLDER = "tts.verifiers"
SUFFIX = ".yaml"
Text = Annotated[str, Field(min_length=1)]
Layout = Literal["text", "parts", "reply", "turns"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Separator(_Strict):
    """What stands behind every step, and is read there.

    Args:
        text: as it is written. tokens: how many tokens it is to the model, of which the last is read.
        within: what becomes of a step whose own text holds the separator. "refuse": it and the steps behind it stay unknown, for
            the model would take a part of it for a whole step. "keep": it is read as it is (a newline that ends steps may stand in one).
    """

    text: Text
    tokens: int = Field(default=1, ge=1, le=16)
    within: Literal["refuse", "keep"] = "refuse"


class Template(_Strict):
    """How a problem and its steps are laid out for the model. Steps are shown without white space at their ends.

    In `prompt`, `{problem}` is the problem's text, `{prompt}` what the task makes of it for the policy, `{bos}` the text of the
    tokenizer's beginning of sequence; in `turns`, `{step}` is the first step.

    Args:
        layout: "text": prompt, then step and separator in turn, encoded as one text. "parts": the same, but prompt, steps and
            separators are encoded each by itself and their tokens joined. "reply": messages of a chat, in which the steps with
            their separators are the assistant's one reply. "turns": messages of a chat, one turn of the user a step, each
            answered by `answer`; the score is read where the answer would begin.
        prompt: before the steps ("reply": the user's message; "turns": the first turn, with the first step in it).
        system: the chat's system message; None: none. between: text between a separator and the next step ("text", "reply").
        separator: behind each step; None for "turns", and for an outcome model.
        answer: of "turns", what the assistant says to every step.
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
            raise ValueError(f"prompt is {self.prompt!r}, but {{step}} belongs into that of the layout 'turns', and of no other")
        if self.layout == "turns" and self.separator is not None:
            raise ValueError("separator is given, but the layout 'turns' has none: a turn ends each step")
        return self


class Labels(_Strict):
    """The probability of one label among labels, as what the model would write next.

    Args:
        good: the label whose probability is the score. bad: the others. tokens: how many tokens each label is: one.
    """

    kind: Literal["labels"] = "labels"
    good: Text
    bad: tuple[Text, ...] = Field(min_length=1)
    tokens: Literal[1] = 1

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if len({self.good, *self.bad}) != 1 + len(self.bad):
            raise ValueError(f"good is {self.good!r} and bad {self.bad}, but every label must be another")
        return self


class Layer(_Strict):
    """One linear layer of a head: names of its tensors in the model's weights. bias: None where it has none."""

    weight: Text
    bias: Text | None = None


class Head(_Strict):
    """A head on the last hidden state: linear layers with ReLU between them.

    Args:
        layers: in order, the last one first asked for its outputs. outputs: how many numbers the last layer gives.
        activation: "softmax" over the outputs, "sigmoid" of the one, or "none".
        good: which output is the score, from 0. file: holds the tensors; "": they are among the model's weights.
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
            raise ValueError("activation is 'softmax', but of one output that is always 1")
        return self


class RewardRecord(_Strict):
    """A reward model, and how it is asked.

    Args:
        name: what it is asked for by. model: a name of the models' registry, a Hub name, or a folder.
        kind: "process": one score a step; "outcome": one score of the whole solution, read at the last token of its layout.
        architecture: `model_type` of its configuration; another one is refused when it is loaded.
        template, readout: see there. aggregation: of steps to the score of the whole, which `aggregate="model"` asks for.
        max_tokens: it is not shown more; None: what its configuration allows. Steps that do not fit stay unknown.
        parameters: weights that a token passes, for FLOPs. licence: SPDX identifier or the licence's name; "": not stated.
        source: where all this is from. notes: what a user should know.
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
        outcome, separated = self.kind == "outcome", self.template.separator is not None
        if outcome and separated:
            raise ValueError("separator is given, but an outcome model reads the whole solution as one")
        if not (outcome or separated or self.template.layout == "turns"):
            raise ValueError("separator is missing, but a process model is read at one behind each step")
        return self

    @property
    def range(self) -> tuple[float, float]:
        """The least and greatest score."""
        bare = isinstance(self.readout, Head) and self.readout.activation == "none"
        return (float("-inf"), float("inf")) if bare else (0.0, 1.0)


def names() -> list[str]:
    """Return the names of the records in this package, sorted."""
    return sorted(entry.name.removesuffix(SUFFIX) for entry in _folder().iterdir() if entry.name.endswith(SUFFIX))


def load(name: str) -> RewardRecord:
    """Return a record: of this package by name, else of a YAML file by its path.

    Raises:
        ConfigError: there is neither, or the file is no record; the message names the field and the rule.
        MissingDependency: no reader of YAML is installed.
    """
    if name in names():
        return parse((_folder() / f"{name}{SUFFIX}").read_text(encoding="utf-8"), f"the record {name!r}")
    if not name.endswith((SUFFIX, ".yml")):
        raise unknown_name("reward model", name, names())
    try:
        text = Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as failure:
        why = failure.strerror if isinstance(failure, OSError) else "it is not UTF-8 text"
        raise ConfigError(
            f"the record {name!r} cannot be read: {why}", hint=f"give the path of a YAML file, or one of {', '.join(names())}"
        ) from None
    return parse(text, f"the record {name!r}")


def parse(text: str, what: str) -> RewardRecord:
    """Return the record that a text in YAML holds; `what`: the text, for messages.

    Raises:
        ConfigError: it holds none.
    """
    try:
        import yaml
    except ModuleNotFoundError:
        raise missing_extra("pyyaml", "engine", "reading the record of a reward model") from None
    try:
        data: Any = yaml.safe_load(text)
    except yaml.YAMLError as failure:
        raise ConfigError(f"{what} is no YAML: {' '.join(str(failure).split())}") from None
    if not isinstance(data, dict):
        raise ConfigError(
            f"{what} is a {type(data).__name__}, but must be fields with values", hint="see the records in tts/verifiers/records/"
        )
    try:
        return RewardRecord.model_validate(data)
    except ValidationError as failure:
        first = failure.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        raise ConfigError(
            f"{what} does not fit{': ' + where if where else ''}: {said}", hint="see the records in tts/verifiers/records/"
        ) from None


def _folder() -> Any:
    return resources.files(FOLDER) / "records"
