"""`python -m tts`: the command line."""

from __future__ import annotations

from tts.cli import main

if __name__ == "__main__":
    main()
