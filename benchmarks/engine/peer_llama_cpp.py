"""The same trees on llama.cpp's own primitives; run in an environment that has llama-cpp-python.

    python -m benchmarks.engine.peer_llama_cpp MODEL.gguf [--kv f32|f16]

A node is a sequence of one unified cache. A child begins as a copy of its parent's sequence, which copies no keys. All
rows of a level decode in one batch a step. A process model is a second context on the same weights, which reads each
path once.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from benchmarks.engine.facts import Facts
from benchmarks.engine.protocol import Children, own_stdout, serve

OUT = own_stdout()

import llama_cpp as llama  # after standard output is ours
import numpy as np

CHUNK = 512  # most tokens of one batch
SPARE = 1024  # cells beyond what the template holds at most
TYPES = {"f32": llama.GGML_TYPE_F32, "f16": llama.GGML_TYPE_F16}

Token = tuple[int, int, int, bool]  # sequence, position, id, whether its logits are wanted


class Context:
    """One cache over the model's weights: decodes tokens of many sequences at once."""

    def __init__(self, model: Any, cells: int, sequences: int, options: argparse.Namespace) -> None:
        parameters = llama.llama_context_default_params()
        parameters.n_ctx = -(-(cells + SPARE) // 256) * 256
        parameters.n_batch = parameters.n_ubatch = CHUNK
        parameters.n_seq_max = sequences
        parameters.n_threads = parameters.n_threads_batch = options.threads
        parameters.kv_unified = True
        parameters.offload_kqv = False
        parameters.type_k = parameters.type_v = TYPES[options.kv]
        parameters.flash_attn_type = {"auto": -1, "off": 0, "on": 1}[options.flash]
        self.context = llama.llama_init_from_model(model, parameters)
        assert self.context, "llama.cpp made no context"
        self.memory = llama.llama_get_memory(self.context)
        self.batch = llama.llama_batch_init(CHUNK, 0, 1)
        self.vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))

    def decode(self, tokens: Sequence[Token]) -> np.ndarray:
        """Run tokens; return the logits that were wanted, in order, as a view that the next call overwrites."""
        parts = [self._decode(tokens[start : start + CHUNK]) for start in range(0, len(tokens), CHUNK)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _decode(self, tokens: Sequence[Token]) -> np.ndarray:
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, (sequence, position, token, wanted) in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wanted
        failed = llama.llama_decode(self.context, batch)
        assert not failed, f"llama_decode returned {failed}"
        count = sum(token[3] for token in tokens)
        if not count:
            return np.empty((0, self.vocabulary), np.float32)
        logits = np.ctypeslib.as_array(llama.llama_get_logits(self.context), (count, self.vocabulary))
        return logits if len(tokens) < CHUNK else logits.copy()

    def copy(self, source: int, target: int) -> None:
        llama.llama_memory_seq_cp(self.memory, source, target, -1, -1)

    def remove(self, sequence: int) -> None:
        llama.llama_memory_seq_rm(self.memory, sequence, -1, -1)

    def clear(self) -> None:
        llama.llama_memory_seq_rm(self.memory, -1, -1, -1)


class LlamaCpp:
    """The driver of llama.cpp.

    `paths[node]` holds a node's ids from the root. The node's sequence holds all of them, and lacks the last one until
    the node is first used.
    """

    def __init__(self, model: Any, templates: Sequence[Facts], options: argparse.Namespace) -> None:
        self.sequences = llama.llama_max_parallel_sequences()
        cells = max(one.peak_unique for one in templates)
        self.policy = Context(model, cells, self.sequences, options)
        judging = any(one.rewards for one in templates)
        self.process = Context(model, cells, self.sequences, options) if judging else self.policy
        self.reset()

    def reset(self) -> None:
        self.policy.clear()
        self.process.clear()
        self.free = list(range(self.sequences))[::-1]
        self.sequence: dict[int, int] = {}
        self.paths: dict[int, list[int]] = {}
        self.parents: dict[int, int] = {}
        self.logits: dict[int, np.ndarray] = {}  # of nodes whose last token was read
        self.mirrored: set[int] = set()  # nodes that the process model has read
        self.computed = self.reused = 0

    def _add(self, node: int, parent: int, ids: Sequence[int]) -> int:
        if not self.free:
            raise RuntimeError(
                f"the template holds more nodes than the {self.sequences} sequences that llama.cpp is built for"
            )
        self.paths[node] = [*self.paths.get(parent, []), *ids]
        self.parents[node] = parent
        self.sequence[node] = self.free.pop()
        return self.sequence[node]

    def open(self, node: int, ids: Sequence[int]) -> Sequence[int]:
        sequence = self._add(node, -1, ids)
        self.policy.decode([(sequence, position, token, False) for position, token in enumerate(ids[:-1])])
        self.computed += len(ids)
        return ids

    def _use(self, nodes: Sequence[int]) -> None:
        new = [node for node in dict.fromkeys(nodes) if node not in self.logits]
        tokens = [(self.sequence[node], len(self.paths[node]) - 1, self.paths[node][-1], True) for node in new]
        if tokens:
            self.logits |= zip(new, self.policy.decode(tokens).copy(), strict=True)

    def expand(self, first: int, children: Children) -> Sequence[Sequence[int]]:
        self._use([parent for parent, _ in children])
        rows: list[tuple[int, int, Sequence[int]]] = []
        for node, (parent, ids) in enumerate(children, first):
            self.logits[parent].argmax()  # the draw of the first token
            self.reused += len(self.paths[parent])
            rows.append((self._add(node, parent, ids), len(self.paths[parent]), ids))
            self.policy.copy(self.sequence[parent], self.sequence[node])
        processed = [[ids[-1]] for _, ids in children]
        for step in range(max(len(ids) for _, _, ids in rows) - 1):
            running = [i for i, row in enumerate(rows) if len(row[2]) > step + 1]
            tokens = [(rows[i][0], rows[i][1] + step, rows[i][2][step], True) for i in running]
            self.policy.decode(tokens).argmax(1)
            for row, i in enumerate(running):
                processed[i].insert(-1, self.policy.batch.token[row])
        return processed

    def read(self, nodes: Sequence[int], ids: Sequence[int], *, process: bool) -> Sequence[Sequence[float]]:
        if process:
            logits = self._judge(nodes)
        else:
            self._use(nodes)
            logits = np.stack([self.logits[node] for node in nodes])
        weights = np.exp(logits - logits.max(1, keepdims=True))
        return (weights[:, list(ids)] / weights.sum(1, keepdims=True)).tolist()

    def _judge(self, nodes: Sequence[int]) -> np.ndarray:
        tokens: list[Token] = []
        for node in nodes:
            start = self._mirror(node)
            path, sequence = self.paths[node], self.sequence[node]
            tokens += [(sequence, at, path[at], at == len(path) - 1) for at in range(start, len(path))]
        self.computed += len(tokens)
        return self.process.decode(tokens)

    def _mirror(self, node: int) -> int:
        """Begin a node's sequence in the process model's cache, and return how many tokens it holds there.

        A prompt is read first.
        """
        above = self.parents[node]
        while above not in self.mirrored and self.parents.get(above, -1) >= 0:
            above = self.parents[above]
        if above >= 0 and above not in self.mirrored:
            self.process.decode(
                [(self.sequence[above], at, token, False) for at, token in enumerate(self.paths[above])]
            )
            self.computed += len(self.paths[above])
            self.mirrored.add(above)
        self.mirrored.add(node)
        if above < 0:
            return 0
        self.process.copy(self.sequence[above], self.sequence[node])
        return len(self.paths[above])

    def release(self, nodes: Sequence[int]) -> None:
        for node in nodes:
            sequence = self.sequence.pop(node)
            self.policy.remove(sequence)
            self.process.remove(sequence)
            self.free.append(sequence)
            self.logits.pop(node, None)

    def counters(self) -> dict[str, Any]:
        return {"prefill_computed": self.computed, "prefill_reused": self.reused, "peak_kv_tokens": None}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--kv", choices=TYPES, default="f16")
    parser.add_argument("--flash", choices=("auto", "off", "on"), default="auto")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()

    def make(templates: Sequence[Facts]) -> tuple[LlamaCpp, dict[str, str]]:
        llama.llama_backend_init()
        parameters = llama.llama_model_default_params()
        parameters.n_gpu_layers = 0
        model = llama.llama_model_load_from_file(options.model.encode(), parameters)
        return LlamaCpp(model, templates, options), {"llama-cpp-python": version("llama-cpp-python")}

    serve(make, OUT)


if __name__ == "__main__":
    main()
