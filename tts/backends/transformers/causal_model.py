"""A transformers model on explicit keys and values, which reads every path alone.

Shapes: T tokens, H key-value heads, D head size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.cache_utils import DynamicCache

from tts.backends.loading.longest import longest_path
from tts.errors import ConfigError

# Keys and values of some tokens: a pair of [H, T, D] for each layer.
Segment = tuple[tuple[torch.Tensor, torch.Tensor], ...]

_CHUNK = 512  # tokens read in one pass, which bounds the memory of attention scores


class CausalModel:
    """Runs a decoder-only transformers model on explicit states.

    Idea: rounding depends on the shapes of matrix products, so nothing is batched. A path is read alone, in passes that
    only its own calls determine, and a row reads one token in each pass. So a row's bits do not depend on other rows.
    Attention is the "eager" attention of transformers.

    Args:
        model: Any decoder-only model whose layers attend to the whole path, or to a window that is at least as long as
            any path (`context`). The model is switched to evaluation and eager attention.

    Raises:
        ConfigError: The model has layers with another kind of state.
    """

    def __init__(self, model: Any) -> None:
        self._model = model.eval()
        if model.config._attn_implementation != "eager":
            model.set_attn_implementation("eager")
        config = model.config.get_text_config(decoder=True)
        self.device = model.device
        self.dtype = model.dtype
        self.num_layers: int = config.num_hidden_layers
        self.context = longest_path(config, "this backend", "use another backend for this model")
        self.parameters: int = model.num_parameters()
        self.vocab: int = model.get_input_embeddings().num_embeddings
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.kv_bytes_per_token = 2 * self.num_layers * heads * head_size * self.dtype.itemsize

    def read(
        self, state: Sequence[Segment], ids: Sequence[int], *, logits: int = 0
    ) -> tuple[Segment, NDArray[np.float32]]:
        """Read tokens after a state.

        Args:
            state: Keys and values of the tokens before, in order.
            ids: The tokens to read, at least one.
            logits: The number of last tokens whose logits are returned.

        Returns:
            The keys and values of `ids`, and the logits [logits, V].
        """
        cache = self.cache(state)
        num_before = cache.get_seq_length()
        first_wanted = len(ids) - logits
        rows: list[NDArray[np.float32]] = []  # logits of each pass
        for start in range(0, len(ids), _CHUNK):
            chunk = ids[start : start + _CHUNK]
            end = start + len(chunk)
            num_logits = max(0, min(len(chunk), end - first_wanted))
            output = self._forward(chunk, cache, logits_to_keep=max(1, num_logits))
            if num_logits:
                rows.append(output.logits[0, -num_logits:].float().cpu().numpy())
        all_rows = np.concatenate(rows) if rows else np.empty((0, 0), np.float32)
        return self.segment(cache, num_before), all_rows

    def hidden(self, state: Sequence[Segment], token: int) -> NDArray[np.float32]:
        """Return the hidden state that the output layer reads, at a token after a state."""
        output = self._forward([token], self.cache(state), output_hidden_states=True)
        return output.hidden_states[-1][0, -1].float().cpu().numpy()

    def cache(self, state: Sequence[Segment]) -> DynamicCache:
        """Return a cache that begins with a copy of a state."""
        cache = DynamicCache()
        if not state:
            return cache
        for layer in range(self.num_layers):
            segments = [segment[layer] for segment in state]
            keys = torch.cat([segment_keys for segment_keys, _ in segments], dim=1)
            values = torch.cat([segment_values for _, segment_values in segments], dim=1)
            cache.update(keys[None], values[None], layer)
        return cache

    def step(self, cache: DynamicCache, token: int) -> NDArray[np.float32]:
        """Read one token after a cache, add its keys and values to the cache, and return its logits [V]."""
        return self._forward([token], cache).logits[0, -1].float().cpu().numpy()

    @staticmethod
    def segment(cache: DynamicCache, start: int) -> Segment:
        """Return a copy of a cache's keys and values from token `start` on."""
        layers: list[Any] = cache.layers
        return tuple((layer.keys[0, :, start:].clone(), layer.values[0, :, start:].clone()) for layer in layers)

    def _forward(self, ids: Sequence[int], cache: DynamicCache, **options: Any) -> Any:
        """Return the model's output for tokens after a cache, to which their keys and values are added."""
        num_before = cache.get_seq_length()
        positions = torch.arange(num_before, num_before + len(ids), device=self.device)[None]
        tokens = torch.tensor([list(ids)], device=self.device)
        return self._model(input_ids=tokens, position_ids=positions, past_key_values=cache, use_cache=True, **options)

    def check(self) -> None:
        """Check that a step after kept keys and values computes the same as a plain pass, on a few tokens.

        Raises:
            ConfigError: The results differ, since the model's positions or masks are not supported.
        """
        ids = [token % self._model.config.get_text_config().vocab_size for token in range(11, 18)]
        with torch.inference_mode():
            pass_logits = self._model(input_ids=torch.tensor([ids], device=self.device)).logits[0, -1].float()
            segment, _ = self.read((), ids[:-1])
            step_logits = torch.from_numpy(self.step(self.cache([segment]), ids[-1]))
        gap = float((pass_logits.cpu().log_softmax(-1) - step_logits.log_softmax(-1)).abs().max())
        largest_gap = 0.05 if self.dtype == torch.float32 else 1.0
        if not gap <= largest_gap:  # NaN as well
            raise ConfigError(
                f"the architecture {type(self._model).__name__} is not supported: its steps are {gap:.2g} nats off "
                "a plain pass",
                hint="use another backend for this model",
            )
