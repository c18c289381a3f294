"""The pages of the site that are made of the code: methods, command line, the two files of settings.

A method's page has its row of docs/reference/methods.md, and a figure of a search that runs as the site is built. Its
docstrings, its parameters as a user writes them, its file, and the pseudocode that the file names follow.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import site_figures
from pydantic import BaseModel
from pydantic.fields import FieldInfo

_ROW = re.compile(r"^\| `(\w+)` \| (.*) \|$", re.MULTILINE)
_ARXIV = re.compile(r"(?<![\w./])\d{4}\.\d{4,5}(?![\w])")
_SHORT = 22  # characters of a parameter in the table
_COLUMNS = ("Paper", "Needs", "Cost", "Pays", "Measured")
_WHERE = {
    "methods": "methods.md", "second wave": "second_wave.md", "selections": "selections.md",
    "confidences": "confidences.md", "splits": "splits.md", "recorded": "recorded.md", "allocator": "allocator.md",
    "cascades": "cascades.md", "sharpened": "power_rounds.md",
}  # fmt: skip


def pages(root: Path) -> dict[str, str]:
    """Return the text of every generated page by its path in the documentation."""
    made: dict[str, str] = {}
    for name, text, figure in _methods(root):
        made |= {f"reference/methods/{name}.md": text, f"reference/methods/{name}.svg": figure.picture}
    return {**made, "reference/cli.md": command_line(), **_settings()}


def linked_table(markdown: str) -> str:
    """Return the table of methods, in which names are links to their pages, and measurements to theirs.

    Under each name stand its first parameters, as a user writes them.
    """

    def row(found: re.Match[str]) -> str:
        paper, *cells, measured = found[2].split(" | ")
        row = [
            f"[`{found[1]}`](methods/{found[1]}.md){_begin(found[1])}",
            linked_papers(paper),
            *cells,
            _link_measurements(measured, "../results"),
        ]
        return f"| {' | '.join(row)} |"

    return _ROW.sub(row, markdown)


def _begin(name: str) -> str:
    """Return the first parameters of a method with their defaults, in a line of their own."""
    from tts.cli.strategies import find_part

    written = [text for text, _ in _spellings(find_part(name)).values()]
    shown = [text for text in written if len(text) <= _SHORT][:2]
    return "<br>" + " ".join(f"`{text}`" for text in [*shown, *["…"] * (len(written) > 2)]) if written else ""


def linked_papers(text: str) -> str:
    """Return a text in which numbers of arXiv are links to their papers."""
    return _ARXIV.sub(lambda found: f"[{found[0]}](https://arxiv.org/abs/{found[0]})", text)


def navigation() -> list[dict[str, Any]]:
    """Return the entries of the side navigation for methods: all of them, then the pages by kind."""
    from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES
    from tts.verifiers import VERIFIERS

    kinds = {"Strategies": STRATEGIES, "Stop rules": STOP_RULES, "Selections": SELECTIONS, "Verifiers": VERIFIERS}
    of_kinds = [
        {title: [{name: f"reference/methods/{name}.md"} for name in table.entries]} for title, table in kinds.items()
    ]
    return [{"All methods": "reference/methods.md"}, *of_kinds]


def _link_measurements(cell: str, folder: str) -> str:
    return f"[{cell}]({folder}/{_WHERE[cell]})" if cell in _WHERE else cell


def _methods(root: Path) -> Iterator[tuple[str, str, site_figures.Figure]]:
    """Yield each strategy, stop rule, selection and verifier with its page and its figure."""
    from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES
    from tts.verifiers import VERIFIERS

    table = dict(_ROW.findall((root / "docs/reference/methods.md").read_text(encoding="utf-8")))
    boxes = _boxes((root / "scripts/pseudocode.md").read_text(encoding="utf-8"))
    for registry in (STRATEGIES, STOP_RULES, SELECTIONS, VERIFIERS):
        for name, place in registry.entries.items():
            figure = site_figures.figure(name)
            shown = ["## A search", "", f"![{figure.words}]({name}.svg)", "", figure.caption, *figure.spent, ""]
            yield name, _method(root, f"{registry.kind} `{name}`", place, [*_cells(table[name]), *shown], boxes), figure


def _boxes(text: str) -> dict[str, str]:
    """Return the boxes by their letters."""
    return {part.split(".", 1)[0]: part for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]}


def _cells(row: str) -> list[str]:
    """Return a row of the table of methods as a table of its own."""
    cells = row.split(" | ")
    cells[0], cells[-1] = linked_papers(cells[0]), _link_measurements(cells[-1], "../../results")
    return [f"| {' | '.join(_COLUMNS)} |", "| :-- | :-- | :-- | :-- | :-- |", f"| {' | '.join(cells)} |", ""]


def _method(root: Path, title: str, place: str, begin: Sequence[str], boxes: Mapping[str, str]) -> str:
    """Return the page of one method.

    Args:
        root: The checkout.
        title: The title of the page.
        place: The place of the method's class.
        begin: The lines before its parameters.
        boxes: The algorithm boxes, by their letters.
    """
    from tts.search.families import COMMUNITY

    module, _, attribute = place.partition(":")
    path = root / (module.replace(".", "/") + ".py")
    if not path.exists():
        path = path.with_suffix("") / "__init__.py"
    source = path.read_text(encoding="utf-8")
    parameters = list(_parameters(getattr(importlib.import_module(module), attribute)))
    lines = ["---", "hide: [toc]", "---", f"# {title[0].upper()}{title[1:]}", "", "[All methods](../methods.md)", ""]
    if title.rpartition("`")[0].rpartition("`")[2] in COMMUNITY:
        lines += ["**Community**: it keeps every budget and law that the others keep. Its gain was not measured.", ""]
    lines += [
        *begin,
        f"::: {module}.{attribute}",
        "    options: {members: false, show_root_heading: false, heading_level: 3, "
        f"show_docstring_parameters: {str(not parameters).lower()}}}",
        "",
        *parameters,
    ]
    if source.count('"""', 0, source.find("from __future__")) and "\n\n" in source.split('"""')[1]:
        lines += [
            "## Source and departures",
            "",
            f"::: {module}",
            "    options: {members: false, show_root_heading: false}",
            "",
        ]
    named = list(dict.fromkeys(re.findall(r"algorithms? ([AB]\d+)", source)))
    found = [boxes[one] for one in named if one in boxes]
    shown = source[source.find("\n@dataclass") + 1 :] if "\n@dataclass" in source else source
    code = ["", f'```python title="{path.relative_to(root).as_posix()}"', shown.rstrip(), "```", ""]
    if found:
        lines += [
            "## The published pseudocode and our code",
            "",
            '<div class="box-and-lines" markdown>',
            "<div markdown>",
            "",
        ]
        lines += [f"### {box}" for box in found]
        lines += ["</div>", "<div markdown>", "", "### Our code", *code, "</div>", "</div>"]
    else:
        lines += ["## Our code", *code]
    return "\n".join(lines) + "\n"


def _parameters(part: Any) -> Iterator[str]:
    """Yield the lines about the parameters of a method: as a user writes them, with the values that each takes."""
    from tts.checks import declared_rules

    written = _spellings(part)
    if not written:
        return
    rules = {name: _rule_words(rule, ", or None" * optional) for name, rule, optional in declared_rules(part)}
    annotations = inspect.signature(part).parameters
    yield from ("## Parameters", "", "A parameter outside of its range is refused before anything is spent.", "")
    yield from ('<div class="rows" markdown>', "", "| as written, with the default | takes | meaning |")
    yield "| :-- | :-- | :-- |"
    for name, (text, meaning) in written.items():
        takes = rules.get(name) or _words(annotations[name].annotation)
        cells = (f"`{text}`", takes, linked_papers(meaning))
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield from ("", "</div>", "")


def _spellings(part: Any) -> dict[str, tuple[str, str]]:
    """Return each parameter of a method with its default, as a user writes it, and with its meaning; own ones first."""
    from tts._core.docstrings import parameter_texts
    from tts.cli.strategies import find_part

    if not hasattr(part, "__dataclass_fields__"):
        return {}
    defaults = {name: one.default for name, one in inspect.signature(part).parameters.items()}
    return {
        name: (f"{name}={'…' if defaults[name] is inspect.Parameter.empty else _literal(defaults[name])}", meaning)
        for name, meaning in parameter_texts(part, find_part).items()
    }


def _rule_words(rule: Any, end: str) -> str:
    """Return what a parameter must be, as its refusal says."""
    from tts.errors import ConfigError

    words = ""
    for wrong in (object(), "\n?"):  # a rule of texts is told by a wrong text
        try:
            rule.check("it", wrong)
        except ConfigError as refusal:
            words = refusal.cause.partition("must be ")[2] or refusal.hint.removeprefix("known: ") or words
    return words.replace("'", '"') + end if words else ""


def _literal(value: Any) -> str:
    """Return a value as a user writes it: a part by its name, a text in double quotes."""
    name = getattr(type(value), "registered_as", None) or getattr(value, "__name__", None)
    if isinstance(value, float) and not name:
        return f"{value:.4g}" if value % 1 else repr(value)
    return str(name) if name else re.sub(r"^'([^'\"]*)'$", r'"\1"', repr(value))


def command_line() -> str:
    """Return the help of every command."""
    import click
    import typer
    from typer.cli import get_docs_for_click

    from tts.cli.app import app

    command = typer.main.get_command(app)
    with click.Context(command, info_name="tts") as context:  # pyright: ignore[reportArgumentType]
        text = get_docs_for_click(obj=command, ctx=context, name="tts", title="Command line")  # pyright: ignore[reportArgumentType]
    return _without_tags(re.sub(r"(?<=`)\[default: ", "[default: ", _whole_lists(text, command, "tts")))


def _without_tags(text: str) -> str:
    """Return Markdown whose signs "<" outside of code are shown, not read as HTML."""
    parts = re.split(r"(^```.*?^```|`[^`\n]*`)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if place % 2 else part.replace("<", "&lt;") for place, part in enumerate(parts))


def _whole_lists(text: str, group: Any, path: str) -> str:
    """Return a help whose lists of commands have their first sentences, which are cut there, and links to them."""
    for name, one in getattr(group, "commands", {}).items():
        text = text.replace(
            f"* `{name}`: {one.get_short_help_str()}\n",
            f"* [`{name}`](#{path}-{name}): {one.get_short_help_str(1000)}\n",
        )
        text = _whole_lists(text, one, f"{path}-{name}")
    return text


def _settings() -> dict[str, str]:
    """Return the pages of the two files of settings."""
    from tts.experiments.study import config as study
    from tts_addons.gateway import config as gateway

    of_study = "A study is one YAML file (`docs/how-to/studies.md`). `tts run FILE` runs it."
    of_gateway = "`tts serve --config FILE` reads one YAML file (`docs/how-to/gateway.md`)."
    sections = (study.StudyConfig, study.ModelConfig, study.ProblemsConfig, study.RecordConfig)
    offered = (
        gateway.GatewayConfig,
        gateway.GatewayModel,
        gateway.Preset,
        gateway.GatewayLimits,
        gateway.GatewayAccount,
    )
    return {
        "reference/study_file.md": "\n".join(_page("The study file", of_study, *sections)),
        "reference/gateway_file.md": "\n".join(_page("The gateway file", of_gateway, *offered)),
    }


def _page(title: str, about: str, *models: type[BaseModel]) -> Iterator[str]:
    """Yield the lines of a page of settings: a table for each section."""
    yield from (f"# {title}", "", f"{about} Unknown keys are refused with the nearest name.", "")
    for model in models:
        text = model.__doc__ or ""
        yield from (
            f"## `{model.__name__}`",
            "",
            " ".join(text.split("Args:")[0].split()),
            "",
            "| key | type | default | meaning |",
        )
        yield "| :-- | :-- | :-- | :-- |"
        said = _meanings(model)
        for key, field in model.model_fields.items():
            cells = (f"`{key}`", _words(field.annotation), _default(field), said.get(key, ""))
            yield f"| {' | '.join(cells)} |"
        yield ""


_NAMES = {
    "str": "text", "int": "whole number", "float": "number", "bool": "true or false", "NoneType": "None",
    "Any": "any value",
}  # fmt: skip


def _words(kind: Any) -> str:
    """Return an annotation in words, without its checks."""
    origin, inner = get_origin(kind), [one for one in get_args(kind) if one is not Ellipsis]
    if isinstance(kind, str):  # of a module whose annotations are not evaluated
        return re.sub(r"Annotated\[(\w+)[^\]]*\]", r"\1", kind).replace(" | ", " or ")
    if origin is Annotated:
        return _words(inner[0])
    if origin is Literal:
        return " or ".join(map(_literal, inner))
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_words, sorted(inner, key=lambda one: one is NoneType))))
    if origin is not None and inner:
        mapping = issubclass(origin, Mapping)
        held = _words(inner[-1] if mapping else inner[0])
        return f"{'mapping to' if mapping else 'list of'} {f'({held})' if ' or ' in held else held}"
    name = getattr(kind, "__name__", str(kind))
    return _NAMES.get(name, name)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return f"`{_literal(value)}`" if not isinstance(value, BaseModel) else "its own defaults"


def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return what the docstrings of a section and its bases say of each key; one entry may be about several."""
    meanings: dict[str, str] = {}
    for one in reversed([base for base in model.__mro__ if issubclass(base, BaseModel)]):
        names = "|".join(model.model_fields) or "$"
        said = " ".join((one.__dict__.get("__doc__") or "").partition("Args:")[2].split())
        parts = re.split(rf"(?:^|(?<=[.;?]) )((?:{names})(?:, (?:{names}))*): ", said)[1:]
        for keys, meaning in zip(parts[::2], parts[1::2], strict=True):
            meanings |= dict.fromkeys(keys.split(", "), meaning.strip())
    return meanings
