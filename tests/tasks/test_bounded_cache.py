from __future__ import annotations

import pytest

from tts.errors import ConfigError
from tts.tasks.bounded_cache import BoundedCache


def test_it_forgets_the_least_recently_used():
    cache: BoundedCache[str, int] = BoundedCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert [cache.get(key) for key in "abc"] == [1, None, 3]


def test_it_has_room():
    with pytest.raises(ConfigError, match="size is 0"):
        BoundedCache[str, int](0)
