"""Check how edenmem and the platform share formation in a common database."""

from __future__ import annotations

from collections.abc import Iterator

from edenmem.engine.doctor.context import DoctorContext
from edenmem.engine.doctor.report import CheckFinding, Remark, State
from edenmem.engine.formation.sharing import former_in_force
from edenmem.models.formation import Reading
from edenmem.models.integrity import Finding
from edenmem.text import many


def readings(context: DoctorContext) -> Iterator[CheckFinding]:
    """Yield sessions with messages read by neither edenmem nor the platform, or by both."""
    for reading in context.store.formations.find_readings(agent_id=context.agent_id):
        if reading.unread:
            yield CheckFinding("unread", _about(reading, reading.unread, "passed unread"))
        if reading.twice:
            yield CheckFinding("read-twice", _about(reading, reading.twice, "read twice"))


def former(context: DoctorContext) -> Iterator[Remark]:
    """Warn if the platform forms memory although edenmem is set to."""
    settings = context.settings.formation
    in_force = former_in_force(context.store, settings, context.now)
    if not in_force.shared:
        return
    newest = in_force.platform_memory_at
    if settings.former == "edenmem" and newest is not None:
        text = f"the platform stored memory at {newest:%Y-%m-%d %H:%M} UTC"
        yield Remark("former", text, state=State.WARNING)
    else:
        yield Remark("former", f"{in_force.former}: {in_force.why}")


def _about(reading: Reading, count: int, what: str) -> Finding:
    return Finding(
        target_type="session",
        target_id=reading.session_id,
        detail=f"{many(count, 'message')} {what}",
        agent_id=reading.agent_id,
    )
