"""What one look at a server found out: how it is asked, and what it can do. Nothing is concluded from its address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tts.backends.base import TEMPLATE_TOKENS, Caps

Mode = Literal["tokens", "text", "continued chat", "chat"]
MODES: tuple[Mode, ...] = ("tokens", "text", "continued chat", "chat")
_MODES = {
    "tokens": "completions of token ids: paths go on exactly where they ended",
    "text": "completions of text: paths go on by their text",
    "continued chat": "chat whose last message is continued: paths go on by their text",
    "chat": "plain chat: whole solutions only",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a server offers for one model.

    Args:
        root: where the API begins. model: as it is named there. served: the names of all models. version: what the server says.
        mode: how it is asked. context: most tokens of prompt and path; None: it does not say.
        template: whether the server renders messages by the model's own template. template_tokens: what that adds to a message.
        cap_name: the parameter that limits a row. streams: whether replies come as they are written, with a report.
        usage: whether tokens are reported. cached: whether reused ones are. logprobs: whether log-probabilities are given, and
            are those of the untempered law. seeds: whether one seed gives one text. seed_note: why they were not tried.
        n: whether one call may ask for several continuations. stops: whether a row ends behind a stop text, which it includes.
        neutral: parameters, with their values, that switch off what a server may do to the law by default.
        filters: whether top_k and min_p are obeyed. filter_note: why that is not known. tempers: whether other temperatures than 1,
            and top_p, are taken.
        reasoning: whether the model thinks apart from what it says.
    """

    root: str
    model: str
    mode: Mode
    served: tuple[str, ...] = ()
    version: str = ""
    context: int | None = None
    template: bool = True
    template_tokens: int = TEMPLATE_TOKENS
    cap_name: str = "max_tokens"
    streams: bool = False
    usage: bool = False
    cached: bool = False
    logprobs: bool = False
    seeds: bool = False
    seed_note: str = ""
    n: bool = False
    stops: bool = False
    neutral: tuple[tuple[str, float], ...] = ()
    filters: bool = False
    filter_note: str = ""
    tempers: bool = True
    reasoning: bool = False

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
        """Where what is no part of the API stands, such as a tokenizer."""
        return self.root.removesuffix("/v1")

    @property
    def path(self) -> str:
        """The endpoint that writes."""
        return "/completions" if self.mode in ("tokens", "text") else "/chat/completions"

    @property
    def caps(self) -> Caps:
        """What a backend can promise on it. No server promises that rows obey their streams whatever else it works on."""
        support = "emulated" if self.continues else "absent"
        return Caps(
            steps=support, extend=support, fork="emulated", logprobs=self.logprobs, token_ids=self.token_ids, stop_predicate=True,
            usage=self.usage,
        )  # fmt: skip

    def lines(self) -> list[tuple[str, str]]:
        """Return what to show people: what was looked at, and what was found."""
        return [
            ("server", " ".join(part for part in (self.root, self.version and f"version {self.version}") if part)),
            ("model", f"{self.model} (served: {', '.join(self.served)})"),
            ("asked by", _MODES[self.mode]),
            ("context", "not said" if self.context is None else f"{self.context} tokens"),
            ("messages", "rendered by the model's own template" if self.template else "joined by blank lines: there is no template"),
            (
                "streams",
                _said(self.streams, "as it writes, so that a row that is given up stops", "no: a row that is given up is paid whole"),
            ),
            ("usage", _said(self.usage, "reported", "not reported: rows are charged their full grants, as estimates")),
            ("cached tokens", _said(self.cached, "reported", "not reported: unknown")),
            ("log-probabilities", _said(self.logprobs, "of the untempered law", "none of the untempered law")),
            ("seeds", self.seed_note or _said(self.seeds, "obeyed, each row has its own", "not obeyed: another run gives other texts")),
            ("n", _said(self.n, "several rows a call", "one row a call")),
            ("stop texts", _said(self.stops, "the server ends a step", "steps are cut here, where the text is read")),
            ("temperature, top_p", _said(self.tempers, "taken", "not taken: refused unless both are 1")),
            ("top_k, min_p", self.filter_note or _said(self.filters, "obeyed", "not obeyed: refused if asked for")),
            ("reasoning", _said(self.reasoning, "thinks apart: charged, and no part of an answer", "none seen")),
        ]


def _said(found: bool, yes: str, no: str) -> str:  # noqa: FBT001 - the first of three things in a row
    return yes if found else no
