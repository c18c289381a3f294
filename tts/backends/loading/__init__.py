"""Load weights and tokenizers by a model's record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts._core.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.backends.loading.digests import file_digest as file_digest
    from tts.backends.loading.digests import tensors_digest as tensors_digest
    from tts.backends.loading.digests import weights_digest as weights_digest
    from tts.backends.loading.gguf import GGUFFile as GGUFFile
    from tts.backends.loading.gguf import llama_from_gguf as llama_from_gguf
    from tts.backends.loading.gguf import llama_weights as llama_weights
    from tts.backends.loading.gguf import read_gguf as read_gguf
    from tts.backends.loading.gguf import tokenizer_from_gguf as tokenizer_from_gguf
    from tts.backends.loading.hub import HUB_HINT as HUB_HINT
    from tts.backends.loading.hub import NOT_LOADED as NOT_LOADED
    from tts.backends.loading.hub import first_line as first_line
    from tts.backends.loading.hub import hub_answers as hub_answers
    from tts.backends.loading.hub import quiet as quiet
    from tts.backends.loading.hub import unavailable as unavailable
    from tts.backends.loading.models import LoadedModel as LoadedModel
    from tts.backends.loading.models import load as load

__getattr__, __dir__, __all__ = lazy_exports(__name__)
