"""The toy's server behind every address, as a proxy is: any prompt is one of its sums. It stands in for the servers of
documents.
"""

from __future__ import annotations

from tests.backends.openai.server import ASSISTANT, ToyServer, serving

__all__ = ["Anywhere", "serving"]


class Anywhere(ToyServer):
    """The server."""

    def divided(self, text: str) -> tuple[str, str]:
        """Return a sum that the toy can write about, and the path."""
        _, marked, path = text.rpartition(ASSISTANT)
        return "3 + 4 - 2 + 9", path if marked else ""
