"""A plan over a list of items, to test runs without a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from edenmem.engine.migration.source import PlanNote, StagedPlan, rows_of
from edenmem.models.ids import derived_id
from edenmem.models.memory import Consolidation
from edenmem.models.scope import Scope
from edenmem.models.v1 import (
    MEMORIES,
    SHARDS,
    USER_TEXTS,
    Outcome,
    V1Account,
    V1EarlierText,
    V1Item,
    V1Options,
    V1Ref,
)
from edenmem.store.sqlite.v1.staging import SqliteV1Stage
from tests.support.builders import ago, make_fact, make_policy, make_reflection

KINDS = ["toggles", "policy", "text", "fact", "reflection", "episode", "leftover"]
AGENT, USER, OTHER = "a" * 24, "b" * 24, "c" * 24


def ref(collection: str, name: str) -> V1Ref:
    return V1Ref(collection, derived_id("document", name))


def item(kind: str, key: str, **fields: Any) -> V1Item:
    """Return an item of one document; by default the agent's, and migrated."""
    own: dict[str, Any] = {
        "agent_id": AGENT,
        "sources": (ref(MEMORIES, key),),
        "outcome": Outcome.MIGRATED,
        "reason": "",
        **fields,
    }
    return V1Item(kind=kind, **own)


def text(scope: Scope, content: str, *, version: int = 1, **fields: Any) -> V1Item:
    made = Consolidation(
        id="",
        **scope.fields(),
        consolidated_content=content,
        version=version,
        updated_at=fields.pop("at", ago(days=90)),
        word_limit=fields.pop("word_limit", 300),
    )
    sources = fields.pop("sources", (ref(USER_TEXTS, f"{scope.key}{content}"),))
    return item("text", scope.key, text=made, sources=sources, **fields)


def earlier(content: str, version: int, **delta: float) -> V1EarlierText:
    return V1EarlierText(
        content=content, version=version, at=ago(**delta), source=ref(USER_TEXTS, content)
    )


def fact(scope: Scope, content: str, **fields: Any) -> V1Item:
    made = make_fact(
        scope,
        content,
        id=derived_id("fact", scope.key, content),
        formed_at=fields.pop("at", ago(days=200)),
    )
    return item("fact", f"{scope.key}/{content}", fact=made, **fields)


def reflection(scope: Scope, content: str, *, place: int = 0, **fields: Any) -> V1Item:
    made = make_reflection(
        scope,
        content,
        id=derived_id("reflection", scope.key, content),
        formed_at=fields.pop("at", ago(days=100) + timedelta(hours=place)),
        absorbed=fields.pop("absorbed", False),
    )
    key = f"{scope.key}/{place:04}"
    return item("reflection", key, reflection=made, **fields)


def policy(scope: Scope, **fields: Any) -> V1Item:
    made = make_policy(scope, id=derived_id("policy", scope.key), **fields)
    return item("policy", scope.key, policy=made, sources=(ref(SHARDS, scope.key),))


def toggles(*, enabled: bool) -> V1Item:
    return item("toggles", "", switch=enabled, sources=(ref(SHARDS, "toggles"),))


def nothing(outcome: Outcome, name: str, reason: str) -> V1Item:
    return item("leftover", name, outcome=outcome, reason=reason)


class ListedPlan(StagedPlan):
    """A plan of listed items."""

    def __init__(
        self,
        items: Sequence[V1Item],
        *,
        location: str = "a list",
        people: Sequence[V1Account] = (),
        accounts: Sequence[V1Account] = (),
        absorbed: Sequence[str] = (),
    ) -> None:
        self.listed = sorted(items, key=lambda one: KINDS.index(one.kind))
        sources: dict[str, set[V1Ref]] = {}
        for one in self.listed:
            for source in one.sources:
                sources.setdefault(source.collection, set()).add(source)
        totals = {name: len(refs) for name, refs in sources.items()}
        people = people or [V1Account(id=AGENT, is_agent=True)]
        stage = SqliteV1Stage()
        stage.add_targets(rows_of(self.listed))
        stage.settle(merge=True)
        stage.add_leftovers({}, ())
        note = PlanNote(
            location=location,
            fingerprint="",
            options=V1Options(),
            incomplete=(),
            totals=totals,
            not_asked={},
            unknown_fields={},
            agents=tuple(person.id for person in people),
            item_total=len(self.listed),
            results={"used": sum(totals.values())},
        )
        stage.complete(msgspec.msgpack.encode(note))
        super().__init__(stage)
        self._people = people
        self._accounts = accounts
        self._absorbed = set(absorbed)

    def agents(self) -> list[V1Account]:
        return list(self._people)

    def users(self) -> Iterator[V1Account]:
        return iter(self._accounts)

    def source_text(self, ref: V1Ref) -> str:
        return f"text of {ref.collection}/{ref.id}"

    def find_absorbed(self, item: V1Item, memory_ids: Sequence[str]) -> set[str]:
        return self._absorbed & set(memory_ids)

    def close(self) -> None:
        """Stay open: tests run a plan several times."""


def whole_plan() -> ListedPlan:
    """Return a plan with all kinds of items."""
    user, agent, shard = Scope.user(AGENT, USER), Scope.agent(AGENT), Scope.shard(AGENT, "lore")
    return ListedPlan(
        [
            toggles(enabled=True),
            policy(shard, active=False, memory_instructions="Keep lore."),
            text(user, "Anna paints.", version=7, earlier=(earlier("Old.", 3, days=300),)),
            text(agent, "One part.\n\nAnother.", outcome=Outcome.MERGED),
            fact(agent, "The harbour closes at nine."),
            fact(shard, "The whale is made of paper.", outcome=Outcome.MERGED),
            *(reflection(user, f"thought {n}", place=n) for n in range(5)),
            reflection(agent, "absorbed thought", absorbed=True),
            nothing(Outcome.LEFT_BEHIND, "episode", "episodes are left behind"),
            nothing(Outcome.BAD, "broken", "it has no owner"),
        ]
    )
