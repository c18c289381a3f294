"""The store of results: one SQLite file, its schema, its rows, and merging."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts._core.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.experiments.store.store import Store as Store
    from tts.experiments.store.store import default_store as default_store

__getattr__, __dir__, __all__ = lazy_exports(__name__)
