"""Every parameter has a meaning, whichever class says it, and references to other classes are resolved."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import pytest

from tts._core.docstrings import parameter_texts, whole_docstring
from tts.cli.strategies import find_part
from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES
from tts.verifiers import VERIFIERS


@dataclass
class Base:
    """A base.

    Args:
        n, m: Whole numbers. verifier: the role
            that scores.
        p: The price of NaN.
        temperature (T): of the policy.
    """

    n: int = 1
    m: int = 1
    p: float = 0.0
    verifier: str = "main"
    temperature: float = 1.0


@dataclass
class Derived(Base):
    """A class.

    More of it.

    Args:
        own: its own.
        temperature: as in `Base`; of both.
        n: Its width, as in `Base`.
        p: As in `Base`.
        m: as in `Nowhere`.

    Cost: none.
    """

    own: int = 0


@dataclass
class Silent(Base):
    """A class that says nothing of parameters."""


def test_own_parameters_come_first_and_references_are_written_out() -> None:
    assert parameter_texts(Derived) == {
        "own": "its own.",
        "n": "Its width; whole numbers.",
        "p": "The price of NaN.",
        "m": "as in `Nowhere`.",
        "verifier": "the role that scores.",
        "temperature": "of the policy; of both.",
    }


def test_a_docstring_has_an_entry_for_each_and_keeps_the_rest() -> None:
    text = whole_docstring(Derived)
    assert text.startswith("A class.\n\nMore of it.\n\nArgs:\n    own: its own.\n    n: Its width; whole numbers.\n")
    assert text.endswith("\n\nCost: none.")
    assert whole_docstring(Silent) == (
        "A class that says nothing of parameters.\n\nArgs:\n    n: Whole numbers.\n    m: Whole numbers.\n    p: The "
        "price of NaN.\n"
        "    verifier: the role that scores.\n    temperature: of the policy.\n"
    )


@pytest.mark.parametrize(
    "registry", [STRATEGIES, STOP_RULES, SELECTIONS, VERIFIERS], ids=lambda registry: registry.kind
)
def test_every_parameter_of_every_part_has_a_meaning(registry) -> None:
    for name in registry.names():
        made = registry.get(name)
        if isinstance(made, type):
            said = parameter_texts(made, find_part)
            missing = set(inspect.signature(made).parameters) - said.keys()
            assert not missing, name
            assert not [text for text in said.values() if text.startswith("as in `")], name
