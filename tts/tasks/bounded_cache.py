"""A dictionary that drops the least recently used entry."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from tts.errors import ConfigError

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """A mapping of at most `size` entries, safe to use from several threads.

    Args:
        size: Entries kept, at least 1.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ConfigError(f"size is {size}, but must be at least 1")
        self.size = size
        self._entries: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """Return the value under a key, which becomes the most recently used, or None."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key]

    def put(self, key: Key, value: Value) -> None:
        """Set the value under a key and drop the least recently used entry where there are too many."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            if len(self._entries) > self.size:
                self._entries.popitem(last=False)
