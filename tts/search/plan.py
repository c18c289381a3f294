"""Plans as texts: a strategy with its stop rule and its selection.

    best_of_n(n=64) | unanimous(window=8) | weighted

is one strategy, then at most one stop rule and one selection, joined by `|`. Parameters are named and literal. A part
that is not registered is named by its place: `package.module:name(parameter=value)`. `str` of a parsed plan is the same
text, without parameters that have their default values.
"""

from __future__ import annotations

from tts.errors import ConfigError, TTSError, unknown_name
from tts.registry import EVERYTHING, Registry, Scope, calls_in
from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES, Plan


def parse(text: str, scope: Scope = EVERYTHING) -> Plan:
    """Return the plan of a text. A line break counts as a space.

    Args:
        text: The text form of a plan.
        scope: The names that the text may use. Texts of requests, and files from others, need a narrower scope than the
            default.

    Raises:
        ConfigError: The text is malformed. A name is unknown (the nearest names are shown) or outside of the scope. A
            parameter is unknown, given twice or out of range. For errors after the strategy the position is shown.

    Example:
        >>> import tts
        >>> tts.parse("best_of_n(n=8) | majority").strategy
        BestOfN(n=8, temperature=None, effort=None, thought_tokens=None, writer='policy')
        >>> tts.parse("best_of_n(n=0)")
        Traceback (most recent call last):
          ...
        tts.errors.ConfigError: n is 0, but must be a whole number of at least 1
    """
    first_call, *later_calls = calls_in(text)
    first_table = _table_of(first_call.name, scope)
    if first_table in (STOP_RULES, SELECTIONS):
        raise ConfigError(
            f"the text begins with {first_call.name!r}, a {first_table.kind}, but must begin with a strategy",
            hint=f"for example best_of_n(n=8) | {first_call.name}",
        )
    plan = Plan.of(first_call.make(STRATEGIES, scope), first_call.name)
    for call in later_calls:
        name = call.name
        table = _PLACES if ":" in name else _table_of(name, scope)  # "package.module:name" is in no table
        if table is STRATEGIES:
            raise call.syntax_error(f"{name!r} is a strategy, but only the first part may be one")
        if table is None:
            known = [*scope.names(STOP_RULES), *scope.names(SELECTIONS)]
            raise call.add_position(unknown_name("stop rule or selection", name, known))
        part = call.make(table, scope)
        try:
            plan = plan.with_part(part, name)
        except ConfigError as failure:
            raise call.add_position(failure) from None
    return plan


def stored_text(plan: Plan, *, equal: bool = False) -> str:
    """Return the text of a plan. Results are stored by this text, and run again from it.

    Args:
        plan: The plan to write.
        equal: Whether the parsed text must equal the plan, as for objects that were made in Python.

    Raises:
        ConfigError: the text cannot be read back as the plan.
    """
    text = str(plan)
    try:
        parsed = parse(text)
    except TTSError:
        parsed = None
    if str(parsed) != text or (equal and parsed != plan):
        raise ConfigError(
            f"the strategy is {text}, but its text must be read back as the same strategy: results are stored by it",
            hint="make each part of your own a frozen dataclass at the top of a module, with literal parameters",
        )
    return text


def _table_of(name: str, scope: Scope) -> Registry | None:
    """Return the table that has a name: of this package, else of other packages in scope; None without a table."""
    own_tables = (table for table in _TABLES if name in table.entries)
    return next(own_tables, None) or next((table for table in _TABLES if name in scope.names(table)), None)


_TABLES = (STRATEGIES, STOP_RULES, SELECTIONS)
_PLACES = Registry("stop rule or selection", "tts.registry", {})
