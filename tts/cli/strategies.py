"""`tts strategies`: the parts of a plan, and the strategies that run in a setting.

Without a setting the command lists the parts, or shows the documentation of one part.
"""

from __future__ import annotations

import inspect
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tts._core.display import one_visible_line, visible
from tts._core.docstrings import whole_docstring
from tts.cli.terminal import output, table

if TYPE_CHECKING:
    from rich.console import Console

    from tts.registry import Registry as Names

_UNMEASURED = "Community: its gain was not measured."
_POINTS = (
    "points: beside weighted best-of-N with a process model (docs/choose.md); without: measured elsewhere, or not yet"
)
_LONGEST = 60  # characters of a parameter with its default, in the list
Name = Annotated[
    str | None, typer.Argument(help="Show a part: how it works, its source, its cost.", show_default=False)
]
For = Annotated[
    str | None,
    typer.Option(
        "--for",
        help="List what can run, best first: a model or backend, or server chat-only; thinking; no-verifier; a task.",
        show_default=False,
    ),
]


def strategies(name: Name = None, *, setting: For = None) -> None:
    """List the strategies, stop rules and selections with their parameters, or show any part by its name.

    A name may also be that of a verifier, task, backend or embedder.

    A plan is written STRATEGY | STOP RULE | SELECTION, for example "beam(n=8) | weighted"; stop rule and selection may
    be left out. With --for, for example "server chat-only no-verifier", the list shows which strategies can run in that
    setting, those with the best evidence first, what the others lack, and where that is to be had.
    """
    from tts.errors import ConfigError
    from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES

    if setting is not None:
        if name is not None:
            raise ConfigError(f"--for is {setting!r}, but a name was given too: {name!r}", hint="leave one of them out")
        _list_runnable(setting, output())
    elif name is None:
        for table in (STRATEGIES, STOP_RULES, SELECTIONS):
            list_parts(table, output())
    else:
        _show(name, output())


def _list_runnable(setting_text: str, console: Console) -> None:
    from tts.errors import MissingDependency
    from tts.search.families import COMMUNITY, EVIDENCE, lacking, nearest, sort_by_evidence
    from tts.search.parts import STRATEGIES
    from tts.search.plan import parse
    from tts.solver.settings import setting_of, settings_with

    setting = setting_of(setting_text)
    listing = table("strategy", "points", "lacks", "nearest that runs", whole="strategy")
    not_runnable: list[tuple[str, str, str, str]] = []
    needed: dict[str, None] = {}
    for name in sort_by_evidence(STRATEGIES.names()):
        points = f"{EVIDENCE[name]:+.1f}" if name in EVIDENCE else "not measured" if name in COMMUNITY else ""
        try:
            strategy = parse(name).strategy
        except MissingDependency as failure:
            not_runnable.append((name, points, failure.cause, ""))
            continue
        missing = lacking(strategy, setting)
        needed |= dict.fromkeys(missing)
        if missing:
            not_runnable.append((name, points, ", ".join(missing), nearest(strategy, setting)))
        else:
            excluded = setting.roles == () and name in EVIDENCE  # measured with a verifier
            listing.add_row(name, "not measured" if excluded else points, "", "")
    listing.add_section()
    for row in not_runnable:
        listing.add_row(*row)
    console.print(listing)
    console.print(_POINTS)
    for need in needed:
        if places := settings_with(need):
            console.print(f"{need}: {', '.join(places)}")
    if any(need.startswith("a verifier") for need in needed):
        console.print("a verifier: --verifier, such as judge, reward(record=…) or code; `tts verifiers` lists them")


def list_parts(names: Names, console: Console) -> None:
    """Print the names of a registry with their parameters and first sentences."""
    from tts.errors import TTSError
    from tts.search.families import COMMUNITY

    listing = table(names.kind, "parameters", "what it does", whole=names.kind)
    for name in names.names():
        try:
            part = names.get(name)
        except TTSError as failure:  # of another package: the others are listed all the same
            listing.add_row(name, "", one_visible_line(failure.cause))
            continue
        summary = _doc(part).split("\n\n")[0]
        listing.add_row(
            name,
            ", ".join(_shorten(parameter) for parameter in _parameters(part)),
            one_visible_line(summary) + (f" {_UNMEASURED}" if name in COMMUNITY else ""),
        )
    console.print(listing)


def _shorten(parameter: str) -> str:
    return parameter if len(parameter) <= _LONGEST else f"{parameter[: _LONGEST - 1]}…"


def _show(name: str, console: Console) -> None:
    """Print the documentation of all parts with a name, of whatever kind."""
    from tts.backends import BACKENDS
    from tts.errors import unknown_name
    from tts.search.parts import EMBEDDERS, SELECTIONS, STOP_RULES, STRATEGIES
    from tts.tasks import TABLE
    from tts.verifiers import VERIFIERS

    tables = (STRATEGIES, STOP_RULES, SELECTIONS, VERIFIERS, TABLE, BACKENDS, EMBEDDERS)
    registries = [names for names in tables if name in names]
    if not registries:
        known_names = set(chain.from_iterable(names.names() for names in tables))
        raise unknown_name("part", name, known_names)
    for names in registries:
        _show_part(names.kind, name, names.get(name), console)


def _show_part(kind: str, name: str, part: Any, console: Console) -> None:
    from tts.search.families import COMMUNITY

    module = inspect.getmodule(part)
    console.print(f"{kind} {name}({', '.join(_parameters(part))})\n")
    if name in COMMUNITY:
        console.print(f"{_UNMEASURED}\n")
    documentation = whole_docstring(part, find_part) if isinstance(part, type) else _doc(part)
    module_text = None if module is None else inspect.getdoc(module)
    for text in (documentation, module_text):
        if text:
            console.print(visible(text) + "\n", soft_wrap=True)


def _parameters(part: Any) -> list[str]:
    """Return the parameters of a class or function with their defaults, as source text.

    Parameters of a class come before parameters of its bases.
    """
    bases = inspect.getmro(part) if isinstance(part, type) else (part,)
    depths: dict[str, int] = {}  # name of a parameter -> the nearest class that declares it, 0 for the part itself
    for depth, base in enumerate(bases):
        for name in inspect.get_annotations(base):
            depths.setdefault(name, depth)
    parameters = sorted(inspect.signature(part).parameters.values(), key=lambda p: depths.get(p.name, 0))
    return [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]


def find_part(name: str) -> type | None:
    """Return the class of a part by its registered name or its class name; None: there is no such class."""
    from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES
    from tts.verifiers import VERIFIERS

    for names in (STRATEGIES, STOP_RULES, SELECTIONS, VERIFIERS):
        for registered_name, import_path in names.entries.items():
            if name in (registered_name, import_path.rpartition(":")[2]):
                part = names.get(registered_name)
                return part if isinstance(part, type) else None
    return None


def _doc(part: Any) -> str:
    return inspect.getdoc(part) or ""
