"""Consolidated texts with their buffers, and policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from edenmem.engine.doctor.memory import future, strangers, versions, walk
from edenmem.engine.doctor.patient import Patient, about
from edenmem.engine.doctor.report import Seen, State
from edenmem.engine.overview import word_limit_of
from edenmem.models.memory import Consolidation, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.text import word_count


def texts(patient: Patient) -> Iterator[Seen]:
    """All texts and buffers."""
    for batch, seen in walk(patient, "consolidation", Consolidation):
        yield from seen
        yield from strangers(patient, batch)
        yield from versions(patient, "consolidation", {text: text.version for text in batch})
        policies = patient.known.policies({text.home for text in batch})
        for text in batch:
            yield from _content(patient, text, policies[text.home])
            yield from future(patient, text, (text.last_consolidated_at, text.updated_at))
            yield from _propagation(text)
        yield from _buffers(patient, batch)


def _content(patient: Patient, text: Consolidation, policy: Policy | None) -> Iterator[Seen]:
    content = text.consolidated_content
    # Empty is what a text is before its first version, or after that was taken back; but nothing
    # that was made of reflections is.
    if not content.strip() and (content or (text.version and text.absorbed_ids)):
        yield Seen("blank", about(text, f"version {text.version} says nothing"))
    limit = word_limit_of(patient.settings, text.home, policy)
    if (words := word_count(content)) > limit:
        yield Seen("limits", about(text, f"has {words} words, the limit is {limit}"))


def _propagation(text: Consolidation) -> Iterator[Seen]:
    waiting = text.unpropagated_versions
    never = [version for version in waiting if not 0 < version <= text.version]
    if never:
        detail = f"version {never[0]} is to be propagated, and never was (it is {text.version})"
        yield Seen("propagation", about(text, detail), State.WARNING)
    elif waiting:
        listed = ", ".join(map(str, waiting))
        yield Seen("propagation", about(text, f"still to be propagated: version {listed}"))


# -- buffers -----------------------------------------------------------------------------------


def _buffers(patient: Patient, batch: Sequence[Consolidation]) -> Iterator[Seen]:
    """What the buffers say, against what the flags on the reflections say."""
    waiting: dict[Scope, dict[str, Reflection]] = {text.home: {} for text in batch}
    for reflection in patient.store.reflections(tuple(waiting), absorbed=False):
        waiting[reflection.home][reflection.id] = reflection
    # Asked for after the flags: what was added in between is in both by now.
    buffers = patient.store.buffers(tuple(waiting))
    listed = {each for text in batch for each in text.unabsorbed_ids}
    gone = patient.known.missing("reflection", listed)
    for text in batch:
        pending = waiting[text.home]
        yield from _misplaced(patient, text, pending, gone)
        buffer = buffers.get(text.home, text.unabsorbed_ids)
        in_work = set(buffer) - set(text.unabsorbed_ids)  # a consolidation is about to mark these
        for reflection_id, reflection in pending.items():
            if reflection_id in text.absorbed_ids and reflection_id not in in_work:
                detail = f"went into version {text.version}, and is marked as waiting"
                yield Seen("buffers", about(reflection, detail))
            elif reflection_id not in buffer and _still_waits(patient, reflection):
                yield Seen("buffers", about(reflection, "waits, and is in no buffer"))


def _misplaced(
    patient: Patient, text: Consolidation, pending: dict[str, Reflection], gone: set[str]
) -> Iterator[Seen]:
    for reflection_id, times in Counter(text.unabsorbed_ids).items():
        if reflection_id in gone:
            detail = f"its buffer has {reflection_id}, which is not there"
            yield Seen("buffers", about(text, detail, related=(reflection_id,)))
        elif reflection_id not in pending:
            yield from _not_waiting(patient, text, reflection_id)
        elif times > 1:
            detail = f"is {times} times in its buffer"
            yield Seen("buffers", about(pending[reflection_id], detail))


def _not_waiting(patient: Patient, text: Consolidation, reflection_id: str) -> Iterator[Seen]:
    reflection = patient.store.reflection(reflection_id)
    if reflection is None:
        return  # it went in this very moment
    if reflection.home != text.home:
        detail = f"its buffer has {reflection_id}, which is of another scope"
        yield Seen("buffers", about(text, detail, related=(reflection_id,)))
    elif reflection.absorbed and reflection_id in patient.store.buffers([text.home])[text.home]:
        yield Seen("buffers", about(reflection, "is in the buffer, and marked as absorbed"))


def _still_waits(patient: Patient, reflection: Reflection) -> bool:
    """A second look: somebody may have been at work between the first two."""
    current = patient.store.reflection(reflection.id)
    if current is None or current.absorbed:
        return False
    return reflection.id not in patient.store.buffers([reflection.home]).get(reflection.home, ())


# -- policies ----------------------------------------------------------------------------------

#: Numbers of a policy, and the least that each may be.
_LEAST = {"consolidate_at": 1, "word_limit": 1, "fact_buffer_max": 0}


def policies(patient: Patient) -> Iterator[Seen]:
    """All policies."""
    for batch, seen in walk(patient, "policy", Policy):
        yield from seen
        yield from strangers(patient, batch)
        for policy in batch:
            for name, least in _LEAST.items():
                value = getattr(policy, name)
                if value is not None and not (_is_whole(value) and value >= least):
                    yield Seen("policies", about(policy, f"{name} is {value!r}"))
            yield from future(patient, policy, (policy.updated_at,))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
