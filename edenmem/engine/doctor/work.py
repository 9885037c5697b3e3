"""Formations, changes that were begun, and what happened."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from edenmem.engine.doctor.memory import unreadable
from edenmem.engine.doctor.patient import BATCH, Patient
from edenmem.engine.doctor.report import Seen
from edenmem.models.formation import Formation, FormationStatus
from edenmem.models.integrity import Finding
from edenmem.store.protocol.store import batched

#: Longer than anybody is at work on one set of changes.
AT_WORK = timedelta(minutes=10)


def formations(patient: Patient) -> Iterator[Seen]:
    """All formations."""
    count = 0
    for batch in batched(patient.store.records("formation", agent_id=patient.agent_id), BATCH):
        count += len(batch)
        patient.tell("formations", count)
        yield from unreadable(batch)
        for record in batch:
            if isinstance(record.value, Formation):
                yield from _standing(patient, record.value)


def _standing(patient: Patient, formation: Formation) -> Iterator[Seen]:
    expired = formation.lease_until is None or formation.lease_until <= patient.now
    match formation.status:
        case FormationStatus.CLAIMED if expired:
            yield Seen("claims", _about(formation, f"{_messages(formation)}, {_since(formation)}"))
        case FormationStatus.RECORDED if expired:
            detail = f"{_messages(formation)}, recorded and not applied"
            yield Seen("recorded", _about(formation, detail))
        case FormationStatus.FAILED:
            why = formation.error or "no reason was kept"
            yield Seen("failed", _about(formation, f"{_messages(formation)}: {why}"))


def _messages(formation: Formation) -> str:
    return f"{len(formation.message_ids)} messages of session {formation.session_id}"


def _since(formation: Formation) -> str:
    if formation.lease_until is None:
        return "claimed without a lease"
    return f"claimed until {formation.lease_until:%Y-%m-%d %H:%M}"


def _about(formation: Formation, detail: str) -> Finding:
    return Finding(
        target_type="formation",
        target_id=formation.id,
        detail=detail,
        agent_id=formation.agent_id,
        related=(formation.session_id,),
    )


def shared_messages(patient: Patient) -> Iterator[Seen]:
    """Messages in two formations."""
    for finding in patient.store.shared_messages(agent_id=patient.agent_id):
        yield Seen("messages-once", finding)


def lost_progress(patient: Patient) -> Iterator[Seen]:
    """Yield sessions whose platform progress is before what was formed."""
    for finding in patient.store.lost_progress(agent_id=patient.agent_id):
        yield Seen("progress", finding)


def unfinished_changes(patient: Patient) -> Iterator[Seen]:
    """Changes that a process died at, long enough ago that nobody is still at work on them."""
    before = patient.now - AT_WORK
    for finding in patient.store.unfinished_changes(before=before, agent_id=patient.agent_id):
        yield Seen("changes", finding)


def records(patient: Patient) -> Iterator[Seen]:
    """History and audit entries, which are tried to be read."""
    for kind in ("history", "audit"):
        count = 0
        for batch in batched(patient.store.records(kind, agent_id=patient.agent_id), BATCH):
            count += len(batch)
            patient.tell(f"{kind} entries", count)
            yield from unreadable(batch)
