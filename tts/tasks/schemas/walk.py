"""The parts of a JSON schema: its subschemas by the keywords that hold them, and by references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tts.errors import ConfigError, quote

OWN_PART = 'write {"$ref": "#/$defs/…"}'
_IN_PLACE = {
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependencies",
    "extends",
    "disallow",
    "type",
}
_INSIDE = {
    "additionalItems", "additionalProperties", "contains", "contentSchema", "items", "patternProperties", "prefixItems",
    "properties", "propertyNames", "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip
_NAMED = {"$defs", "definitions"}  # which apply only where something refers to them
_OF_NAMES = {"properties", "patternProperties", "dependentSchemas", "dependencies", *_NAMED}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_MAX_EXPANSION = 1_000_000


@dataclass
class SchemaGraph:
    """The subschemas of a schema, and which of them apply where another does.

    Attributes:
        parts: The subschemas by their identity.
        in_place: The subschemas that a subschema applies to the same value, by its identity.
        inside: The subschemas that a subschema applies to a value within, by its identity.
        references: The number of references.
    """

    root: int
    parts: dict[int, dict[str, Any]] = field(default_factory=dict)
    in_place: dict[int, list[int]] = field(default_factory=dict)
    inside: dict[int, list[int]] = field(default_factory=dict)
    references: int = 0

    def patterns(self) -> list[str]:
        """Return the regular expressions of all subschemas."""
        parts = self.parts.values()
        patterns = [part["pattern"] for part in parts if isinstance(part.get("pattern"), str)]
        for part in parts:
            patterns += part.get("patternProperties", ())
        return patterns

    def expansion(self) -> int:
        """Return the number of subschemas with every reference written out, at most `_MAX_EXPANSION`.

        A subschema that leads back to itself is written out once.

        Raises:
            RecursionError: The subschemas are nested too deeply.
        """
        sizes: dict[int, int] = {}

        def size(part: int) -> int:
            if part not in sizes:
                sizes[part] = 1  # the size that counts where a child of the part leads back to the part
                children = self.in_place[part] + self.inside[part]
                sizes[part] = min(_MAX_EXPANSION, 1 + sum(map(size, children)))
            return sizes[part]

        return size(self.root)

    def leads_back(self) -> bool:
        """Whether a subschema applies itself to the same value, so that validation has no end.

        Raises:
            RecursionError: The subschemas are nested too deeply.
        """
        is_open: dict[int, bool] = {}  # False: the part was searched to its end

        def leads_back(part: int) -> bool:
            """Whether a part leads to a part whose search is still open."""
            if part in is_open:
                return is_open[part]
            is_open[part] = True
            result = any(map(leads_back, self.in_place[part]))
            is_open[part] = False
            return result

        return any(map(leads_back, self.parts))


def schema_graph(schema: Mapping[str, Any], kind: Any, resolver: Any) -> SchemaGraph:
    """Return the subschemas of a schema, with every reference looked up.

    Validation alone would look up only the references that it reaches.

    Args:
        schema: A schema that is valid by its metaschema.
        kind: The specification of JSON schemas, of the package referencing.
        resolver: A resolver of references at the schema's root, of the package referencing.

    Raises:
        ConfigError: A reference leads out of the schema, so that it would be fetched.
        referencing.exceptions.Unresolvable: A reference has no target.
    """
    graph = SchemaGraph(id(schema))
    unvisited: list[tuple[Any, Any]] = [(schema, resolver)]
    while unvisited:
        part, resolver = unvisited.pop()
        if id(part) in graph.parts:
            continue
        graph.parts[id(part)] = part
        if isinstance(part.get("$id", part.get("id")), str):
            resolver = resolver.in_subresource(kind.create_resource(part))
        references = _references(part, resolver)
        graph.references += len(references)
        children = [(keyword, child, resolver) for keyword, child in _children(part)] + references
        graph.inside[id(part)] = []
        graph.in_place[id(part)] = []
        for keyword, child, child_resolver in children:
            if not isinstance(child, dict):
                continue
            if keyword in _INSIDE:
                graph.inside[id(part)].append(id(child))
            elif keyword not in _NAMED:
                graph.in_place[id(part)].append(id(child))
            unvisited.append((child, child_resolver))
    return graph


def _references(part: Mapping[str, Any], resolver: Any) -> list[tuple[str, Any, Any]]:
    """Return the references of a subschema: each with its keyword, its target and the resolver at the target."""
    references: list[tuple[str, Any, Any]] = []
    for keyword in _REFERENCES:
        reference = part.get(keyword)
        if not isinstance(reference, str):
            continue
        if keyword == "$ref" and not reference.startswith("#"):
            raise ConfigError(f"schema refers to {quote(reference)}, but only its own parts are read", hint=OWN_PART)
        target = resolver.lookup(reference)
        references.append((keyword, target.contents, target.resolver))
    return references


def _children(part: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values that are subschemas, with the keyword that holds them."""
    for keyword in part.keys() & (_IN_PLACE | _INSIDE | _NAMED):
        value = part[keyword]
        if keyword in _OF_NAMES and isinstance(value, dict):
            yield from ((keyword, child) for child in value.values())
        elif isinstance(value, list):
            yield from ((keyword, child) for child in value)
        else:
            yield keyword, value
