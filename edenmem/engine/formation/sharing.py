"""Find the messages to form and whether they are due, alone or in a database of the platform.

The platform cannot be stopped from reading messages. Edenmem leaves to it what it will read, and
forms what its cursor has passed and its memory does not prove to have been read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.overview import in_database
from edenmem.memory import formations as steps
from edenmem.models.formation import PROOF_WAIT, Reach, Trigger
from edenmem.models.host import Agent, Message, Session
from edenmem.models.memory import Fact, Reflection
from edenmem.settings.schema import FormationSettings
from edenmem.store.protocol.formations import Backlog, Formations
from edenmem.store.protocol.store import Store

#: How long the platform's newest memory shows that the platform forms memory.
RECENT = timedelta(days=7)

#: How long after its last change the platform's cold run takes a session.
COLD_QUERY = timedelta(days=2)

#: Characters in which a message that says something begins to say it.
_BEGINNING = 500

#: Seconds for which the former in force is cached.
_CACHE_SECONDS = 60


class InForce(msgspec.Struct, frozen=True, kw_only=True):
    """The former in force, and why; ``shared`` if the platform uses the database."""

    former: Literal["platform", "edenmem"]
    why: str
    shared: bool = True
    platform_memory_at: datetime | None = None


def former_in_force(store: Store, settings: FormationSettings, now: datetime) -> InForce:
    """Return the former in force. Blocks."""
    if not store.database.is_beside_platform():
        return InForce(former="edenmem", why="the database is not the platform's", shared=False)
    newest = store.formations.platform_memory_at(since=now - RECENT)
    if settings.former != "auto":
        return InForce(
            former=settings.former, why="formation.former is set", platform_memory_at=newest
        )
    if newest is None:
        why = f"no memory of the platform in {RECENT.days} days"
        return InForce(former="edenmem", why=why)
    why = f"its newest memory is from {newest:%Y-%m-%d %H:%M} UTC"
    return InForce(former="platform", why=why, platform_memory_at=newest)


def keep_proof(store: Store, memory: Fact | Reflection, now: datetime) -> None:
    """Note what memory of the platform proves, before it is removed. Blocks.

    Otherwise its messages would be formed again.
    """
    session_id, sources = memory.session_id, memory.source_message_ids
    is_proof = memory.formation_id is None and bool(sources)
    if session_id and is_proof and store.database.is_beside_platform():
        note_proof(store.formations, session_id, memory.agent_id, sources, now)


def note_proof(
    formations: Formations,
    session_id: str,
    agent_id: str,
    message_ids: Sequence[str],
    now: datetime,
) -> None:
    """Copy proof to a formation, since the platform's memory may be deleted. Blocks."""
    from edenmem.engine.formation.claims import step  # reads tables

    known = list(formations.list_formations(session_id=session_id, agent_id=agent_id))
    for record in known:
        if record.trigger is Trigger.PLATFORM:
            step(formations, record, steps.note, message_ids, now)
            return
    seq = max((each.seq for each in known), default=0) + 1
    # If another worker is first, the next look notes the rest.
    formations.claim(steps.proof_record(session_id, agent_id, seq, message_ids, now))


def drop_proof(
    formations: Formations,
    session_id: str,
    agent_id: str,
    message_ids: Sequence[str],
    now: datetime,
) -> None:
    """Remove messages from the copies, because their memory is removed for good. Blocks.

    The next cold run checks the session. Messages that must not be formed again have a block.
    """
    from edenmem.engine.formation.claims import step  # reads tables

    for record in list(formations.list_formations(session_id=session_id, agent_id=agent_id)):
        if record.trigger is Trigger.PLATFORM:
            step(formations, record, steps.drop, frozenset(message_ids), now)


class Measure(msgspec.Struct, frozen=True):
    """The size of some messages: number of readable ones, and their weighted tokens.

    ``has_statement``: a person says something, unlike "Hello!".
    """

    messages: int
    tokens: float
    has_statement: bool = False


def measure(messages: Iterable[Message], agent_id: str, settings: FormationSettings) -> Measure:
    """Return the size of the readable messages, as ``agent_id`` reads them.

    People's words weigh most, another agent's as ``other``, this agent's least, and tool calls and
    results as ``tool``. Tool output that is cut is not counted.
    """
    from edenmem.acceptance.form import find_junk  # its patterns are loaded for messages alone

    count, weighted, has_statement = 0, 0.0, False
    for message in messages:
        if not message.is_readable:
            continue
        count += 1
        length = len(message.content)
        match message.role:
            case "user":
                weight = settings.weight_user
                begins = message.content[:_BEGINNING]
                has_statement = has_statement or find_junk(begins) is None
            case "tool":
                weight, length = settings.weight_tool, min(length, settings.tool_characters)
            case _:
                is_own = message.sender in (None, agent_id)
                weight = settings.weight_agent if is_own else settings.weight_other
        weighted += weight * length
        weighted += settings.weight_tool * sum(
            min(len(str(part)), settings.tool_characters)
            for call in message.tool_calls
            for part in (call.args, call.result)
            if part is not None
        )
    return Measure(count, weighted / settings.characters_per_token, has_statement)


def is_due(size: Measure, trigger: Trigger, settings: FormationSettings) -> bool:
    """Return whether messages of this size are due.

    By threshold: enough messages, or enough tokens. At the end of a session and in a cold run:
    ``min_messages`` with a statement of a person, or enough tokens.
    """
    if size.tokens >= settings.token_interval:
        return True
    if trigger is Trigger.THRESHOLD:
        return size.messages >= max(settings.min_messages, settings.message_interval)
    return size.messages >= settings.min_messages and size.has_statement


class Backlogs:
    """Finds the messages that edenmem forms, with the rules of `InForce`. Blocks."""

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        self._settings = runtime.settings
        self._clock = runtime.clock
        self._known: tuple[datetime, InForce] | None = None

    @property
    def in_force(self) -> InForce:
        """Return the former in force, cached for a minute."""
        now = self._clock()
        if self._known is None or abs((now - self._known[0]).total_seconds()) > _CACHE_SECONDS:
            self._known = now, former_in_force(self._store, self._settings.formation, now)
        return self._known[1]

    def find(
        self,
        session: Session,
        agent_id: str,
        *,
        limit: int,
        reach: Reach,
        trigger: Trigger,
        note: bool = False,
    ) -> Backlog:
        """Return the messages to form, without those left to the platform.

        ``note`` copies new proof of what the platform read.
        """
        found = self._store.formations.backlog(session.id, agent_id, limit=limit, reach=reach)
        if note and found.unnoted:
            note_proof(self._store.formations, session.id, agent_id, found.unnoted, self._clock())
        return self._leave(session, found, trigger)

    def _leave(self, session: Session, found: Backlog, trigger: Trigger) -> Backlog:
        """Leave messages to the platform, if it is the former and can take the session.

        A manual run only counts them, also if the platform forms memory although edenmem is set to.
        """
        forced = trigger.forced
        is_out_of_reach = session.status != "active" or session.imported
        may_read = self.in_force.former == "platform" or (
            forced and self.in_force.platform_memory_at is not None
        )
        quiet = self._clock() - found.touched_at if found.touched_at else COLD_QUERY + PROOF_WAIT
        if not may_read or not found.total or is_out_of_reach or quiet >= COLD_QUERY + PROOF_WAIT:
            return found
        kept = found.passed if quiet >= PROOF_WAIT else 0
        if forced:
            return msgspec.structs.replace(found, left_to_platform=found.total - kept)
        return msgspec.structs.replace(
            found,
            messages=found.messages[:kept],
            total=kept,
            passed=kept,
            left_to_platform=found.total - kept,
        )

    def is_due(self, session: Session, agent: Agent, backlog: Backlog, trigger: Trigger) -> bool:
        """Return whether a backlog is due.

        A backlog longer than one range is always due, so that messages which memory does not read
        never hide later ones. A manual run always applies: without readable messages they are
        marked as done, and no model is asked. The rest of a range that was begun has no minimum.
        """
        if backlog.total > len(backlog.messages) or (trigger.forced and backlog.total):
            return True
        settings = in_database(self._store, self._settings).formation
        if is_due(measure(backlog.messages, agent.id, settings), trigger, settings):
            return True
        return trigger is not Trigger.THRESHOLD and self._is_begun(session, agent, backlog)

    def _is_begun(self, session: Session, agent: Agent, backlog: Backlog) -> bool:
        """Return whether the platform or an earlier formation left these messages out."""
        if not backlog.messages or backlog.passed:
            return bool(backlog.passed)
        latest = self._store.formations.list_formations(
            session_id=session.id, agent_id=agent.id, limit=2
        )
        own = (each for each in latest if each.trigger is not Trigger.PLATFORM)
        last = next(own, None)
        return last is not None and backlog.messages[0].created_at < last.created_at
