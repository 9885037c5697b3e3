"""Linked accounts of one person: memory is stored separately and read together."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from edenmem.engine.context.builder import ContextBuilder, first_lines
from edenmem.engine.context.recall import Recaller
from edenmem.engine.scopes.references import person_of, person_with, resolve_person
from edenmem.engine.scopes.visibility import current_view, reader_scopes
from edenmem.engine.service import MemoryService
from edenmem.errors import UsageError
from edenmem.models.backup import RecordKind, StoredUser
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope, ScopeKind
from edenmem.settings.schema import Settings
from tests.support.builders import ACTOR, NOW, FixedClock, ago, make_message, make_user
from tests.support.memory import add_fact, add_reflection, consolidate, set_policy
from tests.support.runtime import make_runtime

if TYPE_CHECKING:
    from edenmem.models.host import User
    from tests.engine.conftest import Cast


def add_deleted(cast: Cast, username: str, **fields: str) -> StoredUser:
    """Add a deleted account."""
    account = StoredUser(id=new_id(), username=username, deleted=True, **fields)
    cast.store.walk.load(RecordKind.USER, [account])
    return account


def add_account(cast: Cast, username: str, **fields: str) -> User:
    account = make_user(username, **fields)
    assert cast.store.host.add_user(account)
    return account


async def context(cast: Cast, user: User, **options: object) -> ElementTree.Element:
    recaller = Recaller(make_runtime(cast.store, clock=FixedClock()), searcher=None)
    builder = ContextBuilder(make_runtime(cast.store, clock=FixedClock()), recaller=recaller)
    report = await builder.build(cast.add_session(user), cast.eve, **options)  # type: ignore[arg-type]
    return ElementTree.fromstring(report.xml)


# -- the person ----------------------------------------------------------------------------------


def test_every_account_resolves_to_the_same_person(cast: Cast) -> None:
    telegram = add_account(cast, "anna-telegram", eden_user_id=cast.anna.id)
    old = add_deleted(cast, "anna-old", eden_user_id=cast.anna.id)
    person = person_of(cast.store, telegram.id)
    assert person == person_of(cast.store, cast.anna.id)
    assert person.ids[0] == person.id == cast.anna.id
    assert set(person.ids) == {cast.anna.id, cast.anna_on_discord.id, telegram.id}
    assert person_of(cast.store, old.id).ids == (old.id,)  # only what is left of it
    nobody = new_id()
    assert person_of(cast.store, nobody).ids == (nobody,)
    assert resolve_person(cast.store, cast.anna.id, telegram.id).ids == (telegram.id,)
    with pytest.raises(UsageError, match="not an account of anna"):
        resolve_person(cast.store, cast.anna.id, cast.bruno.id)


def test_a_canonical_id_needs_no_account(cast: Cast) -> None:
    canonical = new_id()
    zoe = add_account(cast, "zoe#1", eden_user_id=canonical)
    assert person_of(cast.store, zoe.id).ids == (canonical, zoe.id)
    deleted = add_deleted(cast, "yves")
    yves = add_account(cast, "yves#1", eden_user_id=deleted.id)
    assert person_of(cast.store, yves.id).ids == (deleted.id, yves.id)


def test_an_account_belongs_to_one_person_only(cast: Cast) -> None:
    """In a chain of links, each account follows its own link."""
    moved = add_account(cast, "moved", eden_user_id=cast.anna_on_discord.id)
    assert person_of(cast.store, moved.id).ids == (moved.id,)
    assert cast.anna_on_discord.id in person_of(cast.store, cast.anna.id).ids
    assert person_with(cast.store, cast.anna_on_discord.id).ids == (moved.id,)


# -- reading -------------------------------------------------------------------------------------


async def test_known_failure_57_memory_of_linked_accounts_is_read(cast: Cast) -> None:
    """Known failure 57: it was invisible to ``fact list``, ``search`` and ``context``."""
    add_fact(cast.store, cast.discord_scope, "Anna plays the cello.", formed_at=ago(hours=1))
    consolidate(cast.store, cast.discord_scope, "Plays in a quartet.", expected_version=0)
    for user in (cast.anna, cast.anna_on_discord):
        root = await context(cast, user)
        assert "cello" in (root.findtext("Facts") or "")
        assert root.findtext("UserMemory/Consolidated") == "VERSION: 1\nPlays in a quartet."
        scopes = reader_scopes(cast.store, cast.eve, user_id=user.id, kinds=[ScopeKind.USER])
        assert scopes == cast.anna_scopes
    service = MemoryService(cast.store, Settings(), actor=ACTOR, clock=FixedClock())
    for account_id, found in ((None, 1), (cast.anna_on_discord.id, 1), (cast.anna.id, 0)):
        report = await service.search(
            ["cello"], agent_id=cast.eve.id, user_id=cast.anna.id, account_id=account_id
        )
        assert len(report.hits) == found
    assert "cello" not in ElementTree.tostring(await context(cast, cast.bruno)).decode()


def test_an_unlinked_and_a_deleted_account_are_not_read(cast: Cast) -> None:
    old = add_deleted(cast, "anna-old", eden_user_id=cast.anna.id)
    view = current_view(cast.store, cast.session, cast.eve)
    users = {scope.user_id for scope in view.reads if scope.user_id}
    assert users == {cast.anna.id, cast.anna_on_discord.id}
    assert current_view(cast.store, cast.add_session(old), cast.eve).person is None


async def test_texts_of_several_accounts_share_one_limit_newest_first(cast: Cast) -> None:
    telegram = add_account(cast, "anna-telegram", eden_user_id=cast.anna.id)
    telegram_scope = Scope.user(cast.eve.id, telegram.id)
    consolidate(cast.store, cast.anna_scope, "Old.\nToo long.", expected_version=0, at=ago(days=3))
    consolidate(cast.store, telegram_scope, "Three newer words.", expected_version=0, at=NOW)
    for number in range(30):
        scope = (cast.anna_scope, cast.discord_scope)[number % 2]
        add_reflection(cast.store, scope, f"Thought {number}.", formed_at=ago(hours=40 - number))
    set_policy(cast.store, telegram_scope, word_limit=4)
    root = await context(cast, cast.anna)
    texts = root.findall("UserMemory/Consolidated")
    assert [(each.get("account"), each.text) for each in texts] == [
        ("anna-telegram", "VERSION: 1\nThree newer words."),
        ("anna", "VERSION: 1\nOld."),
    ]
    [pending] = root.findall("UserMemory/RecentReflections")
    lines = (pending.text or "").split("\n")[1:-1]
    assert lines == [f"- Thought {number}." for number in range(10, 30)]
    past = await context(cast, cast.anna, as_of=ago(days=1))
    assert [each.attrib for each in past.findall("UserMemory/Consolidated")] == [{}]


def test_first_lines_are_whole() -> None:
    assert first_lines("one two\nthree\nfour", 3) == "one two\nthree"
    assert first_lines("one two", 1) == first_lines("", 5) == first_lines("one", -1) == ""


async def test_links_are_followed_without_moving_memory(cast: Cast) -> None:
    telegram = add_account(cast, "t-1")
    scope = Scope.user(cast.eve.id, telegram.id)
    add_fact(cast.store, scope, "Anna plays the cello.", formed_at=ago(hours=1))
    assert "cello" not in ElementTree.tostring(await context(cast, cast.anna)).decode()
    linked = add_account(cast, "t-2", eden_user_id=cast.anna.id)
    add_fact(cast.store, Scope.user(cast.eve.id, linked.id), "Anna sings.", formed_at=ago(hours=1))
    shown = ElementTree.tostring(await context(cast, cast.anna)).decode()
    assert "sings" in shown
    assert "cello" not in shown


# -- writing -------------------------------------------------------------------------------------


def test_memory_is_written_for_the_accounts_that_spoke(cast: Cast) -> None:
    session = cast.add_session(cast.anna, cast.anna_on_discord)
    view = current_view(cast.store, session, cast.eve)
    assert set(cast.anna_scopes) <= set(view.writes_facts)

    def written(*senders: str | None) -> list[list[Scope]]:
        messages = [make_message(session, sender=sender) for sender in senders]
        own = view.narrow_to_writers(messages)
        assert own.reads == view.reads
        assert own.writes_reflections[-1] == Scope.session(cast.eve.id, session.id)
        return [
            [scope for scope in scopes if scope.kind is ScopeKind.USER]
            for scopes in (own.writes_facts, own.writes_reflections)
        ]

    discord, anna = cast.anna_on_discord.id, cast.anna.id
    both = [cast.discord_scope, cast.anna_scope]
    assert written(anna, discord, cast.eve.id) == [both, [cast.discord_scope]]
    assert written(discord, anna) == [both[::-1], [cast.anna_scope]]
    assert written(discord) == [[cast.discord_scope]] * 2
    assert written(None) == written() == [[cast.anna_scope]] * 2
    set_policy(cast.store, cast.discord_scope, active=False)
    view = current_view(cast.store, session, cast.eve)
    assert written(anna, discord) == [[cast.anna_scope], []]
    assert written(discord) == [[], []]
