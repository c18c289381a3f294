"""What models and clients write is read in linear time: in quadratic time, each of these texts would take hours."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tts.backends.toy.language import read_sum
from tts.errors import ConfigError
from tts.tasks.json import JsonTask
from tts.tasks.math import MathTask
from tts.thoughts import THINK
from tts.verifiers.judge import read_verdict
from tts.verifiers.rules.schema import rule

LONG = 600_000
RUNS = {
    "blanks": " ",
    "tabs": "\t",
    "lines": "\n",
    "digits": "1",
    "tags": "<tool_call>",
    "terms": "1 + ",
    "channels": "<|channel|>",
    "headings": "#### ",
    "ends": "</think>",
}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def schema_in(text: str) -> object:
    return rule(f"a JSON schema: {text}")


def calls_in(text: str) -> object:
    from tts_addons.gateway.request_task import tools_of

    tools = tools_of([TOOL], None, parallel=True)
    assert tools is not None
    return tools.calls_in(text)


def block_in(text: str) -> None:
    from tts_addons.code.blocks import choose_block

    choose_block(text)


READERS: dict[str, Callable[[str], object]] = {
    "json": JsonTask().extract,
    "schema": schema_in,
    "sum": read_sum,
    "verdict": lambda text: read_verdict(text, "score"),
    "calls": calls_in,
    "thought": lambda text: THINK.split_settled_text(text) and None,
    "answer": lambda text: MathTask().extract(text) and None,
    "program": block_in,
}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("head", ["", "```", "```json", "<tool_call>"])
@pytest.mark.parametrize("reader", READERS)
def test_a_long_run_of_one_piece_is_read_in_linear_time(reader: str, head: str, run: str) -> None:
    piece = RUNS[run]
    text = head + piece * (LONG // len(piece)) + "x"
    try:
        found = READERS[reader](text)
    except ConfigError:
        assert reader == "sum"
    else:
        assert (reader, run) == ("sum", "terms") or not found
