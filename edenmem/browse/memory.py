"""What the screen reads of one scope: the rows of each tab, and what may be edited. All blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from textual.content import Content

from edenmem.browse import words
from edenmem.browse.rows import Row
from edenmem.browse.screens import Draft
from edenmem.engine.edits.editor import Editor
from edenmem.engine.history.descriptions import (
    fact_fields,
    fact_sections,
    senders_of,
    source_sections,
    text_sections,
)
from edenmem.engine.reports import EditReport, MemoryHit, ScopeStatus, SearchHit, SearchReport
from edenmem.engine.service import MemoryService
from edenmem.errors import NotFoundError
from edenmem.models.changes import AuditEntry
from edenmem.models.host import Session
from edenmem.models.memory import Fact, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter

#: Scopes whose names are looked up at once.
_BATCH = 200
#: Entries of the log among which the latest change that is not undone is looked for.
_RECENT = 200
_KINDS = list(ScopeKind)


class Place(NamedTuple):
    """A scope, what a person calls it, and its sizes."""

    agent: str
    label: str
    status: ScopeStatus

    @property
    def scope(self) -> Scope:
        """The scope."""
        return self.status.scope

    @property
    def name(self) -> str:
        """The name that is unique among all agents."""
        return self.agent if self.scope.kind is ScopeKind.AGENT else f"{self.agent}: {self.label}"

    @property
    def order(self) -> tuple[str, str, int, str]:
        """By agent, then from broad to narrow, then by owner."""
        kind = _KINDS.index(self.scope.kind)
        return self.agent.casefold(), self.scope.agent_id, kind, self.label.casefold()

    def matches(self, typed: Sequence[str]) -> bool:
        """Whether every word that was typed is in the name."""
        name = self.name.casefold()
        return all(word in name for word in typed)

    @property
    def row(self) -> Row:
        """The row in the list of scopes."""
        return Row(self.scope.key, words.scope_row(self.name, self.status), self)


def read_places(service: MemoryService) -> Iterator[list[Place]]:
    """Read every scope that there is, in batches."""
    statuses = service.scopes.statuses()
    while batch := list(islice(statuses, _BATCH)):
        labels = service.scopes.labels([status.scope for status in batch])
        yield [
            Place(labels[status.scope.agent_id], labels.within_agent(status.scope), status)
            for status in batch
        ]


# -- rows ----------------------------------------------------------------------------------------


def fact_rows(service: MemoryService, scope: Scope) -> Iterator[Row]:
    """The facts, newest first."""
    for fact in service.memory.facts(FactFilter(scopes=(scope,))):
        yield Row(fact.id, words.fact_row(fact), fact)


def reflection_rows(service: MemoryService, scope: Scope) -> Iterator[Row]:
    """The reflections, newest first, those in the text too."""
    for reflection in service.memory.reflections([scope]):
        yield Row(reflection.id, words.reflection_row(reflection), reflection)


def version_rows(service: MemoryService, scope: Scope) -> Iterator[Row]:
    """The versions of the text, newest first, each with the text before it."""
    try:
        versions = service.history.text_versions(scope)
    except NotFoundError:
        return
    before = ["", *(version.content for version in versions)]
    for version, text in reversed(list(zip(versions, before, strict=False))):
        yield Row(
            str(version.version), words.version_row(version), words.TextVersion(version, text)
        )


def entry_rows(service: MemoryService, scope: Scope) -> Iterator[Row]:
    """The changes in the scope, newest first."""
    for entry in service.history.entries(scope=scope):
        yield Row(entry.id, words.entry_row(entry), entry)


#: The tabs that list something of the scope; by the id of the tab.
LISTS: dict[str, Callable[[MemoryService, Scope], Iterator[Row]]] = {
    "facts": fact_rows,
    "reflections": reflection_rows,
    "history": version_rows,
    "log": entry_rows,
}


# -- search --------------------------------------------------------------------------------------


async def search(service: MemoryService, scope: Scope, query: str) -> SearchReport:
    """Search what may be read where the scope is chosen: the agent's memory, its shards', and that
    of the scope's own user, group or session, but of nobody else."""
    return await service.search(
        [query],
        agent_id=scope.agent_id,
        account_id=scope.user_id,
        group_id=scope.group_id,
        shards=[scope.shard_name] if scope.shard_name else None,
        within=("facts", "reflections", "texts"),
        session_id=scope.session_id,
        track=False,
    )


def hit_rows(service: MemoryService, report: SearchReport) -> list[Row]:
    """The results of a search: facts, then reflections and texts."""
    found: list[SearchHit | MemoryHit] = [*report.hits, *report.passages]
    scopes = [*(hit.fact.home for hit in report.hits), *(hit.scope for hit in report.passages)]
    ids = [*(hit.fact.id for hit in report.hits), *(hit.id for hit in report.passages)]
    labels = service.scopes.labels(scopes)
    return [
        Row(key, words.hit_row(hit, labels.within_agent(scope)), hit)
        for key, hit, scope in zip(ids, found, scopes, strict=True)
    ]


# -- editing -------------------------------------------------------------------------------------


def read_target(service: MemoryService, item: object) -> Fact | Reflection | None:
    """The fact or reflection that a row stands for; what a search found is read again."""
    match item:
        case Fact() | Reflection():
            return item
        case SearchHit():
            return service.memory.find_fact(item.fact.id)
        case MemoryHit(kind="reflection"):
            found = service.memory.reflections([item.scope])
            return next((each for each in found if each.id == item.id), None)
        case _:
            return None


def fact_draft(service: MemoryService, fact: Fact) -> Draft:
    """A fact to edit."""

    def write(editor: Editor, content: str, version: int) -> EditReport:
        return editor.edit_fact(fact.id, content, expected_version=version)

    def reload() -> tuple[str, int] | None:
        now = service.memory.fact(fact.id)
        return (now.content, now.version) if now is not None else None

    return Draft("Edit fact", fact.content, fact.version, write, reload)


def reflection_draft(service: MemoryService, reflection: Reflection) -> Draft:
    """A reflection to edit."""

    def write(editor: Editor, content: str, version: int) -> EditReport:
        return editor.edit_reflection(reflection.id, content, expected_version=version)

    def reload() -> tuple[str, int] | None:
        found = service.memory.reflections([reflection.home])
        now = next((each for each in found if each.id == reflection.id), None)
        return (now.content, now.version) if now is not None else None

    return Draft("Edit reflection", reflection.content, reflection.version, write, reload)


def text_draft(service: MemoryService, scope: Scope, label: str) -> Draft:
    """The text of a scope to edit, which may not have been written yet."""

    def write(editor: Editor, content: str, version: int) -> EditReport:
        return editor.edit_consolidation(scope, content, expected_version=version)

    def reload() -> tuple[str, int]:
        now = service.memory.text(scope)
        return (now.consolidated_content, now.version) if now is not None else ("", 0)

    content, version = reload()
    return Draft(f"Edit the text of {label}", content, version, write, reload)


# -- undo and why --------------------------------------------------------------------------------


def find_latest_change(service: MemoryService, scope: Scope) -> AuditEntry | None:
    """Find the latest change in the scope that is no undo and is not undone."""
    for entry in service.history.entries(scope=scope, limit=_RECENT):
        if entry.undoes is None and service.history.undone_by(entry) is None:
            return entry
    return None


def explain_fact(service: MemoryService, fact_id: str) -> Content:
    """Where a fact comes from."""
    why = service.history.fact_why(fact_id)
    place = service.scopes.labels([why.fact.home]).full(why.fact.home)
    names = service.scopes.labels(senders_of(why))
    return words.sections(fact_sections(why, names), words.fields(fact_fields(why, place)))


def explain_reflection(service: MemoryService, reflection: Reflection) -> Content:
    """What a reflection was formed from."""
    source = service.history.source_of(reflection.session_id, reflection.source_message_ids)
    names = service.scopes.labels([each.sender for each in source.messages if each.sender])
    session = source.session.label if source.session else reflection.session_id
    about = words.fields(
        [
            ("reflection", reflection.id),
            ("says", reflection.content),
            ("session", session),
            ("formation", reflection.formation_id),
            ("propagated from", ", ".join(reflection.propagated_from)),
        ]
    )
    return words.sections(source_sections("what was said", source, names), about)


def explain_text(service: MemoryService, scope: Scope, version: int | None = None) -> Content:
    """What went into the versions of a text, or into one."""
    return words.sections(text_sections(service.history.text_why(scope, version)))


# -- contexts ------------------------------------------------------------------------------------


def sessions_of(service: MemoryService, scope: Scope) -> Iterator[Session]:
    """The sessions of the agent in which the scope may be in the context, latest first."""
    if scope.session_id is not None:
        session = service.host.session(scope.session_id)
        return iter([session] if session is not None else [])
    return service.host.sessions(
        agent_id=scope.agent_id, user_id=scope.user_id, group_id=scope.group_id
    )
