"""The fields that each API has, down to the keys of their parts, and the handling of all other fields.

A key that is not listed here is reported as without effect. A key that would change what an answer means is refused,
unless its value asks for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tts.errors import quote
from tts_addons.gateway.failures import refuse_field

NO_THOUGHTS: Final = ({"enable_thinking": False}, {"thinking": False})  # values of `chat_template_kwargs`

ANY: Final = None  # in place of a shape: the value is read as it is, or has no effect on an answer
_MOST_REPORTS = 20
_PLAIN = re.compile(r"[\w-]{1,80}")


@dataclass(frozen=True, slots=True)
class Kinds:
    """The keys of an object by its kind, which one of the keys names, such as "type".

    Args:
        key: The key that names the kind.
        shapes: The keys of each kind, with the shape of each value. An object of another kind is refused or reported as
            a whole.
        default: The kind of an object without that key.
    """

    key: str
    shapes: Mapping[str, Mapping[str, Any]]
    default: str = ""

    def keys(self, value: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the keys of an object; None: its kind is not listed."""
        kind = value.get(self.key) or self.default
        return self.shapes.get(kind) if isinstance(kind, str) else None


# The shape of a value: `ANY`, the keys of an object or of each object of a list, `Kinds` of them, or the values that
# ask for nothing.
Shape = Mapping[str, Any] | Kinds | tuple[Any, ...] | None


@dataclass(frozen=True, slots=True)
class FieldRules:
    """The fields of an API.

    Args:
        known: The shape of each field that is read, or has no effect on an answer.
        refused: Further fields that would change the meaning of an answer, or keys of a field as "field.key". Each has
            its idle values, which ask for nothing.
    """

    known: Mapping[str, Shape]
    refused: Mapping[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])

    def check(self, body: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the reports on keys that are not known, for the reply.

        Args:
            body: The whole body, as it was parsed.

        Raises:
            ApiError: 400, a field would change the meaning of an answer, and cannot be honoured.
        """
        refused: Mapping[str, tuple[Any, ...]] = {**_CHANGES_ANSWERS, **self.refused}
        for name, idle_values in refused.items():
            outer_key, _dot, inner_key = name.partition(".")
            part: Any = body.get(outer_key) if inner_key else body
            key = inner_key or outer_key
            if name in self.known or not isinstance(part, dict) or key not in part:
                continue
            if part[key] not in idle_values:
                cure = _CURES.get(name, "leave it out")
                raise refuse_field(
                    name, f"{name} is {quote(part[key])}, but searches cannot honour it; {cure}", "unsupported"
                )
        places_by_key: dict[str, list[str]] = {}  # by the place without indices of lists
        for place in _unknown_keys(body, {**refused, **self.known}, ""):
            places_by_key.setdefault(re.sub(r"\[\d+\]", "[]", place), []).append(place)
        reports = [_report(places) for places in places_by_key.values()]
        num_omitted = len(reports) - _MOST_REPORTS
        if num_omitted <= 0:
            return tuple(reports)
        return (*reports[:_MOST_REPORTS], f"{num_omitted} more fields are not known here and had no effect")


def _unknown_keys(value: Any, shape: Shape, place: str) -> Iterator[str]:
    """Yield the places of keys in a value that its shape does not have, or whose values are not idle.

    Args:
        value: An object, a list of objects, or another value, which has no keys.
        shape: The shape of the object, or of each object of the list.
        place: The place of the value in the body; "": the body itself.
    """
    items = value if isinstance(value, list) else [value]
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            continue
        item_place = f"{place}[{index}]" if isinstance(value, list) else place
        known_keys = shape.keys(item) if isinstance(shape, Kinds) else shape
        if not isinstance(known_keys, Mapping):
            continue
        for name, inner_value in item.items():
            shown_name = name if _PLAIN.fullmatch(name) else quote(name)
            inner_place = f"{item_place}.{shown_name}" if item_place else shown_name
            if name not in known_keys:
                yield inner_place
                continue
            inner_shape = known_keys[name]
            if isinstance(inner_shape, tuple) and inner_value not in inner_shape:
                yield inner_place
            else:
                yield from _unknown_keys(inner_value, inner_shape, inner_place)


def _report(places: list[str]) -> str:
    """Return the report on one unknown key: its first place, and the number of further places."""
    first_place, num_further = places[0], len(places) - 1
    suffix = f"; so had {num_further} more like it" if num_further else ""
    quoted_place = first_place if first_place.startswith(("'", '"')) else f"'{first_place}'"
    return f"the field {quoted_place} is not known here and had no effect{suffix}"


def _keys(*names: str) -> dict[str, Shape]:
    """Return the shape of keys with any values."""
    return dict.fromkeys(names, ANY)


# Fields that servers of open models take beside those of the APIs, with the values at which they ask for nothing ------

_FORM_CURE = "a JSON schema can be given as the form of the answer"
_SERVER_CURE = "the operator sets it for a model, in extra_body of its options"
_STRUCTURES = tuple(
    f"structured_outputs.{name}" for name in ("regex", "choice", "grammar", "json_object", "structural_tag")
)
_CURES = {
    **dict.fromkeys(("guided_regex", "guided_choice", "guided_grammar", "grammar", "regex", "ebnf"), _FORM_CURE),
    **dict.fromkeys(("structural_tag", "json_schema", *_STRUCTURES), _FORM_CURE),
    **dict.fromkeys(("chat_template", "chat_template_kwargs", "enable_thinking"), _SERVER_CURE),
    "best_of": "a preset, or tts.strategy, chooses the best of several",
    "top_logprobs": "logprobs gives those of the tokens that were written",
    "prefill": "put the turns of the assistant into the history",
}
_CHANGES_ANSWERS: Mapping[str, tuple[Any, ...]] = {
    "guided_regex": (None, ""),
    "guided_choice": (None, []),
    "guided_grammar": (None, ""),
    "grammar": (None, ""),
    "regex": (None, ""),
    "ebnf": (None, ""),
    "structural_tag": (None,),
    "json_schema": (None,),
    **dict.fromkeys(_STRUCTURES, (None, False)),
    "min_tokens": (None, 0),
    "continue_final_message": (None, False),
    "add_generation_prompt": (None, True),
    "ignore_eos": (None, False),
    "echo": (None, False),
    "best_of": (None, 1),
    "prefill": (None, ""),
    "suffix": (None, ""),
    "use_beam_search": (None, False),
    "length_penalty": (None, 1),
    "repetition_penalty": (None, 1),
    "include_stop_str_in_output": (None, False),
    "stop_token_ids": (None, []),
    "bad_words": (None, []),
    "allowed_token_ids": (None, []),
    "logits_processors": (None, []),
    "truncate_prompt_tokens": (None,),
    "prompt_logprobs": (None,),
    "chat_template": (None, ""),
    "chat_template_kwargs": (None, {}, *NO_THOUGHTS, {"enable_thinking": True}, {"thinking": True}),
    "documents": (None, []),
    "mm_processor_kwargs": (None, {}),
    "lora_request": (None,),
}
_SHARED: Mapping[str, Shape] = {  # the fields that all APIs have, or take in the same words
    **_keys("model", "stream", "temperature", "top_p", "top_k", "min_p", "tts"),
    **_keys("presence_penalty", "frequency_penalty", "logit_bias", "guided_json", "enable_thinking"),
    "structured_outputs": {"json": ANY, **{name.partition(".")[2]: (None, False) for name in _STRUCTURES}},
}
# the shared fields that give the form of an answer, which completions lack
_FORMS = ("guided_json", "structured_outputs")
_EFFECTLESS = _keys(
    "user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "metadata"
)

# Chat completions -----------------------------------------------------------------------------------------------------

_THOUGHTS: Mapping[str, Mapping[str, Shape]] = {
    kind: _keys("type", "thinking", "text", "signature", "data") for kind in ("thinking", "redacted_thinking")
}
_CHAT_PARTS = Kinds(
    "type",
    {
        "text": {"type": ANY, "text": ANY, "cache_control": ANY},
        "refusal": {"type": ANY, "refusal": ANY},
        "image_url": {"type": ANY, "image_url": {"url": ANY, "detail": ANY}, "cache_control": ANY},
        **_THOUGHTS,
    },
)
_TURN: Mapping[str, Shape] = {"role": ANY, "content": _CHAT_PARTS, "name": (None,)}
_TURNS = Kinds(
    "role",
    {
        **dict.fromkeys(("system", "developer", "user"), _TURN),
        "tool": {**_TURN, "name": ANY, "tool_call_id": ANY},
        "assistant": {
            **_TURN,
            **_keys("refusal", "reasoning_content", "reasoning", "annotations"),
            "audio": (None,),
            "function_call": (None,),
            "tool_calls": {
                **_keys("id", "type", "index"),
                "function": {"name": ANY, "arguments": ANY},
                "custom": {"name": ANY, "input": ANY},
            },
        },
    },
)
_FORM = {"text": {"type": ANY}, "json_object": {"type": ANY}}
_SCHEMA = {"name": ANY, "schema": ANY, "strict": ANY}
_FUNCTION = {"name": ANY, "description": ANY, "parameters": ANY, "strict": ANY}

CHAT = FieldRules(
    {
        **_SHARED,
        **_EFFECTLESS,
        **_keys("n", "seed", "stop", "reasoning_effort", "max_tokens", "max_completion_tokens", "parallel_tool_calls"),
        **_keys("store", "prediction", "logprobs"),
        "stream_options": {"include_usage": ANY, "include_obfuscation": ANY},
        "messages": _TURNS,
        "response_format": Kinds("type", {**_FORM, "json_schema": {"type": ANY, "json_schema": _SCHEMA}}),
        "tools": Kinds("type", {"function": {"type": ANY, "function": _FUNCTION}}),
        "tool_choice": {**_keys("type", "allowed_tools"), "function": {"name": ANY}, "custom": {"name": ANY}},
    },
    {
        "top_logprobs": (None, 0),
        "modalities": (None, ["text"]),
        "audio": (None,),
        "functions": (None, []),
        "function_call": (None, "none", "auto"),
        "web_search_options": (None,),
    },
)
COMPLETIONS = FieldRules(
    {
        **{name: shape for name, shape in _SHARED.items() if name not in (*_FORMS, "enable_thinking")},
        **_EFFECTLESS,
        **_keys("n", "seed", "stop", "reasoning_effort", "max_tokens", "store"),
        **_keys("prompt", "suffix", "best_of", "echo", "logprobs"),
        "stream_options": CHAT.known["stream_options"],
    },
    {
        **dict.fromkeys((*_FORMS, "enable_thinking"), (None,)),
        "chat_template_kwargs": (None, {}),
        "response_format": (None, {"type": "text"}),
        "tools": (None, []),
        "tool_choice": (None, "none", "auto"),
        "functions": (None, []),
    },
)

# Responses ------------------------------------------------------------------------------------------------------------

_ITEM_PARTS = Kinds(
    "type",
    {
        "input_text": {"type": ANY, "text": ANY},
        "text": {"type": ANY, "text": ANY},
        "output_text": {"type": ANY, "text": ANY, "annotations": ANY, "logprobs": ANY},
        "input_image": {"type": ANY, "image_url": ANY, "detail": ANY, "file_id": (None,)},
        "refusal": {"type": ANY, "refusal": ANY},
    },
)
_CALL = _keys("type", "id", "call_id", "name", "namespace", "arguments", "status")
_ITEMS = Kinds(
    "type",
    {
        "message": {**_keys("type", "role", "id", "status", "phase"), "content": _ITEM_PARTS},
        "function_call": _CALL,
        "function_call_output": {**_keys("type", "id", "call_id", "status"), "output": _ITEM_PARTS},
        "reasoning": _keys("type", "id", "summary", "content", "encrypted_content", "status"),
    },
    "message",
)
_FLAT = {"function": {"type": ANY, **_FUNCTION}}
_SPACE = {"type": ANY, "name": ANY, "description": ANY, "tools": Kinds("type", _FLAT)}

RESPONSES = FieldRules(
    {
        **_SHARED,
        **_EFFECTLESS,
        **_keys("instructions", "max_output_tokens", "parallel_tool_calls", "store", "previous_response_id"),
        **_keys("prompt_cache_options", "include", "client_metadata"),
        "stream_options": {"include_obfuscation": ANY},
        "input": _ITEMS,
        "text": {"format": Kinds("type", {**_FORM, "json_schema": {"type": ANY, **_SCHEMA}})},
        "reasoning": {"effort": ANY, "summary": ANY, "generate_summary": ANY},
        "tools": Kinds("type", {**_FLAT, "namespace": _SPACE}),
        "tool_choice": Kinds(
            "type",
            {
                **dict.fromkeys(("function", "custom"), _keys("type", "name")),
                "allowed_tools": {"type": ANY, "mode": ANY, "tools": {"type": ANY, "name": ANY}},
            },
        ),
    },
    {
        "background": (None, False),
        "conversation": (None,),
        "prompt": (None,),
        "top_logprobs": (None, 0),
        "truncation": (None, "disabled", "auto"),
        "max_tool_calls": (None,),
    },
)

# Messages -------------------------------------------------------------------------------------------------------------

_TEXT_BLOCK: Mapping[str, Shape] = {"type": ANY, "text": ANY, "cache_control": ANY, "citations": (None, [])}
_IMAGE_BLOCK: Mapping[str, Shape] = {
    "type": ANY,
    "source": {"type": ANY, "media_type": ANY, "data": ANY, "url": ANY},
    "cache_control": ANY,
}
_RESULT_PARTS = Kinds(
    "type", {"text": _TEXT_BLOCK, "image": _IMAGE_BLOCK, "tool_reference": {"type": ANY, "tool_name": ANY}}
)
_BLOCKS = Kinds(
    "type",
    {
        **_RESULT_PARTS.shapes,
        **_THOUGHTS,
        "tool_use": _keys("type", "id", "name", "input", "cache_control", "caller"),
        "tool_result": {
            "type": ANY,
            "tool_use_id": ANY,
            "content": _RESULT_PARTS,
            "is_error": ANY,
            "cache_control": ANY,
        },
    },
)
_TOOL = _keys(
    "type", "name", "description", "input_schema", "strict", "cache_control", "defer_loading", "eager_input_streaming"
)

MESSAGES = FieldRules(
    {
        **_SHARED,
        **_keys("max_tokens", "stop_sequences", "context_management"),
        **_keys(
            "metadata", "service_tier", "inference_geo", "cache_control", "diagnostics", "speed", "user_profile_id"
        ),
        "system": _TEXT_BLOCK,
        "messages": {"role": ANY, "content": _BLOCKS},
        "tools": Kinds("type", {"custom": _TOOL}, "custom"),
        "tool_choice": {"type": ANY, "name": ANY, "disable_parallel_tool_use": ANY},
        "thinking": {"type": ANY, "budget_tokens": ANY, "display": (None, "summarized")},
        "output_config": {"effort": ANY, "format": {"type": ANY, "schema": ANY}},
    },
    {"mcp_servers": (None, []), "container": (None, "")},
)
