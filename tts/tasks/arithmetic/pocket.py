r"""The training task of the model pocket: arithmetic asked in plain text and worked out in lines.

The model writes a solution, without or with earlier attempts in the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from tts.errors import ConfigError
from tts.tasks.arithmetic import lines
from tts.tasks.arithmetic.lines import LinesTask
from tts.tasks.arithmetic.reading import asked_text, read
from tts.tasks.framing import need_texts, unknown_kind
from tts.types import Problem

ANSWER: Final = lines.ANSWER  # begins the answer line
AGAIN: Final = "Again"  # on a line of its own after each earlier attempt
RESTART: Final = "Restart?"  # the question, after a whole or partial solution, whether a fresh start would do better
YES, NO = " yes", " no"  # the answers to `RESTART`
MOST_ATTEMPTS: Final = 4  # most attempts in a prompt; the model was trained on no more


class PocketTask(LinesTask):
    """Expressions of whole numbers and stories of one person's things, for the model pocket.

    That model can read nothing else.

    Prompts are text: the problem as it was written in training ("What is 2x3 ?" becomes "2 * 3") and a newline; for
    "revise", after that the last four attempts at most, each followed by a line "Again".
    """

    name: str = "pocket"
    # Means of worked solutions with two-digit operands over 1 to 10 operations, the end of sequence included.
    tokens = MappingProxyType({"solve": 60, "step": 10, "revise": 60})

    def prompt(self, problem: Problem, kind: str = "solve", texts: Sequence[str] = ()) -> str:
        """Return the text that the model continues.

        The kind "revise" takes the last four of `texts` at most, oldest first.

        Raises:
            ConfigError: the problem is not of the arithmetic family, `kind` is unknown, "revise" has no attempt, or an
                attempt is no solution in whole lines.
        """
        if kind not in ("solve", "revise"):
            raise unknown_kind(self.name, kind, {"solve": "", "revise": ""})
        question = read(asked_text(problem, self.name)).text
        if kind == "solve":
            return f"{question}\n"
        need_texts(kind, texts, 1)
        attempts = texts[-MOST_ATTEMPTS:]
        for attempt in attempts:
            _check(attempt)
        return "".join([f"{question}\n", *(f"{attempt}{AGAIN}\n" for attempt in attempts)])


def _check(attempt: str) -> None:
    """Check that a text is an attempt of the model: whole lines with a step or an answer, valid or not."""
    if attempt.endswith("\n") and (" = " in attempt or ANSWER in attempt):
        return
    raise ConfigError(
        f"an attempt to revise is {attempt[:40]!r}, but must be a solution in whole lines, such as '3 + 4 = 7\\nA: "
        "7\\n'",
        hint="revise what the model wrote itself, to the end of a line",
    )
