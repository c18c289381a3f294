"""The command line, one command a file: each parses, calls the library and prints.

`main` is the entry point of `tts`.

`app.py` registers the commands, gives each the option --debug, and turns its errors into lines and exit codes
(`boundary.py`).

Exit codes: 0 a result, also where no answer was found; 1 the run failed; 2 an argument is not valid; 130 Ctrl-C.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line with the arguments of this process, and exit."""
    from tts.cli.app import run

    run()
