"""Models that are scripts, and an agent of a few lines that speaks HTTP to the url and the key that it gets."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import tts
from tests.addons.agents.agents import write_program
from tts.backends.base import Caps, Reply, RowSet, Sample, SampleRequest, StopCondition
from tts.budget.budget import Rates
from tts.types import Prompt, prompt_text

# asks the model for lines of shell until it says "done"; prints errors of the gateway
TALKER = """
import json, os, subprocess, sys, urllib.error, urllib.request

said = [{{"role": "user", "content": open(os.environ["TTS_PROMPT_FILE"]).read()}}]
while True:
    body = json.dumps({{"model": os.environ["TTS_MODEL"], "messages": said, **({more})}}).encode()
    headers = {{"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}}
    asked = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    try:
        reply = json.load(urllib.request.urlopen(asked))
    except urllib.error.HTTPError as failure:
        print("refused:", json.load(failure)["error"]["message"])
        {after}
    text = reply["choices"][0]["message"]["content"]
    if "done" in text:
        print(text)
        break
    out = subprocess.run(text, shell=True, capture_output=True, text=True).stdout
    said += [{{"role": "assistant", "content": text}}, {{"role": "user", "content": out or "no output"}}]
"""


def talker(folder: Path, *, after: str = "sys.exit(1)", more: str = "{}") -> str:
    """Write the agent and return its name.

    Args:
        folder: Where it is written.
        after: What it does after a refusal.
        more: Further fields of its requests.
    """
    text = TALKER.format(after=after, more=more)
    return f"command:{write_program(folder / 'talker', text, f'{sys.executable} -IS')}"


class Scripted(tts.Backend):
    """A model that writes what a function of its prompt says, a word a token, and counts what it reads and writes.

    Args:
        write: The function.
        usd: Whether tokens have prices.
    """

    name = identity = "scripted"
    caps = Caps(fork="native", usage=True, streams=True, stop_predicate=True)

    def __init__(self, write: Callable[[str], str], *, usd: bool = True) -> None:
        self.write = write
        self.calls: list[str] = []
        self.rates = Rates(flops=2, usd_in=3 * 10**9, usd_out=10**10) if usd else Rates()

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        counts = [self.count(prompt) for prompt in prompts]
        self.counters.prompt_tokens += sum(counts)
        return [Reply(prompt_text(prompt), count) for prompt, count in zip(prompts, counts, strict=True)]

    def sample(self, request: SampleRequest) -> RowSet:
        rows = RowSet(request)
        for index, row in enumerate(request.rows):
            self.calls.append(request.handle)
            words = self.write(request.handle).split(" ")
            written = words[: row.max_tokens]
            self.counters.generated_tokens += len(written)
            finish = "eos" if len(written) == len(words) else "length"
            rows.resolve(index, Sample(" ".join(written), (), (), finish, request.handle, len(written)))
        return rows


TO_END = StopCondition()


def check_ledger(solution: tts.Solution, model: Scripted) -> None:
    """Assert that what a solution has spent is what the model has counted."""
    spent, counted = solution.usage, model.counters
    assert spent.requests == len(model.calls)
    assert spent.prompt_tokens == counted.prompt_tokens
    assert spent.generated_tokens + spent.cancelled_tokens == counted.generated_tokens
    if model.rates.usd_in is not None:
        dollars = model.rates.cost("usd", computed=counted.prompt_tokens, generated=counted.generated_tokens)
        assert spent.usd == pytest.approx(dollars / 10**15)
