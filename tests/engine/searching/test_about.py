"""Everything about a person or thing, by time, without a limit."""

from __future__ import annotations

import pytest

from edenmem.engine.search.about import all_about
from edenmem.errors import UsageError
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, ago
from tests.support.memory import add_fact
from tests.support.runtime import make_runtime

SCOPE = Scope.user(new_id(), new_id())


def contents(store: Store, name: str, **when: object) -> list[str]:
    report = all_about(make_runtime(store), name, [SCOPE], **when)  # type: ignore[arg-type]
    return [hit.fact.content for hit in report.hits]


def test_every_fact_with_all_words_of_the_name_is_listed_by_time(store: Store) -> None:
    for day in range(120):
        add_fact(store, SCOPE, f"Ben Marsh rows, day {day}.", said_at=ago(days=day))
    add_fact(store, SCOPE, "Ben Stone rows.")
    add_fact(store, SCOPE, "Marsh marigolds grow here.")
    add_fact(store, Scope.agent(SCOPE.agent_id), "Ben Marsh rows elsewhere.")
    found = contents(store, "ben marsh")
    assert found == [f"Ben Marsh rows, day {day}." for day in reversed(range(120))]
    assert contents(store, "Ben Marsh's", since=ago(days=1), until=NOW) == [found[-2]]
    assert contents(store, "marigold") == ["Marsh marigolds grow here."]
    assert contents(store, "zeppelin") == []
    with pytest.raises(UsageError):
        contents(store, " ")
