"""Who was told what: everything that was told and changed is found again, as it was told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from threading import Timer
from typing import TYPE_CHECKING

import pytest

from edenmem.engine.runtime import told
from edenmem.engine.service import MemoryService
from edenmem.errors import NotFoundError, StoreUnreachable
from edenmem.models.scope import Scope
from edenmem.models.told import text_key
from edenmem.settings.schema import Settings, StoreSettings, ToldSettings
from tests.engine.conftest import Cast, make_cast
from tests.support.builders import ACTOR, FixedClock
from tests.support.forgetting import forget
from tests.support.memory import add_fact
from tests.support.waiting import until

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store

pytestmark = pytest.mark.slow


def service_of(store: Store, settings: Settings | None = None) -> MemoryService:
    return MemoryService(store, settings or Settings(), actor=ACTOR, clock=FixedClock())


@dataclass
class History:
    """A random history, and by the XML of each reply what it was told.

    The model knows only which texts each memory had, and looks for them in what was sent.
    """

    cast: Cast
    service: MemoryService
    random: Random
    sent: dict[str, tuple[str | None, str]] = field(default_factory=dict)  # reply → session, text
    texts: dict[str, list[str]] = field(default_factory=dict)  # key → its texts, newest last
    homes: dict[str, Scope] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)
    number: int = 0

    def word(self) -> str:
        self.number += 1
        return f"Number {self.number} is kept."

    def scope(self) -> Scope:
        cast = self.cast
        scopes = [cast.agent_scope, cast.anna_scope, cast.discord_scope, cast.bruno_scope]
        return self.random.choice([each for each in scopes if each.key not in self.erased])

    def learn(self, key: str, scope: Scope, text: str) -> None:
        self.texts.setdefault(key, []).append(text)
        self.homes[key] = scope

    def a_fact(self) -> str | None:
        store = self.cast.store
        return next(
            (key for key in self.random.sample(list(self.texts), len(self.texts))
             if store.memory.fact(key)), None,
        )  # fmt: skip

    # -- steps ---------------------------------------------------------------------------------

    def add(self) -> None:
        scope, text = self.scope(), self.word()
        made = self.service.editor.add_fact(scope, text)
        self.learn(made.target_id, scope, text)

    def reflect(self) -> None:
        scope, text = self.scope(), self.word()
        made = self.service.editor.add_reflection(scope, text)
        self.learn(made.target_id, scope, text)

    def write(self) -> None:
        scope, text = self.scope(), self.word()
        known = self.cast.store.memory.consolidations([scope]).get(scope)
        version = known.version if known else 0
        self.service.editor.edit_consolidation(scope, text, expected_version=version)
        self.learn(text_key(scope), scope, text)

    def edit(self) -> None:
        if (key := self.a_fact()) is not None:
            fact = self.cast.store.memory.fact(key)
            assert fact is not None
            text = self.word()
            self.service.editor.edit(key, text, expected_version=fact.version)
            self.learn(key, fact.home, text)

    def delete(self) -> None:
        if (key := self.a_fact()) is not None:
            self.service.editor.delete(key)

    def undo(self) -> None:
        entries = list(self.service.history.entries(limit=5))
        if entries:
            entry = self.random.choice(entries)
            if self.service.undo.plan(entry.id, force=False).outcome.value == "done":
                self.service.undo.entry(entry.id, force=False, reason="")

    def tell(self) -> None:
        cast = self.cast
        session = self.random.choice([cast.session.id, "bruno"])
        session_id = session if session != "bruno" else self.bruno.id
        xml = asyncio.run(self.service.get_memory_context(session_id))
        self.service._runtime.told.flush()
        newest = self.cast.store.told.replies(session_id=session_id, limit=1)
        if xml != "<MemoryContext/>":
            assert newest[0].id not in self.sent
            self.sent[newest[0].id] = session_id, xml

    def search(self) -> None:
        memory = asyncio.run(self.service.memory_for("eve", user="anna"))
        hits = asyncio.run(memory.search("which number is kept", top_k=5)).hits
        self.service._runtime.told.flush()
        for reply in self.cast.store.told.replies(limit=1 if hits else 0):
            self.sent[reply.id] = None, "\n".join(hit.fact.content for hit in hits)

    def forget_fact(self) -> None:
        if (key := self.a_fact()) is not None:
            assert forget(self.cast.store, facts=[key]).complete
            self.erased.add(key)

    def forget_bruno(self) -> None:
        if self.cast.bruno_scope.key not in self.erased:
            assert forget(self.cast.store, user="bruno").complete
            self.erased.add(self.cast.bruno_scope.key)
            self.sent = {id: one for id, one in self.sent.items() if one[0] != self.bruno.id}

    def run(self, steps: int) -> None:
        self.bruno = self.cast.add_session(self.cast.bruno)
        often = [self.add, self.reflect, self.write, self.edit, self.tell, self.tell, self.tell]
        some = [*often, *often, self.search, self.delete, self.undo, self.undo, self.forget_fact]
        for _ in range(steps):
            step = self.random.choice([*some, *some, self.forget_bruno])
            step()
            clock = self.service._runtime.clock
            assert isinstance(clock, FixedClock)
            clock.advance(seconds=self.random.choice([0, 1, 70, 4000]))

    # -- what must hold ------------------------------------------------------------------------

    def is_gone(self, key: str) -> bool:
        return key in self.erased or self.homes[key].key in self.erased

    def check(self) -> None:
        reader = self.service.told
        for key, texts in self.texts.items():
            saw = {s for s, xml in self.sent.values() if any(f"{t}" in xml for t in texts)}
            found = {one.reply.session_id for one in reader.tellings([key])}
            assert found == (set() if self.is_gone(key) else saw), (key, texts)
        gone = {text for key in self.texts if self.is_gone(key) for text in self.texts[key]}
        for reply_id, (session_id, sent) in self.sent.items():
            (reply,) = reader.replies(reply_id=reply_id)
            then = reader.as_told(reply).context
            told = [t for texts in self.texts.values() for t in texts if t in sent]
            assert [t for t in told if t in then] == [t for t in told if t not in gone]
            assert ("forgotten" in then) == any(t in gone for t in told)
            if session_id and not any(t in gone for t in told):
                assert then == sent


@pytest.mark.parametrize("seed", range(8))
def test_what_was_told_is_found_again(sqlite_store: Store, seed: int) -> None:
    history = History(make_cast(sqlite_store), service_of(sqlite_store), Random(seed))
    history.run(steps=40)
    history.check()


def test_what_was_told_is_found_again_on_mongodb(open_store: Callable[[str], Store]) -> None:
    store = open_store("secantus")
    history = History(make_cast(store), service_of(store), Random(1))
    history.run(steps=40)
    history.check()


async def test_contexts_from_the_cache_are_noted_too(cast: Cast) -> None:
    fact = add_fact(cast.store, cast.anna_scope, "Anna keeps owls.")
    for _ in range(2):  # the second service finds the context in the store
        service = service_of(cast.store)
        report = await service.assemble_context(cast.session.id)
        service._runtime.told.flush()
    assert report.cached
    first, second = cast.store.told.replies(session_id=cast.session.id)
    assert first.context == second.context
    (shown,) = cast.store.told.lists([first.context])[first.context]
    assert (shown.id, shown.version, shown.scope) == (fact.id, 1, cast.anna_scope)


async def test_searches_are_noted_by_session_or_by_user(cast: Cast) -> None:
    fact = add_fact(cast.store, cast.anna_scope, "Anna keeps owls.")
    service = service_of(cast.store)
    await service.search_facts(cast.session.id, "owls")
    await (await service.memory_for("eve", user="anna")).search("owls")
    await service.search("owls", agent_id="eve", user_id="anna")  # an operator's
    service._runtime.told.flush()
    found = [one.reply for one in service.told.tellings([fact.id])]
    seen = {(one.session_id, one.user_id) for one in found}
    assert seen == {(cast.session.id, cast.anna.id), (None, cast.anna.id)}


@pytest.mark.parametrize(
    "settings",
    [Settings(told=ToldSettings(days=0)), Settings(store=StoreSettings(read_only=True))],
    ids=["off", "read-only"],
)
async def test_nothing_is_noted(cast: Cast, settings: Settings) -> None:
    add_fact(cast.store, cast.anna_scope, "Anna keeps owls.")
    service = service_of(cast.store, settings)
    await service.get_memory_context(cast.session.id)
    service._runtime.told.flush(is_last=True)
    assert cast.store.told.replies() == []
    assert service._runtime.told.lost == 0


async def test_notes_wait_for_the_store_and_are_counted_if_lost(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(notes: object) -> None:
        raise StoreUnreachable("gone")

    add_fact(cast.store, cast.anna_scope, "Anna keeps owls.")
    service = service_of(cast.store)
    notes = service._runtime.told
    monkeypatch.setattr(told, "MOST", 2)
    with monkeypatch.context() as broken:
        broken.setattr(cast.store.told, "add", fail)
        for _ in range(3):
            await service.get_memory_context(cast.session.id)
        notes.flush()
    assert notes.lost == 1
    notes.flush()
    assert len(cast.store.told.replies()) == 2
    monkeypatch.setattr(cast.store.told, "add", fail)
    await service.get_memory_context(cast.session.id)
    notes.flush(is_last=True)
    assert notes.lost == 2


async def test_a_reply_is_found_by_number_and_by_prefix(cast: Cast) -> None:
    service = service_of(cast.store)
    reader = service.told
    with pytest.raises(NotFoundError, match=r"^the session has no noted replies$"):
        reader.find(cast.session.id)
    for content in ("Anna keeps owls.", "Anna has a boat."):
        add_fact(cast.store, cast.anna_scope, content)
        await service.get_memory_context(cast.session.id)
    service._runtime.told.flush()
    newest, oldest = cast.store.told.replies()
    assert reader.find(cast.session.id) == newest
    assert reader.find(cast.session.id, "2") == reader.find(cast.session.id, oldest.id) == oldest
    for wanted in ("3", "0", "f" * 24):
        with pytest.raises(NotFoundError):
            reader.find(cast.session.id, wanted)


async def test_notes_are_written_soon(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "Timer", Timer)
    monkeypatch.setattr(told, "_PATIENCE", 0.0)
    add_fact(cast.store, cast.anna_scope, "Anna keeps owls.")
    await service_of(cast.store).get_memory_context(cast.session.id)
    until(cast.store.told.replies)
