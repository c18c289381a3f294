"""Records of harnesses: YAML files that state how a coding agent runs, and how it calls the model.

    name: mine
    command: [my-agent, --task-file, "{prompt_file}", --model, "{model}"]
    environment: {OPENAI_BASE_URL: "{url}/v1", OPENAI_API_KEY: "{key}"}
    install: pip install my-agent

A record has no code. `command` is a program and its arguments, and runs without a shell. The program is found on PATH.
The prompt is on standard input, and in the file `{prompt_file}`. `records/` has the records of this package.
`find_record` takes the name of such a record, or the path of a YAML file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, field_validator, model_validator

from tts._common.sections import Section
from tts.errors import ConfigError, quote

SUFFIXES: Final = (".yaml", ".yml")
_FIELD = re.compile(r"\{([a-z_]+)\}")
_OF_MODEL = frozenset({"url", "key", "model"})
_RESERVED = ("HOME", "PATH", "TMPDIR", "LD_PRELOAD")
_KIND = "record of a harness"
Text = Annotated[str, Field(min_length=1)]


class TrustedUsage(Section):
    """The usage that a harness reports, where it calls a model with its own login.

    Paths are names joined by points. They point into the JSON that the harness writes to `{report_file}`, or prints as
    its last line.

    Args:
        passes: The variables of the user's environment that the harness gets, such as the variable with its key.
        tokens: The path of the number of generated tokens.
        message: The path of the last message; "": the message is the printed text.
    """

    passes: list[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]] = Field(min_length=1)
    tokens: Text
    message: str = ""


class HarnessRecord(Section):
    """A coding agent, and the way in which it runs for one task.

    Texts may have the fields `{prompt}`, `{prompt_file}`, `{url}` (the gateway, without a path), `{key}`, `{model}`,
    `{home}` and `{report_file}`. Other braces stay as they are.

    Args:
        name: The name of the record.
        command: The program and its arguments.
        environment: Further variables of the agent's environment.
        leaves: Names of files that the agent leaves in the folder of the task, such as `.mine.cache*`. These files are
            no part of a patch.
        files: Files that are written before the start, by their paths below the agent's empty home.
        trust_usage: The report of usage of an agent that calls a model with its own login. The report counts as an
            estimate. None: the agent calls a model of the workspace.
        install: Instructions for installing the program, for people.
        source: The source of the fields.
        notes: Advice for users.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*$")]
    command: list[Text] = Field(min_length=1)
    environment: dict[str, str] = Field(default_factory=dict[str, str])
    files: dict[str, str] = Field(default_factory=dict[str, str])
    leaves: list[Annotated[str, Field(pattern=r"^\.[^/]+$")]] = Field(default_factory=list[str])
    trust_usage: TrustedUsage | None = None
    install: str = ""
    source: str = ""
    notes: str = ""

    @field_validator("command")
    @classmethod
    def _words(cls, words: list[str]) -> list[str]:
        """Refuse a command whose first word is no program, or in which a prompt may become an option."""
        if _FIELD.search(words[0]) or words[0].startswith("-"):
            raise ConfigError(f"command begins with {quote(words[0])}, but must begin with the name of a program")
        if "{prompt}" in words:
            raise ConfigError(
                "command has the argument {prompt} alone, which a prompt that begins with - would turn into an option",
                hint="write --task={prompt}, or use {prompt_file} or standard input",
            )
        return words

    @field_validator("environment")
    @classmethod
    def _variables(cls, variables: dict[str, str]) -> dict[str, str]:
        for name in variables:
            if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in _RESERVED or name.startswith("TTS_"):
                raise ConfigError(f"environment has the variable {quote(name)}, which a record cannot set")
        return variables

    @field_validator("files")
    @classmethod
    def _paths(cls, files: dict[str, str]) -> dict[str, str]:
        for name in files:
            path = Path(name)
            if path.is_absolute() or ".." in path.parts or not path.parts:
                raise ConfigError(f"files has {quote(name)}, but must have paths below the home of the agent")
        return files

    @model_validator(mode="after")
    def _fields(self) -> HarnessRecord:
        """Refuse a record whose fields do not fit the place from which it gets its model."""
        used_fields = {field for text in self.texts for field in _FIELD.findall(text)}
        if self.trust_usage is not None and not used_fields.isdisjoint(_OF_MODEL):
            raise ConfigError(
                "trust_usage is given, but the record uses {url}, {key} or {model}, which are those of a model here"
            )
        if self.trust_usage is None and not {"url", "key"} <= used_fields:
            raise ConfigError(
                "the record does not use both {url} and {key}, so that its calls would not reach the model",
                hint="or set trust_usage",
            )
        return self

    @property
    def texts(self) -> list[str]:
        """All texts that may have fields."""
        return [*self.command, *self.environment.values(), *self.files.values()]


def fill_fields(text: str, values: Mapping[str, str]) -> str:
    """Return a text with values in place of its fields; a field without a value stays as it is."""
    return _FIELD.sub(lambda match: values.get(match[1], match[0]), text)


def has_fields(text: str) -> bool:
    """Return whether a text has a field of the model that no value has replaced."""
    return not _OF_MODEL.isdisjoint(_FIELD.findall(text))


def names() -> list[str]:
    """Return the sorted names of the records in this package."""
    return sorted(path.stem for path in _folder().glob(f"*{SUFFIXES[0]}"))


def find_record(name: str) -> HarnessRecord | None:
    """Return a record of this package by its name, or the record in a YAML file by its path.

    Args:
        name: The name or the path. If it is neither, the result is None.

    Raises:
        ConfigError: The file cannot be read, or is no valid record. The message names the field and the rule.
        MissingDependency: PyYAML is not installed.
    """
    if name in names():
        return HarnessRecord.read_file(_folder() / f"{name}{SUFFIXES[0]}", _KIND, extra="serve")
    if not name.endswith(SUFFIXES):
        return None
    return HarnessRecord.read_file(Path(name).expanduser(), _KIND, extra="serve")


def _folder() -> Path:
    return Path(__file__).parent / "records"
