"""The language of the toy model, without a backend: its distribution, its states and its tokens.

For "3 + 4 - 2", the model writes "3 + 4 = 7", "7 - 2 = 5", "A: 5". Each result is right with a known probability, and
otherwise off by a known slip. Later steps continue with the wrong result. So the model errs step by step, as real
models do, and every answer's probability is known exactly (`ToyLanguage.answer_distribution`).

A language with thoughts writes these lines between `<think>` and `</think>`. At the end of the lines it may write
"Wait" and compute the sum once more, with fewer errors. The answer is the last value before the end of the thought. So
a thought that is cut short answers a part of the sum, and a longer thought answers better.
"""

from __future__ import annotations

import dataclasses
import math
import re
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from tts.errors import ConfigError
from tts.types import Prompt, prompt_text

RESULT = 4  # the place of the result in a step, the only random token of a step
_SUM = re.compile(r"(?<!\d)-?\d++(?:\s*+[+-]\s*+\d++)+")
# Patterns beside a sum that is a part of a larger expression: a product, a power, a bracket or decimals.
_OPERATOR_BEFORE = re.compile(r"(?:[\d)]\s*(?:\*\*?|[/×·÷^])\s*\(?\s*-?|[\d)]\s*[-+]\s*\(\s*|\d\.)\Z")
_OPERATOR_AFTER = re.compile(r"\s*\)?\s*(?:\*\*?|[/×·÷^])\s*[(-]?\s*\d|\s*[-+]\s*\(|\)\s*[-+]\s*\d|\.\d")
_SIGN_DISTANCE: Final = 40  # characters on each side of a sum in which these patterns are looked for
_TOKENS = re.compile(r"<think>\n|</think>\n|Wait\n| \+ | - | = |\n|A: |\?|-?\d+|[^\S\n]+|[^\s\d]+")
_WORD_IDS: Final = {
    "": 0,
    " + ": 1,
    " - ": 2,
    " = ": 3,
    "\n": 4,
    "A: ": 5,
    "?": 6,
    "<think>\n": 7,
    "</think>\n": 8,
    "Wait\n": 9,
}
OPEN: Final = "<think>\n"
CLOSE: Final = "</think>\n"
WAIT: Final = "Wait\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyLanguage:
    """The distribution of the toy model.

    Args:
        accuracy: Probability in [0, 1] that a step's result is right.
        slips: (offset, share) of wrong results; shares sum to 1, offsets are distinct and not 0.
        mute: Probability in [0, 1] that a solution ends without an answer.
        thoughts: Whether the model thinks.
        again: Probability in [0, 1), at the end of a round of a thought, of another round.
        better: Factor in [0, 1] by which each round multiplies the probability of an error.
    """

    accuracy: float = 0.8
    slips: tuple[tuple[int, float], ...] = ((1, 0.5), (-1, 0.3), (10, 0.2))
    mute: float = 0.0
    thoughts: bool = False
    again: float = 0.5
    better: float = 0.5

    def __post_init__(self) -> None:
        offsets = [offset for offset, _ in self.slips]
        total_share = sum(share for _, share in self.slips)
        if not (0 <= self.accuracy <= 1 and 0 <= self.mute <= 1):
            raise ConfigError(f"accuracy and mute are {self.accuracy} and {self.mute}, but must be probabilities")
        if not (0 <= self.again < 1 and 0 <= self.better <= 1):
            raise ConfigError(f"again and better are {self.again} and {self.better}, but must be in [0, 1) and [0, 1]")
        are_distinct = len(set(offsets)) == len(offsets)
        if not are_distinct or 0 in offsets or not math.isclose(total_share, 1):
            raise ConfigError(
                f"slips are {self.slips}, but must be distinct offsets other than 0 with shares that sum to 1"
            )

    def outcomes(self, round_: int = 0) -> tuple[tuple[int, float], ...]:
        """Return the distribution of one result as pairs (offset from the right result, probability).

        The first pair is that of the right result.

        Args:
            round_: The round of a thought, from 0. Errors become rarer with each round.
        """
        error_probability = (1 - self.accuracy) * self.better**round_
        wrong_outcomes = [(offset, error_probability * share) for offset, share in self.slips]
        return ((0, 1 - error_probability), *wrong_outcomes)

    def answer_distribution(self, problem: str, round_: int = 0) -> dict[str | None, float]:
        """Return the exact probability of each answer to a sum at temperature 1; the key None: no answer.

        Args:
            problem: A text with the sum.
            round_: The last round of a thought, from 0.
        """
        first_term, steps = read_sum(problem)
        distribution: dict[int, float] = {first_term: 1.0}
        for change in steps:
            next_distribution: dict[int, float] = {}
            for value, probability in distribution.items():
                for offset, outcome_probability in self.outcomes(round_):
                    result = value + change + offset
                    mass = next_distribution.get(result, 0.0)
                    next_distribution[result] = mass + probability * outcome_probability
            distribution = next_distribution
        answers: dict[str | None, float] = {
            str(value): probability * (1 - self.mute) for value, probability in distribution.items() if probability > 0
        }
        if self.mute > 0:
            answers[None] = self.mute
        return answers


def read_sum(text: str) -> tuple[int, tuple[int, ...]]:
    """Return the first term and the signed changes of the last sum in a text.

    Raises:
        ConfigError: There is no sum, or the sum is a part of an expression with products, powers, brackets or decimals.
    """
    last_match = deque(_SUM.finditer(text), maxlen=1)  # empty where the text has no sum
    if not last_match or _is_part(text, last_match[0].start(), last_match[0].end()):
        raise ConfigError(
            f"the problem is {text[:60]!r}, but the toy model solves sums only", hint="for example '3 + 4 - 2'"
        )
    first_term, *signed_terms = re.findall(r"^-?\d+|[+-]\s*\d+", last_match[0].group())
    changes = ["".join(term.split()) for term in signed_terms]  # without the blanks after a sign
    return int(first_term), tuple(map(int, changes))


def _is_part(text: str, start: int, end: int) -> bool:
    """Whether a sum in a text is a part of a larger expression."""
    text_before = text[max(0, start - _SIGN_DISTANCE) : start]
    text_after = text[end : end + _SIGN_DISTANCE]
    has_operator_before = _OPERATOR_BEFORE.search(text_before) is not None
    has_operator_after = _OPERATOR_AFTER.match(text_after) is not None
    return has_operator_before or has_operator_after


@dataclass(slots=True, eq=False)
class ToyHandle:
    """A place in the language: the next result, and facts about the text so far."""

    steps: tuple[int, ...]
    truth: tuple[int, ...]  # the right value after each step
    value: int  # the running value in the text
    step: int  # number of finished steps
    place: int  # number of tokens written of the current step
    right: bool  # whether every result so far is right
    lines: tuple[bool, ...]  # `right` at the end of each line
    prompt_tokens: int
    num_tokens: int  # tokens after the prompt
    carry: str = ""
    parent: ToyHandle | None = None
    valued: bool = False
    released: bool = False
    open_line: bool = False  # whether there is text after the last newline
    thought: Literal["", "ahead", "open"] = ""  # "ahead": a thought begins next; "open": a thought is under way
    first: int = 0  # the first term of the sum
    round: int = 0  # the round of the thought, from 0

    def child(self) -> ToyHandle:
        """Return a copy, with this handle as its parent, to which tokens can be written."""
        return dataclasses.replace(self, parent=self, carry="", valued=False, released=False)

    def certain_token(self) -> str | None:
        """Return the token that comes next with certainty; None where the next token is random."""
        if self.thought == "ahead":
            return OPEN
        if self.step == len(self.steps):  # all steps are written
            if self.thought or self.place == 0:
                return None
            return str(self.value) if self.place == 1 else ""
        if self.place == RESULT:
            return None
        change = self.steps[self.step]
        line = (str(self.value), " - " if change < 0 else " + ", str(abs(change)), " = ", None, "\n")
        return line[self.place]

    def write_line(self, result: str) -> tuple[str, ...]:
        """Write a whole step with a given result, from the beginning of a line; return its tokens."""
        change = self.steps[self.step]
        line = (str(self.value), " - " if change < 0 else " + ", str(abs(change)), " = ", result, "\n")
        self.value = int(result)
        self.right = self.right and self.value == self.truth[self.step]
        self.lines += (self.right,)
        self.open_line = False
        self.step += 1
        self.num_tokens += len(line)
        return line

    def write_answer(self) -> tuple[str, ...]:
        """Write the whole last line and the end of sequence; return their tokens."""
        self.place = 2
        self.open_line = True
        self.num_tokens += 3
        return ("A: ", str(self.value), "")

    def write(self, token: str) -> None:
        """Move the state past a token; a token that the language does not expect here is only counted."""
        self.num_tokens += 1
        if token in (OPEN, CLOSE, WAIT) and self.thought:
            self._change_thought(token)
            return
        certain_token = self.certain_token()
        if certain_token is None:
            self._take_random_token(token)
        elif token == certain_token and token == "\n":
            self.step += 1
            self.place = 0
        elif token == certain_token and token:
            self.place += 1
        if token == "\n":  # every newline ends a line, also where the language does not expect it
            self.lines += (self.right,)
        if token:
            self.open_line = token != "\n"

    def write_all(self, tokens: Sequence[str]) -> None:
        """Move the state past tokens."""
        for token in tokens:
            self.write(token)

    def _change_thought(self, token: str) -> None:
        """Begin a thought (`OPEN`), end the thought (`CLOSE`), or begin its next round (`WAIT`)."""
        self.place = 0
        if token == CLOSE:
            self.thought = ""
            self.step = len(self.steps)
            true_value = self.truth[-1] if self.truth else self.first
            self.right = self.value == true_value
        else:
            self.thought = "open"
            self.step = 0
        if token == WAIT:
            self.round += 1
            self.value = self.first
            self.right = True
        self.lines += (self.right,)
        self.open_line = False

    def _take_random_token(self, token: str) -> None:
        """Move the state past a token at a random place: an answer's beginning, or the result of a step."""
        if self.step == len(self.steps):
            self.place = 1 if token == "A: " else 2
        elif is_number(token):
            self.value = int(token)
            self.right = self.right and self.value == self.truth[self.step]
            self.place += 1


def given_tokens(tokens: Sequence[str]) -> int:
    """Return the number of tokens of a problem, to which the language gives no probabilities.

    The problem ends with the first sum and the newlines after it.

    Raises:
        ConfigError: There is no sum.
    """
    number_indices = [index for index, token in enumerate(tokens) if is_number(token)]
    for begin in number_indices:
        end = begin + 1
        while end + 1 < len(tokens) and tokens[end] in (" + ", " - ") and is_number(tokens[end + 1]):
            end += 2
        if end > begin + 1:  # a number with at least one more term is a sum
            while end < len(tokens) and tokens[end] == "\n":
                end += 1
            return end
    raise ConfigError(
        f"the problem is {''.join(tokens)[:60]!r}, but the toy model solves sums only", hint="for example '3 + 4 - 2'"
    )


def is_number(token: str) -> bool:
    """Whether a token is a whole number."""
    return token.lstrip("-").isdigit()


def token_text(token: int) -> str:
    """Return the text of a token of the language; the end of a sequence is "".

    Raises:
        ConfigError: The language has no such token.
    """
    if 0 <= token < len(_WORD_IDS):
        return list(_WORD_IDS)[token]
    if token < 1000:
        raise ConfigError(
            f"the text has the token {token}, which the toy model does not have",
            hint="tokens are those of its language",
        )
    code = token - 1000  # as in `token_id`
    number = code // 2 if code % 2 == 0 else -(code + 1) // 2
    return str(number)


class ToyTokenizer:
    """See `tts.backends.metadata.Tokenizer`."""

    def prompt(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the tokens of a prompt; messages are joined by blank lines."""
        return self.text(prompt_text(prompt))

    def text(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text."""
        return tuple(map(token_id, tokens_of(text)))

    def write(self, ids: Sequence[int]) -> str:
        """Return the text of tokens.

        Raises:
            ConfigError: The language lacks a token.
        """
        return "".join(map(token_text, ids))

    def special(self) -> dict[str, str | None]:
        """Return special tokens that are all None, since the language names none."""
        return {"tokenizer_class": "ToyTokenizer", "bos_token": None, "eos_token": None, "chat_template": None}


def tokens_of(text: str) -> list[str]:
    """Cut any text into tokens of the language and foreign words."""
    return _TOKENS.findall(text)


@lru_cache(maxsize=4096)
def token_id(token: str) -> int:
    """Return the id of a token.

    Words have ids below 1000. Numbers have ids from 1000 on, in the order 0, -1, 1, -2, 2. Foreign text has a negative
    id by its checksum.
    """
    if token in _WORD_IDS:
        return _WORD_IDS[token]
    if is_number(token):
        number = int(token)
        code = 2 * number if number >= 0 else -2 * number - 1
        return 1000 + code
    return -1 - zlib.crc32(token.encode("utf-8"))
