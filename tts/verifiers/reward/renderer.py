"""Rendering of a problem and the steps of a solution as a reward model's tokens.

Each step comes with the position of its score.

To find the position of a step, the layout up to the step is encoded, and its last token is the position. The renderer
checks that these tokens are a prefix of the tokens of the whole layout. It never searches for the id of a separator.
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
        piece_ends = sorted({position + 1 for position in self.at if position is not None})
        cuts = [self.prompt, *piece_ends]
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
            raise ConfigError(
                f"the reward model {record.model!r} reads chats (layout {template.layout!r}), but the "
                "tokenizer has no chat template",
                hint="give it one, or write a record in YAML with layout: text (docs/how-to/reward_models.md)",
            )
        if "{bos}" in template.prompt and not tokenizer.bos_token:
            raise self._unfit("has {bos} in its prompt, but the tokenizer has no beginning of sequence")
        self.labels = self._check_labels()
        self._last_separator_token = self._check_separator()
        self._forbidden_texts = self._texts_between()
        self.prompt_overhead, self.step_overhead = self._overhead()

    def render(self, problem: str, steps: Sequence[str], *, prompt: str = "") -> RenderedSolution:
        """Return the tokens and positions of a solution.

        Args:
            problem: The text of the problem.
            steps: The steps of the solution, in order; for an outcome model, the whole solution as one step.
            prompt: The task's prompt for the policy, for records whose template has `{prompt}`.
        """
        texts = [step.strip() for step in steps]
        forbidden_text = self._find_forbidden(problem)
        if forbidden_text is not None:
            return RenderedSolution.unreadable([PROBLEM_HOLDS.format(text=forbidden_text)] * len(steps))
        why = [""] * len(steps)
        shown_steps: list[int] = []  # indices of steps
        for i, text in enumerate(texts):
            forbidden_text = self._find_forbidden(text)
            if not text:
                why[i] = EMPTY
            elif forbidden_text is not None:
                num_later = len(steps) - i - 1
                why[i:] = [HOLDS.format(text=forbidden_text), *[BEHIND] * num_later]
                break
            else:
                shown_steps.append(i)
        return self._place(problem, prompt, texts, shown_steps, why)

    def _place(
        self, problem: str, prompt: str, texts: Sequence[str], shown_steps: Sequence[int], why: list[str]
    ) -> RenderedSolution:
        """Return the tokens of the steps that are shown, and their positions.

        Args:
            problem: The text of the problem.
            prompt: The task's prompt for the policy.
            texts: The texts of all steps.
            shown_steps: The indices of the steps without a reason in `why`.
            why: The reason, for each step, that it has no position of its own; "" if it has one.
        """
        if not shown_steps:
            return RenderedSolution.unreadable(why)
        prompt_ids, prefixes = self._layout(problem, prompt, [texts[i] for i in shown_steps])
        ids = prefixes[-1]
        positions: list[int | None] = [None] * len(why)
        num_read = 0  # tokens up to the last position
        num_placed = len(why)  # steps before the first that has no position
        for i, prefix in zip(shown_steps, prefixes, strict=True):
            reason = self._reason(ids, prefix)
            if reason:
                num_placed = i
                later_reason = BEHIND if reason == MERGED else reason
                why[i:] = [reason, *[later_reason] * (len(why) - i - 1)]
                break
            positions[i] = len(prefix) - 1
            num_read = len(prefix)
        last_position: int | None = None
        for i in range(num_placed):
            if why[i] == EMPTY:
                positions[i] = last_position
            last_position = positions[i]
        num_prompt = min(_count_common(prompt_ids, ids), num_read)
        return RenderedSolution(ids[:num_read], tuple(positions), num_prompt, tuple(why))

    def _reason(self, ids: Ids, prefix: Ids) -> str:
        """Return the reason that no score can be read at the end of a prefix of `ids`; "" if there is none."""
        if self.limit is not None and len(prefix) > self.limit:
            return TOO_LONG.format(limit=self.limit)
        ends_otherwise = self._last_separator_token is not None and prefix[-1] != self._last_separator_token
        if ids[: len(prefix)] != prefix or ends_otherwise:
            return MERGED
        return ""

    # Layouts ----------------------------------------------------------------------------------------------------------

    def _layout(self, problem: str, prompt: str, steps: Sequence[str]) -> tuple[Ids, list[Ids]]:
        """Return the tokens of the prompt, and for each step the tokens of the layout up to its position."""
        template = self.record.template
        separator = "" if template.separator is None else template.separator.text
        if template.layout == "parts":
            return self._parts(self._fill(problem, prompt), steps)
        if template.layout == "turns":
            return self._turns(problem, prompt, steps)
        separated_steps = [step + separator for step in steps]
        # the reply up to each step
        partial_replies = [template.between.join(separated_steps[: n + 1]) for n in range(len(steps))]
        filled = self._fill(problem, prompt)
        if template.layout == "text":
            prefixes = [self._encoded(filled + reply, special=True) for reply in partial_replies]
            return self._encoded(filled, special=True), prefixes
        whole_reply = partial_replies[-1]
        rendered = self._chat([("user", filled), ("assistant", whole_reply)], opened=False)
        reply_start = rendered.rfind(whole_reply)
        if reply_start < 0:
            raise self._unfit(
                "has the layout 'reply', but the tokenizer's chat template does not show the reply as it is"
            )
        prompt_ids = self._encoded(rendered[:reply_start], special=False)
        if self.record.kind == "outcome":
            return prompt_ids, [self._encoded(rendered, special=False)]
        prefix_texts = [rendered[: reply_start + len(reply)] for reply in partial_replies]
        return prompt_ids, [self._encoded(text, special=False) for text in prefix_texts]

    def _parts(self, filled_prompt: str, steps: Sequence[str]) -> tuple[Ids, list[Ids]]:
        """Return what `_layout` returns, for prompt, steps and separators that are encoded apart."""
        separator = self.record.template.separator
        separator_ids = () if separator is None else self._encoded(separator.text, special=False)
        prompt_ids = ids = self._encoded(filled_prompt, special=True)
        prefixes: list[Ids] = []
        for step in steps:
            ids = (*ids, *self._encoded(step, special=False), *separator_ids)
            prefixes.append(ids)
        return prompt_ids, prefixes

    def _turns(self, problem: str, prompt: str, steps: Sequence[str]) -> tuple[Ids, list[Ids]]:
        """Return what `_layout` returns, for a chat with one turn of the user for each step."""
        filled = self._fill(problem, prompt)
        before_step, _, _ = filled.partition("{step}")
        turns: list[tuple[str, str]] = []
        prefix_texts: list[str] = []
        for n, step in enumerate(steps):
            turns.append(("user", step if n else filled.replace("{step}", step)))
            prefix_texts.append(self._chat(turns, opened=True))
            turns.append(("assistant", self.record.template.answer))
        turn_start = prefix_texts[0].rfind(before_step)
        if turn_start < 0:
            raise self._unfit(
                "has the layout 'turns', but the tokenizer's chat template does not show the turns as they are"
            )
        prompt_text = prefix_texts[0][: turn_start + len(before_step)]
        prefixes = [self._encoded(text, special=False) for text in prefix_texts]
        return self._encoded(prompt_text, special=False), prefixes

    def _fill(self, problem: str, prompt: str) -> str:
        """Return the template's prompt with its fields filled in.

        Braces in the problem's text stay as they are.
        """
        values = {"{problem}": problem, "{prompt}": prompt, "{bos}": self._tokenizer.bos_token or ""}
        return re.sub(r"\{(?:problem|prompt|bos)\}", lambda field: values[field[0]], self.record.template.prompt)

    def _chat(self, turns: Sequence[tuple[str, str]], *, opened: bool) -> str:
        """Return turns (role, text) as a chat; with `opened` the next turn of the assistant is begun."""
        import jinja2  # a dependency of transformers' chat templates

        system = self.record.template.system
        messages = [{"role": role, "content": text} for role, text in turns]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
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
        first_ids = self._encode("1", special=False)
        all_ids = self._encode("1" + text, special=False)
        is_prefix = all_ids[: len(first_ids)] == first_ids
        return all_ids[len(first_ids) :] if is_prefix else all_ids

    def _texts_between(self) -> tuple[str, ...]:
        """Return the texts that a problem or step must not contain: the separator, and control tokens."""
        separator = self.record.template.separator
        separators: list[str] = []
        if separator is not None and separator.within != "keep":
            separators.append(separator.text.strip() or separator.text)
        control_tokens = [token.content for token in self._tokenizer.added_tokens_decoder.values() if token.special]
        return tuple(dict.fromkeys([*separators, *control_tokens, *self._tokenizer.all_special_tokens]))

    def _find_forbidden(self, text: str) -> str | None:
        return next((forbidden_text for forbidden_text in self._forbidden_texts if forbidden_text in text), None)

    def _overhead(self) -> tuple[int, int]:
        """Return the tokens of a layout with a problem of one token, and of a step of one token with its separator.

        The step is the longer of the first two steps.
        """
        if self.record.kind == "outcome":
            prompt_ids, (whole_ids,) = self._layout("0", "0", ["0"])
            return len(prompt_ids), len(whole_ids) - len(prompt_ids)
        prompt_ids, (first_prefix, second_prefix) = self._layout("0", "0", ["0", "0"])
        first_size = len(first_prefix) - len(prompt_ids)
        second_size = len(second_prefix) - len(first_prefix)
        return len(prompt_ids), max(first_size, second_size)

    def _unfit(self, what: str) -> ConfigError:
        return ConfigError(
            f"the record {self.record.name!r} {what}",
            hint=f"the record is for {self.record.model}; give its tokenizer, or correct the record",
        )


def _count_common(a: Ids, b: Ids) -> int:
    """Return the number of tokens that two texts have in common at their beginning."""
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return count
