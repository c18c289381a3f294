"""Chat prompts: the problem, then earlier solutions for some kinds of prompts, then the request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tts.errors import ConfigError
from tts.types import Message, Problem

# How many earlier texts a prompt of each kind needs.
_LEAST_ATTEMPTS = {"solve": 0, "revise": 1, "critique": 1, "fuse": 2, "program": 0}
_PROGRAM = (
    "Where computing helps, write a Python program in a block that begins with ```python, and print its results. "
    "The output is shown to you behind the block; go on from there."
)

CHECK_STEPS = (
    "Check the earlier solution step by step. Name the first step that is wrong and why, or say that there is none."
)
CRITIQUE_END = "End with one line: Verdict: right, or Verdict: wrong."


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """The requests of a chat task, and the usual lengths of replies.

    Args:
        requests: The text at the end of each kind of prompt ("solve", "revise", "critique", "fuse"); "": no text.
        tokens: The usual length in tokens of the reply to each kind of prompt, and of one step under "step".
    """

    requests: Mapping[str, str]
    tokens: Mapping[str, int]

    def prompt(self, task: str, problem: Problem, kind: str, texts: Sequence[str]) -> tuple[Message, ...]:
        """Return the messages of a prompt: one user message, after the earlier turns of a conversation.

        Args:
            task: The task's name, for error messages.
            problem: The problem to solve.
            kind: The kind of prompt. "solve" and "program" take no text, "revise" and "critique" take the last of
                `texts`, and "fuse" takes all. "program" requests a solution that runs programs.
            texts: Earlier solutions.

        Raises:
            ConfigError: `kind` has no request here, or `texts` are too few for it.
        """
        requests = {**self.requests, "program": _join(_PROGRAM, self.requests["solve"].strip())}
        if kind not in requests:
            raise unknown_kind(task, kind, requests)
        need_texts(kind, texts, _LEAST_ATTEMPTS[kind])
        parts = [*_earlier(kind, texts), requests[kind].strip()]
        request = "\n\n".join(part for part in parts if part)
        if isinstance(problem.prompt, str):
            return (Message("user", _join(problem.prompt.strip(), request)),)
        *turns, last_turn = problem.prompt or (Message("user", ""),)
        if last_turn.role != "user":
            return (*problem.prompt, Message("user", request)) if request else problem.prompt
        if not last_turn.parts:
            return (*turns, Message("user", _join(last_turn.content, request)))
        return (*turns, last_turn.append(f"\n\n{request}")) if request else problem.prompt

    def typical_tokens(self, task: str, kind: str) -> int:
        """Return the usual length in tokens for a kind of prompt or for "step".

        The argument `task` is the task's name, for error messages.

        Raises:
            ConfigError: the task has no such kind.
        """
        tokens = {**self.tokens, "program": self.tokens["solve"]}
        if kind not in tokens:
            raise unknown_kind(task, kind, tokens)
        return tokens[kind]


def need_texts(kind: str, texts: Sequence[str], at_least: int) -> None:
    """Raise ConfigError where a prompt of this kind needs more earlier texts."""
    if len(texts) < at_least:
        raise ConfigError(f"a prompt of kind {kind!r} was given {len(texts)} texts, but needs at least {at_least}")


def unknown_kind(task: str, kind: str, known: Mapping[str, object]) -> ConfigError:
    """Return the error for a kind that a task does not have; the message names the task's kinds."""
    return ConfigError(f"kind is {kind!r}, but the task {task!r} has only {', '.join(known)}")


def _earlier(kind: str, texts: Sequence[str]) -> list[str]:
    if kind == "fuse":
        return [f"Solution {number}:\n\n{text.strip()}" for number, text in enumerate(texts, start=1)]
    return [f"Earlier solution:\n\n{texts[-1].strip()}"] if _LEAST_ATTEMPTS[kind] else []


def _join(first: str, second: str) -> str:
    return f"{first}\n\n{second}" if first and second else first or second


def short_answers(told: str, noun: str = "solution") -> Framing:
    """Return the framing of problems whose answer may stand alone.

    Args:
        told: The instruction how to write the answer.
        noun: The word for earlier texts.
    """
    requests = {
        "solve": told,
        "revise": f"Check the earlier {noun}, correct what is wrong in it, and answer anew. {told}",
        "fuse": f"Compare these {noun}s, keep what is right in them, and give one answer. {told}",
        "critique": f"Check the earlier {noun}. Say what is wrong in it and why, or say that nothing is. "
        f"{CRITIQUE_END}",
    }
    return Framing(requests=requests, tokens={"solve": 256, "step": 64, "revise": 256, "fuse": 256, "critique": 128})


def solution_framing(told: str) -> Framing:
    """Return the framing of problems that are solved step by step.

    Args:
        told: The instruction how to write steps and the answer.
    """
    requests = {
        "solve": told,
        "revise": f"Check the earlier solution, correct what is wrong in it, and write the whole solution anew. {told}",
        "fuse": "Compare these solutions of the problem, keep what is right in them, and write one correct solution. "
        f"{told}",
        "critique": f"{CHECK_STEPS} {CRITIQUE_END}",
    }
    return Framing(requests=requests, tokens={"solve": 256, "step": 48, "revise": 256, "fuse": 256, "critique": 128})


OPEN_ENDED = short_answers("")
