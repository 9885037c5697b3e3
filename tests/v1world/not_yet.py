"""What the migration does not do yet, by case. Who makes a case right removes its line.

A key is the name of a case, or of a store or a way and a case; a line too many fails the test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest


def params(
    names: Iterable[str], not_yet: Mapping[str, str], store: str = "", *marks: Any
) -> list[Any]:
    """Return parameters of these cases, those that cannot pass yet marked so."""
    made = []
    for name in names:
        keys = (name, f"{store} {name}", f"{store.rpartition(' ')[2]} {name}")
        reason = next((not_yet[key] for key in keys if key in not_yet), "")
        own = (
            [pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason)] if reason else []
        )
        given = (store, name) if store else (name,)
        made.append(pytest.param(*given, marks=[*marks, *own], id=" ".join(given)))
    return made


CASES: dict[str, str] = {
    "sqlite pending_directives_of_one_moment_with_ids_out_of_order": (
        "SQLite orders a buffer of one moment by id (store.memory.pending): v1's order of "
        "the list is lost"
    ),
    "related users": "no field for related users: models, both stores, memory_items",
}

DAMAGES: dict[str, str] = {
    "vector_of_another_text": "verification does not look at vectors",
    "fact_related_user_dropped": "no field for related users: models, both stores, memory_items",
    "reflection_related_user_dropped": (
        "no field for related users: models, both stores, memory_items"
    ),
}

CHANGES: dict[str, str] = {}

FILES: dict[str, str] = {}

ACCEPTED: dict[str, str] = {}

CONFLICTS: dict[str, str] = {}

AGAIN: dict[str, str] = {
    "a_new_shard_joins_the_text_of_the_agent": (
        "an untouched policy of the agent does not follow the instructions of its shards"
    ),
    "what is kept is listed": (
        "settings that are the same are listed as 'v2 has settings of its own, which were "
        "kept' when their shard has changed"
    ),
}

STATUS: dict[str, str] = {}

_NO_FIELD = "no field for related users; forget finds what was learned by messages alone"
RELATED: dict[str, str] = {
    "what is only about the person goes": _NO_FIELD,
    "what is about others, too, stays without the person": _NO_FIELD,
    "what is about others alone stays": _NO_FIELD,
}

#: Names of differences that any world may have.
ANYWHERE: dict[str, str] = {
    "fact related users": "no field for related users",
    "reflection related users": "no field for related users",
}
