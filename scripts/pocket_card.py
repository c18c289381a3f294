"""Put the tables that `python -m tts.models.pocket.evaluate --json` printed into the model card and the README.

python scripts/pocket_card.py MEASURED.json    (kept as tts/models/pocket/evaluation.json)
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from tts.models.pocket.evaluate.rendering import markdown, restored

ROOT = Path(__file__).parents[1]
HOME = ROOT / "tts" / "models" / "pocket"
BETWEEN = re.compile(r"(<!-- tables -->\n).*?(<!-- end of tables -->)", re.DOTALL)


def main(measured: Path) -> None:
    """Fill both documents."""
    found = json.loads(measured.read_text())
    (HOME / "evaluation.json").write_text(json.dumps(found, indent=1) + "\n")
    tables = restored(found["tables"])
    for document, shown in ((HOME / "README.md", tables), (ROOT / "README.md", tables[:1])):
        text = document.read_text()
        filled, count = BETWEEN.subn(lambda marks, shown=shown: f"{marks[1]}{markdown(shown)}{marks[2]}", text)
        if count != 1:
            sys.exit(f"error: {document} has {count} places for tables, but must have one")
        document.write_text(filled)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
