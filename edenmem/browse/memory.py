"""Reading for the screen: rows of each tab, drafts to edit, origins. All functions block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from textual.content import Content

from edenmem.browse import words
from edenmem.browse.widgets import Draft, Row
from edenmem.engine.edits.editor import Editor
from edenmem.engine.edits.reviewer import Reviewer
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
from edenmem.models.memory import Fact, Reflection, ReviewItem
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter

#: Scopes per batch of name look-ups.
_BATCH = 200
#: Maximum log entries to search for the latest change.
_RECENT = 200
_KINDS = list(ScopeKind)


class LabeledScope(NamedTuple):
    """A scope with its labels and sizes."""

    agent: str
    label: str
    status: ScopeStatus

    @property
    def scope(self) -> Scope:
        """Return the scope."""
        return self.status.scope

    @property
    def name(self) -> str:
        """Return the name, including the agent."""
        return self.agent if self.scope.kind is ScopeKind.AGENT else f"{self.agent}: {self.label}"

    @property
    def order(self) -> tuple[str, str, int, str]:
        """Return the sort key: agent, kind from broad to narrow, owner."""
        kind = _KINDS.index(self.scope.kind)
        return self.agent.casefold(), self.scope.agent_id, kind, self.label.casefold()

    def matches(self, typed: Sequence[str]) -> bool:
        """Return whether the name contains all typed words."""
        name = self.name.casefold()
        return all(word in name for word in typed)


def scope_rows(found: Sequence[LabeledScope], width: int) -> Iterator[Row]:
    """Yield the rows of a list of scopes; the first one of an agent names the agent."""
    for labeled, above in zip(found, (None, *found), strict=False):
        is_below = above is not None and above.scope.agent_id == labeled.scope.agent_id
        label = labeled.label if is_below else labeled.name
        yield Row(labeled.scope.key, words.scope_row(label, labeled.status, width), labeled)


def read_labeled(service: MemoryService) -> Iterator[list[LabeledScope]]:
    """Read all scopes in batches."""
    statuses = service.scopes.statuses()
    while batch := list(islice(statuses, _BATCH)):
        labels = service.scopes.labels([status.scope for status in batch])
        yield [
            LabeledScope(labels[status.scope.agent_id], labels.within_agent(status.scope), status)
            for status in batch
        ]


# -- rows ----------------------------------------------------------------------------------------


def _versions(service: MemoryService, scope: Scope) -> Iterator[Row]:
    """Yield the versions of the text, newest first, with the previous text."""
    try:
        versions = service.history.text_versions(scope)
    except NotFoundError:
        return
    before = ["", *(version.content for version in versions)]
    for version in map(words.TextVersion, reversed(versions), reversed(before[:-1])):
        yield Row(str(version.version.version), words.row(version), version)


def _review(service: MemoryService, scope: Scope) -> Iterator[Row]:
    """Yield what waits for review in all scopes of the agent."""
    for item in service.editor.items(scope.agent_id):
        label = service.scopes.labels([item.home]).within_agent(item.home)
        yield Row(item.id, words.row(item, label), item)


def _rows(items: Iterable[Fact | Reflection | AuditEntry]) -> Iterator[Row]:
    return (Row(item.id, words.row(item), item) for item in items)


#: ID of a tab → its rows, newest first.
LISTS: dict[str, Callable[[MemoryService, Scope], Iterator[Row]]] = {
    "facts": lambda service, scope: _rows(service.memory.facts(FactFilter(scopes=(scope,)))),
    "reflections": lambda service, scope: _rows(service.memory.reflections([scope])),
    "history": _versions,
    "log": lambda service, scope: _rows(service.history.entries(scope=scope)),
    "review": _review,
}


# -- search --------------------------------------------------------------------------------------


async def search(service: MemoryService, scope: Scope, query: str) -> SearchReport:
    """Search the agent, its shards, and the user, group or session of the scope."""
    return await service.search(
        [query],
        agent_id=scope.agent_id,
        account_id=scope.user_id,
        group_id=scope.group_id,
        shards=[scope.shard_name] if scope.shard_name else None,
        within=("facts", "reflections", "texts"),
        session_id=scope.session_id,
        track=False,
        explain=True,
    )


def hit_rows(service: MemoryService, report: SearchReport) -> list[Row]:
    """Return the rows of search results: facts, then reflections and texts."""
    hits: list[tuple[str, Scope, SearchHit | MemoryHit]] = [
        *((hit.fact.id, hit.fact.home, hit) for hit in report.hits),
        *((hit.id, hit.scope, hit) for hit in report.passages),
    ]
    label = service.scopes.labels([scope for _, scope, _ in hits]).within_agent
    return [Row(key, words.row(hit, label(scope)), hit) for key, scope, hit in hits]


# -- editing -------------------------------------------------------------------------------------


def read_target(service: MemoryService, item: object) -> Fact | Reflection | None:
    """Return the fact or reflection of a row; reread search results."""
    match item:
        case Fact() | Reflection():
            return item
        case SearchHit():
            return service.memory.find_fact(item.fact.id)
        case MemoryHit(kind="reflection"):
            return _reflection(service, item.scope, item.id)
        case _:
            return None


def _reflection(service: MemoryService, scope: Scope, id: str) -> Reflection | None:
    found = service.memory.reflections([scope])
    return next((each for each in found if each.id == id), None)


def draft_of(item: Fact | Reflection | ReviewItem) -> Draft:
    """Return a draft of an item; one that waits for review is accepted with its new text."""

    def write(editor: Reviewer, content: str) -> EditReport:
        match item:
            case Fact() | Reflection():
                return editor.edit(item.id, content, expected_version=item.version)
            case ReviewItem():
                return editor.accept(item.id, content=content, version=item.version, anyway=True)

    title = f"Edit {type(item).__name__.lower()}"
    if isinstance(item, ReviewItem):
        title = f"Edit and accept this {item.kind}"
    return Draft(title, item.content, write)


def text_draft(service: MemoryService, scope: Scope, label: str) -> Draft:
    """Return a draft of the text of a scope, which may not exist yet."""
    now = service.memory.text(scope)
    content, version = (now.consolidated_content, now.version) if now is not None else ("", 0)

    def write(editor: Editor, content: str) -> EditReport:
        return editor.edit_consolidation(scope, content, expected_version=version)

    return Draft(f"Edit the text of {label}", content, write)


# -- undo and why --------------------------------------------------------------------------------


def find_latest_change(service: MemoryService, scope: Scope) -> AuditEntry | None:
    """Return the latest change in the scope that is neither an undo nor undone."""
    for entry in service.history.entries(scope=scope, limit=_RECENT):
        if entry.undoes is None and service.history.undone_by(entry) is None:
            return entry
    return None


def explain_fact(service: MemoryService, fact_id: str) -> Content:
    """Describe the origin of a fact."""
    why = service.history.fact_why(fact_id)
    label = service.scopes.labels([why.fact.home]).full(why.fact.home)
    names = service.scopes.labels(senders_of(why))
    return words.sections(fact_sections(why, names), words.fields(fact_fields(why, label)))


def explain_reflection(service: MemoryService, reflection: Reflection) -> Content:
    """Describe the origin of a reflection."""
    source = service.history.source_of(reflection.session_id, reflection.source_message_ids)
    names = service.scopes.labels([each.sender for each in source.messages if each.sender])
    session = source.session.label if source.session else reflection.session_id
    about = words.fields(
        [
            ("reflection", reflection.id),
            ("content", reflection.content),
            ("session", session),
            ("formation", reflection.formation_id),
            ("propagated from", ", ".join(reflection.propagated_from)),
        ]
    )
    return words.sections(source_sections("what was said", source, names), about)


def explain_text(service: MemoryService, scope: Scope, version: int | None = None) -> Content:
    """Describe the origin of all versions of a text, or of one."""
    return words.sections(text_sections(service.history.text_why(scope, version)))


# -- contexts ------------------------------------------------------------------------------------


def latest_session(service: MemoryService, scope: Scope) -> Session | None:
    """Return the latest session of the agent with the scope in its context."""
    if scope.session_id is not None:
        return service.host.session(scope.session_id)
    found = service.host.sessions(
        agent_id=scope.agent_id, user_id=scope.user_id, group_id=scope.group_id, limit=1
    )
    return next(iter(found), None)
