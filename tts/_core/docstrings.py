"""Docstrings of classes that inherit parameters.

Each parameter has its meaning, whichever class documents it.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Sequence

_SECTION = re.compile(r"^Args:\n((?: {4}.*\n?|\n(?= {4}))+)", re.MULTILINE)
_CROSS_REFERENCE = re.compile(r"([^`]{0,40}?)[Aa]s in `(\w+)`(.*)", re.DOTALL)
Find = Callable[[str], type | None]


def parameter_texts(of: type, find: Find = lambda _: None) -> dict[str, str]:
    """Return the meaning of each parameter of a class; its own come before those of its bases.

    A text "as in `Base`" is replaced by the text of that base, or of another class of that name. Words around the
    reference stay.

    Args:
        of: The class.
        find: A function that returns the class of a name that is neither a base nor in the class's module. It returns
            None where there is none.
    """
    names = _parameters(of)
    classes = inspect.getmro(of)
    entries_by_class = [_entries(base, names) for base in classes]
    texts: dict[str, str] = {}
    for name in names:
        for place, entries in enumerate(entries_by_class):
            if name in entries:
                texts[name] = _resolve(of, name, entries[name], classes[place + 1 :], find)
                break
    return texts


def whole_docstring(of: type, find: Find = lambda _: None) -> str:
    """Return the docstring of a class with an entry for every parameter, inherited ones included.

    The entries are those of `parameter_texts`.
    """
    docstring, meanings = inspect.getdoc(of) or "", parameter_texts(of, find)
    if not meanings:
        return docstring
    section = "Args:\n" + "".join(f"    {name}: {meaning}\n" for name, meaning in meanings.items())
    if _SECTION.search(docstring):
        return _SECTION.sub(lambda _: section, docstring, count=1)
    summary, separator, body = docstring.partition("\n\n")
    ending = f"\n{body}" if separator else ""
    return f"{summary}\n\n{section}{ending}"


def _parameters(of: type) -> list[str]:
    """Return the parameters of a class, those that it defines itself first."""
    place_of: dict[str, int] = {}  # the place of the first class that has the name
    for place, base in enumerate(inspect.getmro(of)):
        for name in inspect.get_annotations(base):
            place_of.setdefault(name, place)
    try:
        signature = inspect.signature(of)
    except ValueError:
        return []
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [parameter.name for parameter in signature.parameters.values() if parameter.kind not in variadic]
    return sorted(names, key=lambda name: place_of.get(name, 0))


def _entries(of: type, names: Sequence[str]) -> dict[str, str]:
    """Return the texts of parameters in a class's own docstring.

    An entry may be about several parameters, and may begin on the line of another entry.
    """
    section = _SECTION.search(inspect.cleandoc(of.__dict__.get("__doc__") or "") + "\n")
    if section is None or not names:
        return {}
    known = rf"(?:{'|'.join(map(re.escape, names))})(?: \([^()]*\))?"  # a name, with its sign in the paper
    section_text = " ".join(section[1].split())
    _, *pieces = re.split(rf"(?:^|(?<=[.;?:…]) )({known}(?:, {known})*): ", section_text)  # names and texts in turn
    return {
        name.partition(" ")[0]: text.strip()
        for entry_names, text in zip(pieces[::2], pieces[1::2], strict=True)
        for name in entry_names.split(", ")
    }


def _resolve(of: type, name: str, text: str, bases: Sequence[type], find: Find) -> str:
    """Return the meaning of a parameter whose text may refer to another class."""
    reference = _CROSS_REFERENCE.fullmatch(text)
    if reference is None:
        return text
    words_before, class_name, words_after = reference.groups()
    module_classes = [value for value in vars(sys.modules[of.__module__]).values() if isinstance(value, type)]
    meaning: str | None = None
    for cls in (*bases, *module_classes, find(class_name)):
        if cls is None or cls is of or class_name not in (cls.__name__, getattr(cls, "registered_as", None)):
            continue
        meaning = parameter_texts(cls, find).get(name)
        if meaning:
            break
    if not meaning:
        return text
    prefix, suffix = words_before.strip(" ,"), words_after.strip(" .;,")
    if prefix and meaning[:1].isupper() and meaning[1:2].islower():
        meaning = meaning[0].lower() + meaning[1:]
    return "; ".join(part.rstrip(".") for part in (prefix, meaning, suffix) if part) + "."
