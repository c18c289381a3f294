"""Replay tree templates on our engine.

The step loop is the engine's own, draws included. The token of each draw is replaced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tts.backends.base import Row, RowSet, SampleRequest, Sampling, StopCondition
from tts.backends.engine.core import Runner
from tts.backends.engine.heads import LabelReadout, StepTemplate
from tts.backends.engine.loading import EngineOptions, make_runner
from tts.backends.engine.stats import StepReport
from tts.backends.engine.tree import KVNode, KVTree
from tts.backends.engine.views import View, ViewReadings
from tts.backends.engine.weights import Checkpoint, read_checkpoint
from tts.backends.engine.work import Draws, PrefillJob, RowEnd, SampleJob
from tts.backends.kernels.draw import HostDraws
from tts.backends.kernels.plan import BLOCK
from tts.backends.text.row_state import PathText
from tts.models import registry

SAMPLING = Sampling(temperature=0.8)


class Forced(Runner):
    """A runner whose rows append given tokens in place of the drawn ones.

    Attributes:
        tokens: the ids of each row, by the id of its job.
    """

    tokens: dict[int, list[list[int]]]

    def _take_draws(self, draws: Draws, drawn: HostDraws | None) -> None:
        if drawn is not None:
            ids = [self.tokens[id(line.job)][line.state.index][len(line.state.ids)] for line in draws.sequences]
            drawn = drawn._replace(tokens=np.where(drawn.tokens < 0, -1, np.array(ids, np.int64)))
        super()._take_draws(draws, drawn)


@dataclasses.dataclass(eq=False)
class Replayed:
    """A node of the tree.

    Args:
        ids: The tokens of the node.
        node: The node in the engine.
        path: The tokens from the root to the node's end.
        prompt: The number of its prompt.
        steps: The names of the steps between the prompt and its end, as `Replayer.texts` has them.
    """

    ids: list[int]
    node: KVNode
    path: list[int]
    prompt: int
    steps: tuple[str, ...]


class Replayer:
    """Replays on one model; a process model has the same weights and memory of its own.

    Args:
        model: A name, or a checkpoint.
        precision: The precision, as in `EngineOptions`.
        strict: Whether the executor is the strict one, which is the only one on a CPU; otherwise it is triton.
        sharing: Whether rows read common ancestors together.
        reuse: Whether a child goes on from its parent's keys and values.
        kv_budget_bytes: The memory for keys and values; None: the engine's default.
        device: The device, as in `EngineOptions`.
        options: Other options of `EngineOptions`; at most 64 rows unless they name another number.
    """

    def __init__(
        self,
        model: str | Checkpoint = "smollm2",
        *,
        precision: str = "float32",
        strict: bool = True,
        sharing: bool = True,
        reuse: bool = True,
        kv_budget_bytes: int | None = None,
        device: str = "cpu",
        **options: Any,
    ) -> None:
        if threads := options.get("threads"):
            torch.set_num_threads(threads)
        self.options = EngineOptions(
            device=device,
            precision=precision,
            executor="strict" if strict or device == "cpu" else "triton",
            kv_budget=kv_budget_bytes,
            share=sharing,
            **{"max_rows": 64, **options},
        )
        self.reuse = reuse
        checkpoint = read_checkpoint(registry.get(model)) if isinstance(model, str) else model
        made, self.renderer = make_runner(checkpoint, self.options)
        self.decoder, self.blocks = made.decoder, made.tree.pool.num_blocks
        self.limits, self.fixed = made._limits, made.fixed
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.reports: list[StepReport] = []
        self.runner, self.process = self._fresh(), self._fresh()
        if self.fixed is not None:  # graphs read and write the memory that they were captured on
            pool, self.runner.fixed = self.runner.tree.pool, self.fixed
            pool.keys, pool.values = self.fixed.pool.keys, self.fixed.pool.values
        self.runner.report = self.reports.append
        self.prompts: list[list[int]] = []
        self.views: dict[int, View] = {}  # the process model's, by number of the prompt
        self.texts: dict[str, list[int]] = {}

    def _fresh(self) -> Forced:
        tree = KVTree(self.decoder.pool(self.blocks))
        decode = self.renderer.decode
        runner = Forced(self.decoder, tree, self.limits, decode=decode, eos=frozenset(), share=self.options.share)
        runner.tokens = {}
        return runner

    def open(self, ids: list[int]) -> Replayed:
        """Read a prompt, but its last token."""
        node = self.runner.tree.add(None, ids)
        self.runner.add_prefill(PrefillJob(self.runner.tree.retain(node), len(ids) - 1, len(ids) - 1, _nothing))
        self._run(self.runner)
        self.prompts.append(ids)
        return Replayed(ids, node, ids, len(self.prompts) - 1, ())

    def expand(self, children: Sequence[tuple[Replayed, list[int]]]) -> list[Replayed]:
        """Decode children together, token by token."""
        made: dict[int, Replayed] = {}
        groups: dict[int, list[int]] = {}
        for index, (parent, _) in enumerate(children):
            groups.setdefault(id(parent) if self.reuse else index, []).append(index)
        for indices in groups.values():
            parent = children[indices[0]][0]
            tree = self.runner.tree
            node = tree.retain(parent.node) if self.reuse else tree.add(None, parent.path)
            ids = [children[index][1] for index in indices]
            rows = RowSet(
                SampleRequest(
                    None,
                    tuple(Row(index, 0, len(i)) for index, i in zip(indices, ids, strict=True)),
                    SAMPLING,
                    StopCondition(),
                )
            )

            def note_end(end: RowEnd, indices: list[int] = indices, parent: Replayed = parent) -> None:
                if end.node is None:
                    raise RuntimeError(f"a row ended {end.finish}: {end.error}")
                tokens = children[indices[end.index]][1]
                name = f"{len(self.texts)}"
                self.texts[name] = tokens
                made[indices[end.index]] = Replayed(
                    list(end.node.tokens), end.node, parent.path + tokens, parent.prompt, (*parent.steps, name)
                )

            writing = SampleJob(rows, node, PathText.skip(parent.path), note_end)
            self.runner.tokens[id(writing)] = ids
            self.runner.add_samples(writing)
        self._run(self.runner)
        self.runner.tokens = {}
        return [made[index] for index in range(len(children))]

    def score(self, nodes: Sequence[Replayed], ids: list[int]) -> Any:
        """Return the probabilities that ids come next behind each node."""
        found: dict[int, Any] = {}
        for index, each in enumerate(nodes):
            size = len(each.node.tokens)

            def note_score(reading: PrefillJob, index: int = index) -> None:
                found[index] = np.exp(reading.result()[0].logprobs)

            self.runner.add_prefill(PrefillJob(self.runner.tree.retain(each.node), size, size - 1, note_score, [ids]))
        self._run(self.runner)
        return np.array([found[index] for index in range(len(nodes))])

    def reward(self, nodes: Sequence[Replayed], ids: list[int]) -> Any:
        """Return the process model's reading after each node's last step.

        A reading is the probability of the first of two labels, and the rest.
        """
        found: dict[int, float] = {}
        template = StepTemplate(lambda text: self.texts[text], LabelReadout(ids[0], (ids[1],)))
        for index, each in enumerate(nodes):
            view = self.views.get(each.prompt)
            if view is None:
                view = self.views[each.prompt] = View(self.process, template, self.prompts[each.prompt])

            def note_reward(seen: ViewReadings, index: int = index) -> None:
                if seen.failure is not None:
                    raise seen.failure
                found[index] = float(seen.readings[-1])

            view.score(each.steps, note_reward)
        self._run(self.process)
        return np.array([[found[index], 1 - found[index]] for index in range(len(nodes))])

    def release(self, nodes: Sequence[Replayed]) -> None:
        """Give up nodes."""
        for each in nodes:
            self.runner.tree.release(each.node)

    def stats(self) -> dict[str, Any]:
        """Return exact counters, and seconds by part."""
        policy, process = self.runner.stats, self.process.stats
        counted = {name: value for name, value in dataclasses.asdict(policy).items() if isinstance(value, int)}
        return counted | {
            "prefill_tokens": policy.prefill_computed + process.prefill_computed,
            "reused_tokens": policy.prefill_reused,
            "peak_unique_tokens": self.runner.tree.pool.peak_used * BLOCK,
            "process_tokens": process.prefill_computed,
            "process_peak_tokens": self.process.tree.pool.peak_used * BLOCK,
            "replays": self.fixed.replays if self.fixed else 0,
            "seconds_planning": sum(report.planning for report in self.reports),
            "seconds_draws": sum(report.rest for report in self.reports),
            "kv_bytes_per_token": self.decoder.kv_shape.bytes_per_token,
            "weight_bytes": self.decoder.weight_bytes,
            "parameters": sum(self.decoder.products),
            "step_reports": [dataclasses.astuple(report) for report in self.reports],
        }

    @staticmethod
    def _run(runner: Runner) -> None:
        with torch.inference_mode():
            while runner.busy:
                runner.step()


def _nothing(reading: PrefillJob) -> None:
    reading.result() if reading.found else None
