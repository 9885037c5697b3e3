"""What a forgetting found, decided and did, as plain data."""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

import msgspec

from edenmem.errors import EdenmemError
from edenmem.models.changes import Actor
from edenmem.models.forgetting import Compaction, Subject, Traces
from edenmem.models.ids import as_utc
from edenmem.models.scope import Scope


class RewritingRefused(EdenmemError):
    """A text that is not written in place of one that names the subject, and why."""


Treatment = Literal["keep", "rewrite", "remove", "redact"]
#: From whose messages something was learned: the subject's alone, or perhaps others' too.
Learned = Literal["", "alone", "unclear"]


class MentionMode(StrEnum):
    """What to do about texts outside of the subject's own memory."""

    ASK = "ask"
    REWRITE = "rewrite"
    REMOVE = "remove"
    KEEP = "keep"


class Mention(msgspec.Struct, frozen=True, kw_only=True):
    """Something of somebody else's memory that names the subject, or holds what came from it.

    ``text`` is what it says now (None: only older copies name the subject, ``copies`` of them in
    history, audit or the records of formations). ``removed`` are the statements that it absorbed
    and that go. ``contexts`` are the places that name the subject. Of one that is ``fixed`` the
    text cannot be rewritten, only removed (an absorbed reflection) or changed by its own command
    (a policy). ``learned`` says whether it was learned from the subject's messages; then it is
    ``mentioned`` only if it also names the subject, or absorbed what goes with its memory.
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

    @property
    def key(self) -> tuple[str, str]:
        """What it is."""
        return self.target_type, self.target_id

    @property
    def removable(self) -> bool:
        """Whether it may be removed as a whole."""
        return self.target_type in ("fact", "reflection")

    def mode(self, mentions: MentionMode, learned: MentionMode) -> MentionMode:
        """Which of the modes for mentions and for what was learned applies.

        What was learned follows ``learned``; where that keeps it, a mention follows ``mentions``.
        ``learned`` = remove keeps what others may have said too.
        """
        may_go = self.learned == "alone" or learned is not MentionMode.REMOVE
        if self.learned and may_go and learned is not MentionMode.KEEP:
            return learned
        return mentions if self.mentioned else MentionMode.KEEP

    def treatment(self, mode: MentionMode) -> Treatment | Literal["ask"]:
        """What a mode makes of it; "keep" also where the mode cannot be carried out.

        A reflection that was absorbed goes only with a rewrite, which also takes it out of the text
        that absorbed it: once the reflection is gone, nothing would tell that the text has it.
        """
        if mode is MentionMode.ASK:
            return "ask"
        if mode is MentionMode.KEEP:
            return "keep"
        if self.text is None:
            return "redact"
        if mode is MentionMode.REWRITE and not self.fixed:
            return "rewrite"
        if mode is MentionMode.REMOVE and self.fixed:
            return "keep"
        return "remove" if self.removable else "keep"


class MentionDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of a mention: kept as it is; its text rewritten as ``text``; removed; or
    (where no text names the subject now) only its older copies emptied, as the others' are too;
    ``text`` is then what it says and may say."""

    mention: Mention
    treatment: Treatment
    text: str = ""


class ForgetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a forgetting would do: ``counts`` of what is removed by kind, the ids of ``derived``
    reflections elsewhere that go too (the farthest first), ``mentions`` to be decided on, and what
    ``stays`` and why. ``former`` are texts that go, for probing; never printed."""

    subject: Subject
    traces: Traces
    counts: dict[str, int]
    conversations: dict[str, int]
    derived: tuple[str, ...] = ()
    mentions: tuple[Mention, ...] = ()
    stays: tuple[str, ...] = ()
    former: tuple[str, ...] = ()
    begun_at: datetime | None = None  # of an earlier run that did not come to its end

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found."""
        return not (self.counts or self.derived or self.mentions)


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at afterwards, and what was still found there, in words without content.

    ``by_words`` says why some searches went by words alone; "" if none did.
    """

    texts: int = 0
    searches: int = 0
    contexts: int = 0
    found: tuple[str, ...] = ()
    by_words: str = ""


class ForgetReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a forgetting did. ``unfinished`` says what could not be done and how to finish it."""

    subject: Subject
    by: Actor
    begun_at: datetime
    finished_at: datetime
    removed: dict[str, int]
    mentions: dict[str, int]
    stays: tuple[str, ...]
    probe: Probe
    compaction: Compaction
    unfinished: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether nothing is left that could be removed."""
        return not self.unfinished and not self.probe.found


def receipt_of(report: ForgetReport) -> dict[str, Any]:
    """The report as a receipt that may be kept: no name, no content, the subject as a hash."""
    subject = report.subject

    def hash_id(id: str) -> str:
        return hashlib.sha256(id.encode()).hexdigest()

    return {
        "type": "forgetting",
        "id": subject.id,
        "state": "complete" if report.complete else "incomplete",
        "subject": {
            "kind": subject.kind,
            "sha256": hash_id(subject.owner or subject.agent_id or ""),
            "agent_sha256": hash_id(subject.agent_id) if subject.agent_id else None,
        },
        "begun_at": _iso(report.begun_at),
        "finished_at": _iso(report.finished_at),
        "by": {"name": report.by.name, "host": report.by.host, "command": report.by.command},
        "removed": report.removed,
        "mentions": report.mentions,
        "stays": list(report.stays),
        "probes": {
            "texts": report.probe.texts,
            "searches": report.probe.searches,
            "contexts": report.probe.contexts,
            "found": list(report.probe.found),
            "by_words": report.probe.by_words,
        },
        "unfinished": list(report.unfinished),
        "beyond_reach": list(report.compaction.beyond),
    }


def _iso(moment: datetime) -> str:
    return as_utc(moment).isoformat(timespec="milliseconds").replace("+00:00", "Z")
