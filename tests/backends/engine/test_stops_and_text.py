"""Where rows of the engine end and what text they have, on a model that writes given tokens; and that both backends
draw the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("numba")

from tests.backends.conftest import tiny_backend, tiny_engine  # noqa: E402
from tests.backends.engine.driving import run  # noqa: E402
from tts.backends.base import Row, Sample, SampleRequest, Sampling, StopCondition  # noqa: E402
from tts.tasks.base import split_after  # noqa: E402
from tts.types import Message  # noqa: E402

GREEDY = Sampling(temperature=0.0)
SCRIPT = ["the", " and", "x", "\n", "\n", "abc", "12", "é", "q\nz", " of", "x\n\n", "1", "ing"]


def scripted(script: Sequence[int], **options: Any) -> Any:
    """Return the engine on a model that, behind a prompt of one token, writes these tokens and ends."""
    backend = tiny_engine(threads=1, **options)
    decoder = backend.runner.decoder
    forward, size = decoder.forward, decoder.config.vocab

    def says(ids: Any, planned: Any, wanted: Any, with_logits: Any, pool: Any, **options: Any) -> Any:
        output = forward(ids, planned, wanted, with_logits, pool, **options)
        positions = planned.plan.positions[wanted[with_logits]]
        follows = torch.tensor([script[at] if at < len(script) else 0 for at in positions.tolist()], dtype=torch.int64)
        return output._replace(logits=torch.nn.functional.one_hot(follows, size).float() * 100)

    decoder.forward = says
    return backend


def ids_of(pieces: Sequence[str]) -> list[int]:
    """Return tokens by their texts; a text that is no token of its own becomes one token a byte."""
    renderer = shared()._renderer
    ids: list[int] = []
    for piece in pieces:
        found = renderer.text(piece)
        ids += found if len(found) == 1 else [renderer._bytes.index(bytes([byte])) for byte in piece.encode()]
    return ids


@cache
def shared() -> Any:
    return tiny_engine(threads=1)


async def pieces(backend: Any, handle: Any, stop: StopCondition, caps: Sequence[int], text: str = "") -> list[Sample]:
    """Continue a path row by row, with these caps in turn, to its end."""
    found: list[Sample] = []
    while not found or found[-1].finish not in ("eos", "answer", "error"):
        used = sum(sample.num_tokens for sample in found)
        row = Row(1, used, caps[len(found) % len(caps)])
        found.append(await backend.sample(SampleRequest(handle, (row,), GREEDY, stop, text)).row(0))
        text, handle = text + found[-1].text, found[-1].handle
        assert len(found) < 400, "the path makes no progress"
    return found


def told(script: Sequence[int], stop: StopCondition, caps: Sequence[int] = (200,)) -> list[Sample]:
    backend = scripted(script)

    async def main() -> list[Sample]:
        [opened] = await backend.open([">"])
        return await pieces(backend, opened.value, stop, caps)

    return run(backend, main)


def short(samples: Sequence[Sample]) -> list[tuple[str, str, int]]:
    return [(sample.text, sample.finish, sample.num_tokens) for sample in samples]


def at_step(*stops: str) -> StopCondition:
    return StopCondition(stops, at_step=True)


def test_a_stop_inside_a_token_leaves_the_rest_to_the_next_row() -> None:
    script = ids_of(["the", "abc", "12", "x"])
    assert short(told(script, at_step("b"))) == [("theab", "stop", 2), ("c12x", "eos", 3)]
    assert short(told(script, at_step("1"))) == [("theabc1", "stop", 3), ("2x", "eos", 2)]
    assert short(told(script, at_step("b", "c"))) == [("theab", "stop", 2), ("c", "stop", 0), ("12x", "eos", 3)]


def test_a_stop_across_tokens() -> None:
    script = ids_of(["x", "\n", "\n", "abc", "12", "q\nz", "1"])
    assert short(told(script, at_step("\n\n"))) == [("x\n\n", "stop", 3), ("abc12q\nz1", "eos", 5)]
    assert short(told(script, at_step("bc12q"))) == [("x\n\nabc12q", "stop", 6), ("\nz1", "eos", 2)]
    assert short(told(script, at_step("z1"))) == [("x\n\nabc12q\nz1", "stop", 7), ("", "eos", 1)]


def test_a_stop_across_rows() -> None:
    script = ids_of(["x", "\n", "\n", "abc"])
    assert short(told(script, at_step("\n\n"), [2, 5])) == [("x\n", "length", 2), ("\n", "stop", 1), ("abc", "eos", 2)]
    assert short(told(script, at_step("x\n\na"), [1])) == [
        ("x", "length", 1),
        ("\n", "length", 1),
        ("\n", "length", 1),
        ("a", "stop", 1),
        ("bc", "eos", 1),
    ]


@pytest.mark.parametrize("caps", [[1], [2, 3], [200]])
def test_characters_of_several_bytes(caps: list[int]) -> None:
    text = "a漢字é🙂b"
    script = ids_of(list(text))
    found = told(script, at_step("字", "🙂"), caps)
    ended = [sample for sample in found if sample.finish == "stop"]
    assert "".join(sample.text for sample in found) == text
    assert [sample.text[-1] for sample in ended] == ["字", "🙂"]
    assert all("\ufffd" not in sample.text for sample in found)
    half = told(ids_of(["a", "漢"])[:-1], at_step("漢"), caps)  # it ends inside of a character
    assert "".join(sample.text for sample in half) == "a\ufffd"
    assert half[-1].finish == "eos"


def test_of_several_stops_the_one_that_ends_first_wins() -> None:
    script = ids_of(["the", "abc", "\n", "\n", "12"])
    assert short(told(script, at_step("abc\n", "bc")))[0] == ("theabc", "stop", 2)
    assert short(told(script, at_step("\n\n", "\n")))[:2] == [("theabc\n", "stop", 3), ("\n", "stop", 1)]
    assert short(told(script, at_step("2", "never", "1")))[0] == ("theabc\n\n1", "stop", 5)


def test_a_stop_may_be_the_first_token_and_may_never_come() -> None:
    script = ids_of(["\n", "the", "x"])
    assert short(told(script, at_step("\n")))[0] == ("\n", "stop", 1)
    assert short(told(script, at_step("never"))) == [("\nthex", "eos", 4)]
    assert short(told(script, at_step("never"), [2])) == [("\nthe", "length", 2), ("x", "eos", 2)]
    assert short(told([], at_step("\n"))) == [("", "eos", 1)]


def test_the_predicate_ends_a_row_at_a_boundary_only() -> None:
    seen: list[str] = []

    def finished(text: str) -> bool:
        seen.append(text)
        return "abc" in text

    found = told(ids_of(["the", "\n", "abc", "12", "\n", "x"]), StopCondition(("\n",), finished=finished))
    assert short(found) == [("the\nabc12\n", "answer", 5)]
    assert seen == ["the\n", "the\nabc12\n"]


def test_a_predicate_that_raises_ends_its_own_row_alone() -> None:
    def finished(text: str) -> bool:
        raise ZeroDivisionError("one over nothing")

    backend = scripted(ids_of(["the", "\n", "abc", "12", "\n", "x"]))

    async def main() -> None:
        [opened] = await backend.open([">"])
        asked = [
            backend.sample(SampleRequest(opened.value, (Row(1, 0, 9),), GREEDY, stop))
            for stop in (StopCondition(("\n",), finished=finished), at_step("12\n"))
        ]
        for rows in asked:
            await rows.drain()
        assert asked[0].samples[0].finish == "error"
        assert asked[0].samples[0].error == "ZeroDivisionError: one over nothing"
        assert short(asked[1].samples) == [("the\nabc12\n", "stop", 5)]

    run(backend, main)


def test_a_predicate_that_raises_at_text_that_the_path_carries_ends_its_row_before_it_begins() -> None:
    def finished(text: str) -> bool:
        raise ZeroDivisionError(text)

    backend = scripted(ids_of(["x\n\n", "abc"]))

    async def main() -> None:
        [opened] = await backend.open([">"])
        step = await backend.sample(SampleRequest(opened.value, (Row(1, 0, 9),), GREEDY, at_step("\n"))).row(0)
        assert short([step]) == [("x\n", "stop", 1)], "the second line end is carried"
        rows = (Row(1, 1, 9), Row(2, 1, 9))
        asked = backend.sample(
            SampleRequest(step.handle, rows, GREEDY, StopCondition(("\n",), finished=finished), step.text)
        )
        await asked.drain()
        for sample in asked.samples:
            assert (sample.finish, sample.num_tokens, sample.handle) == ("error", 0, None)
            assert sample.error == "ZeroDivisionError: x"
        again = backend.sample(SampleRequest(step.handle, (Row(1, 1, 9),), GREEDY, StopCondition()))
        assert short([await again.row(0)]) == [("\nabc", "eos", 2)]

    run(backend, main)


@pytest.mark.parametrize("seed", range(12))
def test_any_tokens_cut_anywhere_are_the_pieces_of_their_text(seed: int) -> None:
    """Random tokens, bytes that are no text included: rows join to the decoded tokens, and to the pieces of the
    task.
    """
    draw = np.random.Generator(np.random.Philox(key=seed))
    renderer = shared()._renderer
    words, every = ids_of(SCRIPT), np.arange(1, len(renderer._bytes))
    script = [int(draw.choice(words)) if draw.random() < 0.7 else int(draw.choice(every)) for _ in range(60)]
    text = renderer.decode(script)
    starts = draw.integers(0, len(text) - 4, 3).tolist()
    stops = tuple({text[start : start + int(draw.integers(1, 4))] for start in starts} | {"\n\n"})
    caps = draw.integers(1, 9, 5).tolist() if seed % 3 else [200]
    found = told(script, at_step(*stops), caps)
    assert [token for sample in found for token in sample.token_ids] == [*script, 0]
    assert "".join(sample.text for sample in found) == text
    if all("\ufffd" not in stop for stop in stops):
        joined = [""]
        for sample in found:
            joined[-1] += sample.text
            if sample.finish == "stop":
                joined.append("")
        assert [piece for piece in joined if piece] == split_after(text, stops)


def test_text_is_the_decoding_of_the_tokens_that_are_kept() -> None:
    backend = tiny_engine(threads=1)
    renderer = backend._renderer

    async def main() -> None:
        [opened] = await backend.open(["the cat"])
        rows = tuple(Row(stream, 0, 60) for stream in range(20))
        for stop in (StopCondition(), at_step("\n", "e"), at_step("th")):
            asked = backend.sample(SampleRequest(opened.value, rows, Sampling(temperature=1.0), stop))
            await asked.drain()
            for sample in asked.samples:
                carry = backend._states[sample.handle].at.carry
                whole = renderer.decode(sample.token_ids)
                assert sample.text + carry == whole or (
                    whole.endswith("\ufffd") and whole.startswith(sample.text + carry)
                )
                if sample.finish == "stop":
                    assert sample.text.endswith(stop.step)
                    [more] = await backend.extend([sample.handle], ["xyz"])
                    row = (Row(1, sample.num_tokens, 5),)
                    after = await backend.sample(
                        SampleRequest(more.value.handle, row, GREEDY, StopCondition(), sample.text + "xyz")
                    ).row(0)
                    assert after.text.startswith(carry)

    run(backend, main)


def test_ids_that_the_tokenizer_lacks_have_no_text() -> None:
    renderer = shared()._renderer
    size = len(renderer._bytes)
    assert renderer.decode([*ids_of(["the"]), size, size + 500, *ids_of(["x"])]) == "thex"


# Both backends --------------------------------------------------------------------------------------------------------

STOPS = [
    StopCondition(),
    at_step("\n", "e"),
    at_step("th", "1"),
    StopCondition(("a", "s"), finished=lambda text: len(text) > 30),
    at_step("\n\n"),
]
SAMPLINGS = [
    GREEDY,
    Sampling(temperature=1.0),
    Sampling(temperature=0.5),
    Sampling(temperature=1.4, top_k=20),
    Sampling(temperature=1.0, top_p=0.8),
    Sampling(temperature=1.0, min_p=0.07),
    Sampling(temperature=1.1, top_k=50, top_p=0.95, min_p=0.02),
]
PROMPTS = (
    "the cat and the other one",
    (Message("user", "12 + 12 ="),),
    "é\n",
    "of the thing in the end\n\nand then " * 4,
)


async def many(backend: Any) -> list[list[Sample]]:
    """Every stop with every sampling below every prompt, and again behind a forced text."""
    opened = await backend.open(list(PROMPTS))
    longer = await backend.extend([reply.value for reply in opened], [" and the\n"] * len(PROMPTS))
    asked = []
    for which, reply in enumerate([*opened, *longer]):
        handle = reply.value if which < len(PROMPTS) else reply.value.handle
        for i, stop in enumerate(STOPS):
            for j, sampling in enumerate(SAMPLINGS):
                text = "" if which < len(PROMPTS) else " and the\n"
                row = Row(1_000 * which + 100 * i + 10 * j, len(text), 24, (i + j) % 2)
                asked.append(backend.sample(SampleRequest(handle, (row,), sampling, stop, text)))
    for rows in asked:
        await rows.drain()
    return [list(rows.samples) for rows in asked]


@pytest.mark.slow
def test_both_backends_draw_the_same_tokens_and_texts() -> None:
    engine, other = tiny_engine(threads=1), tiny_backend()
    ours, theirs = run(engine, lambda: many(engine)), run(other, lambda: many(other))
    count = 0
    for one, two in zip(chain(*ours), chain(*theirs), strict=True):
        assert (one.text, one.token_ids, one.finish, one.error) == (two.text, two.token_ids, two.finish, two.error)
        np.testing.assert_allclose(one.logprobs, two.logprobs, rtol=0, atol=1e-4)
        count += one.num_tokens
    finishes = {sample.finish for some in ours for sample in some}
    assert finishes >= {"stop", "length", "answer"}
    assert count > 2_500


def test_both_backends_end_paths_at_the_context_alike() -> None:
    async def filled(backend: Any) -> list[tuple[Any, ...]]:
        [opened] = await backend.open(["the cat and the other one"])
        asked = backend.sample(
            SampleRequest(
                opened.value, tuple(Row(k, 0, 500) for k in range(4)), Sampling(temperature=1.0), StopCondition()
            )
        )
        await asked.drain()
        ends = [(s.text, s.token_ids, s.finish, s.handle is None) for s in asked.samples]
        full = next(sample for sample in asked.samples if sample.finish == "length")
        after = await backend.sample(
            SampleRequest(full.handle, (Row(9, 0, 5),), GREEDY, StopCondition(), full.text)
        ).row(0)
        return [*ends, (after.text, after.token_ids, after.finish, after.handle is None)]

    engine, other = tiny_engine(threads=1, context=64), tiny_backend(context=64)
    ours, theirs = run(engine, lambda: filled(engine)), run(other, lambda: filled(other))
    assert ours == theirs
    assert ours[-1] == ("", (), "length", False)


def test_both_backends_say_alike_that_logits_are_no_law() -> None:
    async def broken(backend: Any) -> tuple[str, int]:
        [opened] = await backend.open(["the"])
        row = await backend.sample(SampleRequest(opened.value, (Row(1, 0, 5),), GREEDY, StopCondition())).row(0)
        return row.finish, row.num_tokens

    engine, other = scripted([]), tiny_backend()
    forward = engine.runner.decoder.forward
    engine.runner.decoder.forward = lambda *args, **options: (out := forward(*args, **options))._replace(
        logits=out.logits * torch.nan
    )
    other._model._model.lm_head.weight.data[5] = torch.nan
    found = [run(backend, lambda backend=backend: broken(backend)) for backend in (engine, other)]
    assert found == [("error", 0)] * 2


def test_rows_that_are_asked_for_at_once_end_each_by_its_own_stop() -> None:
    backend = scripted(ids_of(SCRIPT))
    text = "".join(SCRIPT)

    async def main() -> None:
        [opened] = await backend.open([">"])
        stops = ["and", "\n\n", "b", "é", "z", "of", "ing", "never"]
        asked = [backend.sample(SampleRequest(opened.value, (Row(1, 0, 99),), GREEDY, at_step(stop))) for stop in stops]
        await asyncio.gather(*(rows.drain() for rows in asked))
        for stop, rows in zip(stops, asked, strict=True):
            assert rows.samples[0].text == split_after(text, [stop])[0]

    run(backend, main)
