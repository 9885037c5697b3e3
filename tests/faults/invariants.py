"""What is true of a memory whatever happened to those who worked on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from edenmem.models.changes import AuditEntry
from edenmem.models.formation import Formation, FormationStatus
from edenmem.models.memory import Consolidation, content_hash
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store


def check_memory(store: Store, scopes: Sequence[Scope]) -> None:
    """Check everything that the store can be asked about ``scopes``, its only ones."""
    entries = list(store.log.audit())
    pending = [entry for entry in entries if entry.status != "done"]
    assert not pending, f"pending for ever: {pending}"
    _check_formations(list(store.formations.list_formations()))
    for scope in scopes:
        check_buffer(store, scope)
        _check_facts(store, scope)
    _check_audit(store, entries, scopes)
    _check_counts(store)


def check_all_formed(store: Store, session_id: str, agent_id: str) -> None:
    """Every message of the session is in exactly one applied formation of the agent, and nothing
    is left unfinished."""
    formations = list(store.formations.list_formations(session_id=session_id, agent_id=agent_id))
    assert {each.status for each in formations} <= {FormationStatus.APPLIED}, formations
    formed = Counter(chain.from_iterable(each.message_ids for each in formations))
    said = Counter(message.id for message in store.host.messages(session_id))
    assert formed == said


def _check_formations(formations: list[Formation]) -> None:
    unfinished: Counter[tuple[str, str]] = Counter()
    taken: Counter[tuple[str, str, str]] = Counter()
    numbers: dict[tuple[str, str], list[int]] = {}
    for each in formations:
        pair = (each.session_id, each.agent_id)
        numbers.setdefault(pair, []).append(each.seq)
        taken.update((*pair, message_id) for message_id in each.message_ids)
        if each.status not in (FormationStatus.APPLIED, FormationStatus.FAILED):
            unfinished[pair] += 1
    assert all(count == 1 for count in taken.values()), "a message is in two formations"
    assert all(count == 1 for count in unfinished.values()), "two unfinished formations"
    for found in numbers.values():
        assert sorted(found) == list(range(1, len(found) + 1)), "a formation is missing"


def check_buffer(store: Store, scope: Scope) -> None:
    """Buffer and flags agree; what is not pending was absorbed exactly once."""
    pending = [each.id for each in store.memory.pending(scope)]  # also mends what was cut off
    reflections = {each.id: each for each in store.memory.reflections([scope])}
    waiting = {id for id, each in reflections.items() if not each.absorbed}
    text = store.memory.consolidations([scope]).get(scope)
    assert len(pending) == len(set(pending))
    assert set(pending) == waiting
    assert set(pending) == set(text.unabsorbed_ids if text else ())

    made = Counter((each.formation_id, each.content) for each in reflections.values())
    doubled = [key for key, count in made.items() if key[0] is not None and count > 1]
    assert not doubled, f"formed twice: {doubled}"

    history = store.history.versions("consolidation", "", scope=scope)
    absorbed = Counter(chain.from_iterable(entry.absorbed_ids for entry in history))
    assert all(count == 1 for count in absorbed.values()), "absorbed twice"
    gone = {id for id, each in reflections.items() if each.absorbed}
    assert gone <= set(absorbed), "absorbed by nothing"
    assert not waiting & set(absorbed), "absorbed and pending"
    for reflection_id in gone:
        assert text is not None
        assert reflections[reflection_id].consolidated_into == text.id
    version = text.version if text else 0
    assert [entry.version for entry in history] == list(range(1, version + 1))
    if text is not None and version:
        assert history[-1].content == text.consolidated_content


def _check_facts(store: Store, scope: Scope) -> None:
    facts = list(store.memory.facts(FactFilter(scopes=(scope,)), with_vectors=True))
    contents = Counter(fact.content for fact in facts)
    assert all(count == 1 for count in contents.values()), "a fact is there twice"
    made = Counter((each.formation_id, each.content) for each in facts if each.formation_id)
    assert all(count == 1 for count in made.values())
    for fact in facts:
        assert fact.hash == content_hash(fact.content)
        history = store.history.versions("fact", fact.id)
        assert [entry.version for entry in history] == list(range(1, fact.version + 1)), fact
        assert history[-1].content == fact.content
        if fact.version > 1:
            assert fact.previous_content == history[-2].content
        (found,) = store.search.text_candidates(
            FactFilter(scopes=(scope,)), [fact.content], limit=99
        )
        assert fact.id in {each.fact_id for each in found}, "not to be found by its words"


def _check_audit(store: Store, entries: list[AuditEntry], scopes: Sequence[Scope]) -> None:
    """One done entry for each change that memory shows."""
    done = Counter(
        (entry.action, entry.target_id)
        for entry in entries
        # a fact that was added because the target of its revision had changed is no revision
        if entry.status == "done" and (entry.before is not None or entry.action != "revise_fact")
    )
    born = Counter(
        entry.target_id for entry in entries if entry.status == "done" and entry.before is None
    )
    gone = {entry.target_id for entry in entries if entry.after is None}
    texts: dict[Scope, Consolidation] = store.memory.consolidations(tuple(scopes))
    for scope in scopes:
        for fact in store.memory.facts(FactFilter(scopes=(scope,))):
            assert born[fact.id] == 1, fact
            assert done["revise_fact", fact.id] == fact.version - 1, fact
            assert fact.id not in gone
        for reflection in store.memory.reflections([scope]):
            assert done["add_reflection", reflection.id] == 1
            assert done["revise_reflection", reflection.id] == reflection.version - 1
            assert reflection.id not in gone
        if scope in texts:
            assert done["write_consolidation", texts[scope].id] == texts[scope].version


def _check_counts(store: Store) -> None:
    for summary in store.memory.scopes():
        scope = summary.scope
        assert summary.pending == len(store.memory.pending(scope)), scope
        assert summary.facts == sum(1 for _ in store.memory.facts(FactFilter(scopes=(scope,)))), (
            scope
        )
