"""Results of the engine's methods: plain data to print or encode."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from edenmem.models.changes import ChangeResult, ChangeSet
from edenmem.models.formation import CallUsage, Decision
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope


class FormationReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a formation: one range of messages of one session, for one agent.

    ``outcome``: "applied", "resumed" (a recorded formation was completed), "not_due", "taken" (by
    another worker), "waiting" (retried after ``not_before``), "incognito", "failed", "dry_run".
    ``changes`` is set for a dry run only.
    """

    session_id: str
    agent_id: str
    outcome: str
    formation_id: str | None = None
    messages: int = 0
    left: int = 0  # messages left for later ranges
    split_off: int = 0  # of these, messages cut off because the range exceeded a model's context
    by_platform: int = 0  # messages skipped because the platform read them
    left_to_platform: int = 0  # messages that the platform may read, skipped unless forced
    read_twice: int = 0  # messages that the platform read in the meantime
    facts_added: int = 0
    facts_revised: int = 0
    facts_removed: int = 0
    facts_skipped: int = 0
    reflections: dict[str, int] = msgspec.field(default_factory=dict)  # by scope kind
    held: int = 0  # facts and reflections in doubt that wait for review
    rejected: dict[str, int] = msgspec.field(default_factory=dict)  # by rule; "" if unknown
    decisions: tuple[Decision, ...] = ()
    consolidations: tuple[ConsolidationReport, ...] = ()
    usage: tuple[CallUsage, ...] = ()
    not_before: datetime | None = None
    error: str | None = None
    changes: ChangeSet | None = None


class FixedConflict(msgspec.Struct, frozen=True, kw_only=True):
    """A fixed sentence of a person, and the newer reflection that contradicts it."""

    fixed: str
    by: str
    reflection: str


class ConsolidationReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a consolidation of one scope.

    ``outcome``: "written", "not_due", "nothing_pending", "paused", "failed", "dry_run",
    "not_tried" (the provider was already down), "waiting" (the platform may be writing the text),
    "waiting_for_review" (see ``conflicts``), "stuck" (several drafts in a row were refused; not
    tried again until the input changes), "unchanged" (a forced rewriting changed nothing).
    ``is_outage``: every scope would fail for the same reason. ``before`` and ``after`` are the
    texts, equal if nothing was written. ``dropped`` are sentences of the model that the check
    rejected, ``restored`` the fixed sentences that the model left out and that were put back.
    ``propagated`` counts the reflections added to wider scopes, ``propagation`` has the decision
    about each proposal (action ADD or REJECTED, with the reason), and ``propagation_error`` the
    reason for an incomplete propagation, which the next run retries for any ``outcome``.
    """

    scope: Scope
    outcome: str
    version: int = 0
    absorbed: int = 0
    left: int = 0  # reflections still pending
    words: int = 0
    word_limit: int = 0
    before: str = ""
    after: str = ""
    usage: tuple[CallUsage, ...] = ()
    error: str | None = None
    propagated: int = 0
    propagation: tuple[Decision, ...] = ()
    propagation_error: str | None = None
    is_outage: bool = False
    dropped: tuple[Decision, ...] = ()
    restored: tuple[str, ...] = ()
    conflicts: tuple[FixedConflict, ...] = ()


class ContextPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a context and its size; tokens are estimated from characters."""

    name: str
    words: int
    tokens: int


class ContextReport(msgspec.Struct, frozen=True, kw_only=True):
    """A context for a prompt. ``recall`` explains why memories were or were not retrieved.

    ``failure`` is the message of an error during recall; it may name files and addresses.
    """

    xml: str
    parts: tuple[ContextPart, ...]
    scopes: tuple[Scope, ...]
    cached: bool
    built_at: datetime
    recall: str = "off"
    failure: str = ""
    queries: tuple[str, ...] = ()
    usage: tuple[CallUsage, ...] = ()  # of recall by a model

    @property
    def explanation(self) -> str:
        """Return ``recall`` with the message of an error, for operators."""
        return f"{self.recall}: {self.failure}" if self.failure else self.recall


class DroppedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that a stage dropped, and why.

    ``explain`` has the earlier stages, if the search was asked to explain these too.
    """

    fact_id: str
    stage: str
    why: str
    explain: dict[str, Any] = msgspec.field(default_factory=dict)


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """A found fact.

    ``score`` is from the last stage, in [0, 1]. ``explain`` maps each stage to rank, score and
    threshold, if an explanation was requested.
    """

    fact: Fact
    score: float
    explain: dict[str, Any] = msgspec.field(default_factory=dict)


#: Searchable kinds of memory.
MemoryKind = Literal["facts", "reflections", "texts"]


class MemoryHit(msgspec.Struct, frozen=True, kw_only=True):
    """A found fact, reflection or paragraph of a text. ``id`` is the ID of the document.

    The ``score`` of a fact is the search score; others have the weight of the query's words. The
    two are not comparable.
    """

    kind: Literal["fact", "reflection", "text"]
    id: str
    scope: Scope
    content: str
    at: datetime | None
    version: int = 0
    score: float = 0.0
    unconfirmed: str = ""


class SearchReport(msgspec.Struct, frozen=True, kw_only=True):
    """Hits (best first), milliseconds per stage, and notices.

    ``nothing_relevant``: facts were found, but none reached the minimum score. ``passages`` are
    reflections, then paragraphs of texts, each best first, if requested. ``dropped`` are the
    dropped candidates, if an explanation was requested.
    """

    queries: tuple[str, ...]
    recipe: str
    hits: tuple[SearchHit, ...]
    nothing_relevant: bool = False
    passages: tuple[MemoryHit, ...] = ()
    dropped: tuple[DroppedCandidate, ...] = ()
    timings_ms: dict[str, float] = msgspec.field(default_factory=dict)
    notices: tuple[str, ...] = ()


class EditReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an edit, or its preview (``dry_run``).

    ``before`` and ``after`` are the documents as plain data without vectors, or None.
    """

    action: str
    target_type: str
    target_id: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    dry_run: bool
    result: ChangeResult | None = None
    notices: tuple[str, ...] = ()


class ScopeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and thresholds of one scope, and whether a consolidation is due."""

    scope: Scope
    facts: int
    pending: int
    consolidate_at: int
    due: bool
    active: bool
    version: int
    words: int
    word_limit: int
    last_consolidated_at: datetime | None = None
    oldest_pending_at: datetime | None = None


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import of sessions. ``problems`` are (line number, error)."""

    sessions: int = 0
    new_sessions: int = 0
    messages: int = 0
    new_messages: int = 0
    agents_added: tuple[str, ...] = ()
    users_added: tuple[str, ...] = ()
    owners_kept: int = 0  # existing sessions with a different owner
    problems: tuple[tuple[int, str], ...] = ()
