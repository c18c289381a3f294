"""The same work by a server's own batch, through the HTTP backend, and through its_hub.

Figures are tokens a second and cached tokens.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tts
from benchmarks.orchestration.instant import Instant
from benchmarks.servers.processes import Process, Shares, VllmServer
from tts.backends.base import RowSet, SampleRequest, Sampling
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.rows import row_groups
from tts.budget.budget import Budget
from tts.models.registry import ModelRecord
from tts.search.ends import END, Tokens
from tts.search.needs import Needs
from tts.search.parts import Selection
from tts.search.search import Search
from tts.search.selections.best import Best
from tts.solver.solver import Solver
from tts.types import Candidate

NAME = "measured"
BLOCK = 32  # tokens: the least that vLLM's attention on CPUs takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The work of every rival.

    Args:
        prompts: The prompts.
        n: The rows of each prompt at every level.
        kept: The paths that go on.
        levels: The number of levels; 1 is best-of-n.
        tokens: The tokens of a row at a level.
    """

    prompts: tuple[str, ...]
    n: int
    kept: int
    levels: int
    tokens: int

    def message(self, prompts: Sequence[Any]) -> dict[str, Any]:
        """Return it for a driver."""
        return {"prompts": list(prompts), "n": self.n, "kept": self.kept, "levels": self.levels, "tokens": self.tokens}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBeam(tts.Strategy):
    """Beam search by steps of so many tokens: expand, score, keep.

    Its rows depend on each other as those of the rivals do.
    """

    registered_as = "step_beam"
    job: Job

    def needs(self) -> Needs:
        return Needs(capabilities=("steps",))

    async def run(self, search: Search) -> Sequence[Candidate]:
        job, live = self.job, [search.root]
        for level in range(job.levels):
            last = level + 1 == job.levels  # its rows have the same cap, and are candidates
            rows = await search.expand(
                [live[i % len(live)] for i in range(job.n)], until=END if last else Tokens(job.tokens)
            )
            children = [child for siblings in rows for child in siblings]
            await search.score(children)
            for child in children:
                search.finish(child)
            live = [child for child in children if child.status == "active"][: job.kept]
            search.keep(live)
            if not live:
                break
        return search.candidates

    def default_selection(self, *, verified: bool) -> Selection:
        return Best()


Asked = tuple[RowSet, int]  # a request, and how many calls it was: each of them reads the input


class Watched(OpenAIBackend):
    """Keeps what was asked of it."""

    def watch(self) -> list[Asked]:
        """Return the list that requests are noted in from now on."""
        self.asked: list[Asked] = []
        return self.asked

    def sample(self, request: SampleRequest) -> RowSet:
        rows = super().sample(request)
        self.asked.append((rows, len(row_groups(request, self.capabilities))))
        return rows


@dataclass(frozen=True, slots=True)
class Measured:
    """One run.

    Args:
        generated: The generated tokens.
        seconds: The seconds.
        others: The share of the machine that other processes took.
        inputs: The input tokens, where they are known.
        cached: The reused tokens, where they are known.
        allowed: The input tokens that a perfect cache would have reused.
    """

    generated: int
    seconds: float
    others: float
    inputs: int = 0
    cached: int = 0
    allowed: int = 0

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.generated / self.seconds


def reusable(requests: Sequence[Asked], block: int) -> int:
    """Return how much of the input of requests whole blocks of earlier requests could have served.

    A block is known when it was read, or written and then continued: the last token that a row writes is never
    computed.
    The last token of an input is always computed, for the next token depends on it.
    """
    known: set[tuple[int, ...]] = set()
    total = 0
    for rows, calls in requests:
        ids = tuple(rows.request.handle.ids)
        whole = [ids[: i + block] for i in range(0, len(ids) - block, block)]
        total += block * (
            next((i for i, one in enumerate(whole) if one not in known), len(whole)) + (calls - 1) * len(whole)
        )
        paths = [ids, *(ids + tuple(sample.token_ids[:-1]) for sample in rows.samples if sample is not None)]
        known.update(path[: i + block] for path in paths for i in range(0, len(path) - block + 1, block))
    return total


class Rivals:
    """The server and all of its clients, started.

    Args:
        vllm: The interpreter of vLLM.
        its_hub: The interpreter of its_hub; None: it is left out.
        model: The absolute path of a folder.

    Attributes:
        version: The versions of vLLM and its_hub.
        absent: The reason why its_hub is left out; "": it is there.

    Raises:
        SystemExit: vLLM does not start; the message is the last line of its errors.
    """

    def __init__(self, vllm: str, its_hub: str | None, model: str) -> None:
        options = {
            "dtype": "float32",
            "max_model_len": 1024,
            "max_num_seqs": 256,
            "block_size": BLOCK,
            "enforce_eager": True,
        }
        environment = {
            "VLLM_CPU_KVCACHE_SPACE": "2",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        vllm = str(Path(vllm).absolute())
        try:
            self.offline = Process([vllm, "-m", "benchmarks.servers.offline", model, json.dumps(options)], environment)
            self.server = VllmServer(vllm, model, NAME, options, environment)
            self.version = self.offline.ask()["ready"]
        except (OSError, RuntimeError) as failure:
            raise SystemExit(f"--vllm {vllm} does not start: {last_line(failure)}") from None
        self.offline.ask({"prompts": [[1, 2, 3]], "n": 2, "kept": 1, "levels": 1, "tokens": 2})
        self.its_hub: Process | None = None
        self.absent = "" if its_hub else "no --its-hub PYTHON"
        if its_hub:
            try:
                peer = Process(
                    [
                        str(Path(its_hub).absolute()),
                        "-m",
                        "benchmarks.servers.peer_its_hub",
                        f"{self.server.url}/v1",
                        NAME,
                    ]
                )
                self.version += f", its_hub {peer.ask()['ready']}"
                self.its_hub = peer
            except (OSError, RuntimeError) as failure:
                self.absent = last_line(failure)
        record = ModelRecord(name=NAME, backend="openai", url=self.server.url)
        self.backend = Watched.from_record(record)

    def offline_run(self, job: Job, ids: Sequence[Sequence[int]]) -> Measured:
        """Measure the server's own batch, or its replay of the levels."""
        shares = Shares([self.offline.group])
        told = self.offline.ask(job.message(ids))
        return Measured(told["generated"], told["seconds"], shares.others(), told["inputs"], told["cached"])

    def ours(self, job: Job) -> tuple[Measured, list[Asked]]:
        """Measure the HTTP backend; its books must be the server's."""
        assert isinstance(self.backend, Watched)
        requests, before = self.backend.watch(), self.server.count_generated()
        strategy: Any = f"best_of_n(n={job.n}) | majority" if job.levels == 1 else StepBeam(job=job)
        shares, started = Shares([self.server.group]), time.perf_counter()
        solver = Solver(
            self.backend, {"main": Instant()}, task="text", sampling=Sampling(temperature=1.0, max_tokens=job.tokens)
        )
        solutions = solver.solve_many(job.prompts, each=Budget(samples=job.n * job.levels), strategy=strategy)
        seconds, others = time.perf_counter() - started, shares.others()
        generated = self.server.count_generated() - before
        charged = sum(one.usage.generated_tokens + one.usage.cancelled_tokens for one in solutions)
        if generated != charged:
            raise AssertionError(f"the server wrote {generated} tokens, but {charged} are booked")
        cached = sum(rows.reused_tokens or 0 for rows, _ in requests)
        inputs = sum(rows.prompt_tokens for rows, _ in requests) + cached
        return Measured(generated, seconds, others, inputs, cached, reusable(requests, BLOCK)), requests

    def theirs(self, job: Job) -> Measured:
        """Measure its_hub."""
        assert self.its_hub is not None
        before, shares = self.server.count_generated(), Shares([self.server.group, self.its_hub.group])
        told = self.its_hub.ask(job.message(job.prompts))
        return Measured(self.server.count_generated() - before, told["seconds"], shares.others())


def last_line(failure: Exception) -> str:
    """Return the last line of a failure's message."""
    return (str(failure).strip().splitlines() or [type(failure).__name__])[-1]


def prompts(count: int) -> tuple[str, ...]:
    """Return problems of typical length."""
    return tuple(
        f"A shop sells {7 + i} boxes of {3 + i % 11} pencils on Monday, and twice as many boxes on Tuesday. Each "
        f"pencil costs {2 + i % 5} "
        f"cents, and {1 + i % 4} boxes are given back. How many cents has the shop earned at the end? Explain every "
        "step, then answer."
        for i in range(count)
    )


def measure(rivals: Rivals, job: Job, repeats: int) -> dict[str, list[Measured]]:
    """Return the runs of each. They take turns, and the server's cache is emptied before each run."""
    found: dict[str, list[Measured]] = {"offline": [], "ours": [], "its_hub": []}

    def note_run(name: str, run: Measured) -> None:
        found[name].append(run)
        print(
            f"{name}: {run.generated} tokens in {run.seconds:.1f} s, cached {run.cached} of {run.inputs}",
            file=sys.stderr,
            flush=True,
        )

    for _ in range(repeats):
        with rivals.server.running():
            rivals.server.forget()
            mine, requests = rivals.ours(job)
            note_run("ours", mine)
            if rivals.its_hub is not None:
                rivals.server.forget()
                with rivals.its_hub.running():
                    note_run("its_hub", rivals.theirs(job))
        opened = {
            rows.request.handle.prompt: tuple(rows.request.handle.ids) for rows, _ in requests if not rows.request.text
        }
        with rivals.offline.running():
            note_run("offline", rivals.offline_run(job, list(opened.values())))
    return found


def lines(title: str, found: Mapping[str, Sequence[Measured]]) -> list[str]:
    """Return a table of the runs."""
    out = [
        f"### {title}",
        "",
        "| | tokens/s, median [least, greatest] | share of offline | tokens | others' share of the machine |",
    ]
    out.append("| :-- | --: | --: | --: | --: |")
    for name, runs in found.items():
        if runs:
            rates = [run.rate for run in runs]
            of = statistics.median(run.rate / base.rate for run, base in zip(runs, found["offline"], strict=True))
            spread = f"{statistics.median(rates):.1f} [{min(rates):.1f}, {max(rates):.1f}]"
            out.append(
                f"| {name} | {spread} | {of:.1%} | {runs[-1].generated:,} | {max(run.others for run in runs):.0%} |"
            )
    mine, base = found["ours"][-1], found["offline"][-1]
    out += ["", f"Input tokens: {mine.inputs:,}, of which cached {mine.cached:,} ({mine.cached / mine.inputs:.1%});"]
    out += [f"whole blocks of {BLOCK} allow {mine.allowed:,}: {mine.cached / max(1, mine.allowed):.1%} of it was used."]
    out += [f"Offline: {base.inputs:,} input tokens, cached {base.cached:,} ({base.cached / base.inputs:.1%})."]
    return [*out, ""]
