"""A copy of SmolLM2 that thinks: two tokens more, and a template that opens a thought.

A request may switch the thought off.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tts.backends.vllm.loading import readable
from tts.models import registry
from tts.models.registry import ModelRecord

OPEN, CLOSE = "<think>", "</think>"
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' "
    "}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is not defined or enable_thinking %}{{ '<think>\n' }}{% endif %}{% endif %}"
)


def make_thinker(folder: Path) -> ModelRecord:
    """Write the copy into a folder, and return its record. The new tokens have the embeddings of words."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with readable(registry.get("smollm2")) as location:
        model, tokenizer = AutoModelForCausalLM.from_pretrained(location), AutoTokenizer.from_pretrained(location)
    tokenizer.add_special_tokens({"additional_special_tokens": [OPEN, CLOSE]})
    tokenizer.chat_template = TEMPLATE
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    table: Any = model.get_input_embeddings().weight.data
    for place, word in ((-2, " Thinking"), (-1, " Finally")):
        table[place] = table[tokenizer.encode(word)[0]]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return ModelRecord(name="thinker", backend="engine", source="folder", location=str(folder), context=1024)
