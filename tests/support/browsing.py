"""The browser on fixed memories, for its screenshot."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from unittest.mock import patch

from edenmem.browse.app import Browser
from edenmem.engine.service import MemoryService
from edenmem.models.scope import Scope
from edenmem.settings.schema import Settings
from edenmem.text import ago
from tests.support.builders import NOW, make_agent, make_fact, make_user
from tests.support.memory import add_facts, add_reflection, consolidate
from tests.support.stores import sqlite_store

_FACTS = (
    "Lena keeps the wheat paste for the lanterns in glass jars under the stairs of the ferry hall.",
    "Lena prefers short answers, and to be asked before anything is ordered.",
    "Lena's daughter Ida is seven and paints the small lanterns.",
    "Lena rents the van from Klangwerk on Saturdays.",
    "Lena's order OP-7731 of rice paper arrives on Thursday.",
)


async def draw(folder: Path) -> str:
    """Draw the screen with the facts of a user, as SVG."""
    with sqlite_store(folder) as store:
        mira = make_agent("mira", id="a" * 24)
        people = [
            make_user(name, id=f"b{number:023x}")
            for number, name in enumerate(("lena", "tomas", "ida", "noor"))
        ]
        store.host.add_agent(mira)
        for number, person in enumerate(people):
            store.host.add_user(person)
            scope = Scope.user(mira.id, person.id)
            add_facts(
                store,
                *(
                    make_fact(
                        scope,
                        text if person is people[0] else f"{person.username}: {text}",
                        id=f"65f3a1b2c4d5e6f7{number:04x}{place:04x}",
                        formed_at=NOW - timedelta(hours=7 * place + 2),
                    )
                    for place, text in enumerate(_FACTS[number:])
                ),
            )
        lena = Scope.user(mira.id, people[0].id)
        add_reflection(store, lena, "Lena is in a hurry before festivals.")
        consolidate(store, lena, "Short answers. Ask before ordering.", expected_version=0)
        add_facts(
            store,
            make_fact(Scope.agent(mira.id), "The Lantern Walk starts at 17:30."),
            make_fact(Scope.shard(mira.id, "festival"), "The ferry hall opens at noon."),
        )
        app = Browser(MemoryService(store, Settings()), Settings())
        now = partial(ago, now=NOW)
        with patch("edenmem.browse.words.ago", now), patch("edenmem.text.ago", now):
            async with app.run_test(size=(80, 24)) as pilot:
                await app.workers.wait_for_complete()
                await pilot.press("f", *"lena", "enter")
                await app.workers.wait_for_complete()
                await pilot.press("f", *["backspace"] * 4, "down", "1")
                await app.workers.wait_for_complete()
                await pilot.pause()
                return app.export_screenshot(title="edenmem browse")
