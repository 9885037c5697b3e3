"""IDs, scopes, changes and errors."""

from __future__ import annotations

import itertools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem import errors
from edenmem.errors import AmbiguousReference, EdenmemError, ExitCode, InputError, ScopeError
from edenmem.models.changes import AddFact, Change, ChangeSet
from edenmem.models.ids import as_utc, derived_id, is_id, new_id, utc_now
from edenmem.models.memory import content_hash
from edenmem.models.scope import OWNER_FIELD, Scope, ScopeKind
from tests.support.builders import NOW, change_set, make_fact, make_session, make_user, revision
from tests.support.vectors import random_unit

# -- ids -----------------------------------------------------------------------------------------


def test_ids_are_valid_and_unique() -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: new_id(), range(5000)))
    assert len(set(ids)) == 5000
    assert all(is_id(one) for one in ids)


def test_an_id_begins_with_its_time() -> None:
    early, late = new_id(NOW), new_id(NOW + timedelta(seconds=1))
    assert early < late
    assert int(early[:8], 16) == int(NOW.timestamp())


_FORK = """
import os
from edenmem.models.ids import new_id
new_id()
child = os.fork()
if child:
    os.waitpid(child, 0)  # one after the other, or their output is mixed
print(*(new_id() for _ in range(50)), flush=True)
"""


def test_a_forked_child_repeats_no_id() -> None:
    done = subprocess.run([sys.executable, "-c", _FORK], capture_output=True, check=True)
    assert len(set(done.stdout.split())) == 100


@pytest.mark.parametrize("text", ["", "a" * 23, "A" * 24, "g" * 24, "a" * 25, "a" * 24 + "\n"])
def test_invalid_ids(text: str) -> None:
    assert not is_id(text)


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_derived_ids_differ_for_different_parts(one: list[str], two: list[str]) -> None:
    assert is_id(derived_id(*one))
    assert (derived_id(*one) == derived_id(*two)) == (one == two)


# -- times ---------------------------------------------------------------------------------------


def test_times_are_aware_utc_in_milliseconds() -> None:
    """Known failure 39: times with and without a zone were mixed."""
    assert utc_now().tzinfo is UTC
    assert utc_now().microsecond % 1000 == 0
    naive = datetime(2026, 3, 14, 12, 0, 0, 123456)  # noqa: DTZ001
    assert as_utc(naive) == datetime(2026, 3, 14, 12, 0, 0, 123000, tzinfo=UTC)
    nepal = datetime(2026, 3, 14, 12, 0, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    assert as_utc(nepal) == nepal
    assert as_utc(nepal).tzinfo is UTC


# -- scopes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(ScopeKind))
def test_a_scope_has_exactly_the_owner_of_its_kind(kind: ScopeKind) -> None:
    """Known failures 4 and 5: a missing id is an error, never a wider filter."""
    agent, owner = new_id(), new_id()
    needed = OWNER_FIELD[kind]
    scope = Scope(kind, agent, owner if needed else "")
    names = ("user_id", "session_id", "group_id", "shard_name")
    named = {name: getattr(scope, name) for name in names if getattr(scope, name) is not None}
    assert named == ({needed.replace("shard", "shard_name"): owner} if needed else {})
    fields = {name: owner for name in OWNER_FIELD.values() if name}
    assert Scope.from_fields(kind, agent, **fields) == scope
    if needed:
        with pytest.raises(ScopeError):
            Scope.from_fields(kind, agent, **{**fields, needed: None})
    with pytest.raises(ScopeError):
        Scope(kind, agent, "" if needed else owner)
    with pytest.raises(ScopeError):
        Scope(kind, "", owner if needed else "")


def test_scopes_have_different_keys() -> None:
    agent, owner = new_id(), new_id()
    scopes = [Scope(kind, agent, owner if OWNER_FIELD[kind] else "") for kind in ScopeKind]
    scopes += [Scope(s.kind, new_id(), s.owner) for s in scopes]
    assert len({scope.key for scope in scopes}) == len(scopes)
    assert all(a == b or hash(a) != hash(b) for a, b in itertools.combinations(scopes, 2))


def test_a_fact_belongs_to_its_owner_not_its_source() -> None:
    scope = Scope.user(new_id(), new_id())
    assert make_fact(scope, session_id=new_id()).home == scope
    with pytest.raises(ScopeError):
        _ = msgspec.structs.replace(make_fact(scope), user_id=None).home


# -- memory --------------------------------------------------------------------------------------


def test_a_correction_makes_a_fact_recent() -> None:
    """Known failure 38: an old fact corrected today stayed out."""
    fact = make_fact(Scope.agent(new_id()), formed_at=NOW - timedelta(days=90))
    assert fact.recent_at == fact.formed_at
    assert msgspec.structs.replace(fact, updated_at=NOW).recent_at == NOW


def test_hashes_match_the_platform() -> None:
    assert content_hash("Anna sings.") == "4217725dac8eaf517705b85d13001f09"
    assert content_hash("") == "d41d8cd98f00b204e9800998ecf8427e"
    assert content_hash("e\u0301") != content_hash("é")


def test_memory_belongs_to_the_canonical_person() -> None:
    person = make_user()
    account = make_user(eden_user_id=person.id)
    assert (person.person_id, account.person_id) == (person.id, person.id)


@pytest.mark.parametrize(
    ("fields", "premium"),
    [
        ({}, False),
        ({"subscription_tier": 1}, True),
        ({"feature_flags": ("preview",)}, True),
        ({"feature_flags": ("beta",)}, False),
    ],
)
def test_premium_users(fields: dict[str, object], premium: bool) -> None:
    assert make_user(**fields).is_premium is premium


def test_labels_are_names() -> None:
    session = make_session(name="garden-1", title="In the garden")
    assert session.label == "garden-1"
    assert msgspec.structs.replace(session, name=None).label == "In the garden"
    assert msgspec.structs.replace(session, name=None, title=None).label == session.id


# -- changes -------------------------------------------------------------------------------------


def test_changes_keep_their_kinds_in_json() -> None:
    fact = make_fact(Scope.agent(new_id()), embedding=random_unit(1), embedding_model="m")
    revise = revision(fact, "new", embedding=random_unit(2), or_add=fact)
    changes = change_set(AddFact(fact=fact), revise)
    assert msgspec.json.decode(msgspec.json.encode(changes), type=ChangeSet) == changes


def test_every_change_has_a_unique_id() -> None:
    fact = make_fact(Scope.agent(new_id()))
    assert AddFact(fact=fact).id != AddFact(fact=fact).id
    tags = [kind.__struct_config__.tag for kind in Change.__args__]
    assert len(set(tags)) == len(tags)


# -- errors --------------------------------------------------------------------------------------


def all_errors(root: type[EdenmemError] = EdenmemError) -> set[type[EdenmemError]]:
    return {root}.union(*(all_errors(leaf) for leaf in root.__subclasses__()))


def test_every_error_is_in_the_tree_of_the_module() -> None:
    drawn = errors.__doc__ or ""
    for error in all_errors():
        if error.__module__ == "edenmem.errors":
            assert f" {error.__name__} " in drawn, error
            assert error.exit_code in set(ExitCode) - {ExitCode.OK, ExitCode.INTERRUPTED}


def test_exit_codes_are_stable() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "OK": 0,
        "SOME_FAILED": 1,
        "USAGE": 2,
        "NOT_FOUND": 3,
        "CONFLICT": 4,
        "UNAVAILABLE": 5,
        "INTERRUPTED": 130,
    }


def test_messages_of_errors() -> None:
    assert str(InputError("no JSON", line=7)) == "line 7: no JSON"
    ambiguous = AmbiguousReference("agent", "ab", [f"ab{n}" for n in range(12)])
    assert "12" in str(ambiguous)
    assert "ab7" in str(ambiguous)
    assert "ab8" not in str(ambiguous)
    assert len(ambiguous.candidates) == 12
    assert ambiguous.hint
