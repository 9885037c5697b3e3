"""Text of any kind round-trips in every field."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edenmem.errors import EdenmemError
from edenmem.models.changes import AddFact
from edenmem.models.host import CachedContext, ToolCall
from edenmem.models.ids import as_utc, new_id
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from edenmem.text import clean
from tests.support.builders import (
    NOW,
    change_set,
    make_fact,
    make_message,
    make_reflection,
    make_session,
    make_user,
    revision,
    some,
)
from tests.support.memory import (
    add_fact,
    add_facts,
    add_reflection,
    consolidate,
    facts_of,
    set_policy,
)
from tests.support.vectors import random_unit

TEXTS = {
    "markup": "[/red] [bold]x[/bold] </Facts> <a b='c'>&amp;",
    "quotes": "it's \"so\" `x` \\ % _ $ne {'$set': 1} {{x}}",
    "controls": "bell \x07 escape \x1b]0;x\x07 c1 \x9b31m",
    "nul": "a\x00 bees",
    "emoji": "👩‍👩‍👧‍👦 👍🏽 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "arabic": "مرحبا بالعالم ‏abc‎",
    "combining": "e\u0301 é ﬁ \u0e01\u0e33 \u202e",
    "lines": "\n first\r\n\tsecond \u2028 third\n\n",
    "big": "Anna keeps bees in Lisbon. " * 4000,  # over 100 KB
    "one word": "x" * 100_000,
    "chinese": "我喜欢喝茶" * 1000,
    "not a date": "2026-03-14T12:00:00Z",
    "not a number": "0x10",
    "null": "null",
    "edges": "\ufeff \uffff \U0010ffff ",
}


def test_texts_round_trip(store: Store) -> None:
    for name, text in TEXTS.items():
        print(name)
        _demand_round_trip(store, text)


def _demand_round_trip(store: Store, text: str) -> None:
    scope = Scope.user(new_id(), new_id())
    fact = add_fact(store, scope, text)
    reflection = add_reflection(store, scope, text)
    assert consolidate(store, scope, text, expected_version=0).ok
    set_policy(store, scope, memory_instructions=text, consolidation_instructions=text)
    session = make_session(title=text)
    store.host.put_session(session)
    results = [{"output": text}]
    call = ToolCall(id="1", tool="t", args={"text": text}, result=results, status="completed")
    message = make_message(session, text, name=text, tool_calls=(call,))
    store.host.add_messages(session.id, [message])
    cached = CachedContext(xml=text, fingerprint="f", built_at=NOW)
    store.contexts.cache_context(session.id, session.agents[0], cached)

    assert facts_of(store, scope) == [fact]
    assert store.memory.facts_by_hashes(scope, [fact.hash]) == {fact.hash: fact}
    assert store.memory.pending(scope) == [reflection]
    assert store.memory.consolidations([scope])[scope].consolidated_content == text
    policy = store.memory.policies([scope])[scope]
    assert (policy.memory_instructions, policy.consolidation_instructions) == (text, text)
    assert store.host.session(session.id) == msgspec.structs.replace(
        session, last_activity=message.created_at
    )
    assert list(store.host.messages(session.id)) == [message]
    assert store.contexts.find_context(session.id, session.agents[0]) == cached
    (entry,) = store.history.versions("fact", fact.id)
    assert entry.content == text


def test_unencodable_text_is_refused(store: Store) -> None:
    """The engine cleans text first; the store must not keep invalid text in part."""
    scope = Scope.user(new_id(), new_id())
    good = add_fact(store, scope, "good")
    bad = make_fact(scope, "good", id=new_id(), hash=new_id())
    bad = msgspec.structs.replace(bad, content="a\ud800b")
    with pytest.raises((EdenmemError, UnicodeError)):
        add_facts(store, bad)
    assert facts_of(store, scope) == [good]
    assert store.memory.fact(bad.id) is None
    following = add_fact(store, scope, "following")
    assert store.memory.fact(following.id) == following


@pytest.mark.slow
@settings(max_examples=12)
@given(
    first=st.text(min_size=1, max_size=40).map(clean).filter(bool),
    second=st.text(min_size=1, max_size=40).map(clean).filter(bool),
)
def test_different_texts_are_different_facts(store: Store, first: str, second: str) -> None:
    scope = Scope.user(new_id(), new_id())
    fact = add_fact(store, scope, first)
    other = make_fact(scope, second)
    (result,) = store.changes.apply(change_set(AddFact(fact=other)))
    assert (result.status == "duplicate") == (first == second)
    assert {f.content for f in facts_of(store, scope)} == {first, second}
    revised = revision(fact, first + "!", scope=scope)
    assert store.changes.apply(change_set(revised))[0].ok
    assert {f.content for f in facts_of(store, scope)} == {first + "!"} | (
        {second} if first != second else set()
    )


@pytest.mark.parametrize("dimensions", [1, 3, 384, 1536])
def test_vectors_round_trip(store: Store, dimensions: int) -> None:
    scope = Scope.user(new_id(), new_id())
    vector = random_unit(dimensions, dimensions)
    fact = add_fact(store, scope, embedding=vector, embedding_model="m")
    assert facts_of(store, scope, with_vectors=True) == [fact]
    tombstone = make_fact(scope, "other", embedding=vector, embedding_model="m")
    add_facts(store, tombstone)
    stored = some(store.memory.fact(tombstone.id, with_vector=True))
    assert stored.embedding == vector


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
        datetime(2026, 3, 29, 2, 30, tzinfo=timezone(timedelta(hours=5, minutes=45))),
        datetime(2038, 1, 19, 3, 14, 8, 1000, tzinfo=UTC),
        datetime(2999, 1, 1, tzinfo=UTC),
    ],
)
def test_times_are_aware_utc_in_milliseconds(store: Store, moment: datetime) -> None:
    """Known failure 39: times with and without a zone were mixed."""
    scope = Scope.user(new_id(), new_id())
    moment = as_utc(moment)
    fact = add_fact(store, scope, formed_at=moment)
    session = make_session(created_at=moment, last_activity=moment)
    store.host.put_session(session)
    message = make_message(session, created_at=moment)
    store.host.add_messages(session.id, [message])
    user = make_user(created_at=moment)
    store.host.add_user(user)
    reflection = make_reflection(scope, formed_at=moment)
    for stored, given_ in (
        (store.memory.fact(fact.id), fact),
        (store.host.session(session.id), session),
        (next(store.host.messages(session.id)), message),
        (store.host.user(user.id), user),
        (add_reflection(store, scope, formed_at=moment), reflection),
    ):
        assert stored is not None
        for name in ("formed_at", "created_at", "last_activity"):
            if hasattr(given_, name):
                value = getattr(stored, name)
                assert value == moment
                assert value.utcoffset() == timedelta(0)


def test_times_have_millisecond_resolution(store: Store) -> None:
    scope = Scope.user(new_id(), new_id())
    facts = [
        add_fact(store, scope, f"fact {n}", formed_at=NOW + timedelta(milliseconds=n))
        for n in (2, 0, 3, 1)
    ]
    listed = [fact.id for fact in facts_of(store, scope)]
    assert listed == [facts[n].id for n in (2, 0, 3, 1)]
