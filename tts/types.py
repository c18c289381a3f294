"""The values that all modules share. They are frozen.

Problem -> (search) -> Trajectory ... -> Candidate -> (selection) -> Solution. Usage has the costs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from tts._core import display
from tts.errors import ConfigError
from tts.thoughts import THINK, ThoughtMarks

Status = Literal["active", "finished", "truncated", "failed"]


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture in a message, for models that take pictures.

    Args:
        url: The picture as a data url, "data:image/png;base64,…", or a url that the model's server fetches.
        detail: The resolution at which the model reads it, in a server's word such as "low"; "": the server's default.
    """

    url: str
    detail: str = ""

    def __str__(self) -> str:
        """The picture as texts have it: a digest, so that different pictures make different prompts."""
        return f"[picture {hashlib.sha256(self.url.encode()).hexdigest()[:16]}]"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool in an assistant's message.

    Args:
        name: The name of the tool.
        arguments: The arguments as JSON text.
        id: The name of the call, which its result repeats.
    """

    name: str
    arguments: str
    id: str = ""

    def __str__(self) -> str:
        """The call as texts have it: the form of Hermes and Qwen models."""
        return (
            f'<tool_call>\n{{"name": {json.dumps(self.name, ensure_ascii=False)}, "arguments": '
            f"{self.arguments}}}\n</tool_call>"
        )


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call, in a user's message.

    Args:
        id: The name of the call.
        content: The result as text.
    """

    id: str
    content: str

    def __str__(self) -> str:
        """The result as texts have it."""
        return f"<tool_response>\n{self.content}\n</tool_response>"


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """The tools that an answer may call, in a system message.

    Args:
        tools: The tools as JSON texts, each as chats of the OpenAI API have it.
        choice: The value of `tool_choice` there, as JSON text.
        parallel: Whether an answer may have several calls.
        text: The words that offer the tools to a model that is shown them as text.
    """

    tools: tuple[str, ...]
    choice: str
    parallel: bool
    text: str

    def __str__(self) -> str:
        """The offer as texts have it."""
        return self.text


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form that an answer must have, for servers that decode under a constraint.

    It has no text of its own.

    Args:
        schema: The JSON schema as JSON text; "": any JSON object.
    """

    schema: str = ""

    def __str__(self) -> str:
        """Nothing: the words of the prompt state the form."""
        return ""


Part = str | Picture | ToolCall | ToolResult | ToolOffer | AnswerForm


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation.

    Args:
        role: "system", "user" or "assistant".
        content: Its text. With parts, it is their texts: what a model reads that takes text alone.
        parts: The parts of a turn that has more than text, such as pictures (`Message.of`); empty for a text.

    Example:
        >>> import tts
        >>> asked = [tts.Message("system", "Answer briefly."), tts.Message("user", "3 + 4 - 2")]
        >>> tts.solve(asked, 400, model="toy", strategy="best_of_n(n=4) | majority").answer
        '5'
    """

    role: str
    content: str
    # draws of judges are addressed by the text form of their prompts
    parts: tuple[Part, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, role: str, parts: Iterable[Part]) -> Message:
        """Return a message of parts; each call or result of a tool has a line of its own.

        Args:
            role: "system", "user" or "assistant".
            parts: The parts, in order.

        Example:
            >>> import tts
            >>> from tts.types import Picture
            >>> tts.Message.of("user", ["What is it?", Picture("data:image/png;base64,AAAA")]).content
            'What is it?[picture bde6da8e9d3902a8]'
        """
        parts = tuple(parts)
        content, ends_with_line = "", False
        for part in parts:
            text, is_line = str(part), isinstance(part, ToolCall | ToolResult)
            if text and content and (is_line or ends_with_line):
                content = f"{content.rstrip(_NEWLINE)}\n{text.lstrip(_NEWLINE)}"
            else:
                content += text
            if text:
                ends_with_line = is_line
        is_plain_text = all(isinstance(part, str) for part in parts)
        return cls(role, content, () if is_plain_text else parts)

    def append(self, *parts: Part) -> Message:
        """Return the message with further parts at its end."""
        return Message.of(self.role, (*(self.parts or (self.content,)), *parts))


_NEWLINE = "\n"


# What a task gives a backend to render: exact text, or messages that pass through the model's chat template.
Prompt = str | tuple[Message, ...]


def prompt_text(prompt: Prompt) -> str:
    """Return a prompt as one text: itself, or the contents of its messages, a blank line between."""
    return prompt if isinstance(prompt, str) else "\n\n".join(message.content for message in prompt)


@dataclass(frozen=True, slots=True)
class Problem:
    """One task to solve.

    Args:
        prompt: The problem as text, or as chat messages (`Message` or {"role": …, "content": …}). Other types are
            refused when the problem is solved.
        answer: The reference answer. Only oracles get it, that is, verifiers that need it.
        id: A name that is unique in its data set. Random draws depend on it, or on the prompt if there is none.
        task: The name of its task ("math", "arithmetic", …), which makes its prompt; None: the default of the model's
            record.
        metadata: Further values. Strategies do not get it, and of verifiers only oracles do.

    Example:
        >>> import tts
        >>> problem = tts.Problem("3 + 4 - 2", answer="5", id="sum-1", task="arithmetic")
        >>> problem.text, problem.without_answer().answer
        ('3 + 4 - 2', None)
    """

    prompt: Prompt
    answer: str | None = None
    id: str | None = None
    task: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        given: Any = self.prompt
        if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
            object.__setattr__(self, "prompt", tuple(map(_message, given)))

    @property
    def text(self) -> str:
        """The prompt as one text. The contents of messages are separated by blank lines."""
        return prompt_text(self.prompt)

    def without_answer(self) -> Problem:
        """Return this problem without its reference answer and metadata, as strategies get it."""
        return Problem(prompt=self.prompt, id=self.id, task=self.task)


def _message(turn: Any) -> Any:
    """Return a mapping with a role and a content as a message, and any other value unchanged."""
    if not isinstance(turn, Mapping) or not {"role", "content"} <= turn.keys():
        return turn
    content: Any = turn["content"]
    parts: list[Any] = content if isinstance(content, list) else []
    if not isinstance(content, list) or not all(isinstance(part, Mapping) for part in parts):
        return Message(turn["role"], turn["content"])
    message_parts = [_part(part) for part in parts]
    known_parts = [part for part in message_parts if part is not None]
    return turn if len(known_parts) < len(message_parts) else Message.of(turn["role"], known_parts)


def _part(given: Mapping[str, Any]) -> Part | None:
    """Return the text or picture that a mapping of the OpenAI API's chats describes; None: neither."""
    if given.get("type") == "text" and isinstance(given.get("text"), str):
        return given["text"]
    image: Any = given.get("image_url")
    if given.get("type") == "image_url" and isinstance(image, Mapping) and isinstance(image.get("url"), str):
        return Picture(image["url"], str(image.get("detail") or ""))
    return None


def pictures_in(prompt: Prompt) -> tuple[Picture, ...]:
    """Return the pictures of a prompt, in order."""
    turns = () if isinstance(prompt, str) else prompt
    return tuple(part for turn in turns for part in turn.parts if isinstance(part, Picture))


class Spread(NamedTuple):
    """How sure a model was at one position, whichever token was drawn.

    The values are in nats, at least 0, and computed without temperature. The first two are high if the model was sure.

    Args:
        certainty: The divergence of the distribution from the uniform one, -(1/V) sum over all V tokens of ln(V p). NaN
            if the backend has only the most likely tokens.
        top: The mean of -ln p over the `TOP_TOKENS` most likely tokens (over all if there are fewer).
        entropy: -sum of p ln p over all tokens. Where only the most likely tokens are known, all others count as one
            token, which is a lower bound. NaN if unknown.
    """

    certainty: float
    top: float
    entropy: float = math.nan


TOP_TOKENS = 20
DIVIDED_SUM = "the server reports the tokens of several rows in one number"  # in a warning


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Trajectory:
    r"""An immutable path from a root: its last piece, and a pointer to the path before it.

    Args:
        parent: The path before this piece; None for a root.
        text: This piece alone; "" for a root.
        token_ids: The tokens of this piece, an end-of-sequence token included; empty where the backend gives none.
        logprobs: Natural-log probabilities under the untempered model, one a token, or empty.
        status: "active" (may be expanded), "finished" (ended by itself), "truncated" (met a cap), "failed".
        stream: The 64-bit stream that its next tokens are drawn from.
        node: Its index in the tree of its search.
        num_tokens: Tokens of the whole path after the root's prompt: the absolute position of the next token.
        depth: Pieces between the root and here; 0 for a root.
        root_kind: The kind of prompt its root was opened with.
        model: The role of the model that `handle` belongs to.
        handle: The backend's state; no part of equality, pickle or JSON.
        spreads: The `Spread` of each token's distribution, one a token, or empty.
        marks: The marks of the thought that the path may begin with.
        sampling_logprobs: Natural-log probabilities under the law that drew the tokens, one a token, or empty.
            Temperature and filters make it another than the model's. No part of equality.

    Example:
        >>> import tts
        >>> path = (
        ...     tts.solve("3 + 4 - 2", 400, model="toy", strategy="beam(n=2)", verifier="toy").candidates[0].trajectory
        ... )
        >>> path.steps, path.status, path.num_tokens
        (('3 + 4 = 7\n', '7 - 2 = 5\n', 'A: 5'), 'finished', 15)
    """

    parent: Trajectory | None
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    status: Status
    stream: int
    node: int
    num_tokens: int
    depth: int
    root_kind: str = "solve"
    model: str = "policy"
    handle: Any = None
    spreads: tuple[Spread, ...] = ()
    marks: ThoughtMarks = THINK
    sampling_logprobs: tuple[float, ...] = ()

    @property
    def path(self) -> tuple[Trajectory, ...]:
        """Every trajectory from the root to this one, both included."""
        nodes: list[Trajectory] = []
        node: Trajectory | None = self
        while node is not None:
            nodes.append(node)
            node = node.parent
        return tuple(reversed(nodes))

    @property
    def steps(self) -> tuple[str, ...]:
        """The texts of the pieces after the root, in order."""
        return tuple([node.text for node in self.path[1:]])

    @property
    def full_text(self) -> str:
        """The text of the whole path after the root's prompt."""
        if self.depth <= 1:
            return self.text
        return "".join(self.steps)

    @property
    def thought(self) -> str:
        """The thought of the whole path as far as it is written, without its marks; "" if there is none."""
        return self.marks.thought(self.full_text)

    @property
    def response(self) -> str:
        """The text of the whole path after its thought; "" while the thought has not ended.

        Answers are extracted from it.
        """
        return self.marks.response(self.full_text)

    @property
    def is_thinking(self) -> bool:
        """Whether the path has begun a thought and not ended it."""
        text = self.full_text
        end, begin = self.marks.split(text)
        return end == begin and (self.marks.opened or end > 0)

    @property
    def judged_text(self) -> str:
        """The text that a verifier of whole texts reads: the response, or the thought while it has not ended."""
        return self.full_text if self.is_thinking else self.response

    @property
    def root(self) -> Trajectory:
        """The root of this path."""
        return self.path[0]

    def _own(self) -> tuple[object, ...]:
        return (self.text, self.token_ids, self.logprobs, self.status, self.stream, self.node, self.root_kind)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Trajectory) or self.depth != other.depth:
            return False
        return all(a is b or a._own() == b._own() for a, b in zip(self.path, other.path, strict=True))

    def __hash__(self) -> int:
        return hash((self.stream, self.num_tokens, self.node, self.text))

    def __repr__(self) -> str:
        return f"Trajectory(node={self.node}, depth={self.depth}, status={self.status!r}, text={self.text!r})"

    def __reduce__(self) -> tuple[object, ...]:
        keep = [f.name for f in dataclasses.fields(self) if f.name not in ("parent", "handle")]
        return (_relink, ([{name: getattr(node, name) for name in keep} for node in self.path],))


def _relink(pieces: Sequence[dict[str, Any]]) -> Trajectory | None:
    node: Trajectory | None = None
    for piece in pieces:
        node = Trajectory(parent=node, **piece)
    return node


@dataclass(frozen=True, slots=True)
class Candidate:
    """A path that has ended, with its answer.

    Args:
        trajectory: The path, finished or truncated.
        answer: The extracted answer; None where none was found.
        answer_class: Index of the class of equivalent answers it belongs to, in order of first appearance; None without
            an answer.
        index: Its place among the candidates of its search, from 0.
        group: The chain or subtree that it came from; candidates of one group are not independent.
        scores: One aggregated score for each verifier role, NaN if unknown, and the scores that the strategy gave, by
            other roles.
        weight: Its weight in the selection; before the selection, the weight that the strategy gave; NaN if there is
            neither.

    Example:
        >>> import tts
        >>> best = tts.solve(
        ...     "3 + 4 - 2", 400, model="toy", verifier="toy(error=0.1)", strategy="best_of_n(n=4) | weighted"
        ... ).candidates[0]
        >>> best.answer, best.index, best.scores, best.truncated
        ('5', 0, {'main': 0.9}, False)
    """

    trajectory: Trajectory
    answer: str | None
    answer_class: int | None = None
    index: int = 0
    group: int = 0
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    weight: float = float("nan")

    @property
    def truncated(self) -> bool:
        """Whether a cap, not the model, ended it."""
        return self.trajectory.status == "truncated"


@dataclass(frozen=True, slots=True, repr=False)
class Usage:
    """What a problem cost. Counts are exact whole numbers unless `estimated` says otherwise.

    Args:
        prompt_tokens: Input tokens that were computed (prompts, forced text, recomputed prefixes), but not those of
            `verifier_tokens`.
        reused_tokens: Input tokens whose state was cached; None where a server does not report them.
        generated_tokens: Tokens that the policy, and other models of the strategy, generated: ends of sequence and
            discarded rows included, `cancelled_tokens` not.
        cancelled_tokens: Tokens of rows that a stop rule cancelled. They are charged; equal searches may differ in
            their number.
        truncated_tokens: Those of the generated tokens that belong to candidates cut short without an answer.
        verifier_tokens: Tokens that verifiers computed, a judge's prompts and replies included.
        verifier_reused_tokens: Tokens that verifiers did not have to compute again.
        verifier_calls: Sequences that verifiers scored.
        samples: Branches from the root to a leaf, as in `Budget`.
        requests: Calls to backends that write, as in `Budget`; None in records of versions that did not count them.
        flops: Floating-point operations, 2 x parameters per token; None without a parameter count.
        usd: Dollars; None without prices.
        seconds: The seconds from the first call to the last, waiting included (the critical path).
        work_seconds: The sum of the model seconds of every row, as if none had run beside another.
        peak_kv_tokens: The most tokens that were in live paths at once; a prefix that paths share counts once.
        saved_kv_tokens: Tokens that memory without shared prefixes would have held in addition at that moment.
        kv_bytes_per_token: Bytes of one token's keys and values; None where the backend has none.
        estimated: Whether counts are upper bounds, such as the full grant of a call without a usage report. A sum that
            a server reports for several rows is exact.

    Example:
        >>> import tts
        >>> tts.solve("3 + 4 - 2", 400, model="toy", strategy="best_of_n(n=4) | majority").usage.tokens
        60
        >>> tts.Usage(generated_tokens=30, verifier_tokens=12).tokens
        42
    """

    prompt_tokens: int = 0
    reused_tokens: int | None = 0
    generated_tokens: int = 0
    cancelled_tokens: int = 0
    truncated_tokens: int = 0
    verifier_tokens: int = 0
    verifier_reused_tokens: int = 0
    verifier_calls: int = 0
    samples: int = 0
    requests: int | None = 0
    flops: int | None = 0
    usd: float | None = 0.0
    seconds: float = 0.0
    work_seconds: float = 0.0
    peak_kv_tokens: int = 0
    saved_kv_tokens: int = 0
    kv_bytes_per_token: int | None = None
    estimated: bool = False

    def __repr__(self) -> str:
        """One line: the values that differ from their defaults."""
        told = [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self) if getattr(self, f.name) != f.default]
        return f"Usage({', '.join(f'{name}={_short(value)}' for name, value in told)})"

    def _repr_html_(self) -> str:
        return display.facts(
            "usage",
            [(f.name.replace("_", " "), _format_value(getattr(self, f.name))) for f in dataclasses.fields(self)],
        )

    @property
    def tokens(self) -> int:
        """The tokens that count against the limit `tokens`: all computed tokens except prompts."""
        return self.generated_tokens + self.cancelled_tokens + self.verifier_tokens

    @property
    def peak_kv_bytes(self) -> int | None:
        """Bytes of the live keys and values at their peak."""
        return None if self.kv_bytes_per_token is None else self.peak_kv_tokens * self.kv_bytes_per_token


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else repr(value)


def _format_value(value: object) -> str:
    if value is None:
        return "unknown"
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


class PatchTarget(Protocol):
    """What patches are applied to, as it was when a search began.

    Attributes:
        refusal: Why the chosen patch is not applied unless that is forced; "": nothing speaks against it.
    """

    refusal: str

    def apply(self, patch: str, *, force: bool = False) -> None:
        """Apply a patch, or refuse it where what it touches has changed.

        Args:
            patch: The patch.
            force: Whether a patch is applied in spite of the refusal.
        """
        ...

    def judge(
        self, patch: str, ranked: Sequence[Candidate], verifiers: Mapping[str, Any]
    ) -> tuple[PatchTarget, Sequence[str]]:
        """Return the target with its refusal of the chosen patch, and the warnings about the patch.

        Args:
            patch: The chosen patch.
            ranked: All candidates, best first.
            verifiers: The verifiers of the search, by role.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Solution:
    """What a search found and what it cost.

    Args:
        problem: The problem as it was given.
        answer: The chosen answer as the model wrote it; None where no candidate has one, or the selection abstained.
            Never a guess.
        answers: The chosen answers, best first, where the selection returns several.
        abstained: Why the selection gave no answer although candidates have some (`selective`); "" otherwise.
        confidence: The winner's share of the selection's weight over all candidates, those without an answer included.
            NaN without candidates, or where a verifier failed (see `Solver`).
        calibrated: Whether `confidence` has been calibrated to be a probability of being right.
        candidates: Every candidate, best first.
        usage: What was spent.
        remaining: What is left of each limit, by unit.
        stopped_by: Why the search ended: "done" where the strategy came to its end, else "budget: tokens", a stop rule
            such as "unanimous", "interrupted", "failed", or a reason of the strategy.
        strategy: The plan as configured, as text that `tts.parse` reads.
        model: The name of the policy.
        seed: The run's seed.
        oracle: Whether a verifier saw the reference answer.
        failures: The number of failed rows by kind, those of verifiers' models and repeated ones included.
        warnings: One line each.
        reproducible: Whether the same call gives the same solution again.
        trace: The record of the search (`tts.trace.trace.Trace`).
        error: The error that ended the search early, if one did.
        target: What the answer can be applied to, if it is a patch.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2", 400, model="toy", strategy="best_of_n(n=4) | majority")
        >>> found.answer, found.confidence, found.stopped_by, found.usage.tokens
        ('5', 0.75, 'done', 60)
    """

    problem: Problem
    answer: str | None
    answers: tuple[str, ...] = ()
    abstained: str = ""
    confidence: float
    calibrated: bool = False
    candidates: tuple[Candidate, ...]
    usage: Usage
    remaining: Mapping[str, float]
    stopped_by: str
    strategy: str
    model: str
    seed: int
    oracle: bool = False
    failures: Mapping[str, int]
    warnings: tuple[str, ...] = ()
    reproducible: bool = True
    trace: Any = field(default=None, compare=False, repr=False)
    error: Exception | None = field(default=None, compare=False)
    target: PatchTarget | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        """Return one line with the answer, the confidence, the costs and the reason of the search's end."""
        error_text = "" if self.error is None else f", error={type(self.error).__name__}"
        return (
            f"Solution(answer={display.one_line(self.answer)}, confidence={self.confidence:.2f}, "
            f"candidates={len(self.candidates)}, "
            f"tokens={self.usage.tokens}, stopped_by={self.stopped_by!r}, "
            f"strategy={display.one_line(self.strategy)}{error_text})"
        )

    def _repr_html_(self) -> str:
        rows: list[tuple[str, Any]] = [
            ("answer", "none" if self.answer is None else self.answer),
            ("confidence", f"{self.confidence:.2f} ({self.confidence_of})"),
            ("candidates", len(self.candidates)),
            ("tokens", f"{self.usage.tokens:,}{' (estimated)' if self.usage.estimated else ''}"),
            ("seconds", f"{self.usage.seconds:.3g}"),
            ("stopped by", self.stopped_by),
            ("strategy", self.strategy),
            ("model", self.model),
        ]
        if self.oracle:
            rows.append(("oracle", "a verifier saw the reference answer"))
        if self.error is not None:
            rows.append(("error", self.error))
        rows += [("warning", line) for line in self.warnings]
        return display.facts("solution", rows)

    def receipt(self) -> Any:
        """Return the receipt (`tts.trace.receipt.Receipt`) of the search.

        It has the cost of each phase, and the answers that parts of the samples would have given.

        Raises:
            ConfigError: The solution has no trace, because it was read from a study.
        """
        if self.trace is None:
            raise ConfigError("the solution has no trace, so it has no receipt")
        return self.trace.receipt()

    @property
    def confidence_of(self) -> str:
        """A description of `confidence`."""
        if self.calibrated:
            return "a probability of being right"
        if len(self.candidates) == 1:
            return "of one sample, so it says nothing"
        weights = {candidate.weight for candidate in self.candidates}
        return f"share of the {'weighted ' * (len(weights) > 1)}votes, not calibrated"

    @property
    def text(self) -> str | None:
        """The chosen candidate's text after its thought (`Trajectory.response`); None if none was chosen."""
        return self.candidates[0].trajectory.response if self.answer is not None and self.candidates else None

    @property
    def patch(self) -> str | None:
        """The chosen patch, for `git apply`; None where no patch was chosen, or answers are none."""
        return None if self.target is None else self.answer

    def apply(self, *, force: bool = False) -> None:
        """Apply the patch to the files of the repository, also after its workspace was closed.

        Nothing else in the repository changes.

        Args:
            force: Whether a patch is applied that does not pass its tests.

        Raises:
            ConfigError: The solution has no patch, or one that does not pass its tests. `HEAD`, or a file that the
                patch touches, has changed since the workspace was made. The patch does not fit. On an error no file is
                written.
        """
        if self.target is None:
            raise ConfigError(
                f"the answer of the model {self.model!r} is no patch, so it cannot be applied",
                hint="solve by a tts.Workspace",
            )
        if self.answer is None:
            raise ConfigError("the solution has no patch to apply", hint="give the search more samples")
        self.target.apply(self.answer, force=force)

    def export(self, path: Any, form: str, **options: Any) -> Any:
        """Write the samples of the search as rows for a trainer, and a card that describes the rows.

        Samples are judged by the problem's reference answer.

        Args:
            path: The file; it ends in .jsonl or .parquet.
            form: The form of the rows, as in `Trace.export`.
            options: The task and filters, as in `Trace.export`.

        Returns:
            The summary of `Trace.export`, with the path, the number of rows, and the reasons why others were left out.

        Raises:
            ConfigError: As `Trace.export`.
        """
        return self.trace.export(path, form, problem=self.problem.id, reference=self.problem.answer, **options)
