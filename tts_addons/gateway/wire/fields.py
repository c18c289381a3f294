"""The fields that each API has, with the keys inside of them, and the handling of all other fields.

A key that is not listed here is reported as without effect. A field that would change what an answer means is refused,
unless its value asks for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tts.errors import quote
from tts_addons.gateway.failures import refuse_field

NO_THOUGHTS: Final = ({"enable_thinking": False}, {"thinking": False})  # values of `chat_template_kwargs`

_MOST_REPORTS = 20
_PLAIN = re.compile(r"[\w-]{1,80}")
_NOTHING = (None, False, "", [], {})  # values by which an unknown key asks for nothing


@dataclass(frozen=True, slots=True)
class FieldRules:
    """The fields of an API.

    Args:
        fields: The fields that are read, or have no effect on an answer.
        nested: Further such fields, whose values may have the keys below alone.
        keys: The keys that objects inside of these fields may have.
        kinds: The values of "type" whose objects are looked into. An object of another type is refused or reported as a
            whole.
        refused: Fields that would change the meaning of an answer, beside those that no API has. Each has its idle
            values, which ask for nothing.
    """

    fields: frozenset[str]
    nested: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    refused: Mapping[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])

    def check(self, body: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the reports on keys that are not known, for the reply.

        Args:
            body: The whole body, as it was parsed.

        Raises:
            ApiError: 400, a field would change the meaning of an answer, and cannot be honoured.
        """
        places_by_key: dict[str, list[str]] = {}  # by the place without indices of lists
        for name, value in body.items():
            for place in self._find_unknown(name, value):
                places_by_key.setdefault(re.sub(r"\[\d+\]", "[]", place), []).append(place)
        reports = [_report(places) for places in places_by_key.values()]
        num_omitted = len(reports) - _MOST_REPORTS
        if num_omitted <= 0:
            return tuple(reports)
        return (*reports[:_MOST_REPORTS], f"{num_omitted} more fields are not known here and had no effect")

    def _find_unknown(self, name: str, value: Any) -> Iterable[str]:
        """Return the places of what is not known of a field, or in it.

        Raises:
            ApiError: 400, the field would change the meaning of an answer.
        """
        if name in self.fields:
            return ()
        if name in self.nested:
            return self._find_keys(value, name)
        idle_values = self.refused.get(name, _CHANGES_ANSWERS.get(name))
        if idle_values is None:
            return [_quote_key(name)]
        if value not in idle_values:
            cure = _CURES.get(name, "leave it out")
            raise refuse_field(name, f"is {quote(value)}, but searches cannot honour it; {cure}", "unsupported")
        return ()

    def _find_keys(self, value: Any, place: str) -> Iterator[str]:
        """Yield the places of unknown keys in a value, which may be an object or a list of objects."""
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from self._find_keys(item, f"{place}[{index}]")
        elif isinstance(value, dict) and str(value.get("type") or "text") in self.kinds:
            for name, inner_value in value.items():
                inner_place = f"{place}.{_quote_key(name)}"
                if name in self.keys:
                    yield from self._find_keys(inner_value, inner_place)
                elif name not in _OPEN and inner_value not in _NOTHING:
                    yield inner_place


def _quote_key(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quote(name)


def _report(places: list[str]) -> str:
    """Return the report on one unknown key: its first place, and the number of further places."""
    first_place, num_further = places[0], len(places) - 1
    suffix = f"; so had {num_further} more like it" if num_further else ""
    quoted_place = first_place if first_place.startswith(("'", '"')) else f"'{first_place}'"
    return f"the field {quoted_place} is not known here and had no effect{suffix}"


# Fields that servers of open models take beside those of the APIs, with the values at which they ask for nothing ------

_FORMS = (
    "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "grammar", "regex", "ebnf",
    "structural_tag", "json_schema",
)  # fmt: skip
_CURES = {
    **dict.fromkeys(_FORMS, "a JSON schema can be given as the form of the answer"),
    **dict.fromkeys(
        ("chat_template", "chat_template_kwargs", "enable_thinking"),
        "the operator sets it for a model, in extra_body of its options",
    ),
    "top_logprobs": "logprobs gives those of the tokens that were written",
    "best_of": "a preset, or tts.strategy, chooses the best of several",
    "prefill": "put the turns of the assistant into the history",
}
_CHANGES_ANSWERS: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys((*_FORMS, "chat_template", "prefill", "suffix"), (None, "", [], {})),
    **dict.fromkeys(("truncate_prompt_tokens", "prompt_logprobs", "lora_request"), (None,)),
    **dict.fromkeys(
        ("continue_final_message", "ignore_eos", "echo", "use_beam_search", "include_stop_str_in_output"), (None, False)
    ),
    **dict.fromkeys(("stop_token_ids", "bad_words", "allowed_token_ids", "logits_processors", "documents"), (None, [])),
    **dict.fromkeys(("best_of", "length_penalty", "repetition_penalty"), (None, 1)),
    "min_tokens": (None, 0),
    "add_generation_prompt": (None, True),
    "chat_template_kwargs": (None, {}, *NO_THOUGHTS, {"enable_thinking": True}, {"thinking": True}),
    "mm_processor_kwargs": (None, {}),
}
_SHARED = (  # the fields that all APIs have, or take in the same words
    "model", "stream", "temperature", "top_p", "top_k", "min_p", "tts", "presence_penalty", "frequency_penalty",
    "logit_bias", "metadata", "service_tier",
)  # fmt: skip
_EFFECTLESS = ("user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "store")

# The APIs -------------------------------------------------------------------------------------------------------------

_OPEN = frozenset((  # keys whose values are read as they are, or have no effect on an answer
    "parameters", "input_schema", "schema", "arguments", "input", "reasoning", "annotations", "allowed_tools",
    "logprobs", "cache_control", "caller",
))  # fmt: skip
_KEYS = ("type", "text", "role", "content", "name", "description", "strict", "id", "include_obfuscation")
_THOUGHTS = ("thinking", "redacted_thinking")

CHAT = FieldRules(
    frozenset((
        *_SHARED, *_EFFECTLESS, "n", "seed", "stop", "reasoning_effort", "max_tokens", "max_completion_tokens",
        "parallel_tool_calls", "prediction", "enable_thinking", "logprobs",
    )),
    frozenset(("stream_options", "messages", "response_format", "tools", "tool_choice")),
    frozenset((
        *_KEYS, "refusal", "image_url", "url", "detail", "thinking", "signature", "data", "tool_call_id",
        "reasoning_content", "tool_calls", "index", "function", "json_schema", "include_usage",
    )),
    frozenset(("text", "refusal", "image_url", *_THOUGHTS, "function", "json_object", "json_schema")),
    {
        "top_logprobs": (None, 0),
        "modalities": (None, ["text"]),
        "audio": (None,),
        "functions": (None, []),
        "function_call": (None, "none", "auto"),
        "web_search_options": (None,),
    },
)  # fmt: skip
COMPLETIONS = FieldRules(
    frozenset((
        *_SHARED, *_EFFECTLESS, "n", "seed", "stop", "reasoning_effort", "max_tokens", "prompt", "echo", "logprobs",
    )),
    frozenset(("stream_options",)),
    CHAT.keys,
    CHAT.kinds,
    {
        "enable_thinking": (None,),
        "chat_template_kwargs": (None, {}),
        "response_format": (None, {"type": "text"}),
        "tools": (None, []),
        "tool_choice": (None, "none", "auto"),
        "functions": (None, []),
    },
)  # fmt: skip
RESPONSES = FieldRules(
    frozenset((
        *_SHARED, *_EFFECTLESS, "instructions", "max_output_tokens", "parallel_tool_calls", "previous_response_id",
        "prompt_cache_options", "include", "client_metadata", "enable_thinking",
    )),
    frozenset(("stream_options", "input", "text", "reasoning", "tools", "tool_choice")),
    frozenset((
        *_KEYS, "image_url", "detail", "refusal", "status", "phase", "call_id", "namespace", "output", "summary",
        "encrypted_content", "tools", "format", "effort", "generate_summary",
    )),
    frozenset((
        "input_text", "text", "output_text", "input_image", "refusal", "message", "function_call",
        "function_call_output", "reasoning", "function", "namespace", "json_object", "json_schema",
    )),
    {
        "background": (None, False),
        "conversation": (None,),
        "prompt": (None,),
        "top_logprobs": (None, 0),
        "truncation": (None, "disabled", "auto"),
        "max_tool_calls": (None,),
    },
)  # fmt: skip
MESSAGES = FieldRules(
    frozenset((
        *_SHARED, "max_tokens", "stop_sequences", "context_management", "inference_geo", "cache_control", "diagnostics",
        "speed", "user_profile_id", "enable_thinking",
    )),
    frozenset(("system", "messages", "tools", "tool_choice", "thinking", "output_config")),
    frozenset((
        *_KEYS, "source", "media_type", "data", "url", "tool_name", "thinking", "signature", "tool_use_id", "is_error",
        "defer_loading", "eager_input_streaming", "disable_parallel_tool_use", "budget_tokens", "effort", "format",
    )),
    frozenset((
        "text", "image", "base64", "url", "tool_reference", *_THOUGHTS, "tool_use", "tool_result", "custom", "auto",
        "any", "tool", "none", "enabled", "disabled", "adaptive", "json_schema",
    )),
    {"mcp_servers": (None, []), "container": (None, "")},
)  # fmt: skip
