"""Keys within microseconds, without computation: of words, rationals and collections of rationals."""

from __future__ import annotations

from collections.abc import Sequence

from tts.tasks.forms.kinds import kind_form
from tts.tasks.forms.normal_form import is_words
from tts.tasks.forms.rational import rational, rational_key
from tts.tasks.forms.structure import Parts, top_level_parts

BARE = Parts(("", ""), ())
LIST = ("[", "]")


def quick_key(form: str) -> str | None:
    """Return the key of a normal form that is words, a rational, or a collection of rationals, else None."""
    if is_words(form) or kind_form(form) == form:
        return unread_key(form)
    parts = top_level_parts(form)
    values = [rational(item) for item in parts.items]
    keys = [rational_key(value) for value in values if value is not None]
    if len(keys) < len(values):
        return None
    is_single = len(keys) == 1 and parts.brackets != LIST
    return keys[0] if is_single else collection(parts, keys)


def unread_key(form: str) -> str:
    """Return the key of a normal form that is not understood, and so is equal only to itself."""
    return f"text {form}"


def collection(parts: Parts, keys: Sequence[str], *, inner: bool = False) -> str:
    """Return the key of a collection from the keys of its items.

    The keys stay in order, or are sorted if the order means nothing.

    Args:
        parts: The kind of the collection, with its items.
        keys: The keys of the items.
        inner: Whether the collection is itself an item of a collection.
    """
    if not parts.unordered:
        return f"{parts.brackets[0]}{', '.join(keys)}{parts.brackets[1]}"
    distinct_keys = sorted(set(keys))
    if parts.bracketed or len(distinct_keys) == len(keys):
        if len(distinct_keys) == 1 and not inner and not distinct_keys[0].startswith("set "):
            return distinct_keys[0]
        return f"set {{{', '.join(distinct_keys)}}}"
    return f"list {{{', '.join(sorted(keys))}}}"
