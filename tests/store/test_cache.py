"""Check the cache that both stores may share between threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from edenmem.store.common.cache import BoundedCache


def test_the_values_used_last_stay():
    cache: BoundedCache[str, int] = BoundedCache(2)
    for key, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        cache.put(key, value)
    assert [cache.get(key) for key in "abc"] == [3, None, 4]
    assert cache.get("a") == 3
    cache.put("d", 5)
    assert [cache.get(key) for key in "acd"] == [3, None, 5]
    cache.put("e", 6, size=3)
    assert [cache.get(key) for key in "ade"] == [3, 5, None]


def test_threads_may_evict_the_same_value():
    cache: BoundedCache[int, int] = BoundedCache(1)

    def fill(first: int) -> None:
        for key in range(first, first + 2_000):
            cache.put(key, key)
            assert cache.get(key) in (key, None)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fill, range(8)))
