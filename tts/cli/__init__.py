"""The command line, one file a command: each parses, calls the library and prints. `main` is the entry point of `tts`.

Exit codes: 0 a result, "no answer was found" included; 1 a run that failed; 2 a mistake of the caller's; 130 Ctrl-C.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line with the arguments of this process, and exit."""
    from tts.cli.app import run

    run()
