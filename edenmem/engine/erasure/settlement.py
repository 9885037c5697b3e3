"""Prevent a subject's messages from being formed later. All functions block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from edenmem.engine.formation.recheck import apply_recorded
from edenmem.errors import ConflictError
from edenmem.memory.formations import finished_record, is_settled, settle
from edenmem.models.forgetting import Traces
from edenmem.models.formation import Formation, FormationStatus
from edenmem.store.protocol.store import Store

_KIND = "formations (emptied)"
#: Maximum attempts while workers claim messages.
_TRIES = 5


def count_traces(store: Store, traces: Traces, derived: Sequence[str]) -> dict[str, int]:
    """Count what a forgetting removes, by kind; see `Erasure.count_traces`."""
    counts = store.erasure.count_traces(traces, derived)
    unsettled = sum(1 for _ in _find_unsettled(store, traces))
    return {**counts, _KIND: unsettled} if unsettled else counts


def settle_formations(store: Store, traces: Traces, *, at: datetime) -> dict[str, int]:
    """Finish and empty the formations of a subject; return how many, by the kind of this count.

    First of all the messages are marked, which keeps their words out of searches for facts.
    Recorded changes are applied unless blocked. Claims are revoked, so no worker can record an
    outcome. Messages without a formation get a finished one.
    """
    store.erasure.mark_messages(traces)  # an interrupted run may not find them again
    settled = 0
    for formation, mine in _find_unsettled(store, traces):
        _settle(store, formation, mine, at)
        settled += 1
    for session_id in (*traces.own, *traces.shared):
        session = store.host.session(session_id)
        agents = session.agents if session is not None else traces.agents
        for agent_id in agents if traces.agent_id is None else (traces.agent_id,):
            _count_as_done(store, session_id, agent_id, _messages_of(store, traces, session_id), at)
        store.formations.advance_cursor(session_id, past_replies=True)
    return {_KIND: settled}


def _find_unsettled(store: Store, traces: Traces) -> Iterator[tuple[Formation, set[str] | None]]:
    """Yield formations with content, or that may still continue, and the subject's messages."""
    for session_id in (*traces.own, *traces.shared):
        mine = _messages_of(store, traces, session_id)
        found = store.formations.list_formations(session_id=session_id, agent_id=traces.agent_id)
        for formation in list(found):
            ids = (*formation.message_ids, *formation.superseded_message_ids)
            if not is_settled(formation) and (mine is None or not mine.isdisjoint(ids)):
                yield formation, mine


def _messages_of(store: Store, traces: Traces, session_id: str) -> set[str] | None:
    """Return the subject's messages in a session; None for all."""
    if session_id in traces.own:
        return None
    return {*traces.messages, *store.host.find_message_ids(traces.accounts, [session_id])}


def _settle(store: Store, known: Formation, mine: set[str] | None, at: datetime) -> None:
    found: Formation | None = known
    while found is not None and not is_settled(found):
        if found.status is FormationStatus.RECORDED:
            recorded = store.formations.formation(found.id)
            if recorded is None:
                return
            found, _ = apply_recorded(store, recorded, now=at, is_checked=True)
        elif store.formations.move(found, settle(found, mine, at)):
            return
        else:
            found = store.formations.formation(found.id)


def _count_as_done(
    store: Store, session_id: str, agent_id: str, mine: set[str] | None, at: datetime
) -> None:
    """Give pending messages a finished, empty formation."""
    ids = None if mine is None else list(mine)
    messages = list(store.host.messages(session_id, ids=ids)) if mine != set() else []
    for _ in range(_TRIES):
        known = list(store.formations.list_formations(session_id=session_id, agent_id=agent_id))
        formed = {id for formation in known for id in formation.message_ids}
        waiting = [message for message in messages if message.id not in formed]
        if not waiting:
            return
        last = max((formation.seq for formation in known), default=0)
        done = finished_record(session_id, agent_id, last + 1, waiting, at)
        if store.formations.claim(done):
            return
    raise ConflictError(
        f"other workers keep claiming messages of session {session_id}",
        hint="stop the workers, or try again",
    )
