"""Known failures 7 and 8: the participants of a session are all senders of its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edenmem.engine.formation.former import Former
from edenmem.engine.scopes.visibility import current_view
from edenmem.engine.service import MemoryService
from edenmem.models.formation import Trigger
from edenmem.models.host import Session, User
from edenmem.models.search import FactFilter
from edenmem.settings.schema import Settings
from tests.engine.conftest import Cast, make_cast
from tests.engine.formation.conftest import facts, reflections
from tests.support.builders import ACTOR, FixedClock, ago, make_message, make_messages
from tests.support.memory import add_fact, add_reflection
from tests.support.runtime import make_runtime

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store
    from tests.support.llm import FakeLLM

CONFIDENCE = "Anna is looking for another post."


@pytest.fixture
def anywhere(store: Store) -> Cast:
    return make_cast(store)


def talk(cast: Cast, second: User, *, before: int = 300) -> Session:
    """Return Anna's session with an old message of a second person.

    The second person wrote once, ``before`` messages ago; the session's list of users lacks them.
    """
    session = cast.add_session(cast.anna)
    old = make_message(session, "Hello, I am new here.", sender=second.id, created_at=ago(days=30))
    since = make_messages(session, before, sender=cast.anna.id, start=ago(days=2))
    cast.store.host.add_messages(session.id, [old, *since])
    return session


async def test_known_failure_7_a_second_person_who_wrote_long_ago_is_noticed(
    anywhere: Cast,
) -> None:
    """A context of a session with a second reader never holds the first user's memory."""
    add_reflection(anywhere.store, anywhere.anna_scope, CONFIDENCE)
    add_fact(anywhere.store, anywhere.anna_scope, "Anna earns 4711 a month.")
    service = MemoryService(anywhere.store, Settings(), actor=ACTOR, clock=FixedClock())
    alone = await service.get_memory_context(anywhere.session.id)
    assert CONFIDENCE in alone

    session = talk(anywhere, anywhere.bruno)
    view = current_view(anywhere.store, session, anywhere.eve)
    assert view.user is None
    shown = await service.get_memory_context(session.id)
    assert CONFIDENCE not in shown
    assert "4711" not in shown
    assert (await service.search_facts(session.id, ["Anna earns"])).hits == ()


async def test_known_failure_7_also_when_the_context_was_cached_before(anywhere: Cast) -> None:
    add_reflection(anywhere.store, anywhere.anna_scope, CONFIDENCE)
    service = MemoryService(anywhere.store, Settings(), actor=ACTOR, clock=FixedClock())
    session = anywhere.session
    assert CONFIDENCE in await service.get_memory_context(session.id)
    # The oldest message arrives late, without the service.
    late = make_message(session, "Hi.", sender=anywhere.bruno.id, created_at=ago(days=90))
    anywhere.store.host.add_messages(session.id, [*make_messages(session, 60), late])
    report = await service.assemble_context(session.id)
    assert not report.cached
    assert CONFIDENCE not in report.xml


async def test_known_failure_8_facts_go_to_nobody_in_a_session_of_two(
    anywhere: Cast, llm: FakeLLM
) -> None:
    """The second person's messages were formed long ago, outside the current range."""
    llm.script("facts", facts("Anna lives in Lisbon."))
    llm.script("reflections", reflections(user=["Anna likes teal."]))
    session = talk(anywhere, anywhere.bruno, before=250)
    former = Former(make_runtime(anywhere.store, llm=llm, clock=FixedClock()))
    reports = await former.form(session, anywhere.eve, trigger=Trigger.FORCED)
    assert [report.messages for report in reports] == [200, 51]
    assert list(anywhere.store.memory.pending(anywhere.anna_scope)) == []
    assert list(anywhere.store.memory.facts(FactFilter(scopes=(anywhere.anna_scope,)))) == []
    assert {report.facts_added for report in reports} == {0}
