"""Matches of a typed name or prefix."""

from __future__ import annotations

from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.store.protocol.host import ReferenceKind
from edenmem.store.protocol.store import Store
from tests.support.builders import (
    make_agent,
    make_formation,
    make_messages,
    make_session,
    make_user,
)
from tests.support.memory import add_fact, add_reflection

KINDS: tuple[ReferenceKind, ...] = ("agent", "user", "session", "fact", "reflection", "formation")


def _id(prefix: str) -> str:
    """A new ID with the given prefix."""
    return prefix + new_id()[len(prefix) :]


def _ids(store: Store, kind: ReferenceKind, text: str, limit: int = 20) -> list[str]:
    return [reference.id for reference in store.host.find(kind, text, limit=limit)]


def _one_of_each(store: Store) -> dict[ReferenceKind, str]:
    agent, user = make_agent("eve"), make_user("anna")
    store.host.add_agent(agent)
    store.host.add_user(user)
    session = make_session([agent], [user], name="garden-1", title="In the garden")
    store.host.put_session(session)
    messages = make_messages(session, 4)
    store.host.add_messages(session.id, messages)
    formation = make_formation(session, messages)
    assert store.formations.claim(formation)
    scope = Scope.user(agent.id, user.id)
    return {
        "agent": agent.id,
        "user": user.id,
        "session": session.id,
        "fact": add_fact(store, scope).id,
        "reflection": add_reflection(store, scope).id,
        "formation": formation.id,
    }


def test_each_kind_is_found_by_id_and_prefix(store: Store) -> None:
    made = _one_of_each(store)
    for kind in KINDS:
        (reference,) = store.host.find(kind, made[kind])
        assert reference.id == made[kind]
        assert reference.label
        assert made[kind] in _ids(store, kind, made[kind][:6])
        for other in KINDS:
            if other != kind:
                assert made[kind] not in _ids(store, other, made[kind])


def test_names_find_agents_users_and_sessions(store: Store) -> None:
    made = _one_of_each(store)
    assert _ids(store, "agent", "eve") == [made["agent"]]
    assert _ids(store, "agent", "EVE") == [made["agent"]]
    assert _ids(store, "user", "Anna") == [made["user"]]
    assert _ids(store, "session", "garden-1") == [made["session"]]
    assert _ids(store, "session", "GARDEN-1") == [made["session"]]
    assert _ids(store, "session", "In the garden") == [made["session"]]
    assert _ids(store, "agent", "anna") == []
    assert _ids(store, "user", "ann") == []  # the full title


def test_a_prefix_finds_all_matches(store: Store) -> None:
    agents = [make_agent(id=_id(prefix)) for prefix in ("abcd1", "abcd2", "abcd2", "abce0")]
    for agent in agents:
        store.host.add_agent(agent)
    ids = [agent.id for agent in agents]
    assert set(_ids(store, "agent", "abcd")) == set(ids[:3])
    assert set(_ids(store, "agent", "abcd2")) == set(ids[1:3])
    assert _ids(store, "agent", "abce0") == [ids[3]]
    assert len(_ids(store, "agent", "abcd", limit=2)) == 2
    assert _ids(store, "agent", "abc") == []  # too short for an ID prefix
    assert _ids(store, "agent", "abcf") == []
    assert _ids(store, "agent", ids[0]) == [ids[0]]


def test_an_exact_name_precedes_prefixes_and_other_cases(store: Store) -> None:
    beginning = make_agent("other", id=_id("cafe"))
    named, capital = make_agent("cafe"), make_agent("Cafe")
    for agent in (beginning, named, capital):
        assert store.host.add_agent(agent)
    assert _ids(store, "agent", "cafe") == [named.id]
    assert _ids(store, "agent", "Cafe") == [capital.id]
    assert set(_ids(store, "agent", "CAFE")) >= {named.id, capital.id}


PATTERNS = ("", " ", "%", "____", "....", ".*", "^", "[0-9a-f", "(", "a' OR '1'='1", "$ne", "\x00")


def test_no_text_is_taken_for_a_pattern(store: Store) -> None:
    _one_of_each(store)
    for kind in KINDS:
        for text in (*PATTERNS, "🙂" * 9, "\ud800", "x" * 10_000):
            assert _ids(store, kind, text) == [], (kind, text[:20])


def test_completion_offers_names_then_ids(store: Store) -> None:
    made = _one_of_each(store)
    twin = make_user("anne", id=_id("fab"))
    store.host.add_user(twin)

    def labels(kind: ReferenceKind, text: str, limit: int = 20) -> list[str]:
        return [found.label for found in store.host.find_by_prefix(kind, text, limit=limit)]

    assert labels("user", "an") == ["anna", "anne"]
    assert labels("user", "an", limit=1) == ["anna"]
    assert labels("user", "fab") == [twin.id]
    assert labels("session", "gard") == ["garden-1"]
    assert labels("user", "q'\"%_$") == labels("user", "\ud800") == []
    for kind in KINDS:
        assert made[kind] in [f.id for f in store.host.find_by_prefix(kind, "", limit=50)]
        assert labels(kind, made[kind][:9])[-1:] == [made[kind]]
