"""What `tts doctor --url` shows: what one look at a server found, and which strategies work on it."""

from __future__ import annotations


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
    from tts.search.registry import STRATEGIES, parse

    findings = look(url, model, Key.find())
    table = Table(box=box.ROUNDED, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, found in findings.lines():
        table.add_row(name, visible(found))
    works: list[str] = []
    fails: list[str] = []
    for name in STRATEGIES.names():
        lacking = [need for need in parse(name).strategy.needs if getattr(findings.caps, need) in ("absent", False)]
        fails.append(f"{name} ({', '.join(lacking)})") if lacking else works.append(name)
    table.add_section()
    table.add_row("strategies", ", ".join(works))
    table.add_row("cannot run", ", ".join(fails) or "none")
    output().print(table)
