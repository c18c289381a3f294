"""Capabilities of a server, as a probe found them. None is concluded from the server's address."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from tts.backends.base import TEMPLATE_TOKENS, Caps
from tts.types import TOP_TOKENS

Mode = Literal["tokens", "text", "continued chat", "chat"]
MODES: tuple[Mode, ...] = ("tokens", "text", "continued chat", "chat")
_MODES = {
    "tokens": "completions of token ids: paths go on exactly where they ended",
    "text": "completions of text: paths go on by their text",
    "continued chat": "chat whose last message is continued: paths go on by their text",
    "chat": "plain chat: whole solutions only",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Capabilities of a server for one model.

    Args:
        root: Base url of the API.
        model: The model's name on the server.
        served: The names of all models on the server.
        version: The version that the server reports; "": none.
        owner: The owner of the model in the list of models, where engines write their own names.
        mode: The mode in which the model is called.
        context: Most tokens of prompt and path; None: not reported.
        template: Whether the server renders messages by the model's own template.
        template_tokens: The most tokens that the template adds to a message.
        cap_name: The parameter that limits a row.
        streams: Whether replies stream, with a report of their tokens.
        usage: Whether token counts are reported.
        cached: Whether counts of reused tokens are reported.
        logprobs: Whether log-probabilities of the untempered distribution are given.
        tops: Whether log-probabilities of the 20 most likely tokens are given.
        seeds: Whether equal seeds give equal texts.
        seed_note: The reason why seeds were not probed; "": they were.
        n: Whether one call may ask for several continuations.
        stops: Whether a row ends after a stop text, which it includes.
        neutral: Parameters, with their values, that switch off the server's own changes to the distribution.
        filters: Whether top_k and min_p are obeyed.
        filter_note: The reason why `filters` is not known; "": it is.
        tempers: Whether temperatures other than 1 are accepted.
        cuts: Whether a `top_p` below 1 is accepted.
        both: Whether a request may have a temperature and a `top_p` together. If not, only the parameter that is not 1
            is sent.
        penalties: Whether presence and frequency penalties are taken.
        biases: Whether `logit_bias` is taken.
        reasoning: Whether the model writes reasoning apart from its answer.
        efforts: Whether `reasoning_effort` is taken.
        thought_limit: The field that limits a thought, a key of `tts.backends.openai.thinking.LIMITS`; "": none works.
        thought_switch: The field that switches thoughts off, a key of `tts.backends.openai.thinking.SWITCHES`; "": none
            works.
        thought_note: The reason why fields for thoughts were not probed, or may not work; "": there is none.
        opened: Whether the template opens a thought in the prompt, so that the model's text begins inside a thought.
        echo: Whether completions show the log-probabilities of their prompts.
        tools: Whether chats take tools and give the calls apart from the text.
        forms: Whether chats decode under a JSON schema in `response_format`.
        pictures: Whether chats take pictures.
        picture_tokens: The most input tokens of one picture; None: not known.
        extra: Further members of every request, as JSON; "": none.
        limited: Whether replies state rate limits. If so, few calls are in flight at first.
    """

    root: str
    model: str
    mode: Mode
    served: tuple[str, ...] = ()
    version: str = ""
    owner: str = ""
    context: int | None = None
    template: bool = True
    template_tokens: int = TEMPLATE_TOKENS
    cap_name: str = "max_tokens"
    streams: bool = False
    usage: bool = False
    cached: bool = False
    logprobs: bool = False
    tops: bool = False
    seeds: bool = False
    seed_note: str = ""
    n: bool = False
    stops: bool = False
    neutral: tuple[tuple[str, int | float], ...] = ()  # whole numbers stay whole: servers refuse top_k = 0.0
    filters: bool = False
    filter_note: str = ""
    tempers: bool = True
    cuts: bool = True
    both: bool = True
    penalties: bool = False
    biases: bool = False
    reasoning: bool = False
    limited: bool = False
    efforts: bool = False
    thought_limit: str = ""
    thought_switch: str = ""
    thought_note: str = ""
    opened: bool = False
    echo: bool = False
    tools: bool = False
    forms: bool = False
    pictures: bool = False
    picture_tokens: int | None = None
    extra: str = ""

    @property
    def continues(self) -> bool:
        """Whether a path can be continued."""
        return self.mode != "chat"

    @property
    def token_ids(self) -> bool:
        """Whether rows carry token ids."""
        return self.mode == "tokens"

    @property
    def site(self) -> str:
        """The base url of endpoints outside the API, such as a tokenizer."""
        return self.root.removesuffix("/v1")

    @property
    def path(self) -> str:
        """The endpoint that generates text."""
        return "/completions" if self.mode in ("tokens", "text") else "/chat/completions"

    @property
    def chats(self) -> bool:
        """Whether rows are written by chats. Only chats take tools, forms and pictures."""
        return self.path == "/chat/completions"

    @property
    def caps(self) -> Caps:
        """The capabilities of a backend on this server.

        `Caps.streams` stays False, since on every server a row's draws may depend on the batch of the row.
        """
        continuing = "emulated" if self.continues else "absent"
        reading_prompts = "emulated" if self.echo and self.path == "/completions" else "absent"
        return Caps(
            steps=continuing,
            extend=continuing,
            fork="emulated",
            logprobs=self.logprobs,
            tops=self.tops,
            sampling_logprobs=self.tops,
            top_texts=self.tops,
            token_ids=self.token_ids,
            stop_predicate=True,
            prompt_logprobs=reading_prompts,
            usage=self.usage,
            efforts=self.efforts,
            thoughts=self.opened or self.reasoning,
            pictures=self.pictures and self.chats,
            penalties=self.penalties,
            biases=self.biases,
            thought_limits=bool(self.thought_limit),
            thought_switch=bool(self.thought_switch),
        )

    @property
    def extra_body(self) -> dict[str, Any]:
        """The members of `extra`, parsed."""
        return json.loads(self.extra) if self.extra else {}

    def lines(self) -> list[tuple[str, str]]:
        """Return a table of the capabilities to show: pairs of a name and a value."""
        return [
            ("server", f"{self.root} version {self.version}" if self.version else self.root),
            ("model", f"{self.model} (served: {', '.join(self.served) or 'no list of models'})"),
            ("asked by", _MODES[self.mode]),
            ("context", "not said" if self.context is None else f"{self.context} tokens"),
            (
                "messages",
                "rendered by the model's own template"
                if self.template
                else "joined by blank lines: there is no template",
            ),
            (
                "streams",
                _choose_word(
                    self.streams,
                    "as it writes, so that a row that is given up stops",
                    "no: a row that is given up is paid whole",
                ),
            ),
            (
                "usage",
                _choose_word(
                    self.usage,
                    "reported",
                    "not reported: a row is charged a token for each byte and one; its full grant if it may think "
                    "unseen",
                ),
            ),
            ("cached tokens", _choose_word(self.cached, "reported", "not reported: unknown")),
            (
                "log-probabilities",
                _choose_word(self.logprobs, "as they are before temperature", "none from before temperature"),
            ),
            ("of likely tokens", _choose_word(self.tops, f"those of the {TOP_TOKENS} most likely tokens", "none")),
            ("those of prompts", _choose_word(self.echo, "by completions that repeat the prompt", "none")),
            (
                "seeds",
                self.seed_note
                or _choose_word(
                    self.seeds, "obeyed, each row has its own", "not obeyed: another run gives other texts"
                ),
            ),
            ("n", _choose_word(self.n, "several rows a call", "one row a call")),
            (
                "stop texts",
                _choose_word(self.stops, "the server ends a step", "steps are cut here, where the text is read"),
            ),
            ("temperature", _choose_word(self.tempers, "taken", "not taken: refused unless it is 1")),
            (
                "top_p",
                _choose_word(
                    self.cuts,
                    "taken" if self.both else "taken, but not beside a temperature",
                    "not taken: refused unless it is 1",
                ),
            ),
            (
                "top_k, min_p",
                self.filter_note or _choose_word(self.filters, "obeyed", "not obeyed: refused if asked for"),
            ),
            (
                "penalties",
                _choose_word(
                    self.penalties,
                    "presence_penalty and frequency_penalty are taken",
                    "not taken: refused if asked for",
                ),
            ),
            ("biases", _choose_word(self.biases, "logit_bias is taken", "not taken: refused if asked for")),
            ("reasoning", _choose_word(self.reasoning, "thinks apart: charged, and no part of an answer", "none seen")),
            ("effort", _choose_word(self.efforts, "reasoning_effort is taken", "none")),
            (
                "limits of thoughts",
                f"{self.thought_limit} holds" if self.thought_limit else self.thought_note or "no field holds",
            ),
            (
                "without a thought",
                f"{self.thought_switch} holds" if self.thought_switch else self.thought_note or "no field holds",
            ),
            (
                "tools",
                _choose_word(
                    self.tools,
                    "taken by chats, and calls given apart from the text",
                    "shown as text, and calls read from text",
                ),
            ),
            (
                "JSON schemas",
                _choose_word(
                    self.forms, "obeyed by chats while they decode", "not obeyed: what does not fit is no answer"
                ),
            ),
            ("pictures", _choose_word(self.pictures, "taken by chats", "none")),
        ]


def _choose_word(holds: bool, yes: str, no: str) -> str:  # noqa: FBT001 - the first of three things in a row
    return yes if holds else no
