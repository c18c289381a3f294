"""Files of requests and replies: their division, and what each line of replies means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tts.backends.openai.batch_book import (
    MOST_BYTES,
    MOST_REQUESTS,
    BatchBook,
    BatchRequest,
    parse_reply,
    split_requests,
)

ROOT, CHAT = "http://127.0.0.1:1/v1", "/chat/completions"


def request(position: int = 0, stream: int = 1, **more: Any) -> BatchRequest:
    return BatchRequest.of(ROOT, CHAT, {"model": "m", "messages": [], **more}, stream, position)


def test_a_line_has_the_form_of_the_api_and_equal_bodies_of_two_draws_are_two_requests() -> None:
    line = json.loads(request(top_k=0.0).line)
    assert line.keys() == {"custom_id", "method", "url", "body"}
    assert (line["method"], line["url"]) == ("POST", "/v1/chat/completions")
    assert line["body"] == {"model": "m", "messages": [], "top_k": 0}
    assert request(top_k=0.0) == request(top_k=0)
    keys = {one.key for one in (request(), request(1), request(0, 2), request(n=2))}
    assert len(keys) == 4
    assert all(len(key) == 32 for key in keys)
    assert b"\n" not in request(messages=[{"role": "user", "content": "a\nb\u2028\ud800"}]).line


@pytest.mark.slow
def test_files_have_one_model_and_endpoint_and_keep_to_the_limits() -> None:
    assert (MOST_REQUESTS, MOST_BYTES) == (50_000, 200_000_000)
    requests = [request(i) for i in range(100_001)]
    assert [len(part) for part in split_requests(requests)] == [50_000, 50_000, 1]
    size = len(requests[0].line) + 1
    assert [len(part) for part in split_requests(requests[:7], most_bytes=3 * size)] == [3, 3, 1]
    assert [len(part) for part in split_requests(requests[:2], most_bytes=1)] == [1, 1]
    mixed = [request(0), request(1, model="other"), request(2)]
    assert [[one.model for one in part] for part in split_requests(mixed)] == [["m", "m"], ["other"]]
    assert list(split_requests([])) == []


REFUSED = {"error": {"message": "no such parameter", "type": "invalid_request_error"}}


@pytest.mark.parametrize(
    ("told", "status", "kind"),
    [
        ({"response": {"status_code": 200, "body": {"choices": []}}, "error": None}, 200, ""),
        ({"response": {"status_code": 400, "body": REFUSED}, "error": None}, 400, ""),
        (
            {"response": {"status_code": 400, "body": None}, "error": {"error": {"message": "bad", "code": 400}}},
            400,
            "",
        ),
        ({"response": {"status_code": 429, "body": REFUSED}}, 0, "RateLimited"),
        ({"response": {"status_code": 500, "body": None}}, 0, "ServerError"),
        ({"response": {"status_code": 401, "body": REFUSED}}, 0, "Refused"),
        ({"response": {"status_code": 400, "body": {"error": {"message": "insufficient_quota"}}}}, 0, "QuotaExceeded"),
        ({"response": None, "error": {"code": "batch_expired", "message": "late"}}, 0, "Expired"),
        ({"response": None, "error": {"code": "batch_cancelled", "message": "ended"}}, 0, "Cancelled"),
        ({"response": None, "error": {"code": "server_error", "message": "broken"}}, 0, "ServerError"),
        ({"response": {"status_code": 200, "body": "text"}}, 0, "BadReply"),
        ({"response": [], "error": None}, 0, "BadReply"),
    ],
)
def test_a_line_of_replies_is_a_reply_or_an_error_by_kind(told: Any, status: int, kind: str) -> None:
    key, reply, error = parse_reply(json.dumps({"custom_id": "k", **told}).encode())
    assert key == "k"
    assert (reply.status if reply else 0) == status
    assert (error.kind if error else "") == kind


@pytest.mark.parametrize(
    "line", [b"", b"no JSON", b"[]", b"7", b'{"custom_id": 7}', b'{"response": {}}', b"[" * 100_000]
)
def test_a_line_that_is_no_reply_has_no_key(line: bytes) -> None:
    key, reply, error = parse_reply(line)
    assert (key, reply) == ("", None)
    assert error is not None


def test_a_book_reads_new_files_and_notes_what_is_wanted(tmp_path: Path) -> None:
    book, one, two = BatchBook(tmp_path / "missing"), request(1), request(2)
    assert book.reply(one) is None
    [(path, model)] = book.write_requests()
    assert model == "m"
    assert path.read_bytes() == one.line + b"\n"
    assert book.write_requests() == []
    line = {"custom_id": one.key, "response": {"status_code": 200, "body": {"choices": [7]}}}
    path.with_name("x.output.jsonl").write_text(f"garbage\n\n{json.dumps(line)}\n")
    path.with_name("y.errors.jsonl").write_text(
        json.dumps({"custom_id": two.key, "error": {"code": "batch_expired"}}) + "\n"
    )
    assert one.key not in book
    book.refresh()
    assert one.key in book
    reply = book.reply(one)
    assert reply is not None
    assert json.loads(reply.content) == {"choices": [7]}
    assert book.reply(two) is None
    assert book.lost == {two.key: "Expired"}
    assert book.take_requests().keys() == {two.key}
    assert not book.take_requests()
