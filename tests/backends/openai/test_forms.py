"""Forms of replies that occur, and garbage: what is read of each, and that every fault has its kind."""

from __future__ import annotations

import itertools
import json
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends.openai.saying import delta, dripping, event, head, row, used, whole
from tts.backends.openai.errors import Key, ServerError, event_error, retry_after, status_error
from tts.backends.openai.events import Events
from tts.backends.openai.http import encode_body, event_of
from tts.backends.openai.reply import ServerReply
from tts.errors import quote

END = delta("4", "stop")
DEEP = b"[" * 100_000

# Streams --------------------------------------------------------------------------------------------------------------


def fed(*pieces: bytes) -> list[bytes]:
    events = Events()
    return [data for piece in pieces for data in events.feed(piece)] + events.rest()


STREAM = (
    event(delta("a"))
    + b": a comment\n\n"
    + b"event: message\nid: 3\n"
    + event(END)
    + event(used(3, 2))
    + event(b"[DONE]")
)
DATA = [json.dumps(one).encode() for one in (delta("a"), END, used(3, 2))] + [b"[DONE]"]


@settings(deadline=None)
@given(st.lists(st.integers(0, len(STREAM)), max_size=8), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.booleans())
def test_a_stream_is_the_same_however_it_is_cut_and_whichever_its_line_ends(
    cuts: list[int], end: bytes, mark: bool
) -> None:
    stream = b"\xef\xbb\xbf" * mark + STREAM.replace(b"\n", end)
    edges = [0, *sorted(cuts), len(stream)]
    assert fed(*(stream[a:b] for a, b in itertools.pairwise(edges))) == DATA


@pytest.mark.parametrize(
    ("stream", "data"),
    [
        (b'data: {"a":\ndata: 1}\n\ndata: 2\n\n', [b'{"a":\n1}', b"2"]),  # data of several lines
        (b"data: 1\ndata: 2\ndata: [DONE]\n", [b"1", b"2", b"[DONE]"]),  # no empty lines
        (b"data: 1\n\ndata: 2", [b"1", b"2"]),  # a last line without its end
        (b'data: 1\n\ndata: {"a": ', [b"1"]),  # one that was cut
        (b"data:1\n\n\n\ndata\n\nretry: 5\n\n", [b"1"]),
    ],
)
def test_events_of_a_stream(stream: bytes, data: list[bytes]) -> None:
    assert fed(stream) == data
    assert fed(*(bytes([one]) for one in stream)) == data


@pytest.mark.parametrize("line", [b"x" * 100, b"data: {\n" * 12])
def test_an_event_without_end_is_cut_off(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tts.backends.openai.events._MOST", 1000)
    with pytest.raises(ServerError, match="has no end"):
        fed(*[line] * 12)
    assert len(fed(*[line + b"\n\n"] * 30)) in (0, 30)
    assert len(fed(*[b'data: {"a": "b"}\n'] * 100)) == 100  # each has an end, be it without an empty line


@pytest.mark.parametrize("finish", ["stop", "STOP", "eos_token", "end", "end_turn", "Complete"])
def test_an_end_has_many_names(finish: str) -> None:
    sample, _ = row(head(), event(delta("4", finish)), event(used(3, 2)))
    assert (sample.finish, sample.text, sample.num_tokens) == ("eos", "4", 2)


@pytest.mark.parametrize(
    "events",
    [
        [END, delta("", "stop"), used(3, 2)],  # the end comes twice
        [delta("4", ""), delta(None, "stop"), used(3, 2)],
        [delta("4", "null"), delta(None, "stop"), used(3, 2)],
        [{"type": "ping"}, END, {"choices": [], "prompt_filter_results": []}, used(3, 2)],
    ],
)
def test_forms_that_are_good(events: list[Any]) -> None:
    sample, _ = row(head(), *map(event, events), event(b"[DONE]"))
    assert (sample.finish, sample.text, sample.num_tokens, sample.estimated, sample.error) == ("eos", "4", 2, False, "")


def test_a_last_event_without_line_end_is_read() -> None:
    sample, _ = row(head(), event(used(3, 2)), event(END).rstrip())
    assert (sample.finish, sample.text, sample.num_tokens) == ("eos", "4", 2)


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        ([END, delta("5", "stop")], "DuplicateChoice"),
        ([{"type": "ping"}], "BadReply"),
        ([delta("4", None)], "Truncated"),
        ([delta("4", "of_its_own")], "OtherEnd"),
        ([delta("4", {"type": "stop"})], "OtherEnd"),
        ([delta(None, "SAFETY")], "ContentFilter"),
    ],
)
def test_forms_that_are_bad(pieces: list[Any], kind: str) -> None:
    sample, _ = row(head(), *map(event, pieces), event(used(3, 2)), event(b"[DONE]"))
    assert (sample.finish, sample.error.partition(":")[0]) == ("error", kind)


# Characters that are divided ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["a \ud83d", "\ude00 b"], "a \U0001f600 b"),
        (["\ud83d", "", "\ude00"], "\U0001f600"),
        (["a\ud83d", "b"], "a\ufffdb"),
        (["\ude00a"], "\ufffda"),
        (["a\ud83d"], "a\ufffd"),
    ],
)
def test_halves_of_a_character_are_put_together(pieces: list[str], text: str) -> None:
    for last in (False, True):  # whether the end comes by itself
        events = [delta(one, "stop" if last and i + 1 == len(pieces) else None) for i, one in enumerate(pieces)]
        reply = ServerReply(1)
        given = [part for one in (*events, delta("", "stop")) for _, part in reply.take(one)]
        assert "".join(given) == "".join(reply.choices[0].pieces) == text


def test_texts_of_tokens_and_requests_have_whole_characters() -> None:
    reply = ServerReply(1)
    reply.take({"choices": [{"index": 0, "text": "a", "logprobs": {"tokens": ["\ud83d"], "token_logprobs": [-1.0]}}]})
    assert reply.choices[0].tokens == ["\ufffd"]
    assert json.loads(encode_body({"prompt": "\ud83d\ude00 \ud83d"})) == {"prompt": "\U0001f600 \ufffd"}


# Errors ---------------------------------------------------------------------------------------------------------------


def test_an_error_in_a_reply_says_how_long_to_wait_and_is_paid_where_something_came() -> None:
    error = {"error": {"message": "wait", "code": 429}}
    sample, _ = row(head("application/json", 200, "Retry-After: 3600"), json.dumps(error).encode())
    assert (sample.error, sample.num_tokens) == ("RateLimited: wait", 0)
    sample, _ = row(head(), event(delta("abc")), event(error))
    assert (sample.error, sample.num_tokens) == ("RateLimited: wait", 4)
    assert event_error(delta("a", error=None), 0.0, Key(), began=False) is None


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("3", 3, 3),
        ("-5", 0, 0),
        ("nan", 0, 0),
        ("1e400", 0, 0),
        ("", 0, 0),
        ("Wed, 21 Oct 99999999999999999999 07:28:00 GMT", 0, 0),
        ("Mon, 01 Jan 0001 00:00:00 -0000", 0, 0),
        ("Wed, 21 Oct 2999 07:28:00 GMT", 1e9, math.inf),
    ],
)
def test_what_is_asked_to_wait(header: str, least: float, most: float) -> None:
    assert least <= retry_after({"retry-after": header}) <= most


# Garbage --------------------------------------------------------------------------------------------------------------

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["stop", "\ud83d", 10**400]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def some(*names: str, inner: st.SearchStrategy[Any] = ANY) -> st.SearchStrategy[Any]:
    """Objects with some of these names, and anything in them."""
    return st.dictionaries(st.sampled_from(names), inner) | ANY


TOLD = some(
    "content", "reasoning_content", "refusal", "tokens", "token_logprobs", "logprob", "token", "code", "message", "type"
)
CHOICE = some("index", "delta", "message", "text", "finish_reason", "logprobs", "token_ids", inner=TOLD | st.just(0))
EVENT = some("choices", "usage", "error", "object", "code", inner=st.lists(CHOICE, max_size=3) | TOLD)


@settings(deadline=None)
@given(st.binary(max_size=40) | EVENT.map(lambda told: json.dumps(told).encode()))
def test_garbage_is_a_fault_of_a_kind(data: bytes) -> None:
    reply = ServerReply(1)
    try:
        reply.take(event_of(data, 0.0, Key("a-key-of-nobody"), began=False))
    except ServerError as fault:
        fault.cause.encode()
        return
    "".join(text for choice in reply.choices.values() for text in choice.pieces + choice.tokens).encode()
    fault = reply.error(0)
    assert fault is None or fault.cause.encode()


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        ([head(), event(DEEP)], "BadReply"),
        (whole(DEEP), "BadReply"),
        (whole(b'{"choices": ' + b"[" * 900 + b"]" * 900 + b"}"), "BadReply"),
        (whole(DEEP, 500), "ServerError"),
        ([head("text/plain; charset=klingon", 500), b"\xff"], "ServerError"),
        (whole(b"{}", 429, "Retry-After: Wed, 21 Oct 99999999999999999999 07:28:00 GMT"), "RateLimited"),
        (whole(b'{"error": {"message": "\\ud83d"}}', 400), "Refused"),
        (whole(b"", 204), "Refused"),
    ],
)
def test_garbage_from_a_server_fails_its_row_alone(pieces: list[bytes], kind: str) -> None:
    sample, _ = row(*pieces)
    assert (sample.finish, sample.error.partition(":")[0]) == ("error", kind)
    sample.error.encode()


def test_numbers_without_end_are_no_log_probabilities() -> None:
    for value in (10**400, -(10**400), math.nan, True, None):
        reply = ServerReply(1)
        reply.take({"choices": [{"index": 0, "text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [value]}}]})
        # a NaN leaves its row without any
        assert all(math.isnan(one) or one == 0.0 for one in reply.choices[0].logprobs)


def test_what_is_nested_too_deeply_is_shown_too() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert quote(deep) == "too long to write"
    fault = event_error({"error": deep}, 0.0, Key(), began=False)
    assert str(fault).endswith(": too long to write")


# What does not end ----------------------------------------------------------------------------------------------------


def test_a_reply_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tts.backends.openai.http._MOST", 1 << 16)
    monkeypatch.setattr("tts.backends.openai.http._MOST_SAID", 1 << 16)

    for status, kind in ((200, "BadReply"), (500, "ServerError")):
        sample, _ = row(endless=dripping(head("application/json", status), end=b" " * 4096, pause_s=0.0))
        assert (sample.finish, sample.error.partition(":")[0]) == ("error", kind)


def test_an_error_that_drips_is_told_as_far_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tts.backends.openai.http._SAYING_S", 0.05)
    began = time.monotonic()
    sample, _ = row(endless=dripping(head("application/json", 500), b"boom"))
    assert sample.error == "ServerError: status 500: boom"
    assert time.monotonic() - began < 5


# The key --------------------------------------------------------------------------------------------------------------

SECRET = 'sk-"of\\nobody-0123456789abcdefghijklmnopqrstuvwxyz'
QUOTED = json.dumps(SECRET)


@pytest.mark.parametrize(
    "pieces",
    [
        whole({"detail": f"bad key {SECRET}"}),
        whole({"x" * 50: SECRET}),
        whole(f"not for the key {SECRET}".encode()),
        whole(f"not for the key {QUOTED}".encode()),
        whole([SECRET]),
        whole({"choices": SECRET}),
        whole({"choices": [SECRET]}),
        whole({"choices": [{"index": 0, "message": {"content": [f"{'x' * 40}{SECRET}"]}}]}),
        [head(), event(f"{'x' * 40}{SECRET}".encode())],
        [head(), event(delta("", f"error {SECRET}"))],
        [head(), event({"error": f"{'x' * 280}{SECRET}"})],
        [head(), event({"error": {"code": SECRET}})],
        whole({"error": {"code": f"no {SECRET}"}}, 400),
        whole(f"{'x' * 290}{SECRET}".encode(), 400),
        whole("".join(f"\\u{ord(one):04x}" for one in SECRET).join(('{"error": "', '"}')).encode(), 400),
        [b"HTTP/1.1 200 OK\r\n" + SECRET.encode() + b"\r\n\r\n"],
    ],
)
def test_a_key_that_a_server_repeats_shows_nowhere(pieces: list[bytes]) -> None:
    sample, server = row(*pieces, key=Key(SECRET))
    assert server.asked[0].headers["authorization"] == f"Bearer {SECRET}"
    assert sample.error
    assert not any(part in sample.error for part in (SECRET[:6], SECRET[-6:], "nobody"))


def test_a_short_key_is_hidden_in_faults_and_is_no_gap_in_a_text() -> None:
    sample, _ = row(head(), event(delta("4 or 5", "stop")), event(used(3, 2)), key=Key("4"))
    assert sample.text == "4 or 5"
    assert status_error(401, b'{"error": "bad key hunter"}', 0.0, Key("hunter")).cause == "status 401: bad key ***"
