"""Capabilities of a server: of its kind, as a probe found them, or as a record declares them."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal

from tts.backends.base import TEMPLATE_TOKENS, Caps
from tts.errors import ConfigError, quote, unknown_name
from tts.types import TOP_TOKENS

Mode = Literal["tokens", "text", "continued chat", "chat"]
MODES: tuple[Mode, ...] = ("tokens", "text", "continued chat", "chat")
_MODES = {
    "tokens": "completions of token ids: paths go on exactly where they ended",
    "text": "completions of text: paths go on by their text",
    "continued chat": "chat whose last message is continued: paths go on by their text",
    "chat": "plain chat: whole solutions only",
}
# name of a row to show, the field that it shows, and its text where the capability is there or not
_LINES = (
    ("messages", "template", "rendered by the model's own template", "joined by blank lines: there is no template"),
    (
        "streams",
        "streams",
        "as it writes, so that a row that is given up stops",
        "no: a row that is given up is paid whole",
    ),
    (
        "usage",
        "usage",
        "reported",
        "not reported: a row is charged a token for each byte and one; its full grant if it may think unseen",
    ),
    ("cached tokens", "cached", "reported", "not reported: unknown"),
    ("log-probabilities", "logprobs", "as they are before temperature", "none from before temperature"),
    ("of likely tokens", "tops", f"those of the {TOP_TOKENS} most likely tokens", "none"),
    ("those of prompts", "echo", "by completions that repeat the prompt", "none known"),
    ("seeds", "seeds", "obeyed, each row has its own", "not known to be obeyed: another run gives other texts"),
    ("n", "n", "several rows a call", "one row a call"),
    ("stop texts", "stops", "the server ends a step", "steps are cut here, where the text is read"),
    ("temperature", "tempers", "taken", "not taken: refused unless it is 1"),
    ("top_p", "cuts", "taken", "not taken: refused unless it is 1"),
    ("both of them", "both", "in one request", "one of them in a request"),
    ("top_k, min_p", "filters", "obeyed", "not known to be obeyed: refused if asked for"),
    ("penalties", "penalties", "presence_penalty and frequency_penalty are sent", "refused if asked for"),
    ("biases", "biases", "logit_bias is sent", "refused if asked for"),
    ("reasoning", "reasoning", "thinks apart: charged, and no part of an answer", "none seen"),
    ("effort", "efforts", "reasoning_effort is sent", "none"),
    (
        "tools",
        "tools",
        "taken by chats, and calls given apart from the text",
        "shown as text, and calls read from text",
    ),
    (
        "JSON schemas",
        "forms",
        "obeyed by chats while they decode",
        "not known to be obeyed: what does not fit is no answer",
    ),
    ("pictures", "pictures", "taken by chats, if the model sees", "none known"),
)
_NOT_DECLARED = ("model", "served", "server", "version", "seed_note", "picture_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Capabilities of a server for one model.

    Args:
        root: Base url of the API.
        model: The model's name on the server.
        served: The names of all models on the server.
        server: The name of the kind of server; "": it is not recognised.
        version: The version that the server reports; "": none.
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
        seed_note: The reason why seeds are not sent to a server that obeys them; "": they are.
        n: Whether one call may ask for several continuations.
        stops: Whether a row ends after a stop text, which it includes.
        neutral: Parameters, with their values, that switch off the server's own changes to the distribution.
        filters: Whether top_k and min_p are obeyed.
        tempers: Whether temperatures other than 1 are accepted.
        cuts: Whether a `top_p` below 1 is accepted.
        both: Whether a request may have a temperature and a `top_p` together. If not, only the parameter that is not 1
            is sent.
        penalties: Whether presence and frequency penalties are sent.
        biases: Whether `logit_bias` is sent.
        reasoning: Whether the model writes reasoning apart from its answer.
        limited: Whether replies state rate limits. If so, few calls are in flight at first.
        efforts: Whether `reasoning_effort` is sent.
        thought_limit: The field that limits a thought, a key of `tts.backends.openai.thinking.LIMITS`; "": none.
        thought_switch: The field that switches thoughts off, a key of `tts.backends.openai.thinking.SWITCHES`; "":
            none.
        opened: Whether the template opens a thought in the prompt, so that the model's text begins inside a thought.
        echo: Whether completions show the log-probabilities of their prompts.
        tools: Whether chats take tools and give the calls apart from the text.
        forms: Whether chats decode under a JSON schema in `response_format`.
        pictures: Whether chats take pictures.
        picture_tokens: The most input tokens of one picture; None: not known.
        extra: Further members of every request, as JSON; "": none.
    """

    root: str
    model: str
    mode: Mode
    served: tuple[str, ...] = ()
    server: str = ""
    version: str = ""
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
            prompt_logprobs="emulated" if self.echo and not self.chats else "absent",
            usage=self.usage,
            efforts=self.efforts,
            thoughts=self.opened or self.reasoning,
            pictures=self.pictures and self.chats,
            tempers=self.tempers,
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
        lines = [
            ("server", " ".join(filter(None, (self.root, self.server, self.version)))),
            ("model", f"{self.model} (served: {', '.join(self.served) or 'no list of models'})"),
            ("asked by", _MODES[self.mode]),
            ("context", "not said" if self.context is None else f"{self.context} tokens"),
        ]
        lines += [(name, present if getattr(self, one) else absent) for name, one, present, absent in _LINES]
        if self.seed_note:
            lines.append(("no seeds", self.seed_note))
        lines.append(("limits of thoughts", self.thought_limit or "no field is known"))
        lines.append(("without a thought", self.thought_switch or "no field is known"))
        return lines


def declared_capabilities(root: str, model: str, given: dict[str, Any]) -> Capabilities:
    """Return the capabilities that a record declares, in addition to plain chat.

    Args:
        root: The base url of the API.
        model: The name of the model.
        given: The declared values, by the names of fields of `Capabilities`.

    Raises:
        ConfigError: A name is unknown, a value is not valid, or a record may not declare a capability.
    """
    from pydantic import TypeAdapter, ValidationError

    names = {field.name for field in dataclasses.fields(Capabilities)}
    for name in given:
        if name in _NOT_DECLARED:
            raise ConfigError(f"the capability {name} cannot be declared", hint="leave it out")
        if name not in names:
            raise unknown_name("capability", name, names)
    neutral = given.get("neutral", ())
    if isinstance(neutral, str):
        neutral = tuple(sorted(json.loads(neutral).items()))
    values = {"root": root, "model": model, "mode": "chat", **given, "neutral": neutral}
    try:
        return TypeAdapter(Capabilities).validate_python(values)
    except ValidationError as failure:
        error = failure.errors(include_url=False)[0]
        path = ".".join(map(str, error["loc"]))
        rule = error["msg"][:1].lower() + error["msg"][1:]
        raise ConfigError(f"the capability {path} is {quote(error['input'])}, but {rule}") from None
