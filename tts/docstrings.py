"""Docstrings of classes that inherit parameters.

Each parameter has its meaning, whichever class documents it.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Sequence

_SECTION = re.compile(r"^Args:\n((?: {4}.*\n?|\n(?= {4}))+)", re.MULTILINE)
_LIKE = re.compile(r"([^`]{0,40}?)[Aa]s in `(\w+)`(.*)", re.DOTALL)
Find = Callable[[str], type | None]


def parameter_texts(of: type, find: Find = lambda _: None) -> dict[str, str]:
    """Return what each parameter of a class means, its own before those of its bases.

    A text "as in `Base`" is that of the base, or of another class of that name, with what surrounds the reference.

    Args:
        of: The class.
        find: Returns the class of a name that is neither a base nor in the class's module; None: there is none.
    """
    names = _parameters(of)
    by_class = [(base, _entries(base, names)) for base in inspect.getmro(of)]
    found: dict[str, str] = {}
    for name in names:
        for place, (_, entries) in enumerate(by_class):
            if name in entries:
                found[name] = _resolve(of, name, entries[name], [base for base, _ in by_class[place + 1 :]], find)
                break
    return found


def whole_docstring(of: type, find: Find = lambda _: None) -> str:
    """Return the docstring of a class with an entry for every parameter, inherited ones included.

    The entries are those of `parameter_texts`.
    """
    text, said = inspect.getdoc(of) or "", parameter_texts(of, find)
    if not said:
        return text
    section = "Args:\n" + "".join(f"    {name}: {meaning}\n" for name, meaning in said.items())
    if _SECTION.search(text):
        return _SECTION.sub(lambda _: section, text, count=1)
    first, separator, rest = text.partition("\n\n")
    return f"{first}\n\n{section}{separator and separator[1:]}{rest}"


def _parameters(of: type) -> list[str]:
    """Return the parameters of a class, those that it defines itself first."""
    bases = inspect.getmro(of)
    place = {name: place for place, base in reversed(list(enumerate(bases))) for name in inspect.get_annotations(base)}
    try:
        signature = inspect.signature(of)
    except ValueError:
        return []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return sorted(
        (p.name for p in signature.parameters.values() if p.kind not in kinds), key=lambda name: place.get(name, 0)
    )


def _entries(of: type, names: Sequence[str]) -> dict[str, str]:
    """Return the texts of parameters in the docstring of a class itself.

    An entry may be about several parameters, and follow another on its line.
    """
    section = _SECTION.search(inspect.cleandoc(of.__dict__.get("__doc__") or "") + "\n")
    if section is None or not names:
        return {}
    known = rf"(?:{'|'.join(map(re.escape, names))})(?: \([^()]*\))?"  # a name, with its sign in the paper
    parts = re.split(rf"(?:^|(?<=[.;?:…]) )({known}(?:, {known})*): ", " ".join(section[1].split()))[1:]
    entries = zip(parts[::2], parts[1::2], strict=True)
    return {name.partition(" ")[0]: text.strip() for of_names, text in entries for name in of_names.split(", ")}


def _resolve(of: type, name: str, text: str, bases: Sequence[type], find: Find) -> str:
    """Return the meaning of a parameter whose text may refer to another class."""
    like = _LIKE.fullmatch(text)
    if like is None:
        return text
    module = vars(sys.modules[of.__module__])
    others = [*bases, *(one for one in module.values() if isinstance(one, type)), find(like[2])]
    named = (
        one for one in others if one is not None and like[2] in (one.__name__, getattr(one, "registered_as", None))
    )
    meaning = next((said for one in named if one is not of and (said := parameter_texts(one, find).get(name))), None)
    if meaning is None:
        return text
    before, rest = like[1].strip(" ,"), like[3].strip(" .;,")
    if before and meaning[:1].isupper() and meaning[1:2].islower():
        meaning = meaning[0].lower() + meaning[1:]
    return "; ".join(part.rstrip(".") for part in (before, meaning, rest) if part) + "."
