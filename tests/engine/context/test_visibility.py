"""Readable and writable scopes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.engine.scopes.visibility import (
    SessionView,
    current_view,
    human_senders,
    reader_scopes,
)
from edenmem.errors import NotFoundError, ScopeError
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope, ScopeKind
from tests.support.builders import make_agent, make_message, make_session, make_user
from tests.support.memory import set_policy

if TYPE_CHECKING:
    from tests.engine.conftest import Cast


def view_of(cast: Cast, *, speaker: str | None = None) -> SessionView:
    return current_view(cast.store, cast.session, cast.eve, speaker=speaker)


def named(view: SessionView) -> str | None:
    return view.user and view.user.username


def test_one_person_reads_broad_to_narrow(cast: Cast) -> None:
    shard = cast.add_shard("festival")
    cast.session = cast.add_session(cast.anna, group_id="guild")
    view = view_of(cast)
    group = Scope.group(cast.eve.id, "guild")
    assert view.reads == (
        cast.agent_scope,
        shard,
        group,
        *cast.anna_scopes,
        cast.session_scope,
    )
    assert view.writes_reflections == view.reads
    assert view.writes_facts == view.reads[:-1]
    assert named(view) == "anna"


def test_two_accounts_of_one_person_are_one(cast: Cast) -> None:
    cast.session = cast.add_session(cast.anna_on_discord, cast.anna)
    view = view_of(cast)
    assert named(view) == "anna"  # the canonical account
    assert cast.anna_scope in view.reads


def test_a_second_account_alone_reaches_the_canonical_memory(cast: Cast) -> None:
    cast.session = cast.add_session(cast.anna_on_discord)
    view = view_of(cast)
    assert named(view) == "anna#1234"
    assert cast.anna_scope in view.reads


def test_two_people_have_no_user_scope(cast: Cast) -> None:
    cast.session = cast.add_session(cast.anna, cast.bruno)
    view = view_of(cast)
    assert view.user is None
    assert view.reads == (cast.agent_scope, cast.session_scope)


def test_known_failure_8_a_sender_who_is_not_listed_makes_a_group_chat(cast: Cast) -> None:
    """Known failure 8: group chat is judged from one list, the author taken from another."""
    assert view_of(cast, speaker=cast.anna_on_discord.id).user is not None
    for stranger in (cast.bruno.id, new_id()):  # known and unknown to the store
        view = view_of(cast, speaker=stranger)
        assert view.user is None
        assert ScopeKind.USER not in {scope.kind for scope in view.writes_facts}
    cast.store.host.add_messages(
        cast.session.id, [make_message(cast.session, "I am Bruno", sender=cast.bruno.id)]
    )
    assert view_of(cast).user is None


def test_the_account_to_answer_counts_as_a_participant(cast: Cast) -> None:
    assert view_of(cast, speaker=cast.bruno.id).user is None
    discord = view_of(cast, speaker=cast.anna_on_discord.id)
    assert cast.anna_scope in discord.reads
    cast.session = cast.add_session()  # an old document without users
    assert view_of(cast).reads == (cast.agent_scope, cast.session_scope)
    view = view_of(cast, speaker=cast.anna.id)
    assert cast.anna_scope in view.reads


def test_an_unknown_person_has_no_user_scope(cast: Cast) -> None:
    cast.session = make_session([cast.eve], [new_id()])
    view = view_of(cast)
    assert view.user is None
    assert ScopeKind.USER not in {scope.kind for scope in view.reads}


def test_a_chat_of_an_unknown_person_writes_its_own_scope_alone(cast: Cast) -> None:
    cast.add_shard("festival")
    cast.session = cast.add_session(imported=True)
    view = view_of(cast)
    assert cast.agent_scope in view.reads
    assert (view.writes_facts, view.writes_reflections) == ((), (cast.session_scope,))


def test_toggles_switch_scopes_off_but_never_the_session(cast: Cast) -> None:
    cast.add_shard("festival")
    cast.eve = cast.add_agent("quiet", user_memory_enabled=False, agent_memory_enabled=False)
    set_policy(cast.store, Scope.shard(cast.eve.id, "attic"))
    cast.session = cast.add_session(cast.anna)
    view = view_of(cast)
    assert view.reads == view.writes_reflections == (cast.session_scope,)
    assert view.writes_facts == ()
    assert named(view) == "anna"


def test_incognito_reads_and_writes_nothing(cast: Cast) -> None:
    cast.session = cast.add_session(cast.anna, incognito=True)
    view = view_of(cast)
    assert cast.anna_scope in view.reads
    assert view.writes_facts == view.writes_reflections == ()


def test_paused_scopes_are_read_only_and_paused_shards_are_hidden(cast: Cast) -> None:
    shard = cast.add_shard("festival", active=False)
    for scope in (cast.agent_scope, *cast.anna_scopes, cast.session_scope):
        set_policy(cast.store, scope, active=False)
    view = view_of(cast)
    assert shard not in view.reads
    assert view.reads == (cast.agent_scope, *cast.anna_scopes, cast.session_scope)
    assert view.writes_facts == view.writes_reflections == ()


def test_human_senders_are_people_who_wrote() -> None:
    eve = make_agent()
    session = make_session([eve], ["a" * 24])
    messages = [
        make_message(session, sender="a" * 24),
        make_message(session, sender="b" * 24),
        make_message(session, sender="a" * 24),
        make_message(session, sender=eve.id),
        make_message(session, sender="c" * 24, role="assistant"),
        make_message(session, sender="d" * 24, trigger=True),
        make_message(session, sender=None),
    ]
    assert human_senders(session, messages) == ("a" * 24, "b" * 24)


# -- an operator ---------------------------------------------------------------------------------


def test_known_failure_4_without_a_user_no_users_facts_are_seen(cast: Cast) -> None:
    """Known failure 4: scope ``user`` without a user id widens to everything the agent knows."""
    shard, paused = cast.add_shard("festival"), cast.add_shard("attic", active=False)
    assert reader_scopes(cast.store, cast.eve) == (cast.agent_scope, paused, shard)
    for kind in (ScopeKind.USER, ScopeKind.GROUP, ScopeKind.SESSION):
        with pytest.raises(ScopeError, match=f"{kind} memory requires a {kind}"):
            reader_scopes(cast.store, cast.eve, kinds=[kind, ScopeKind.AGENT])


def test_any_account_selects_the_user(cast: Cast) -> None:
    assert (
        reader_scopes(cast.store, cast.eve, user_id=cast.anna_on_discord.id, kinds=[ScopeKind.USER])
        == cast.anna_scopes
    )
    nobody = new_id()
    assert reader_scopes(cast.store, cast.eve, user_id=nobody, kinds=[ScopeKind.USER]) == (
        Scope.user(cast.eve.id, nobody),
    )


def test_shards_and_kinds_narrow(cast: Cast) -> None:
    festival, _ = cast.add_shard("festival"), cast.add_shard("attic")
    everything = reader_scopes(
        cast.store, cast.eve, user_id=cast.anna.id, group_id="guild", shards=["festival"]
    )
    assert everything == (
        cast.agent_scope,
        festival,
        Scope.group(cast.eve.id, "guild"),
        *cast.anna_scopes,
    )
    only = reader_scopes(cast.store, cast.eve, shards=["festival"], kinds=[ScopeKind.SHARD])
    assert only == (festival,)
    with pytest.raises(NotFoundError, match="no shard 'cellar'"):
        reader_scopes(cast.store, cast.eve, shards=["cellar"])


def test_an_agent_without_shards_has_none_to_read(cast: Cast) -> None:
    assert reader_scopes(cast.store, cast.eve, kinds=[ScopeKind.SHARD]) == ()


@given(data=st.data())
def test_a_view_never_has_scopes_of_others(cast: Cast, data: st.DataObject) -> None:
    """For all participants, accounts and toggles of the agent."""
    strangers = [make_user("x" + new_id()), make_user("y" + new_id())]
    known = [cast.anna, cast.anna_on_discord, cast.bruno]
    people = data.draw(st.lists(st.sampled_from([*known, *strangers]), max_size=3))
    speaker = data.draw(st.none() | st.sampled_from([*known, *strangers]))
    agent = make_agent(
        user_memory_enabled=data.draw(st.booleans()), agent_memory_enabled=data.draw(st.booleans())
    )
    session = make_session([agent], people, incognito=data.draw(st.booleans()))
    view = current_view(cast.store, session, agent, speaker=speaker and speaker.id)
    persons = {person.person_id for person in (*people, *([speaker] if speaker else []))}
    allowed = {Scope.session(agent.id, session.id)}
    if agent.agent_memory_enabled:
        allowed.add(Scope.agent(agent.id))
    if agent.user_memory_enabled and len(persons) == 1 and not persons & {s.id for s in strangers}:
        person = persons.pop()
        owners = [user.id for user in known if user.person_id == person]
        allowed |= {Scope.user(agent.id, owner) for owner in owners}
    assert set(view.reads) == allowed
    assert set(view.writes_reflections) == (set() if session.incognito else allowed)
    assert set(view.writes_facts) <= set(view.writes_reflections)
