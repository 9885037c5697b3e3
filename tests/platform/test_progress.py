"""Who forms which messages: in turns, in each other's midst, and with old copies written back."""

from __future__ import annotations

from threading import Barrier, Thread
from typing import Any

from tests.platform.conftest import World, sentences
from tests.platform.double import Session

FIRST, SECOND, THIRD = range(1, 5), range(5, 9), range(9, 13)


def formed_once(world: World, platform_read: list[str], count: int) -> bool:
    """Whether each of Anna's sentences was read by one model once, and is a fact."""
    everything = sorted(sentences("Anna", *range(1, count + 1)))
    return sorted(world.read + platform_read) == everything and world.facts() == everything


def test_the_platform_forms_while_edenmem_waits_for_its_model(world: World) -> None:
    """Both read the same messages then; each fact is there once, and neither begins again."""
    world.eden("init", "--yes").ok()
    platform = world.platform()
    session = world.put_session(sentences("Anna", *FIRST))
    world.meanwhile = lambda: platform.form(session)
    world.eden("form", str(session)).ok()
    assert world.facts() == sentences("Anna", *FIRST)
    settled(world, session)


def test_both_cold_runs_at_once_lose_nothing(world: World) -> None:
    """Whoever takes a session first: each sentence is one fact, and nothing is left to do."""
    world.eden("init", "--yes").ok()
    every = [range(10 * number, 10 * number + 4) for number in range(1, 7)]
    made = [world.put_session(sentences("Anna", *numbers)) for numbers in every]
    platform = world.platform()
    ready = Barrier(2)

    def run_cold() -> None:
        ready.wait()
        platform.cold_run()

    other = Thread(target=run_cold)
    other.start()
    ready.wait()
    world.eden("cold", "run").ok()
    other.join()
    assert world.facts() == sorted(text for each in every for text in sentences("Anna", *each))
    for session in made:
        settled(world, session)


def settled(world: World, session: Any) -> None:
    """Neither of the two finds anything left to do."""
    assert world.all_is_formed(session)
    read = list(world.read)
    platform = world.platform()
    assert not platform.form(session)
    world.eden("form", str(session)).ok()
    assert (world.read, platform.read) == (read, [])


def test_an_old_cursor_written_back_makes_edenmem_form_nothing_again(world: World) -> None:
    """The platform writes back a session that it loaded before edenmem formed it."""
    world.eden("init", "--yes").ok()
    platform = world.platform()
    session = world.put_session(sentences("Anna", *FIRST))
    held = platform.load(Session, session)
    world.eden("form", str(session)).ok()
    platform.say(held, world.anna, sentences("Anna", 5)[0])
    assert world.cursor(session) is None
    world.put_messages(session, sentences("Anna", 6, 7, 8))
    world.eden("form", str(session)).ok()
    assert sorted(world.read) == sentences("Anna", *range(1, 9))
    assert world.all_is_formed(session)
