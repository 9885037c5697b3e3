"""Cold runs on sessions that the platform forms too."""

from __future__ import annotations

import io
import json

import msgspec
import pytest

from edenmem.engine.erasure.forgetting import Forgetter
from edenmem.engine.erasure.survey import find_subject
from edenmem.engine.service import MemoryService
from edenmem.engine.sessions.importer import import_sessions
from edenmem.errors import ProviderRateLimited
from edenmem.models.formation import FormationStatus, Reach, Trigger
from edenmem.models.host import STORED, Session
from edenmem.models.ids import derived_id
from edenmem.models.scope import Scope
from edenmem.settings.schema import EmbeddingSettings, Settings
from edenmem.store.sqlite import SqliteStore
from tests.engine.cold.conftest import ADAM, ANNA, EVE, ON_EACH_STORE, Quiet
from tests.support.builders import ACTOR, ago, make_messages, make_user, some
from tests.support.memory import facts_of
from tests.support.platform_cursor import cursor_of, put_cursor, put_proof
from tests.support.runtime import make_runtime

pytestmark = ON_EACH_STORE


class Platform:
    """As much of the platform's memory as shows what it read: it moves the cursor before it asks a
    model, and its reflections name their messages."""

    def __init__(self, quiet: Quiet, session: Session) -> None:
        self.quiet, self.session = quiet, session
        self.formed: list[str] = []
        self.copies: list[str | None] = []

    def take_turn(self) -> None:
        ids = [message.id for message in self.quiet.store.host.messages(self.session.id)]
        cursor = cursor_of(self.quiet.store, self.session.id)
        self.copies.append(cursor)
        start = ids.index(cursor) + 1 if cursor in ids else 0
        self.formed += ids[start:]
        put_cursor(self.quiet.store, self.session.id, ids[-1])
        put_proof(self.quiet.store, self.session.id, EVE.id, ids[start:])

    def write_back(self, turn: int) -> None:
        """Write the session in its state before a turn."""
        put_cursor(self.quiet.store, self.session.id, self.copies[turn])


async def test_both_form_a_session_in_turns(quiet: Quiet) -> None:
    session = quiet.add("turns", 5, days=9)
    platform = Platform(quiet, session)
    platform.take_turn()
    assert (await quiet.run()).formed == 0
    quiet.say(session, 4, days=8)
    assert (await quiet.run()).messages == 4
    quiet.say(session, 6, days=7)
    platform.take_turn()
    quiet.say(session, 7, days=6)
    assert (await quiet.run()).messages == 7
    assert (await quiet.run()).formed == 0
    ours = [id for formation in quiet.formations() for id in formation.message_ids]
    said = [message.id for message in quiet.store.host.messages(session.id)]
    assert set(ours + platform.formed) == set(said)
    if not isinstance(quiet.store, SqliteStore):  # a file has no platform, and so no cursor
        assert sorted(ours + platform.formed) == sorted(said)
    for turn in (1, 0):  # an older copy is restored: nothing is formed twice
        platform.write_back(turn)
        report = await quiet.run(all_status=True, limit=turn + 1)
        assert report.formed == 0


async def test_known_failure_55_a_history_is_not_paid_for_twice(quiet: Quiet) -> None:
    formed = quiet.add("formed", 9, days=3)
    archived = quiet.add("archived", 5, status="archived", days=2)
    for session, count in ((formed, 9), (archived, 1)):
        messages = list(quiet.store.host.messages(session.id))[:count]
        put_proof(quiet.store, session.id, EVE.id, [message.id for message in messages])
    report = await quiet.run()
    assert (report.formed, report.sessions_left_out("status")) == (0, 1)
    assert quiet.llm.requests == []
    await quiet.run()  # on SQLite, noting the proof counts as a change
    assert (await quiet.run()).considered == 0
    # Other options reopen settled sessions.
    report = await quiet.run(all_status=True)
    assert (report.formed, report.messages) == (1, 4)
    report = await quiet.run(all_status=True, include_formed=True)
    assert (report.formed, report.messages) == (2, 10)
    assert (await quiet.run(all_status=True, include_formed=True)).formed == 0


async def test_a_dry_run_counts_what_each_rule_leaves_out(quiet: Quiet) -> None:
    quiet.add("archived", 5, status="archived")
    quiet.add("incognito", 6, incognito=True)
    quiet.add("speaking", 7, days=1 / 1440)
    quiet.add("short", 2)
    quiet.add("old", 8, days=99)
    formed = quiet.add("formed", 9, agents=[EVE, ADAM])
    read = [message.id for message in quiet.store.host.messages(formed.id)][:5]
    for agent in (EVE, ADAM):
        put_proof(quiet.store, formed.id, agent.id, read)
    report = await quiet.run(dry_run=True, max_age=quiet.clock() - ago(days=30))
    assert {one.rule: (one.sessions, one.messages) for one in report.left_out} == {
        "status": (1, 5),
        "formed_by_platform": (1, 10),
        "incognito": (1, 6),
        "not_quiet": (1, 7),
        "below_threshold": (1, 2),
        "max_age": (1, 8),
    }
    assert [(plan.session, plan.messages) for plan in report.planned] == [("formed", 4)] * 2
    assert quiet.llm.requests == []


async def test_unfinished_work_is_completed_in_any_status(quiet: Quiet) -> None:
    session = quiet.add("begun", 4)
    quiet.llm.script("facts", [ProviderRateLimited("later")])
    assert (await quiet.run()).formed == 0
    archived = msgspec.structs.replace(session, imported=True, status="archived")
    quiet.store.host.put_session(archived)
    assert (await quiet.run()).formed == 1
    quiet.check([session])


def _lines(*names: str) -> io.BytesIO:
    messages = [
        {"role": "user", "content": f"Line {n}.", "created_at": f"2026-03-01T10:0{n}:00Z"}
        for n in range(5)
    ]
    lines = [
        {"session": name, "agent": "eve", "users": ["anna"], "messages": messages} for name in names
    ]
    return io.BytesIO("\n".join(map(json.dumps, lines)).encode())


async def test_an_imported_session_is_left_by_the_platform(quiet: Quiet) -> None:
    """Known failure 60: the platform formed imported sessions."""
    hosts = quiet.add("of the platform", 0, id="a" * 24, status="active")
    import_sessions(make_runtime(quiet.store), _lines("new", hosts.id))
    new = some(quiet.store.host.session(derived_id("session", "new")))
    for session_id, imported in ((new.id, True), (hosts.id, False)):
        found = some(quiet.store.host.session(session_id))
        assert (found.imported, found.status) == (imported, STORED if imported else "active")
    assert STORED != "active"
    assert (await quiet.run()).formed == 2
    quiet.check([new, hosts])


@pytest.mark.parametrize("reach", [Reach.AGAIN, Reach.FROM_START])
async def test_forming_again_duplicates_nothing_and_can_be_interrupted(
    quiet: Quiet, reach: Reach
) -> None:
    session = quiet.add("again", 10, days=3)
    messages = list(quiet.store.host.messages(session.id))
    put_proof(quiet.store, session.id, EVE.id, [message.id for message in messages[:4]])
    size = 10 if reach is Reach.FROM_START else 6
    anna = Scope.user(EVE.id, ANNA.id)
    assert (await quiet.run()).messages == 6
    before = facts_of(quiet.store, anna)
    service = MemoryService(
        quiet.store,
        quiet.settings,
        llm=quiet.llm,
        embedder=quiet.embedder,
        actor=ACTOR,
        clock=quiet.clock,
    )
    [report] = await service.form_memories(session.id, reach=reach, dry_run=True)
    assert (report.outcome, report.messages) == ("dry_run", size)
    formed = [each.status for each in quiet.formations() if each.trigger is not Trigger.PLATFORM]
    assert formed == [FormationStatus.APPLIED]
    quiet.llm.script("facts", [ProviderRateLimited("later")])
    with pytest.raises(ProviderRateLimited):
        await service.form_memories(session.id, reach=reach)
    [report] = await service.form_memories(session.id)  # an ordinary run resumes it
    assert (report.outcome, report.messages) == ("applied", size)
    [report] = await service.form_memories(session.id, reach=reach)
    assert (report.outcome, report.messages, report.facts_added) == ("applied", size, 0)
    assert [fact.id for fact in facts_of(quiet.store, anna)] == [fact.id for fact in before]
    assert {request.key for request in quiet.llm.requests_for("facts")} == {"again/eve/1"}
    # Messages formed by both edenmem and the platform are included.
    for dry_run in (True, False):
        [report] = await service.form_memories(session.id, reach=Reach.AGAIN, dry_run=dry_run)
        assert report.messages == size
    assert [message.id for message in quiet.store.host.messages(session.id)] == [
        m.id for m in messages
    ]


async def test_forming_again_skips_erased_users(quiet: Quiet) -> None:
    bruno = make_user("bruno")
    quiet.store.host.add_user(bruno)
    session = quiet.add("shared", 4, users=[ANNA, bruno], days=3)
    said = make_messages(session, 4, start=ago(days=2), sender=bruno.id)
    quiet.store.host.add_messages(session.id, said)
    assert (await quiet.run()).messages == 8
    subject = find_subject(quiet.store, user="anna")
    settings = Settings(embedding=EmbeddingSettings(provider="none"))
    forgetter = Forgetter(make_runtime(quiet.store, settings))
    await forgetter.forget(await forgetter.plan(subject))
    short = msgspec.structs.replace(quiet.settings.formation, max_messages=1)
    one_by_one, service = (
        MemoryService(
            quiet.store,
            msgspec.structs.replace(quiet.settings, formation=formation),
            llm=quiet.llm,
            embedder=quiet.embedder,
            actor=ACTOR,
            clock=quiet.clock,
        )
        for formation in (short, quiet.settings.formation)
    )
    # All messages of the first range are hers.
    [report] = await one_by_one.form_memories(session.id, reach=Reach.FROM_START, dry_run=True)
    assert (report.outcome, report.messages) == ("dry_run", 1)
    for options in ({"dry_run": True}, {}):
        [report] = await service.form_memories(session.id, reach=Reach.FROM_START, **options)
        assert report.messages == 6  # her messages stay left out
    assert (await service.form_memories(session.id))[0].outcome == "not_due"
