"""A program that runs pytest in a fork, and reports modules that were not imported from the fork.

It is run by its path (`python -I -B pytest_child.py REPORT FORK MODULES FIRST ARGUMENT…`) by the Python that has the
repository's packages. So it imports only the standard library and pytest, and pytest before any file of the fork.
REPORT is the file to which it writes, in JSON, the modules of the repository that were imported from elsewhere. FORK is
the folder of the fork. MODULES are the names of the repository's modules, joined by commas. FIRST is "1" if the folder
of the run comes first in the import path after pytest was imported.
"""

import json
import os
import sys


def main():
    """Run pytest, write the report, and return pytest's exit code."""
    report, fork, names, fork_first, *arguments = sys.argv[1:]
    import pytest  # before a file of the fork can take its name

    if fork_first == "1":
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as Python itself does
    code = pytest.main(arguments)
    root = os.path.realpath(fork)
    elsewhere = {}
    standard_names = set(getattr(sys, "stdlib_module_names", ()))
    for name in set(filter(None, names.split(","))) - standard_names:
        path = getattr(sys.modules.get(name), "__file__", None)
        if path and not os.path.realpath(path).startswith(root + os.sep):
            elsewhere[name] = path
    with open(report, "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(elsewhere, file)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
