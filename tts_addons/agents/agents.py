"""Agents: programs that change the files of a folder, and the protocol by which they run for one turn.

An agent runs in the folder, with an empty home, and with these variables alone: `PATH`, `LANG`, `VIRTUAL_ENV`,
`TMPDIR`, `HOME`, and

- `TTS_RUN`: a name of the run, by which all its processes are ended;
- `TTS_PROMPT_FILE`: a file with the task, which is also on standard input;
- `TTS_SEED`: a whole number that differs between runs, as the seed of an agent that draws at random;
- `TTS_MAX_TOKENS`: the most tokens that the run may take;
- `TTS_REPORT_FILE`: a file to which the agent may write, in JSON, its last `message`, its `tokens`, and its `status`;
- `TTS_SESSION_FILE`: a file whose content is kept for the next run, which goes on from the state that this run left.

An agent that calls a model of the workspace also gets the model's name in `TTS_MODEL`, and the variables of
`MODEL_VARIABLES`: the url, and a key that is valid for its row alone. Its tokens are counted by the model.

The status is "finished"; "cut", where the tokens did not suffice; or "turn", where the agent goes on in its next run.
An agent with "turn" has `resumes`, and runs a turn at a time. Without a report, the message is the end of the agent's
output.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tts.errors import ConfigError, unknown_name
from tts_addons.agents import toy_agent
from tts_addons.agents.git import read_bytes
from tts_addons.agents.leases import Loan
from tts_addons.agents.processes import MOST_OUTPUT, ProcessEnd
from tts_addons.agents.record import (
    SUFFIXES,
    HarnessRecord,
    TrustedUsage,
    fill_fields,
    find_record,
    has_fields,
    names,
)

Status = Literal["finished", "turn", "cut", "failed", "stopped"]
_INHERITED_VARIABLES = ("PATH", "LANG", "LC_ALL", "VIRTUAL_ENV")
_COMMAND = "command:"
_MESSAGE = 2000  # characters of output that serve as the message of an agent without a report
_MOST_SESSION = 16 << 20  # bytes of a session file
MODEL_VARIABLES: Final[Mapping[str, str]] = {
    "TTS_MODEL": "{model}",
    "OPENAI_BASE_URL": "{url}/v1",
    "OPENAI_API_KEY": "{key}",
    "ANTHROPIC_BASE_URL": "{url}",
    "ANTHROPIC_API_KEY": "{key}",
}


@dataclass(frozen=True, slots=True)
class Agent:
    """A program that changes the files of a folder.

    Attributes:
        name: The name in results.
        command: The program and its arguments, which run without a shell.
        resumes: Whether the agent runs a turn at a time, with a session that goes on.
        draws_by_seed: Whether equal files, prompts, seeds and sessions give equal runs.
        counts_tokens: Whether the agent reports its tokens before it acts. If so, a run without a report took none.
        environment: Further variables, in which `{url}`, `{key}` and `{model}` stand for the values of a model. Without
            a model, variables with these fields are left out.
        files: Files below the agent's empty home, written before the start.
        leaves: Names of files that the agent leaves in the folder and that are no part of a patch.
        trusted: The report of usage of an agent that calls a model with its own login; None: there is none.
        model: Whether the agent "may" call a model of the workspace, "needs" one, or calls "none".
    """

    name: str
    command: tuple[str, ...]
    resumes: bool = False
    draws_by_seed: bool = False
    counts_tokens: bool = False
    environment: Mapping[str, str] = field(default_factory=lambda: MODEL_VARIABLES)
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    leaves: tuple[str, ...] = ()
    trusted: TrustedUsage | None = None
    model: Literal["may", "needs", "none"] = "may"


TOY = Agent(
    "toy",
    (sys.executable, "-I", "-S", str(Path(toy_agent.__file__))),
    resumes=True,
    draws_by_seed=True,
    counts_tokens=True,
    model="none",
)


def find_agent(given: str | Agent) -> Agent:
    """Return an agent by its name or by a path.

    The text is "toy", the name of a harness, the path of a harness's record, or "command:PATH" for a program.

    Raises:
        ConfigError: There is no such agent, or no such program.
    """
    if isinstance(given, Agent):
        return given
    if given == TOY.name:
        return TOY
    if not given.startswith(_COMMAND):
        record = find_record(given)
        if record is not None:
            return _harness(record)
        raise unknown_name("agent", given, [TOY.name, *names(), f"{_COMMAND}PATH", f"RECORD{SUFFIXES[0]}"])
    path = given.removeprefix(_COMMAND)
    program = _find_program(path)
    if program is None:
        raise ConfigError(
            f"agent is {given!r}, but {path!r} is no program that can be run",
            hint="give the path of an executable file",
        )
    return Agent(given, (program,))


def _find_program(name: str) -> str | None:
    """Return the absolute path of a program, given by its path or by a name on PATH; None: there is none."""
    return shutil.which(str(Path(name).absolute()) if os.sep in name else name)


def _harness(record: HarnessRecord) -> Agent:
    """Return the agent that a record describes.

    Raises:
        ConfigError: The program is not installed.
    """
    name, *arguments = record.command
    program = _find_program(name)
    if program is None:
        raise ConfigError(
            f"agent is {record.name!r}, but its program {name!r} is not found on PATH",
            hint=record.install or "install it",
        )
    return Agent(
        record.name,
        (program, *arguments),
        environment=record.environment,
        files=record.files,
        leaves=tuple(record.leaves),
        trusted=record.trust_usage,
        model="needs" if record.trust_usage is None else "none",
    )


@dataclass(frozen=True, slots=True)
class AgentTurn:
    """The result of one run of an agent.

    Attributes:
        status: The agent's own status, "finished", "turn" or "cut"; "failed"; or "stopped", if the agent was stopped.
        message: The agent's message.
        tokens: The tokens that the run took.
        session: The content of the session file, for the next run.
        error: The error of a failed run as "kind: cause"; "": none.
    """

    status: Status
    message: str
    tokens: int
    session: bytes = b""
    error: str = ""


def make_environment(folder: Path) -> dict[str, str]:
    """Make an empty home below a folder, and return a program's whole environment.

    The program gets only a few variables of the user's environment.

    Args:
        folder: An empty folder outside of the fork.
    """
    home, temporary = folder / "home", folder / "tmp"
    home.mkdir()
    temporary.mkdir()
    environment = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    environment |= {"HOME": str(home), "TMPDIR": str(temporary)}
    return environment


class TurnFiles:
    """The files by which an agent gets its task and reports.

    Args:
        folder: An empty folder outside of the fork.
        prompt: The task.
        session: The session of the last run; b"": there is none.
        loan: The key of the row; None: the agent calls no model of the workspace.
    """

    def __init__(self, folder: Path, prompt: str, session: bytes, loan: Loan | None = None) -> None:
        self._environment = make_environment(folder)
        self._loan = loan
        self.prompt = folder / "prompt.txt"
        self.session = folder / "session"
        self.report = folder / "report.json"
        self.prompt.write_text(prompt, encoding="utf-8", errors="replace")
        if session:
            self.session.write_bytes(session)

    def fields(self) -> dict[str, str]:
        """Return the values of the fields in an agent's texts, by field."""
        values = {
            "prompt": self.prompt.read_text(encoding="utf-8").replace("\0", ""),  # arguments cannot have zero bytes
            "prompt_file": str(self.prompt),
            "report_file": str(self.report),
            "home": self._environment["HOME"],
        }
        if self._loan is not None:
            values |= {"url": self._loan.url, "key": self._loan.key, "model": self._loan.model}
        return values

    def begin(self, agent: Agent) -> tuple[str, ...]:
        """Write the files of an agent's home, and return its command."""
        values = self.fields()
        for name, text in agent.files.items():
            path = Path(self._environment["HOME"], name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fill_fields(text, values), encoding="utf-8")
        return tuple(fill_fields(word, values) for word in agent.command)

    def environment(self, agent: Agent, seed: int, max_tokens: int) -> dict[str, str]:
        """Return the whole environment of a run.

        Args:
            agent: The agent.
            seed: The seed of the run.
            max_tokens: The most tokens of the run.
        """
        values = self.fields()
        variables = {name: fill_fields(text, values) for name, text in agent.environment.items()}
        if agent.trusted is not None:
            variables |= {name: os.environ[name] for name in agent.trusted.passes if name in os.environ}
        environment = dict(self._environment)
        environment |= {name: text for name, text in variables.items() if not has_fields(text)}
        environment |= {
            "TTS_PROMPT_FILE": str(self.prompt),
            "TTS_SESSION_FILE": str(self.session),
            "TTS_REPORT_FILE": str(self.report),
            "TTS_SEED": str(seed),
            "TTS_MAX_TOKENS": str(max_tokens),
        }
        return environment

    def read(self, agent: Agent, end: ProcessEnd, max_tokens: int, *, changed: bool, is_told: bool) -> AgentTurn:
        """Return the result of a run, from the agent's report and the end of its program.

        Args:
            agent: The agent.
            end: The end of the agent's program.
            max_tokens: The most tokens that the run was allowed.
            changed: Whether files have changed in the run.
            is_told: Whether the search has told the run to stop.
        """
        output_end = end.output.strip()[-_MESSAGE:]
        trusted = agent.trusted
        report = _read_report(self.report) if trusted is None else self._trusted_report(trusted, end, max_tokens)
        tokens = report.get("tokens", 0) if self._loan is None else 0  # with a loan, the model counts the tokens
        if type(tokens) is not int or not 0 <= tokens <= max_tokens:
            return _failed_turn(0, f"AgentReport: it reports {str(tokens)[:40]!r} tokens, of at most {max_tokens}")
        status = report.get("status", "finished")
        valid_statuses = ("finished", "turn", "cut") if agent.resumes else ("finished", "cut")
        if status not in valid_statuses:
            return _failed_turn(tokens, f"AgentReport: it reports the status {str(status)[:40]!r}")
        if status == "turn":
            tokens = max(1, tokens)  # so that the next turn has another seed
        if end.flooded:
            return _failed_turn(tokens, f"AgentOutput: it printed more than {MOST_OUTPUT >> 20} MiB")
        stated_message = report.get("message")
        message = stated_message if isinstance(stated_message, str) else output_end
        if not is_told and (end.stopped or (self._loan is not None and self._loan.is_used_up)):
            return AgentTurn("cut", message, tokens)  # by the time of a run, or by what the model's calls may spend
        if end.stopped:
            return AgentTurn("stopped", output_end, tokens)
        if end.code is None or (end.code != 0 and not changed):
            how = "without a report of its supervisor" if end.code is None else f"with exit code {end.code}"
            return _failed_turn(tokens, f"AgentFailed: it ended {how}: {end.last_line}")
        if agent.model == "needs" and self._loan is not None and not self._loan.calls:
            return _failed_turn(tokens, "AgentCalls: it did not call the model at the url that it was given")
        session = read_bytes(self.session, _MOST_SESSION) if agent.resumes and self.session.exists() else b""
        if session is None:
            return _failed_turn(tokens, f"AgentReport: its session is no file of at most {_MOST_SESSION >> 20} MiB")
        return AgentTurn(status, message, tokens, session)

    def _trusted_report(self, trusted: TrustedUsage, end: ProcessEnd, max_tokens: int) -> Mapping[str, Any]:
        """Return the report of an agent with its own login.

        The report is in the report file, or else in the last line of the output. If the number of tokens is unknown or
        above `max_tokens`, `max_tokens` is counted.
        """
        lines = end.output.strip().splitlines()
        last_line = lines[-1] if lines else ""
        content = _read_report(self.report) or _parse_report(last_line)
        tokens, message = _value_at(content, trusted.tokens), _value_at(content, trusted.message)
        if type(tokens) is not int or not 0 <= tokens <= max_tokens:
            return {"tokens": max_tokens, "message": message, "status": "cut"}
        return {"tokens": tokens, "message": message}


def _failed_turn(tokens: int, error: str) -> AgentTurn:
    """Return the result of a run that failed with an error, "kind: cause"."""
    return AgentTurn("failed", "", tokens, error=error)


def _value_at(value: Any, path: str) -> Any:
    """Return the value at a path of names joined by points, in plain values; None where there is none."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _read_report(path: Path) -> Mapping[str, Any]:
    """Return an agent's report; an empty mapping where the file is missing or cannot be read."""
    return _parse_report(read_bytes(path, _MOST_SESSION) or b"")


def _parse_report(text: str | bytes) -> Mapping[str, Any]:
    try:
        report: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return report if isinstance(report, dict) else {}
