"""Step boundaries inside and across tokens, characters of several bytes, and how pieces join: on a model that writes a
given text.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tts.backends.base import Row, Sample, SampleRequest, Sampling, StopCondition
from tts.backends.text.detokenizer import Detokenizer
from tts.backends.text.stops import StopScanner
from tts.tasks.base import split_after

pytest.importorskip("torch")
pytest.importorskip("transformers")

GREEDY = Sampling(temperature=0.0)


async def pieces(backend: Any, handle: Any, stop: StopCondition, *, size: int = 200) -> list[Sample]:
    """Continue a path row by row to its end."""
    found: list[Sample] = []
    text = ""
    while not found or found[-1].finish not in ("eos", "answer"):
        rows = backend.sample(
            SampleRequest(handle, (Row(1, sum(s.num_tokens for s in found), size),), GREEDY, stop, text)
        )
        sample = await rows.row(0)
        found.append(sample)
        text += sample.text
        handle = sample.handle
    return found


def run(maker: Callable[..., Any], script: str, stop: StopCondition, *, size: int = 200) -> list[Sample]:
    async def main() -> list[Sample]:
        backend, prompt = maker(script)
        (reply,) = await backend.open([prompt])
        return await pieces(backend, reply.value, stop, size=size)

    return asyncio.run(main())


@pytest.mark.parametrize("size", [1, 2, 3, 200])
@pytest.mark.parametrize("stops", [("\n\n",), ("\n", "\n\n"), ("ab", "b\n\n", "é"), ("漢字",), ("the",)])
def test_pieces_are_those_of_the_task_and_join_to_the_text(
    make_scripted: Any, stops: tuple[str, ...], size: int
) -> None:
    script = "the cab\n\nand é\n\n\nmore 漢字 text\n🙂the end"
    found = run(make_scripted, script, StopCondition(stops, at_step=True), size=size)
    assert "".join(sample.text for sample in found) == script
    ends = [sample for sample in found if sample.finish in ("stop", "eos")]
    joined: list[str] = [""]
    for sample in found:
        joined[-1] += sample.text
        if sample in ends:
            joined.append("")
    assert [piece for piece in joined if piece] == split_after(script, stops)
    assert sum(sample.num_tokens for sample in found) == len(script.encode()) + 1


@pytest.mark.slow
def test_a_boundary_inside_a_token_leaves_the_rest_to_the_next_row(make_tiny: Callable[..., Any]) -> None:
    backend = make_tiny()
    renderer = backend._renderer

    async def main() -> None:
        (reply,) = await backend.open(["the cat"])
        handle, text = reply.value, ""
        plain = await backend.sample(
            SampleRequest(handle, (Row(3, 0, 300),), Sampling(temperature=0.8), StopCondition())
        ).row(0)
        token = next(t for t in plain.token_ids if len(renderer.decode([t])) > 1 and renderer.decode([t]).isascii())
        stop = StopCondition((renderer.decode([token])[0],), at_step=True)
        tokens: list[int] = []
        carried = 0
        while True:
            rows = backend.sample(
                SampleRequest(handle, (Row(3, len(tokens), 300 - len(tokens)),), Sampling(temperature=0.8), stop, text)
            )
            sample = await rows.row(0)
            tokens += sample.token_ids
            text += sample.text
            handle = sample.handle
            carried += bool(backend._states[handle].text.carry)
            if sample.finish != "stop" or len(tokens) >= 300:
                break
        assert carried > 0
        assert tuple(tokens) == plain.token_ids
        assert plain.text.startswith(text)

    asyncio.run(main())


@pytest.mark.parametrize("size", [1, 200])
def test_the_predicate_sees_the_whole_path_at_boundaries_only(make_scripted: Any, size: int) -> None:
    seen: list[str] = []

    def finished(text: str) -> bool:
        seen.append(text)
        return "done" in text

    found = run(make_scripted, "one\n\ntwo done\n\nthree\n\n", StopCondition(("\n\n",), finished=finished), size=size)
    assert seen == ["one\n\n", "one\n\ntwo done\n\n"]
    assert found[-1].finish == "answer"
    assert "".join(sample.text for sample in found) == "one\n\ntwo done\n\n"


def test_a_carry_that_is_a_whole_step_takes_no_token(make_scripted: Any) -> None:
    scanner = StopScanner(StopCondition(("\n",), at_step=True), "", "")
    assert scanner.feed("a\n\nb")
    assert (scanner.text, scanner.carry, scanner.ended) == ("a\n", "\nb", "stop")

    async def main() -> None:
        backend, prompt = make_scripted("xyz")
        (reply,) = await backend.open([prompt])
        handle = backend._keep(
            dataclasses.replace(path := backend._states[reply.value], text=path.text._replace(carry="\nb"))
        )
        first = await backend.sample(
            SampleRequest(handle, (Row(1, 0, 9),), GREEDY, StopCondition(("\n",), at_step=True), "a\n")
        ).row(0)
        assert (first.text, first.finish, first.num_tokens) == ("\n", "stop", 0)
        second = await backend.sample(
            SampleRequest(first.handle, (Row(1, 0, 9),), GREEDY, StopCondition(("\n",), at_step=True), "a\n\n")
        ).row(0)
        assert (second.text, second.finish) == ("bxyz", "eos")

    asyncio.run(main())


def test_a_boundary_may_begin_before_the_row() -> None:
    stop = StopCondition(("\n\n",), at_step=True)
    assert StopScanner(stop, "a\n", "").feed("\nb")
    assert not StopScanner(stop, "a\n\n", "").feed("\nb")  # that newline belongs to the boundary before
    assert StopScanner(stop, "a\n\n\n", "").feed("\nb")


def test_unfinished_characters_wait_and_an_end_gives_them_out() -> None:
    data = "é漢".encode()
    shown = Detokenizer(lambda ids: bytes(ids).decode("utf-8", "replace"), [], 0, 0)
    assert [shown.push(byte) for byte in data] == ["", "é", "", "", "漢"]
    assert shown.push(0xC3) == ""
    assert shown.flush() == "\ufffd"
    broken = Detokenizer(lambda ids: bytes(ids).decode("utf-8", "replace"), [], 0, 0)
    assert [broken.push(byte) for byte in b"\xc3(\xff"] == ["", "\ufffd(", ""]


def test_a_space_between_two_pieces_is_kept() -> None:
    """Tokenizers of the SentencePiece kind drop the space that opens a text, so every token is decoded behind its
    forerunner.
    """
    words = {0: "▁the", 1: "▁cat", 2: "s"}

    def decode(ids: Any) -> str:
        return "".join(words[i] for i in ids).replace("▁", " ").removeprefix(" ")

    shown = Detokenizer(decode, [0], 0, 1)
    assert [shown.push(token) for token in (1, 2, 0)] == [" cat", "s", " the"]


def test_a_row_whose_predicate_raises_before_its_first_token_fails_alone(make_scripted: Any) -> None:
    def finished(text: str) -> bool:
        raise ValueError(f"no law for {text!r}")

    async def main() -> None:
        backend, prompt = make_scripted("xyz")
        (reply,) = await backend.open([prompt])
        path = backend._states[reply.value]
        carrying = backend._keep(dataclasses.replace(path, text=path.text._replace(carry="\n")))
        failing = SampleRequest(carrying, (Row(1, 0, 9),), GREEDY, StopCondition(("\n",), finished=finished))
        sound = SampleRequest(reply.value, (Row(1, 0, 9),), GREEDY, StopCondition())
        failed, written = [await rows.row(0) for rows in (backend.sample(failing), backend.sample(sound))]
        assert (failed.finish, failed.num_tokens, failed.error) == ("error", 0, "ValueError: no law for '\\n'")
        assert (written.text, written.finish) == ("xyz", "eos")

    asyncio.run(main())
