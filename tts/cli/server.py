"""`tts doctor --url`: the capabilities of a server, and which strategies work on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tts.backends.base import Caps
    from tts.backends.openai.capabilities import Capabilities


def shown_lines(capabilities: Capabilities) -> list[tuple[str, str]]:
    """Return the table of a server's capabilities, and of the strategies that work with them."""
    works, fails = strategies_on(capabilities.caps)
    return [*capabilities.lines(), ("strategies", ", ".join(works)), ("cannot run", ", ".join(fails) or "none")]


def strategies_on(caps: Caps) -> tuple[list[str], list[str]]:
    """Return the strategies that work with these capabilities, and those that do not, each with what it lacks."""
    from tts.search.plan import STRATEGIES, parse

    works: list[str] = []
    fails: list[str] = []
    for name in STRATEGIES.names():
        lacking = [need for need in parse(name).strategy.needs if getattr(caps, need) in ("absent", False)]
        fails.append(f"{name} ({', '.join(lacking)})") if lacking else works.append(name)
    return works, fails


def show_server(url: str, model: str) -> None:
    """Probe a server and print its capabilities.

    Raises:
        ConfigError: it cannot be used; see `tts.backends.openai.probe.probe_server`.
    """
    from rich import box
    from rich.table import Table

    from tts.backends.openai.errors import Key
    from tts.backends.openai.probe import probe_server
    from tts.cli.terminal import output, visible

    capabilities = probe_server(url, model, Key.find())
    table = Table(box=box.ROUNDED, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, found in shown_lines(capabilities):
        if name == "strategies":
            table.add_section()
        table.add_row(name, visible(found))
    output().print(table)
