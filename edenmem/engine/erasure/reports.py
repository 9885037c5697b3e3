"""Plans, decisions and reports of forgettings, as plain data."""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

import msgspec

from edenmem.engine.context.told import Telling
from edenmem.errors import EdenmemError
from edenmem.models.changes import Actor
from edenmem.models.forgetting import Compaction, Subject, Traces
from edenmem.models.ids import as_utc
from edenmem.models.scope import Scope


class RewritingRefused(EdenmemError):
    """The new text of a mention is invalid."""


Treatment = Literal["keep", "rewrite", "remove", "redact"]
#: Source of memory: only messages of the subject, or perhaps also of others.
Learned = Literal["", "alone", "unclear"]


class MentionMode(StrEnum):
    """The treatment of texts outside of the subject's memory."""

    REWRITE = "rewrite"
    REMOVE = "remove"
    KEEP = "keep"


class Mention(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of others that names the subject, or was learned from it.

    ``text`` is the current text; None if only older copies name the subject (``copies`` in history,
    audit or records of formations). ``removed`` are absorbed statements that will be removed.
    ``contexts`` are the places that name the subject. A ``fixed`` text can only be removed (an
    absorbed reflection, or a fact whose fields name the subject) or changed with a different
    command (a policy). ``learned``: memory from the subject's messages, which is ``mentioned`` only
    if it also names the subject, or absorbed memory that will be removed. Copies are ``emptied``
    without a decision.
    """

    target_type: str
    target_id: str
    scope: Scope | None = None
    text: str | None = None
    version: int = 0
    word_limit: int = 0
    contexts: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    copies: int = 0
    fixed: bool = False
    learned: Learned = ""
    mentioned: bool = True
    emptied: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Return type and ID of the target."""
        return self.target_type, self.target_id

    @property
    def removable(self) -> bool:
        """Check whether the target can be removed as a whole."""
        return self.target_type in ("fact", "reflection")

    def mode(self, mentions: MentionMode, learned: MentionMode) -> MentionMode:
        """Return the applicable mode.

        Learned memory follows ``learned``, unless this is "keep"; mentions follow ``mentions``.
        ``learned`` = remove keeps memory with possible other sources.
        """
        may_go = self.learned == "alone" or learned is not MentionMode.REMOVE
        if self.learned and may_go and learned is not MentionMode.KEEP:
            return learned
        return mentions if self.mentioned else MentionMode.KEEP

    def treatment(self, mode: MentionMode) -> Treatment:
        """Return the treatment for a mode; "keep" if the mode is not possible.

        An absorbed reflection is removed only by a rewrite of the text that absorbed it. Without
        the reflection, the text could not be found any longer.
        """
        if self.emptied:
            return "redact"
        if mode is MentionMode.KEEP:
            return "keep"
        if self.text is None:
            return "redact"
        if mode is MentionMode.REWRITE and not self.fixed:
            return "rewrite"
        if mode is MentionMode.REMOVE and self.fixed and self.target_type != "fact":
            return "keep"
        return "remove" if self.removable else "keep"


class MentionDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision about a mention: keep, rewrite as ``text``, remove, or redact.

    "redact" empties only older copies; ``text`` is then the current text.
    """

    mention: Mention
    treatment: Treatment
    text: str = ""


class ForgetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The preview of a forgetting.

    ``counts`` are removals by kind, ``derived`` IDs of derived reflections in other scopes (the
    farthest first), ``mentions`` need decisions, ``stays`` lists what remains and why.
    ``unreadable`` names the unreadable documents that may concern the subject. ``told`` are the
    replies to others that had some of the memory.
    """

    subject: Subject
    traces: Traces
    counts: dict[str, int]
    conversations: dict[str, int]
    derived: tuple[str, ...] = ()
    mentions: tuple[Mention, ...] = ()
    stays: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    begun_at: datetime | None = None  # of an interrupted run
    told: tuple[Telling, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Check whether nothing was found."""
        return not (self.counts or self.derived or self.mentions)


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """The traces that are left after a forgetting, without content.

    ``texts`` is the number of texts that were read, ``found`` counts the traces by kind, and
    ``unreadable`` names the unreadable documents that may concern the subject.
    """

    texts: int = 0
    found: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


class ForgetReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a forgetting. ``unfinished`` lists failed steps and remedies.

    ``id`` is that of the run and its audit entry, ``proof`` that this entry is sealed (see
    `edenmem.engine.seals`). ``removed`` has the kinds of `ForgetPlan.counts` and, with messages,
    ``conversations``; ``left`` counts what stays by choice.
    """

    id: str
    subject: Subject
    by: Actor
    begun_at: datetime
    finished_at: datetime
    removed: dict[str, int]
    mentions: dict[str, int]
    left: dict[str, int]
    stays: tuple[str, ...]
    remains: Remains
    compaction: Compaction
    proof: dict[str, Any] | None = None
    unfinished: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Check whether everything removable was removed."""
        return not self.unfinished and not self.remains.found


#: How the hashes of a receipt are made.
_HASHES = "SHA-256 of the ID in UTF-8; several fact IDs are sorted and joined with commas"


def hash_id(id: str) -> str:
    """Return the hash of an ID in a receipt."""
    return hashlib.sha256(id.encode()).hexdigest()


def receipt_of(report: ForgetReport) -> dict[str, Any]:
    """Return a receipt of the report without names or content; the subject is a hash."""
    subject = report.subject
    return {
        "type": "forgetting",
        "id": report.id,
        "forgetting": subject.id,
        "hashes": _HASHES,
        "state": "complete" if report.complete else "incomplete",
        "subject": {
            "kind": subject.kind,
            "sha256": hash_id(
                ",".join(sorted(subject.facts)) or subject.owner or subject.agent_id or ""
            ),
            "agent_sha256": hash_id(subject.agent_id) if subject.agent_id else None,
            "ids_sha256": sorted(map(hash_id, subject.accounts or subject.facts)),
        },
        "begun_at": _iso(report.begun_at),
        "finished_at": _iso(report.finished_at),
        "by": {"name": report.by.name, "host": report.by.host, "command": report.by.command},
        "removed": report.removed,
        "mentions": report.mentions,
        "left": report.left,
        "stays": list(report.stays),
        "verified": {"texts": report.remains.texts, "found": list(report.remains.found)},
        "unfinished": list(report.unfinished),
        "beyond_reach": list(report.compaction.beyond),
        "sealed": report.proof,
    }


def _iso(moment: datetime) -> str:
    return as_utc(moment).isoformat(timespec="milliseconds").replace("+00:00", "Z")
