"""What `tts doctor --url` shows: what one look at a server found, and which strategies work on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tts.backends.base import Caps
    from tts.backends.openai_findings import Findings


def shown_lines(findings: Findings) -> list[tuple[str, str]]:
    """Return what to show of a server: what was found, and what that means for strategies."""
    works, fails = strategies_on(findings.caps)
    return [*findings.lines(), ("strategies", ", ".join(works)), ("cannot run", ", ".join(fails) or "none")]


def strategies_on(caps: Caps) -> tuple[list[str], list[str]]:
    """Return the strategies that work with these capabilities, and those that do not, each with what it lacks."""
    from tts.search.registry import STRATEGIES, parse

    works: list[str] = []
    fails: list[str] = []
    for name in STRATEGIES.names():
        lacking = [need for need in parse(name).strategy.needs if getattr(caps, need) in ("absent", False)]
        fails.append(f"{name} ({', '.join(lacking)})") if lacking else works.append(name)
    return works, fails


def look_at(url: str, model: str) -> None:
    """Look at a server and print what was found.

    Raises:
        ConfigError: it cannot be used; see `tts.backends.openai_probe.look`.
    """
    from rich import box
    from rich.table import Table

    from tts.backends.openai_http import Key
    from tts.backends.openai_probe import look
    from tts.cli.terminal import output, visible

    findings = look(url, model, Key.find())
    table = Table(box=box.ROUNDED, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, found in shown_lines(findings):
        if name == "strategies":
            table.add_section()
        table.add_row(name, visible(found))
    output().print(table)
