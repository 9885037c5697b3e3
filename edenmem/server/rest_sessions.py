"""Sessions: what was formed from them."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter
from pydantic import BaseModel

from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.scopes.visibility import current_view
from edenmem.models.search import FactFilter
from edenmem.server.documents import (
    ERRORS,
    STRICT,
    FactDocument,
    Named,
    OptionalName,
    ReflectionDocument,
    fact_document,
    reflection_document,
)
from edenmem.server.reach import Reach, Reading

router = APIRouter(prefix="/api", tags=["sessions"], dependencies=STRICT, responses=ERRORS)

#: Number of formations, facts and reflections of a session in an answer, the latest first.
_LATEST = 200


class FormationDocument(BaseModel):
    """A formation: a range of messages that memory was formed from, or is being formed from."""

    id: str
    status: str
    trigger: str
    messages: int
    created_at: datetime
    updated_at: datetime


class SessionMemoryDocument(BaseModel):
    """The memory from a session, latest first; ``waiting`` messages are not formed yet."""

    session_id: str
    waiting: int
    formations: list[FormationDocument]
    facts: list[FactDocument]
    reflections: list[ReflectionDocument]


@router.get("/sessions/{session_id}/memory", summary="Read the memory from a session")
async def read_session_memory(
    session_id: Named, reach: Reading, agent: OptionalName = None, user: OptionalName = None
) -> SessionMemoryDocument:
    """Return the latest 200 formations, facts and reflections of a session.

    ``session_id`` is the ID of a session, or the ``memory_id`` of the user's chat."""
    return await in_thread(_read_memory, reach, session_id, agent, user)


def _read_memory(
    reach: Reach, name: str, agent_name: str | None, user: str | None
) -> SessionMemoryDocument:
    agent = reach.agent(agent_name)
    session, _ = reach.chat(agent, name, user)
    store, memory = reach.service.store, reach.service.memory
    found = list(
        store.formations.list_formations(session_id=session.id, agent_id=agent.id, limit=_LATEST)
    )
    own_only = reach.caller.user_id is not None
    view = current_view(store, session, agent, own_only=own_only)
    scopes = tuple(filter(reach.caller.may_read, view.reads))
    facts = memory.facts(FactFilter(scopes=scopes, session_id=session.id), limit=_LATEST)
    first = next(iter(store.host.messages(session.id)), None)
    since = first.created_at if first else None
    reflections = memory.reflections(scopes, since=since)
    from_here = [each for each in reflections if each.session_id == session.id]
    return SessionMemoryDocument(
        session_id=session.id,
        waiting=store.formations.backlog(session.id, agent.id, limit=0).total,
        formations=[
            FormationDocument(
                id=each.id,
                status=each.status,
                trigger=each.trigger,
                messages=len(each.message_ids),
                created_at=each.created_at,
                updated_at=each.updated_at,
            )
            for each in found
        ],
        facts=[fact_document(each, reach.caller) for each in facts],
        reflections=[reflection_document(each) for each in from_here[:_LATEST]],
    )
