"""Odd replies of real servers: parts, missing reports, errors with status 200, quotas, what a message tells; and
several servers.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import re
import socket
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tts
from tests.backends.openai.making import FULL, PROMPT, QUICK, drawn, solution_at
from tests.backends.openai.saying import Asked, Saying, delta, event, head, row, used, whole
from tests.backends.openai.server import ToyServer, serving
from tts.backends.openai.access import ServerAccess
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.capabilities import Capabilities
from tts.backends.openai.errors import Key, ServerError, event_error, no_room, stated_wait, status_error
from tts.backends.openai.replicas import Replicas
from tts.errors import EngineError
from tts.models.record import ModelRecord
from tts.models.registry import rates

PLAIN: dict[str, Any] = {"streams": False, "usage": False}
THOUGHT = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm "}, {"type": "text", "text": "so"}]}]


def message(content: Any, finish: str = "stop", usage: Any = None, **more: Any) -> list[bytes]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **more}, "finish_reason": finish}
    return whole({"choices": [choice], **({"usage": usage} if usage is not None else {})})


# Contents in parts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "thought", "text"),
    [
        ([{"type": "text", "text": "a"}, {"type": "output_text", "text": "b"}], "", "ab"),
        (["a", "b"], "", "ab"),
        ({"type": "text", "text": "ab"}, "", "ab"),
        ([*THOUGHT, {"type": "text", "text": "4"}], "hm so", "4"),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "4"}], "hm", "4"),
        (
            [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}, {"type": "text", "text": "4"}],
            "hm",
            "4",
        ),
        ([{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "4"}], "", "4"),
        ([], "", ""),
    ],
)
def test_a_content_in_parts_is_its_texts_and_its_thoughts(content: Any, thought: str, text: str) -> None:
    sample, _ = row(*message(content, usage={"input_tokens": 5, "output_tokens": 9}), streams=False, usage=True)
    told = f"<think>\n{thought}\n</think>\n\n{text}" if thought else text
    assert (sample.text, sample.num_tokens, sample.finish) == (told, 9, "error" if content == [] else "eos")


def test_parts_may_stream() -> None:
    pieces = [
        {"choices": [{"index": 0, "delta": {"content": part}, "finish_reason": None}]}
        for part in (THOUGHT, [{"type": "text", "text": "4"}])
    ]
    sample, _ = row(head(), *map(event, pieces), event(delta("", "stop")), event(b"[DONE]"))
    assert sample.text == "<think>\nhm so\n</think>\n\n4"


def test_thoughts_beside_the_answer_have_several_names() -> None:
    forms: tuple[dict[str, Any], ...] = (
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"thinking": "hm"},
        {"reasoning": {"text": "hm"}},
    )
    for more in forms:
        sample, _ = row(*message("4", **more), streams=False)
        assert sample.text == "<think>\nhm\n</think>\n\n4"


@pytest.mark.parametrize("content", [[{"type": "image_url", "image_url": {"url": "x"}}], 4, [4], [{"type": 4}]])
def test_a_content_that_is_no_text_is_named(content: Any) -> None:
    sample, _ = row(*message(content), streams=False)
    assert sample.error.startswith("BadReply: ")
    assert "image_url" in sample.error or "4" in sample.error


# Charges without a report ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "shows", "charged"),
    [
        (message("é4"), {}, 4),
        (message(""), {}, 1),
        (message("x" * 200), {}, 60),
        (message("4", "length"), {}, 60),  # fewer bytes than tokens that it must have
        (message(None, "length"), {}, 60),
        (message("4", reasoning_content="hm"), {}, 60),
        (message("4"), {"reasoning": True}, 60),
        (message("45", usage={"prompt_tokens": 5, "completion_tokens": 0}), {}, 3),
        (message("45", usage={"prompt_tokens": 5, "completion_tokens": 61}), {}, 60),
    ],
)
def test_a_row_without_a_report_is_charged_its_bytes_and_one_unless_it_may_hide_some(
    reply: list[bytes], shows: dict[str, Any], charged: int
) -> None:
    sample, _ = row(*reply, **PLAIN | shows)
    assert (sample.num_tokens, sample.estimated) == (charged, True)


TOTAL = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 46}}
HIDDEN = {"choices": [{"index": 0, "delta": {"reasoning_content": "hm " * 20}, "finish_reason": "length"}]}


def streamed(*events: Any) -> list[bytes]:
    return [head(), *map(event, events), event(b"[DONE]")]


@pytest.mark.parametrize(
    ("reply", "streams", "charged", "estimated"),
    [
        # thoughts of which the total alone tells
        (streamed(delta("4", "stop"), TOTAL), True, 41, False),
        # thoughts that the report leaves out: all that was granted
        (streamed(HIDDEN, used(5, 0)), True, 60, True),
        # fewer tokens than a text can have, and long tokens
        (streamed(delta("x" * 60_000, "stop"), used(5, 9)), True, 60, True),
        (message("x" * (10 << 20), usage={"prompt_tokens": 5, "completion_tokens": 9}), False, 60, True),
        (streamed(delta(" " * 900, "stop"), used(5, 9)), True, 9, False),
    ],
)
def test_a_report_is_completed_or_doubted_where_it_cannot_be_all(
    reply: list[bytes], streams: bool, charged: int, estimated: bool
) -> None:
    sample, _ = row(*reply, streams=streams)
    assert (sample.num_tokens, sample.estimated) == (charged, estimated)


@pytest.mark.parametrize(
    ("shows", "cause"),
    [
        ({}, "the server reports no tokens: rows are charged a token for each byte, and one"),
        (
            {"reasoning": True},
            "the server reports no tokens, and the model may think unseen: rows are charged all that was granted",
        ),
    ],
)
def test_a_solution_says_why_it_is_charged_by_estimates(shows: dict[str, Any], cause: str) -> None:
    with serving(Saying(lambda _: message("The answer is 4."))) as url:
        found = solution_at(url, "best_of_n(n=2) | majority", mode="chat", **shows)
    assert found.answer == "4"
    assert found.usage.generated_tokens <= 400
    assert [warning for warning in found.warnings if "rows are charged" in warning] == [f"{url}/v1: {cause}"]


def test_rows_of_one_call_that_share_a_report_say_so(tmp_path: Path) -> None:
    declared: dict[str, Any] = {"mode": "text", "n": True, "streams": True, "stops": True}
    with serving(ToyServer(seeds=False)) as url:
        plan, budget = "best_of_n(n=4) | majority", tts.Budget(samples=4)
        found = solution_at(url, plan, budget, problem="3 + 4 - 2", task="arithmetic", **declared)
        study = tts.Study(
            name="shared",
            models={"served": {"model": "toy", "url": url, "capabilities": declared | {"usage": True}}},
            problems={"dataset": "arithmetic", "limit": 2, "operators": "+-", "parentheses": False},
            strategies="best_of_n",
            record={"candidates": True},
            budgets={"samples": [4]},
        )
        study.run(tmp_path / "store.sqlite", progress=False)
    results = study.results()
    assert not any(one.usage.estimated for one in (found, *results))  # the sum is exact, and the rows' tokens are not
    assert all(
        any("tokens of several rows in one number" in line for line in one.warnings) for one in (found, *results)
    )
    assert all(pool.estimated for pool in study._pools())


@pytest.mark.parametrize(
    ("refusal", "given", "with_temperature"),
    [
        ("'temperature' does not support 0.8. Only the default (1) value is supported.", {}, [True, False, False]),
        ("invalid temperature: only 1 is allowed for this model", {}, [True, False, False]),
        ("invalid temperature: only 1 is allowed for this model", {"temperature": 0.5}, [True, True]),
        ("temperature must be greater than 0", {"temperature": 0.0}, [True, True]),
        ("this model is for members", {}, [True, True]),
    ],
)
def test_a_refused_temperature_is_left_out_if_nobody_named_it_and_other_refusals_are_final(
    refusal: str, given: dict[str, Any], with_temperature: list[bool]
) -> None:
    def say(asked: Asked) -> Any:
        is_refused = "temperature" in asked.body
        return whole({"error": {"message": refusal}}, 400) if is_refused else message("The answer is 4.")

    with serving(server := Saying(say)) as url:
        model = ModelRecord(name="toy", backend="openai", url=url, options=(("probe", "never"),))
        with tts.Solver(model, task="math", strategy="single", **given) as solver:
            for _ in range(2):
                if with_temperature[-1]:
                    with pytest.raises(EngineError, match=re.escape(refusal)):
                        solver.solve("What is 2 + 2?", 400)
                    continue
                found = solver.solve("What is 2 + 2?", 400)
                assert (found.answer, found.failures) == ("4", {})
                assert f"no temperature is sent to {url}/v1: status 400: {refusal}" in found.warnings
    assert ["temperature" in asked.body for asked in server.asked] == with_temperature


def test_a_report_is_no_cause_of_a_warning() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 6}
    with serving(Saying(lambda _: message("The answer is 4.", usage=usage))) as url:
        found = solution_at(url, "best_of_n(n=2) | majority", mode="chat", usage=True)
    assert not any("charged" in warning for warning in found.warnings)


# Cache writes ---------------------------------------------------------------------------------------------------------


def test_the_price_of_cache_writes_is_a_bound_of_computed_tokens() -> None:
    record = ModelRecord(name="m", backend="openai", usd_in="3", usd_reused=None, usd_out="15", usd_cache_write="3.75")
    found = rates(record)
    assert (found.usd_in, found.usd_reused, found.usd_out) == (3_750_000_000, 3_000_000_000, 15_000_000_000)
    cheap = rates(ModelRecord(name="m", backend="openai", usd_in="3", usd_cache_write="1"))
    assert cheap.usd_in == 3_000_000_000
    with pytest.raises(tts.ConfigError, match="usd_in has no price"):
        rates(ModelRecord(name="m", backend="openai", usd_cache_write="1"))


def test_cache_writes_without_a_price_are_told_in_budgets_of_dollars() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 6, "cache_creation_input_tokens": 8}
    plan, budget = "best_of_n(n=1) | majority", tts.Budget(usd=0.1, samples=1)
    for more, told in (({}, True), ({"usd_cache_write": "3.75"}, False)):
        with serving(Saying(lambda _: message("The answer is 4.", usage=usage))) as url:
            priced = {"usd_in": "3", "usd_out": "15", **more}
            found = solution_at(url, plan, budget, record=priced, mode="chat", usage=True)
        assert any("give usd_cache_write" in warning for warning in found.warnings) is told
        assert found.usage.usd == pytest.approx((9 * (3 if told else 3.75) + 6 * 15) / 1e6)


QUOTA = "You exceeded your current quota, please check your plan and billing details."
# Errors with status 200, and quotas -----------------------------------------------------------------------------------


LATE, FAILED = [{"retryDelay": "43s"}], "context_length_exceeded"
BALANCE, CREDITS = "Insufficient Balance", "This requires more credits. Please retry in 9s."


def coded(code: Any, message: str = "no", **more: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, **more}}


@pytest.mark.parametrize(
    ("told", "kind", "status"),
    [
        *[(coded(code), "RateLimited", 429) for code in (429, "429")],
        (coded(None, type="rate_limit_error"), "RateLimited", 429),
        (coded(None, "Rate limit reached. Please try again in 20s."), "RateLimited", 429),
        (coded(None, status=503), "Unavailable", 503),
        ({"error": "Model is overloaded", "error_type": "overloaded"}, "Unavailable", 503),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "Unavailable", 503),
        (coded(FAILED, type="invalid_request_error"), "Refused", 400),
        ({"object": "error", "message": "boom", "type": "BadRequestError", "code": 400}, "Refused", 400),
        ([coded(400, "bad", status="INVALID_ARGUMENT")], "Refused", 400),
        ({"error": {"message": "This model's maximum context length is 4096 tokens"}}, "Refused", 400),
        ({"error": "prompt is too long: 9000 tokens"}, "Refused", 400),
        (coded("invalid_api_key"), "Refused", 401),
        (coded(None, "Error code: 401 - Incorrect API key"), "Refused", 401),
        ({"errors": [{"message": "model x does not exist"}]}, "Refused", 404),
        (coded(500, "boom"), "ServerError", 500),
        ({"error": "boom"}, "ServerError", 500),
        ({"success": False, "message": "who knows"}, "ServerError", 500),
        ({"message": "Overloaded", "code": 529}, "ServerError", 529),
        # quotas, and limits a minute that are called quotas
        (coded(None, QUOTA, type="insufficient_quota"), "QuotaExceeded", 429),
        (coded(None, BALANCE), "QuotaExceeded", 500),
        ([coded(429, f"{QUOTA} Please retry in 2.1s.", status="RESOURCE_EXHAUSTED")], "RateLimited", 429),
        (coded(429, "Quota exceeded. Retry after 30 seconds."), "RateLimited", 429),
        (coded(429, QUOTA, details=LATE), "RateLimited", 429),
        (coded(429, QUOTA, details=[{"quotaId": "RequestsPerDay"}, *LATE]), "QuotaExceeded", 429),
        (coded(429, f"{QUOTA} Please retry in 3h."), "QuotaExceeded", 429),
        (coded(429, f"Daily {QUOTA} Please retry in 9s."), "QuotaExceeded", 429),
        (coded(402, CREDITS), "QuotaExceeded", 402),
    ],
)
def test_an_error_inside_of_a_reply_is_read_by_its_words(told: Any, kind: str, status: int) -> None:
    error, late = (event_error(told, 0.0, Key(), began=began) for began in (False, True))
    assert error is not None
    assert late is not None
    assert (error.kind, error.status, error.again) == (kind, status, kind not in ("Refused", "QuotaExceeded"))
    assert (late.kind, late.status, late.again) == (kind, 0, False)  # what came before it has been paid


def test_a_reply_is_no_error() -> None:
    named = {"id": "x", "message": "hi", "code": 500}
    for told in ({"choices": []}, {"usage": {}}, named, {}, 4, [], {"message": "hello"}, {"error": None}):
        assert event_error(told, 0.0, Key(), began=False) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Please try again in 7m12s. Visit …", 432.0), ("try again in 350ms", 0.35),
        ("Please retry after 6 seconds", 6.0), ("Quota resets in 1 day, 2 hours", 93600.0), ("wait 90 minutes", 5400.0),
        ("exhausted until 2026-01-01T00:08:20Z", 500.0), ("available on 2026-01-01 00:08:20 UTC", 500.0),
        ("until 2026-01-01T01:08:20+01:00", 500.0), ("resets 2090-01-01", 604800.0), ("limit 200, used 200", 0.0),
        ("try again later", 0.0), ("until 2026-99-99", 0.0), ("", 0.0),
    ],
)  # fmt: skip
def test_the_wait_that_a_text_states_is_read(text: str, seconds: float) -> None:
    assert stated_wait(text, datetime(2026, 1, 1, tzinfo=UTC).timestamp()) == pytest.approx(seconds)


@pytest.mark.parametrize("status", [200, 429, 402])
def test_a_quota_until_a_time_is_one_line_and_one_request(status: int) -> None:
    cause = "Quota for this key is exceeded. Please try again in 3h."
    server = Saying(lambda _: whole({"error": {"message": cause}}, status))
    with serving(server) as url:
        record = ModelRecord(name="toy", backend="openai", url=url, capabilities=(("mode", "chat"), ("usage", True)))
        with tts.Solver(record, task="math", strategy="best_of_n(n=6) | majority") as solver:
            for _ in range(2):
                with pytest.raises(
                    tts.EngineError, match=f"^every row failed: QuotaExceeded: (status {status}: )?{cause}$"
                ):
                    solver.solve("What is 2 + 2?", 4000)
    assert len(server.asked) <= 6  # the first round of calls is sent at once; none after it


def test_a_short_wait_in_a_text_is_waited_for() -> None:
    replies = [
        whole({"error": {"message": "Rate limit reached, try again in 20ms"}}, 429),
        message("4", usage={"prompt_tokens": 5, "completion_tokens": 2}),
    ]
    sample, _ = row(say=lambda _: replies.pop(0), timeouts=QUICK, streams=False)
    assert (sample.text, sample.error.partition(":")[0], sample.num_tokens) == ("4", "RateLimited", 2)


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (402, "This request requires more credits, or fewer max_tokens. You can only afford 500."),
        (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 1024. Given: 24 and 2000"),
        (422, "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000"),
        (413, "Prompt is too long"),
    ],
)
def test_the_size_of_a_request_is_refused_in_the_words_of_each_server(status: int, cause: str) -> None:
    refused = pytest.raises(tts.EngineError, match=f"NoRoom: status {status}: .*--max-tokens")
    with serving(Saying(lambda _: whole({"error": cause}, status))) as url, refused:
        solution_at(url, "single", 4000, mode="chat", usage=True)


@pytest.mark.parametrize(("generated", "finish"), [(39, "eos"), (40, "length"), (41, "eos"), (None, "eos")])
def test_a_row_that_met_its_cap_was_cut_whatever_its_server_says(generated: int | None, finish: str) -> None:
    usage = None if generated is None else {"prompt_tokens": 5, "completion_tokens": generated}

    reply = message("so far the sum is 4", usage=usage)
    sample, _ = row(*reply, cap=40, streams=False, usage=generated is not None)
    assert sample.finish == finish


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (
            b'{"error": {"message": "Provider returned error", "metadata": {"raw": "no such voice"}}}',
            "Provider returned error: no such voice",
        ),
        (
            b'{"detail": [{"loc": ["body", "top_k"], "msg": "Extra inputs are not permitted"}]}',
            "body.top_k: Extra inputs are not permitted",
        ),
        (b'{"error": "", "message": "the cause"}', "the cause"),
        (b'{"error": {"type": "overloaded_error", "message": ""}}', "type overloaded_error"),
        (
            b"<html><head><style>p {}</style><title>502 Bad Gateway</title></head><body><h1>nginx</h1></body></html>",
            "502 Bad Gateway nginx",
        ),
        (b"upstream connect error", "upstream connect error"),
        (b"", "nothing"),
        (b'{"a": 1}', '{"a": 1}'),
        (b'[{"error": {"message": "of a list"}}]', "of a list"),
    ],
)
def test_a_message_has_the_cause(content: bytes, cause: str) -> None:
    assert status_error(502, content, 0.0, Key()).cause == f"status 502: {cause}"


def test_an_error_within_a_choice_is_the_error_of_the_call() -> None:
    gone = {"code": 502, "message": "upstream gone"}
    sample, _ = row(head(), event({"choices": [{"index": 0, "delta": {}, "error": gone, "finish_reason": "error"}]}))
    assert sample.error == "ServerError: upstream gone"


def test_a_prompt_that_has_no_room_is_one_kind_at_any_status() -> None:
    for status in (200, 400):
        sample, _ = row(
            *whole({"error": {"message": "input length exceeds the context window"}}, status), streams=False
        )
        assert sample.error.startswith("NoRoom: ")
        assert "input length exceeds the context window" in sample.error
        assert not sample.num_tokens
    assert not no_room("the answer exceeds expectations")


# Several servers of one model -----------------------------------------------------------------------------------------

USED = {"prompt_tokens": 9, "completion_tokens": 2}


@contextmanager
def nobody() -> Generator[str]:
    """Give the url of a port where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


def replying(*statuses: int) -> Saying:
    """Return a server that replies with these statuses, then well."""
    left = list(statuses)

    def say(asked: Asked) -> list[bytes]:
        if asked.path.endswith("/models"):
            return whole({"data": [{"id": "toy"}]})
        status = left.pop(0) if left else 200
        return message("4", usage=USED) if status == 200 else whole({"error": {"message": "busy"}}, status)

    return Saying(say)


def samples_at(
    urls: list[str], count: int, check: Callable[[OpenAIBackend], Any] = lambda _: None, **timeouts: Any
) -> Any:
    async def draw() -> Any:
        found = Capabilities(root=f"{urls[0]}/v1", model="toy", mode="chat", usage=True)
        backend = OpenAIBackend(
            found, timeouts=dataclasses.replace(QUICK, **timeouts), others=[f"{url}/v1" for url in urls[1:]]
        )
        made = []
        for _ in range(count):
            made += await drawn(backend, 1)
        check(backend)
        await backend.close()
        return made

    return asyncio.run(draw())


def test_calls_of_a_dead_server_go_to_its_twin_and_are_not_tried_there_in_turn() -> None:
    twin = replying()

    def check(backend: OpenAIBackend) -> None:
        assert backend.errors == {"ConnectionFailed": 1}, "it rests after the first call"

    with nobody() as dead, serving(twin) as url:
        samples = samples_at([dead, url], 5, check)
    assert [sample.text for sample in samples] == ["4"] * 5
    assert samples[0].error.startswith("ConnectionFailed")
    assert not any(sample.error for sample in samples[1:])
    assert len(twin.asked) == 5


@pytest.mark.parametrize(
    ("first", "second", "errors", "calls"),
    [
        *[([status], [], {""}, (1, 4)) for status in (429, 500, 503)],  # it rests while the other works
        ([400] * 4, [], {"Refused"}, (4, 0)),  # a request that no server would take goes to one alone
        ([503] * 20, [503] * 20, {"Unavailable"}, None),  # the tries are those of one server
    ],
)
def test_a_server_that_fails_rests_while_the_other_works(
    first: list[int], second: list[int], errors: set[str], calls: tuple[int, int] | None
) -> None:
    one, other = replying(*first), replying(*second)
    with serving(one) as url, serving(other) as twin:
        samples = samples_at([url, twin], 4 if calls else 1, tries=4)
    assert {sample.error.partition(":")[0] for sample in samples[1:] or samples} == errors
    assert all(sample.text == "4" or not sample.num_tokens for sample in samples)
    counts = len(one.asked), len(other.asked)
    assert counts == calls if calls else sum(counts) == 4


def test_paths_by_tokens_go_on_at_the_other_server() -> None:
    servers = [
        ToyServer(prompts=[PROMPT], fault=lambda number, _body: "503" if number == 1 else ""),
        ToyServer(prompts=[PROMPT]),
    ]
    for word in (PROMPT, *"0123456789+-= A:\n"):
        servers[1].encoded(word)

    async def draw(urls: list[str]) -> Any:
        found = Capabilities(root=f"{urls[0]}/v1", **FULL)
        backend = OpenAIBackend(found, timeouts=QUICK, others=[f"{urls[1]}/v1"])
        samples = await drawn(backend, 2)
        await backend.close()
        return samples

    with ExitStack() as stack:
        samples = asyncio.run(draw([stack.enter_context(serving(one)) for one in servers]))
    assert all(sample.text and sample.finish in ("eos", "length") for sample in samples)


# At the start ---------------------------------------------------------------------------------------------------------


def test_a_server_that_is_dead_at_the_start_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    with nobody() as dead, serving(ToyServer(prompts=[PROMPT])) as url:
        record = ModelRecord(name="toy", backend="openai", url=dead, replicas=(dead, url))
        with tts.Solver(record, task="arithmetic", strategy="best_of_n(n=2) | majority") as solver:
            found = solver.solve(PROMPT, 200)
        with pytest.raises(tts.ConfigError, match="cannot be reached"):
            tts.Solver(dataclasses.replace(record, replicas=(dead,)))
    assert len(found.candidates) == 2
    assert "its calls go to the next server" in caplog.text


def test_each_server_fails_over_to_the_next_of_its_list() -> None:
    urls = ("http://a:1", "http://b:1/v1", "http://c:1/")
    for url, others in (
        ("http://a:1", ("http://b:1/v1", "http://c:1/")),
        ("http://b:1", ("http://c:1/", "http://a:1")),
        ("http://d:1", urls),
    ):
        access = ServerAccess.of(ModelRecord(name="m", backend="openai", url=url, replicas=urls))
        assert access.others == others
    access = ServerAccess.of(ModelRecord(name="m", backend="openai", url="http://a:1", replicas=urls))
    assert access.other_roots("http://a:1/v1") == ("http://b:1/v1", "http://c:1/v1")
    assert access.other_roots("http://c:1") == ("http://a:1", "http://b:1/v1")


# The rule -------------------------------------------------------------------------------------------------------------


def test_rests_double_and_end_with_a_call_that_works() -> None:
    servers = Replicas(["a", "b"], longest_s=60.0)
    one, other = servers.all
    busy = ServerError("Unavailable", "busy", again=True, status=503)
    ends = []
    for _ in range(8):
        assert servers.choose(0.0) is (one if not ends else other)
        assert servers.note_failure(one, busy, 0.0)
        ends.append(one.rests_until)
    assert ends == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert servers.choose(59.9) is other
    assert servers.choose(60.0) is one
    servers.note_success(one)
    assert (servers.choose(0.0), one.rests_until) == (one, -math.inf)
    servers.note_failure(one, ServerError("RateLimited", "later", again=True, after_s=30.0, status=429), 0.0)
    assert one.rests_until == 30.0


def test_a_wait_that_no_try_takes_closes_a_server_until_then() -> None:
    servers = Replicas(["a"], longest_s=60.0)
    [one] = servers.all
    quota = ServerError("QuotaExceeded", "until tomorrow", after_s=3600.0, status=429)
    assert not servers.note_failure(one, quota, 0.0)
    with pytest.raises(ServerError, match="until tomorrow") as caught:
        servers.choose(3599.0)
    assert (caught.value.kind, caught.value.again) == ("QuotaExceeded", False)
    assert servers.choose(3600.0) is one
    assert not servers.note_failure(one, ServerError("Unavailable", "busy", again=True), 3600.0)
    assert servers.choose(3600.0) is one, "the only server is tried, whatever it did"
    assert not servers.note_failure(one, ServerError("Refused", "bad", status=400), 0.0)


def test_studies_and_gateways_give_every_server_the_others() -> None:
    from tts.experiments.study.config import ModelConfig

    config = ModelConfig(model={"policy": "toy-on-a-server"}, url=["http://a:1", "http://b:1"])
    assert config.records()["policy"].replicas == ("http://a:1", "http://b:1")
    assert ModelConfig(model={"policy": "toy-on-a-server"}, url=["http://a:1"]).records()["policy"].replicas == ()
