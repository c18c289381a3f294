"""Write the tables of an evaluation into the model card.

    python -m research.pocket.evaluate --json > MEASURED.json
    python -m research.pocket.card MEASURED.json

Writes tts/models/pocket/evaluation.json, and the tables between their marks in tts/models/pocket/README.md.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from research.pocket.evaluate.rendering import markdown, restore_tables

ROOT = Path(__file__).parents[2]
CARD = Path("tts/models/pocket")
BETWEEN = re.compile(r"(<!-- tables -->\n).*?(<!-- end of tables -->)", re.DOTALL)


def fill(measured: Path, root: Path = ROOT) -> None:
    """Write the tables of an evaluation into the model card of a checkout.

    Args:
        measured: The output of the evaluation with `--json`.
        root: The checkout.

    Raises:
        SystemExit: The file is no evaluation; or the card has no place for the tables, or more than one.
    """
    try:
        found = json.loads(measured.read_text())
        tables = restore_tables(found["tables"])
    except (OSError, ValueError, KeyError, TypeError) as failure:
        sys.exit(f"error: {measured} is no output of research.pocket.evaluate --json: {failure}")
    (root / CARD / "evaluation.json").write_text(json.dumps(found, indent=1) + "\n")
    card = root / CARD / "README.md"
    filled, count = BETWEEN.subn(lambda marks: f"{marks[1]}{markdown(tables)}{marks[2]}", card.read_text())
    if count != 1:
        sys.exit(f"error: {card} has {count} places for tables, but must have one")
    card.write_text(filled)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("measured", type=Path, help="what the evaluation printed with --json")
    fill(parser.parse_args().measured)


if __name__ == "__main__":
    main()
