"""Trees on transformers, in two ways that people use: `Generate` and `Cached`.

`benchmarks.engine.peer_transformers` says what they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers

from benchmarks.engine.protocol import Children

Keys = list[tuple[torch.Tensor, torch.Tensor]]  # a layer's keys and values, each [rows, heads, tokens, size]


def pad_left(paths: Sequence[Sequence[int]], device: torch.device) -> dict[str, torch.Tensor]:
    width = max(map(len, paths))
    ids = torch.tensor([[0] * (width - len(path)) + list(path) for path in paths], device=device)
    mask = torch.tensor([[0] * (width - len(path)) + [1] * len(path) for path in paths], device=device)
    return {"input_ids": ids, "attention_mask": mask}


class Force(transformers.LogitsProcessor):
    """Lets each row choose its forced id, and the end of sequence behind its last."""

    def __init__(self, forced: Sequence[Sequence[int]], prompt: int, end: int, device: torch.device) -> None:
        most = max(map(len, forced))
        self.ids = torch.tensor([[*ids, *[end] * (most + 1 - len(ids))] for ids in forced], device=device)
        self.prompt = prompt

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.scatter(1, self.ids[:, input_ids.shape[1] - self.prompt].unsqueeze(1), 1e9)


class Shared:
    """Paths of token ids, and what both variants count."""

    def __init__(self, model: Any, most_rows: int) -> None:
        self.model, self.most_rows = model, most_rows
        self.reset()

    def reset(self) -> None:
        self.paths: dict[int, list[int]] = {}
        self.parents: dict[int, int] = {}
        self.computed = self.reused = self.peak = 0

    def open(self, node: int, ids: Sequence[int]) -> Sequence[int]:
        self.paths[node] = list(ids)
        self.parents[node] = -1
        return ids

    def counters(self) -> dict[str, Any]:
        return {"prefill_computed": self.computed, "prefill_reused": self.reused, "peak_kv_tokens": self.peak}


class Generate(Shared):
    def expand(self, first: int, children: Children) -> Sequence[Sequence[int]]:
        end = self.model.config.eos_token_id
        processed: list[list[int]] = []
        for start in range(0, len(children), self.most_rows):
            rows = children[start : start + self.most_rows]
            inputs = pad_left([self.paths[parent] for parent, _ in rows], self.model.device)
            prompt, new = inputs["input_ids"].shape[1], max(len(ids) for _, ids in rows)
            force = Force([ids for _, ids in rows], prompt, end, self.model.device)
            generated = self.model.generate(
                **inputs,
                max_new_tokens=new,
                do_sample=False,
                logits_processor=[force],
                eos_token_id=end,
                pad_token_id=end,
            )
            self.computed += sum(len(self.paths[parent]) for parent, _ in rows)
            self.peak = max(self.peak, len(rows) * (prompt + new))
            processed += [row[: len(ids)].tolist() for row, (_, ids) in zip(generated[:, prompt:], rows, strict=True)]
        for node, ((parent, _), ids) in enumerate(zip(children, processed, strict=True), first):
            self.paths[node] = self.paths[parent] + ids
        return processed

    def read(self, nodes: Sequence[int], ids: Sequence[int], *, process: bool) -> Sequence[Sequence[float]]:
        probabilities: list[list[float]] = []
        for start in range(0, len(nodes), self.most_rows):
            paths = [self.paths[node] for node in nodes[start : start + self.most_rows]]
            self.computed += sum(map(len, paths))
            inputs = pad_left(paths, self.model.device)
            inputs["position_ids"] = (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
            logits = self.model(**inputs, logits_to_keep=1, use_cache=False).logits[:, -1]
            probabilities += logits.float().softmax(-1)[:, list(ids)].tolist()
        return probabilities

    def release(self, nodes: Sequence[int]) -> None:
        pass  # it keeps nothing


class Batch:
    """Rows that decode together: their caches, padded on the left to one length."""

    def __init__(self, model: Any, paths: Sequence[Sequence[Keys]]) -> None:
        self.model = model
        lengths = [sum(keys[0][0].shape[2] for keys in path) for path in paths]
        width = max(lengths)
        self.mask = torch.tensor([[0] * (width - length) + [1] * length for length in lengths])
        self.cache = transformers.DynamicCache(config=model.config)
        if width:
            for layer in range(model.config.num_hidden_layers):
                rows = [[torch.cat([keys[layer][part] for keys in path], 2) for path in paths] for part in (0, 1)]
                padded = [
                    torch.cat([torch.nn.functional.pad(x, (0, 0, width - x.shape[2], 0)) for x in part])
                    for part in rows
                ]
                self.cache.update(padded[0], padded[1], layer)
        self.width = width

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Run tokens [rows, new], padded on the left where `mask` is 0; return the last position's logits."""
        new = torch.ones_like(ids) if mask is None else mask
        self.mask = torch.cat([self.mask, new], 1)
        positions = (self.mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        out = self.model(
            input_ids=ids,
            attention_mask=self.mask,
            position_ids=positions,
            past_key_values=self.cache,
            logits_to_keep=1,
        )
        return out.logits[:, -1]

    def keep(self, rows: Sequence[int]) -> None:
        index = torch.tensor(rows)
        self.cache.batch_select_indices(index)
        self.mask = self.mask[index]

    def copy_added(self, row: int, count: int) -> Keys:
        """Return a copy of the last `count` keys of a row."""
        return [
            (layer.keys[row : row + 1, :, -count:].clone(), layer.values[row : row + 1, :, -count:].clone())
            for layer in self.cache.layers
        ]


class Cached(Shared):
    """`keys[node]` are of the node's own tokens but the last, which is read when the node is first used."""

    def reset(self) -> None:
        super().reset()
        # the policy's and the process model's
        self.segments: tuple[dict[int, list[Keys]], dict[int, list[Keys]]] = ({}, {})
        self.unread: dict[int, int] = {}  # node -> its last token
        self.logits: dict[int, torch.Tensor] = {}

    def open(self, node: int, ids: Sequence[int]) -> Sequence[int]:
        super().open(node, ids)
        batch = Batch(self.model, [[]])
        batch.forward(torch.tensor([ids[:-1]]))
        self.segments[0][node] = [batch.copy_added(0, len(ids) - 1)]
        self.unread[node] = ids[-1]
        self.computed += len(ids)
        return ids

    def _use(self, nodes: Sequence[int]) -> None:
        """Read the last tokens of nodes that were not used before, all in one batch."""
        if not (new := [node for node in dict.fromkeys(nodes) if node in self.unread]):
            return
        batch = Batch(self.model, [self.segments[0][node] for node in new])
        logits = batch.forward(torch.tensor([[self.unread.pop(node)] for node in new]))
        for row, node in enumerate(new):
            self.segments[0][node] = [*self.segments[0][node], batch.copy_added(row, 1)]
            self.logits[node] = logits[row]

    def expand(self, first: int, children: Children) -> Sequence[Sequence[int]]:
        self._use([parent for parent, _ in children])
        torch.stack([self.logits[parent] for parent, _ in children]).argmax(-1)  # the draw of each first token
        batch = Batch(self.model, [self.segments[0][parent] for parent, _ in children])
        self.reused += sum(len(self.paths[parent]) for parent, _ in children)
        kept = sum({id(keys): keys[0][0].shape[2] for path in self.segments[0].values() for keys in path}.values())
        order = list(range(len(children)))
        for step in range(1, max(len(ids) for _, ids in children) + 1):
            done = [row for row, child in enumerate(order) if len(children[child][1]) == step]
            for row in done:
                self._finish(
                    first + order[row], *children[order[row]], batch.copy_added(row, step - 1) if step > 1 else None
                )
            if done:
                left = [row for row in range(len(order)) if row not in done]
                order = [order[row] for row in left]
                if not order:
                    break
                batch.keep(left)
            batch.forward(torch.tensor([[children[child][1][step - 1]] for child in order])).argmax(-1)
            self.peak = max(self.peak, batch.mask.numel() + kept)
        return [ids for _, ids in children]

    def _finish(self, node: int, parent: int, ids: Sequence[int], keys: Keys | None) -> None:
        self.paths[node] = self.paths[parent] + list(ids)
        self.parents[node] = parent
        self.segments[0][node] = [*self.segments[0][parent], *([keys] if keys else [])]
        self.unread[node] = ids[-1]

    def read(self, nodes: Sequence[int], ids: Sequence[int], *, process: bool) -> Sequence[Sequence[float]]:
        if not process:
            self._use(nodes)
            return torch.stack([self.logits[node] for node in nodes]).softmax(-1)[:, list(ids)].tolist()
        return [
            row
            for start in range(0, len(nodes), self.most_rows)
            for row in self._judge(nodes[start : start + self.most_rows], ids)
        ]

    def _judge(self, nodes: Sequence[int], ids: Sequence[int]) -> Sequence[Sequence[float]]:
        """Read the new tokens of nodes by the process model, from the nearest ancestor that it has read.

        A prompt is read once.
        """
        known = self.segments[1]
        starts = [self._nearest_read(node) for node in nodes]
        for root in dict.fromkeys(start for start in starts if start not in known):
            self._read_on([root], [self.paths[root]], [[]])
        tails = [self.paths[node][len(self.paths[start]) :] for node, start in zip(nodes, starts, strict=True)]
        logits = self._read_on(nodes, tails, [known[start] for start in starts])
        return logits.softmax(-1)[:, list(ids)].tolist()

    def _read_on(
        self, nodes: Sequence[int], tails: Sequence[Sequence[int]], paths: Sequence[Sequence[Keys]]
    ) -> torch.Tensor:
        batch = Batch(self.model, paths)
        inputs = pad_left(tails, self.model.device)
        logits = batch.forward(inputs["input_ids"], inputs["attention_mask"])
        for row, node in enumerate(nodes):
            self.segments[1][node] = [*paths[row], batch.copy_added(row, len(tails[row]))]
            self.computed += len(tails[row])
        return logits

    def _nearest_read(self, node: int) -> int:
        """Return the nearest ancestor that the process model has read, else the root."""
        while node not in self.segments[1] and self.parents[node] >= 0:
            node = self.parents[node]
        return node

    def release(self, nodes: Sequence[int]) -> None:
        for node in nodes:
            for segments in self.segments:
                segments.pop(node, None)
            self.unread.pop(node, None)
            self.logits.pop(node, None)
