"""What the engine's methods return: plain data that a caller can print or encode."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from edenmem.models.changes import ChangeResult, ChangeSet
from edenmem.models.formation import CallUsage, Decision
from edenmem.models.memory import Consolidation, Fact
from edenmem.models.scope import Scope


class FormationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one range of one session's messages for one agent.

    ``outcome``: "applied", "resumed" (a recorded one was completed), "not_due", "taken" (another
    worker has it), "waiting" (released, tried again after ``not_before``), "incognito", "failed",
    "dry_run". ``changes`` is there for a dry run only.
    """

    session_id: str
    agent_id: str
    outcome: str
    formation_id: str | None = None
    messages: int = 0
    left: int = 0  # messages that wait for a later range
    split_off: int = 0  # those of them that made this range longer than a model's context
    by_platform: int = 0  # messages that are left out because the platform formed them
    facts_added: int = 0
    facts_revised: int = 0
    facts_removed: int = 0
    facts_skipped: int = 0
    reflections: dict[str, int] = msgspec.field(default_factory=dict)  # by scope kind
    rejected: dict[str, int] = msgspec.field(default_factory=dict)  # by rule, "" where none is told
    decisions: tuple[Decision, ...] = ()
    consolidations: tuple[ConsolidationReport, ...] = ()
    usage: tuple[CallUsage, ...] = ()
    not_before: datetime | None = None
    error: str | None = None
    changes: ChangeSet | None = None


class ConsolidationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one scope.

    ``outcome``: "written", "not_due", "nothing_pending", "paused", "failed", "dry_run",
    "not_tried" (since those before it found the provider down). ``is_outage``: it failed for what
    every scope would fail for now.
    ``before`` and ``after`` are the texts; equal if nothing was written. ``propagated`` counts the
    reflections that were added to scopes above, ``propagation`` tells what was decided about each
    proposal (action ADD or REJECTED, with the reason), and ``propagation_error`` why propagation
    is not finished; it is then tried again by the next run, whatever the ``outcome``.
    """

    scope: Scope
    outcome: str
    version: int = 0
    absorbed: int = 0
    left: int = 0  # reflections still pending afterwards
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


class ContextPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a context and its size; tokens are estimated from characters."""

    name: str
    words: int
    tokens: int


class ContextReport(msgspec.Struct, frozen=True, kw_only=True):
    """A context for a prompt. ``recall`` says why memories were retrieved, or why not."""

    xml: str
    parts: tuple[ContextPart, ...]
    scopes: tuple[Scope, ...]
    cached: bool
    built_at: datetime
    recall: str = "off"
    queries: tuple[str, ...] = ()
    usage: tuple[CallUsage, ...] = ()  # what recall by a model cost


class DroppedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that did not come through: where it was cut, and by what. ``explain`` is what
    the stages say that it came through before."""

    fact_id: str
    stage: str
    why: str
    explain: dict[str, Any] = msgspec.field(default_factory=dict)


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that was found. ``score`` is the last stage's, in [0, 1] for the recipes with a
    normalised score; ``explain`` maps each stage to its rank, score and threshold."""

    fact: Fact
    score: float
    explain: dict[str, Any] = msgspec.field(default_factory=dict)


#: What can be searched.
MemoryKind = Literal["facts", "reflections", "texts"]


class MemoryHit(msgspec.Struct, frozen=True, kw_only=True):
    """A fact, a reflection, or a paragraph of a text, that was found. ``id`` is the document's.
    The ``score`` of a fact is the search's; the others' is BM25 within what was searched, so that
    the two cannot be compared."""

    kind: Literal["fact", "reflection", "text"]
    id: str
    scope: Scope
    content: str
    at: datetime | None
    score: float = 0.0


class SearchReport(msgspec.Struct, frozen=True, kw_only=True):
    """Hits best first, what was dropped, the milliseconds of each stage, and notices.

    ``passages`` are reflections, then paragraphs of texts, each best first, if they were asked for.
    """

    queries: tuple[str, ...]
    recipe: str
    hits: tuple[SearchHit, ...]
    passages: tuple[MemoryHit, ...] = ()
    dropped: tuple[DroppedCandidate, ...] = ()
    timings_ms: dict[str, float] = msgspec.field(default_factory=dict)
    notices: tuple[str, ...] = ()


class EditReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator's change did, or (``dry_run``) would do. ``before`` and ``after`` are the
    documents as plain data, without vectors; None where there is nothing before or after."""

    action: str
    target_type: str
    target_id: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    dry_run: bool
    result: ChangeResult | None = None
    notices: tuple[str, ...] = ()


class ScopeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and thresholds of one scope: whether it needs consolidation."""

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
    """What an import of sessions did: ``problems`` are (line number, what was wrong)."""

    sessions: int = 0
    new_sessions: int = 0
    messages: int = 0
    new_messages: int = 0
    agents_added: tuple[str, ...] = ()
    users_added: tuple[str, ...] = ()
    owners_kept: int = 0  # sessions that were there already, with another owner than the one given
    problems: tuple[tuple[int, str], ...] = ()


class MemoryStats(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of an agent's memory by scope."""

    agent_id: str
    scopes: tuple[ScopeStatus, ...]
    texts: tuple[Consolidation, ...] = ()
