"""Rendering of a problem and the steps of a solution as a reward model's tokens.

Each step comes with the position of its score.

To find the position of a step, the layout up to the step is encoded; its last token is the position. The renderer
checks that these tokens are a prefix of the whole layout's. It never searches for the id of a separator.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from tts.errors import ConfigError
from tts.verifiers.reward.record import Labels, RewardRecord

Ids = tuple[int, ...]

EMPTY = "it is empty, and has the score of the step before it"
TOO_LONG = "it does not fit into the {limit} tokens that the model is shown"
HOLDS = "its text holds {text!r}, which stands between steps, or is a control token"
PROBLEM_HOLDS = "the problem's text holds {text!r}, which stands between steps, or is a control token"
BEHIND = "it comes after a step that is not shown to the model"
MERGED = "its tokens merge with those around them"


@dataclass(frozen=True, slots=True)
class RenderedSolution:
    """The tokens of a solution, and the positions at which its steps are read.

    Args:
        ids: Tokens up to the last position that is read.
        at: The position of each step; None where its score is unknown.
        prompt: The number of tokens of the problem.
        why: The reason, for each step, that it has no position of its own; "" if it has one.
    """

    ids: Ids
    at: tuple[int | None, ...]
    prompt: int
    why: tuple[str, ...]

    @classmethod
    def unreadable(cls, why: Sequence[str]) -> RenderedSolution:
        """Return a solution of which nothing is shown, for the reasons `why`, one for each step."""
        return cls((), (None,) * len(why), 0, tuple(why))

    @property
    def pieces(self) -> tuple[Ids, ...]:
        """The tokens after the prompt, split after each position that is read."""
        cuts = [self.prompt, *sorted({at + 1 for at in self.at if at is not None})]
        return tuple(self.ids[start:end] for start, end in pairwise(cuts))


class SolutionRenderer:
    """Renders solutions as the tokens of a reward model, by its record and its tokenizer.

    Rules for steps:
        - White space at the ends of a step is removed.
        - An empty step adds no tokens. It has the score of the step before it, NaN if there is none.
        - A step is not shown if its text contains the separator (unless the record keeps it) or a control token of the
          tokenizer. The scores of it and of all later steps are NaN.
        - A step that does not fit in the limit is not shown. The scores of it and of all later steps are NaN.

    Args:
        record: The layout.
        tokenizer: A fast tokenizer of the transformers library.
        context: Most tokens; None: no limit.

    Attributes:
        labels: Ids of the record's labels, the good one first; () for a head.
        limit: Most tokens that are shown; None: no limit.
        prompt_overhead: Tokens that the layout adds to a problem.
        step_overhead: Tokens that the layout adds to one step.

    Raises:
        ConfigError: a separator or label has another number of tokens than stated; the chat template is missing or does
            not fit the layout; or a template has `{bos}` for a tokenizer without that token.
    """

    def __init__(self, record: RewardRecord, tokenizer: Any, *, context: int | None = None) -> None:
        self.record = record
        self._tokenizer = tokenizer
        limits = [limit for limit in (record.max_tokens, context) if limit is not None]
        self.limit = min(limits) if limits else None
        self._encoded = lru_cache(maxsize=8192)(self._encode)
        template = record.template
        if template.layout in ("reply", "turns") and not getattr(tokenizer, "chat_template", None):
            raise self._unfit(f"has the layout {template.layout!r}, but the tokenizer has no chat template")
        if "{bos}" in template.prompt and not tokenizer.bos_token:
            raise self._unfit("has {bos} in its prompt, but the tokenizer has no beginning of sequence")
        self.labels = self._check_labels()
        self._last = self._check_separator()
        self._forbidden = self._texts_between()
        self.prompt_overhead, self.step_overhead = self._overhead()

    def render(self, problem: str, steps: Sequence[str], *, prompt: str = "") -> RenderedSolution:
        """Return the tokens and positions of a solution.

        Args:
            problem: Its text.
            steps: The steps of the solution, in order; for an outcome model, the whole solution as one step.
            prompt: The task's prompt for the policy, for records whose template has `{prompt}`.
        """
        texts = [step.strip() for step in steps]
        forbidden = self._find_forbidden(problem)
        if forbidden is not None:
            return RenderedSolution.unreadable([PROBLEM_HOLDS.format(text=forbidden)] * len(steps))
        why = [""] * len(steps)
        shown: list[int] = []
        for i, text in enumerate(texts):
            if not text:
                why[i] = EMPTY
            elif (forbidden := self._find_forbidden(text)) is not None:
                why[i] = HOLDS.format(text=forbidden)
                why[i + 1 :] = [BEHIND] * (len(steps) - i - 1)
                break
            else:
                shown.append(i)
        return self._place(problem, prompt, texts, shown, why)

    def _place(
        self, problem: str, prompt: str, texts: Sequence[str], shown: Sequence[int], why: list[str]
    ) -> RenderedSolution:
        """Return the tokens of the steps that are shown, and their positions."""
        if not shown:
            return RenderedSolution.unreadable(why)
        head, prefixes = self._layout(problem, prompt, [texts[i] for i in shown])
        ids = prefixes[-1]
        at: list[int | None] = [None] * len(why)
        end = 0
        for i, prefix in zip(shown, prefixes, strict=True):
            reason = self._reason(ids, prefix)
            if reason:
                why[i] = reason
                why[i + 1 :] = [BEHIND if reason == MERGED else reason] * (len(why) - i - 1)
                break
            at[i], end = len(prefix) - 1, len(prefix)
        else:
            i = len(why)
        last_position: int | None = None
        for step in range(i):
            if why[step] == EMPTY:
                at[step] = last_position
            last_position = at[step]
        num_common = next(
            (n for n, (a, b) in enumerate(zip(head, ids, strict=False)) if a != b), min(len(head), len(ids))
        )
        return RenderedSolution(ids[:end], tuple(at), min(num_common, end), tuple(why))

    def _reason(self, ids: Ids, prefix: Ids) -> str:
        if self.limit is not None and len(prefix) > self.limit:
            return TOO_LONG.format(limit=self.limit)
        if ids[: len(prefix)] != prefix or (self._last is not None and prefix[-1] != self._last):
            return MERGED
        return ""

    # Layouts ----------------------------------------------------------------------------------------------------------

    def _layout(self, problem: str, prompt: str, steps: Sequence[str]) -> tuple[Ids, list[Ids]]:
        """Return the tokens of the prompt, and for each step those of the layout up to its position."""
        template = self.record.template
        separator = "" if template.separator is None else template.separator.text
        if template.layout == "parts":
            return self._parts(self._fill(problem, prompt), steps)
        if template.layout == "turns":
            return self._turns(problem, prompt, steps)
        ends = [template.between.join(step + separator for step in steps[: n + 1]) for n in range(len(steps))]
        if template.layout == "text":
            start = self._fill(problem, prompt)
            return self._encoded(start, special=True), [self._encoded(start + end, special=True) for end in ends]
        rendered = self._chat([("user", self._fill(problem, prompt)), ("assistant", ends[-1])], opened=False)
        start_of_reply = rendered.rfind(ends[-1])
        if start_of_reply < 0:
            raise self._unfit(
                "has the layout 'reply', but the tokenizer's chat template does not show the reply as it is"
            )
        if self.record.kind == "outcome":
            return self._encoded(rendered[:start_of_reply], special=False), [self._encoded(rendered, special=False)]
        return self._encoded(rendered[:start_of_reply], special=False), [
            self._encoded(rendered[: start_of_reply + len(end)], special=False) for end in ends
        ]

    def _parts(self, start: str, steps: Sequence[str]) -> tuple[Ids, list[Ids]]:
        separator = self.record.template.separator
        separator_ids = () if separator is None else self._encoded(separator.text, special=False)
        head = ids = self._encoded(start, special=True)
        prefixes: list[Ids] = []
        for step in steps:
            ids = (*ids, *self._encoded(step, special=False), *separator_ids)
            prefixes.append(ids)
        return head, prefixes

    def _turns(self, problem: str, prompt: str, steps: Sequence[str]) -> tuple[Ids, list[Ids]]:
        filled = self._fill(problem, prompt)
        beginning = filled.partition("{step}")[0]
        turns: list[tuple[str, str]] = []
        rendered: list[str] = []
        for n, step in enumerate(steps):
            turns.append(("user", step if n else filled.replace("{step}", step)))
            rendered.append(self._chat(turns, opened=True))
            turns.append(("assistant", self.record.template.answer))
        start_of_turn = rendered[0].rfind(beginning)
        if start_of_turn < 0:
            raise self._unfit(
                "has the layout 'turns', but the tokenizer's chat template does not show the turns as they are"
            )
        return self._encoded(rendered[0][: start_of_turn + len(beginning)], special=False), [
            self._encoded(text, special=False) for text in rendered
        ]

    def _fill(self, problem: str, prompt: str) -> str:
        """Return the template's prompt with its fields filled in.

        Braces in the problem's text stay as they are.
        """
        pieces = {"{problem}": problem, "{prompt}": prompt, "{bos}": self._tokenizer.bos_token or ""}
        return re.sub(r"\{(?:problem|prompt|bos)\}", lambda field: pieces[field[0]], self.record.template.prompt)

    def _chat(self, turns: Sequence[tuple[str, str]], *, opened: bool) -> str:
        import jinja2  # a dependency of transformers' chat templates

        system = self.record.template.system
        messages = [
            {"role": role, "content": text}
            for role, text in ([("system", system)] if system is not None else []) + list(turns)
        ]
        try:
            return str(self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=opened))
        except jinja2.TemplateError as failure:
            raise self._unfit(f"is laid out as a chat, but the tokenizer's template refuses it: {failure}") from failure

    def _encode(self, text: str, *, special: bool) -> Ids:
        return tuple(self._tokenizer.encode(text, add_special_tokens=special))

    # Checks when the model is loaded ----------------------------------------------------------------------------------

    def _check_labels(self) -> tuple[int, ...]:
        """Return the ids of the labels, the good one first."""
        readout = self.record.readout
        if not isinstance(readout, Labels):
            return ()
        label_ids: list[int] = []
        for label in (readout.good, *readout.bad):
            ids = self._encode(label, special=False)
            if len(ids) != readout.tokens:
                raise self._unfit(
                    f"has the label {label!r} of {readout.tokens} token, but it is {len(ids)} to the tokenizer"
                )
            label_ids += ids
        if len(set(label_ids)) != len(label_ids):
            raise self._unfit(
                f"has the labels {[readout.good, *readout.bad]}, but two of them are one token to the tokenizer"
            )
        return tuple(label_ids)

    def _check_separator(self) -> int | None:
        """Return the token at which steps are read.

        None: steps are read at the start of a turn, or at the end of the layout.
        """
        separator = self.record.template.separator
        if separator is None:
            return None
        is_apart = self.record.template.layout == "parts"
        ids = self._encode(separator.text, special=False) if is_apart else self._tokens_after(separator.text)
        if len(ids) != separator.tokens:
            raise self._unfit(
                f"has the separator {separator.text!r} of {separator.tokens} tokens, but it is {len(ids)} to the "
                "tokenizer"
            )
        return ids[-1]

    def _tokens_after(self, text: str) -> Ids:
        """Return the tokens of a text after another text."""
        head, all_ids = self._encode("1", special=False), self._encode("1" + text, special=False)
        return all_ids[len(head) :] if all_ids[: len(head)] == head else all_ids

    def _texts_between(self) -> tuple[str, ...]:
        separator = self.record.template.separator
        between = [] if separator is None or separator.within == "keep" else [separator.text.strip() or separator.text]
        control = [token.content for token in self._tokenizer.added_tokens_decoder.values() if token.special]
        return tuple(dict.fromkeys([*between, *control, *self._tokenizer.all_special_tokens]))

    def _find_forbidden(self, text: str) -> str | None:
        return next((one for one in self._forbidden if one in text), None)

    def _overhead(self) -> tuple[int, int]:
        """Return the tokens that the layout adds to a problem, and to a step, of one token each.

        For a step, the result is the larger of the first two steps.
        """
        if self.record.kind == "outcome":
            head, (first,) = self._layout("0", "0", ["0"])
            return len(head), len(first) - len(head)
        head, (first, second) = self._layout("0", "0", ["0", "0"])
        return len(head), max(len(first) - len(head), len(second) - len(first))

    def _unfit(self, what: str) -> ConfigError:
        return ConfigError(
            f"the record {self.record.name!r} {what}",
            hint=f"the record is for {self.record.model}; give its tokenizer, or correct the record",
        )
