"""`--smoke`: the smallest size of a command, in seconds.

The option shows that every row appears. Its figures mean nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any


class Smoke(argparse.Action):
    """Sets small sizes for the options that are not given.

    Args:
        sizes: values by the names of options.
    """

    def __init__(self, option_strings: Sequence[str], dest: str, sizes: Mapping[str, Any]) -> None:
        super().__init__(option_strings, dest, nargs=0, help="smallest sizes, in seconds: shows that every row appears")
        self.sizes = sizes

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: object) -> None:
        for name, value in self.sizes.items():
            if getattr(namespace, name) == parser.get_default(name):
                setattr(namespace, name, value)
