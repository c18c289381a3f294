"""Records of reward models, as YAML files.

A record describes what a model is shown and where its scores are read.

A record states the layout of problem and steps, and the separator after a step. It also states the token at which the
score is read, and what is read there. Separators and labels are texts and not token ids, because an id is right for one
tokenizer only. Each text must encode to the number of tokens that the record states; this is checked when the model is
loaded.

A record has no code. `records/` has those of this package; `load` takes the name of one, or the path of a YAML file. It
also makes the record of a folder with a classifier, as trainers write it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from tts._common.sections import Section
from tts.budget.budget import Rates
from tts.checks import read_text
from tts.errors import ConfigError, unknown_name

SUFFIX = ".yaml"
_FOLDER = Path(__file__).parent / "records"
Text = Annotated[str, Field(min_length=1)]
Layout = Literal["text", "parts", "reply", "turns"]


class _Fields(Section):
    model_config = ConfigDict(strict=False)  # lists of YAML become tuples


class Separator(_Fields):
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


class Template(_Fields):
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
            raise ConfigError(f"prompt is {self.prompt!r}, but must hold {{problem}} or {{prompt}}")
        if self.system is not None and not chat:
            raise ConfigError(f"system is for chats, but the layout is {self.layout!r}")
        if self.between and self.layout not in ("text", "reply"):
            raise ConfigError(f"between is for the layouts text and reply, but the layout is {self.layout!r}")
        if (self.layout == "turns") != bool(self.answer):
            raise ConfigError(f"answer is {self.answer!r}, but the layout 'turns' needs one, and no other has one")
        if (self.layout == "turns") != ("{step}" in self.prompt):
            raise ConfigError(
                f"prompt is {self.prompt!r}, but {{step}} belongs into that of the layout 'turns', and of no other"
            )
        if self.layout == "turns" and self.separator is not None:
            raise ConfigError("separator is given, but the layout 'turns' has none: a turn ends each step")
        return self


class Labels(_Fields):
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
            raise ConfigError(f"good is {self.good!r} and bad {self.bad}, but all labels must differ")
        return self


class Layer(_Fields):
    """One linear layer of a head: the names of its tensors in the model's weights.

    The `bias` is None if it has none.
    """

    weight: Text
    bias: Text | None = None


class Head(_Fields):
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
            raise ConfigError(f"good is {self.good}, but the head has {self.outputs} outputs, counted from 0")
        if self.activation == "softmax" and self.outputs < 2:
            raise ConfigError("activation is 'softmax', but the softmax of one output is always 1")
        return self


class RewardRecord(_Fields):
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
            raise ConfigError("separator is given, but an outcome model reads the whole solution as one")
        if not is_outcome and not has_separator and self.template.layout != "turns":
            raise ConfigError("separator is missing, but a process model is read at one after each step")
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
    return sorted(path.stem for path in _FOLDER.glob(f"*{SUFFIX}"))


def load(name: str) -> RewardRecord:
    """Return a record of this package by its name, or of a YAML file or a classifier's folder by its path.

    Raises:
        ConfigError: there is no such record, file or folder, the file is not a valid record, or the folder has no
            classifier of this form.
        MissingDependency: PyYAML is not installed.
    """
    folder = Path(name).expanduser()
    if folder.is_dir() and name not in names():
        return _record_of_folder(folder)
    is_file = name.endswith((SUFFIX, ".yml"))
    if not is_file and name not in names():
        raise unknown_name("reward model", name, names())
    path = Path(name).expanduser() if is_file else _FOLDER / f"{name}{SUFFIX}"
    return RewardRecord.read_file(path, "record of a reward model", extra="engine")


def _record_of_folder(folder: Path) -> RewardRecord:
    """Return the record of a classifier that transformers has saved.

    A classifier of sequences reads the chat of problem and solution at its last token. A classifier of tokens reads
    each step at a newline behind it, as TRL's `PRMTrainer` trains it. One output is the score; of two, the score is the
    probability of the second class.

    Raises:
        ConfigError: the folder has no configuration, or another model, or a classifier of more than two classes.
    """
    text = read_text("the configuration of a reward model", folder / "config.json", "give the folder of a saved model")
    try:
        config: dict[str, Any] = dict(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        raise ConfigError(f"{folder / 'config.json'} is no JSON object", hint="save the model again") from None
    architecture = str((config.get("architectures") or ["model of no stated architecture"])[0])
    is_process = architecture.endswith("ForTokenClassification")
    outputs = len(config.get("id2label") or (0, 1))  # transformers leaves out the default of two
    if not (is_process or architecture.endswith("ForSequenceClassification")) or outputs > 2:
        found = f"{architecture} of {outputs} classes" if architecture.endswith("Classification") else architecture
        raise ConfigError(
            f"{folder} has a {found}, but a folder is read as a classifier of sequences or tokens of 1 or 2 classes",
            hint="describe it in a YAML file: reward(record='mine.yaml'); its keys are in docs/how-to/reward_models.md",
        )
    layer = Layer(weight="score.weight", bias="score.bias" if is_process else None)
    activation = "softmax" if outputs == 2 else "sigmoid" if is_process else "none"
    return RewardRecord(
        name=f"folder-{re.sub(r'[^a-zA-Z0-9_.-]', '-', folder.resolve().name)}",
        model=str(folder),
        kind="process" if is_process else "outcome",
        architecture=str(config.get("model_type")),
        template=Template(layout="parts", separator=Separator(text="\n")) if is_process else Template(layout="reply"),
        readout=Head(layers=(layer,), outputs=outputs, activation=activation, good=outputs - 1),
        source=f"{folder / 'config.json'}",
    )
