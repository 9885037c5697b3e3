"""The browser as a person uses it: keys and clicks on a screen that is not drawn anywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static, Tabs, TextArea

from edenmem.browse.app import Browser
from edenmem.browse.widgets import PAGE, Question, Reader, Rows, TextEditor
from edenmem.engine.service import MemoryService
from edenmem.errors import StoreUnreachable
from edenmem.models.changes import HoldItem
from edenmem.models.host import Agent, User
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.settings.schema import Settings, StoreSettings
from edenmem.store.protocol.store import Store
from tests.support.builders import (
    ACTOR,
    NOW,
    FixedClock,
    make_agent,
    make_fact,
    make_held,
    make_messages,
    make_session,
    make_user,
)
from tests.support.memory import add_fact, add_facts, add_reflection, applied, consolidate
from tests.support.stores import sqlite_store

PASTE = "Lena keeps the wheat paste in glass jars."
SHORT = "Lena prefers short answers."
HOSTILE = "[bold]loud[/bold] [@click=app.quit]x[/] \x1b[2J\x1b]0;owned\x07 \u202egnp.exe \x9b31m"


@pytest.fixture(autouse=True)
def blank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip drawing, a third of the time: no test reads the screen."""
    monkeypatch.setattr("textual._compositor.Compositor.render_update", lambda *_, **__: None)


class World(NamedTuple):
    """A store with two agents and two users, and the service on it."""

    store: Store
    mira: Agent
    lena: User
    scope: Scope

    def service(self, settings: Settings | None = None) -> MemoryService:
        clock = FixedClock(NOW + timedelta(hours=1))
        return MemoryService(self.store, settings or Settings(), actor=ACTOR, clock=clock)

    def facts(self) -> list[str]:
        return [fact.content for fact in self.store.memory.facts(FactFilter(scopes=(self.scope,)))]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with sqlite_store(tmp_path) as store:
        yield _fill(store)


def _fill(store: Store) -> World:
    """Add two agents, two users and what is remembered of them."""
    mira, otto = make_agent("mira"), make_agent("otto")
    lena, tomas = make_user("lena"), make_user("tomas")
    for agent in (mira, otto):
        store.host.add_agent(agent)
    for user in (lena, tomas):
        store.host.add_user(user)
    session = make_session([mira], [lena], name="lanterns")
    store.host.put_session(session)
    said = make_messages(session, ["I keep the paste in jars."], sender=lena.id, name="lena")
    store.host.add_messages(session.id, said)
    scope = Scope.user(mira.id, lena.id)
    source = {"session_id": session.id, "source_message_ids": (said[0].id,)}
    add_fact(store, Scope.agent(mira.id), "The Lantern Walk starts at 17:30.")
    add_fact(store, Scope.user(mira.id, tomas.id), "Tomas repairs boats.")
    add_fact(store, Scope.agent(otto.id), "The regatta is in May.")
    add_fact(store, scope, PASTE, **source)
    add_fact(store, scope, SHORT, formed_at=NOW - timedelta(hours=1))
    thought = add_reflection(store, scope, "Lena wants to be asked first.", **source)
    add_reflection(store, scope, "Lena is in a hurry.", session_id=session.id)
    consolidate(store, scope, "Ask Lena first.", expected_version=0, absorbed_ids=(thought.id,))
    return World(store, mira, lena, scope)


class Screen:
    """The running application, with what a person sees of it."""

    def __init__(self, app: Browser, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    async def settle(self) -> None:
        """Wait until nothing is read any more."""
        waiting = ("change", "why")
        while True:
            await self.pilot.pause()
            if not [w for w in self.app.workers if not w.is_finished and w.group not in waiting]:
                return

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for what work in a thread leads to."""
        for _ in range(200):
            if is_so():
                await self.settle()
                return
            await self.pilot.pause()
        raise AssertionError("it did not happen")

    async def until_screen(self, kind: type) -> None:
        await self.until(lambda: type(self.app.screen) is kind)

    async def until_main(self) -> None:
        await self.until(lambda: len(self.app.screen_stack) == 1)

    async def open(self, name: str) -> None:
        await self.press("f", *name, "enter")

    def text(self, name: str = "text") -> str:
        return str(self.app.screen.query_one(f"#{name}", Static).content)

    def rows(self, name: str = "items") -> list[str]:
        return [row.prompt.plain for row in self.app.screen.query_one(f"#{name}", Rows).rows]

    def notices(self) -> str:
        return "\n".join(note.message for note in self.app._notifications)

    @property
    def editor(self) -> TextArea:
        return self.app.screen.query_one(TextArea)


@asynccontextmanager
async def browser(
    world: World, settings: Settings | None = None, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[Screen]:
    settings = settings or Settings()
    app = Browser(world.service(settings), settings)
    async with app.run_test(size=size) as pilot:
        screen = Screen(app, pilot)
        await screen.settle()
        yield screen


@pytest.mark.slow
async def test_the_highlighted_scope_is_shown_and_a_filter_narrows_the_list(world: World) -> None:
    async with browser(world) as screen:
        assert screen.rows("scopes") == ["mira 1", " user lena 2", " user tomas 1", "otto 1"]
        assert "Lantern Walk" in screen.rows()[0]
        await screen.press("j", "j")
        assert "Tomas" in screen.rows()[0]
        await screen.press("k")
        assert "2 facts" in screen.text("heading")
        await screen.press("l", "e", "n")
        assert screen.rows("scopes") == ["mira: user lena 2"]
        await screen.press("enter")
        assert PASTE in screen.rows()[0]
        assert SHORT in screen.rows()[1]
        assert "Tomas" not in "".join(screen.rows())
        assert screen.text().startswith(PASTE)
        await screen.press("down")
        assert screen.text().startswith(SHORT)
        assert screen.text("info") == "2 of 2"
        await screen.press("escape", "escape")
        assert len(screen.rows("scopes")) == 4
        await screen.press("q")
        assert not screen.app.is_running


@pytest.mark.slow
async def test_each_tab_shows_what_the_scope_holds(world: World) -> None:
    async with browser(world) as screen:
        await screen.open("lena")
        await screen.press("2")
        assert ["pending" in row for row in screen.rows()] == [False, True]
        await screen.press("3")
        assert screen.text().startswith("Ask Lena first.")
        await screen.press("4")
        assert screen.rows()[0].startswith("version 1, consolidate")
        assert "+Ask Lena first." in screen.text()
        await screen.press("5")
        assert len(screen.rows()) == 5
        assert "tester on test-host" in screen.text()
        await screen.pilot.click("#reflections")
        await screen.settle()
        assert len(screen.rows()) == 2


@pytest.mark.slow
async def test_search_explains_each_hit_and_sees_no_other_user(world: World) -> None:
    async with browser(world) as screen:
        await screen.open("lena")
        await screen.press("slash", *"paste", "space", "a", "slash", "b", "enter")
        assert screen.app.query_one("#query", Input).value == "paste a/b"
        assert PASTE in screen.rows()[0]
        assert "rank 1" in screen.text()
        assert "found" in screen.text("info")
        await screen.press("slash")
        screen.app.query_one("#query", Input).value = "boats"
        await screen.press("enter")
        assert screen.rows() == []
        fact = next(iter(world.store.memory.facts(FactFilter(scopes=(world.scope,)))))
        assert fact.access_count == 0  # to look is no use of a memory


@pytest.mark.slow
async def test_a_fact_is_edited_and_the_edit_undone(world: World) -> None:
    async with browser(world) as screen:
        await screen.open("lena")
        await screen.press("e")
        await screen.until_screen(TextEditor)
        await screen.press("!", "ctrl+s")
        await screen.until_main()
        assert f"{PASTE}!" in world.facts()
        assert PASTE + "!" in screen.rows()[0]
        await screen.press("u")
        await screen.until_screen(Question)
        assert f"-{PASTE}!" in screen.text()
        await screen.press("y")
        await screen.until(lambda: PASTE in world.facts())
        await screen.press("5")
        assert "undo edit fact" in screen.rows()[0]


@pytest.mark.slow
async def test_the_browser_works_on_mongodb(open_store: Callable[[str], Store]) -> None:
    world = _fill(open_store("secantus"))
    async with browser(world) as screen:
        await screen.open("lena")
        await screen.until(lambda: PASTE in "".join(screen.rows()[:1]))
        await screen.press("d")
        await screen.until_screen(Question)
        await screen.press("y")
        await screen.until(lambda: world.facts() == [SHORT])
        await screen.press("u")
        await screen.until_screen(Question)
        await screen.press("y")
        await screen.until(lambda: len(world.facts()) == 2)
        await screen.press("5")
        await screen.until(lambda: "undo delete fact" in "".join(screen.rows()[:1]))
        await screen.press("slash", *"paste", "enter")
        await screen.until(lambda: any(PASTE in row for row in screen.rows()))


@pytest.mark.slow
async def test_an_edit_that_meets_another_writer_loses_nothing(world: World) -> None:
    async with browser(world) as screen:
        await screen.open("lena")
        await screen.press("e")
        await screen.until_screen(TextEditor)
        editor = world.service().editor
        fact_id = world.store.memory.facts(FactFilter(scopes=(world.scope,)))
        editor.edit(next(fact_id).id, "Lena keeps no paste.", expected_version=1)
        await screen.press("!", "ctrl+s")
        await screen.until(lambda: "Not saved" in screen.text("message"))
        assert "version" in screen.text("message")
        assert screen.editor.text == f"{PASTE}!"
        assert world.facts()[0] == "Lena keeps no paste."
        await screen.press("ctrl+q")
        await screen.until_screen(Question)
        await screen.press("n")
        assert screen.editor.text == f"{PASTE}!"


@pytest.mark.slow
async def test_an_edit_of_what_was_deleted_keeps_the_text_and_leaving_asks(world: World) -> None:
    async with browser(world) as screen:
        await screen.open("lena")
        await screen.press("e")
        await screen.until_screen(TextEditor)
        fact = next(iter(world.store.memory.facts(FactFilter(scopes=(world.scope,)))))
        world.service().editor.delete(fact.id)
        await screen.press("!", "ctrl+s")
        await screen.until(lambda: "Not saved" in screen.text("message"))
        assert screen.editor.text == f"{PASTE}!"
        await screen.press("escape")
        await screen.until_screen(Question)
        await screen.press("y")
        await screen.until_main()
        assert world.facts() == [SHORT]


@pytest.mark.slow
async def test_a_refused_text_stays_in_the_editor(world: World) -> None:
    async with browser(world) as screen:
        await screen.open("lena")
        await screen.press("3", "e")
        await screen.until_screen(TextEditor)
        screen.editor.text = "word " * 400
        await screen.press("ctrl+s")
        await screen.until(lambda: "400 words" in screen.text("message"))
        screen.editor.text = "Ask Lena twice."
        await screen.press("ctrl+s")
        await screen.until_main()
        assert screen.text().startswith("Ask Lena twice.")


@pytest.mark.slow
async def test_deleting_asks_and_undo_brings_back(world: World) -> None:
    async with browser(world) as screen:
        await screen.open("lena")
        await screen.press("d")
        await screen.until_screen(Question)
        await screen.press("enter")  # cancels
        await screen.until_main()
        assert len(world.facts()) == 2
        await screen.press("d")
        await screen.until_screen(Question)
        await screen.pilot.click("#yes")
        await screen.until(lambda: world.facts() == [SHORT])
        assert len(screen.rows()) == 1
        assert "1 fact ·" in screen.text("heading")
        await screen.press("u")
        await screen.until_screen(Question)
        await screen.press("y")
        await screen.until(lambda: len(world.facts()) == 2)
        await screen.press("2", "d")
        await screen.until_screen(Question)
        await screen.press("y")
        await screen.until(lambda: len(screen.rows()) == 1)


@pytest.mark.slow
async def test_what_waits_is_accepted_rejected_and_edited_in_all_scopes(world: World) -> None:
    agent = Scope.agent(world.mira.id)
    held = [
        make_held(world.scope, "Lena prefers short answers"),
        make_held(agent, "The walk may be long.", held_at=NOW - timedelta(hours=1)),
    ]
    applied(world.store, *(HoldItem(held=each) for each in held))
    async with browser(world) as screen:
        await screen.open("lena")
        await screen.press("a")  # not on this tab
        await screen.press("7")
        assert len(screen.rows()) == 2
        assert "doubt" in screen.text()
        await screen.press("a")
        await screen.until_screen(Question)
        await screen.press("y")  # replaces the fact that it resembles
        await screen.until(lambda: "Lena prefers short answers" in world.facts())
        await screen.until(lambda: len(screen.rows()) == 1)
        assert len(world.facts()) == 2
        await screen.press("d")
        await screen.until_screen(Question)
        await screen.press("y")
        await screen.until(lambda: screen.rows() == [])
        await screen.press("u")  # of another scope than the open one
        await screen.until_screen(Question)
        await screen.press("y")
        await screen.until(lambda: len(screen.rows()) == 1)
        await screen.press("e")
        await screen.until_screen(TextEditor)
        screen.editor.text = "The walk is long."
        await screen.press("ctrl+s")
        await screen.until_main()
        await screen.until(lambda: screen.rows() == [])
    found = world.store.memory.facts(FactFilter(scopes=(agent,)))
    assert "The walk is long." in [fact.content for fact in found]


@pytest.mark.slow
async def test_an_entry_of_the_log_is_undone_with_what_stands_in_the_way_shown(
    world: World,
) -> None:
    fact = next(iter(world.store.memory.facts(FactFilter(scopes=(world.scope,)))))
    for version, text in ((1, "Second."), (2, "Third.")):
        world.service().editor.edit(fact.id, text, expected_version=version)
    async with browser(world) as screen:
        await screen.open("lena")
        await screen.press("5")
        place = next(n for n, row in enumerate(screen.rows()) if "Second." in row)
        await screen.press(*["down"] * place, "u")
        await screen.until_screen(Question)
        assert "changed later: edit fact" in screen.text()
        await screen.press("y")
        await screen.until(lambda: PASTE in world.facts())


@pytest.mark.slow
async def test_why_shows_what_was_said(world: World) -> None:
    async with browser(world) as screen:
        await screen.open("lena")
        for keys in ("w", "2w"):
            await screen.press(*keys)
            await screen.until_screen(Reader)
            assert "lena: I keep the paste in jars." in screen.text()
            await screen.press("escape")
        await screen.press("3", "w")
        await screen.until_screen(Reader)
        assert "Lena wants to be asked first." in screen.text()
        assert "1 message" in screen.text()
        await screen.press("escape", "question_mark")
        assert "--read-only" in screen.text()


@pytest.mark.slow
async def test_the_context_is_the_one_that_the_agent_gets(world: World) -> None:
    async with browser(world) as screen:
        await screen.open("lena")
        await screen.press("c")
        await screen.until_screen(Reader)
        (session,) = world.store.host.sessions()
        report = await world.service().assemble_context(session.id, keep=False)
        assert screen.text().endswith(report.xml)
        for part in report.parts:
            assert f"{part.tokens} tokens" in screen.text()
        content = screen.app.screen.query_one("#text", Static).content
        lines = {line.plain: {str(span.style) for span in line.spans} for line in content.split()}
        colors = lines["  <UserMemory>"], lines["  <Facts>"]
        assert all(colors)
        assert colors[0] != colors[1]


@pytest.mark.slow
async def test_read_only_keys_change_nothing_and_say_so(world: World) -> None:
    settings = Settings(store=StoreSettings(read_only=True))
    async with browser(world, settings) as screen:
        assert "read-only" in screen.text("heading")
        await screen.open("lena")
        for key in "edu":
            screen.app.clear_notifications()
            await screen.press(key)
            assert "read-only" in screen.notices(), key
            assert len(screen.app.screen_stack) == 1
        await screen.press("w")
        await screen.until_screen(Reader)


@pytest.mark.slow
async def test_what_people_wrote_is_neither_markup_nor_a_control_code(world: World) -> None:
    add_fact(world.store, world.scope, HOSTILE, formed_at=NOW + timedelta(minutes=1))
    async with browser(world) as screen:
        await screen.open("lena")
        assert "[bold]loud[/bold] [@click=app.quit]x[/]" in screen.rows()[0]
        assert "[bold]loud[/bold]" in screen.text()
        for key in ("5", "slash"):
            await screen.press(key)
        await screen.press(*"loud", "enter")
        picture = screen.app.export_screenshot()
        await screen.press("w")
        await screen.until_screen(Reader)
        picture += screen.app.export_screenshot()
        assert not [code for code in "\x1b\x07\x9b\u202e" if code in picture]
        await screen.press("escape", "d")
        await screen.until_screen(Question)
        assert "[bold]loud[/bold]" in screen.text()


@pytest.mark.slow
async def test_long_lists_are_read_as_they_are_scrolled_to(world: World) -> None:
    scope = Scope.agent(world.mira.id)
    add_facts(world.store, *(make_fact(scope, f"Fact {n}.") for n in range(2 * PAGE)))
    async with browser(world) as screen:
        await screen.press("enter")
        assert len(screen.rows()) == PAGE
        assert screen.text("info") == f"1 of {2 * PAGE + 1}"
        await screen.press("end")
        assert len(screen.rows()) == 2 * PAGE
        await screen.press("end")
        assert len(screen.rows()) == 2 * PAGE + 1
        assert len(set(screen.rows())) == 2 * PAGE + 1


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (60, 24), (40, 12)])
async def test_every_size_shows_the_list_and_the_detail(
    world: World, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with browser(world) as screen:
        await screen.open("lena")
        await screen.pilot.resize_terminal(*size)
        await screen.settle()
        for name in ("#scopes", "#items", "#detail"):
            region = screen.app.query_one(name).region
            assert region.width >= 10
            assert region.height >= 2
            assert region.right <= size[0]
            assert region.bottom <= size[1] - 1
        assert screen.app.query_one(Tabs).region.height == 2


@pytest.mark.slow
async def test_a_lost_connection_is_a_notice(world: World) -> None:
    async with browser(world) as screen:
        await screen.open("lena")
        lost = StoreUnreachable("the server does not answer")
        with patch.object(screen.app._service.history, "entries", side_effect=lost):
            await screen.press("5")
        assert "the server does not answer" in screen.notices()
        assert screen.app.is_running
        await screen.press("r")
        assert len(screen.rows()) == 5
