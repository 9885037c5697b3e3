"""What a cold run did: counted while it runs, and told as one report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, get_args

import msgspec

from edenmem.engine.reports import FormationReport
from edenmem.models.formation import UsageTotal

StopKind = Literal["interrupted", "budget", "provider", "database", "configuration", "conflict"]


class ColdFailure(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong with a session for one of its agents (None: with the session as a whole).

    ``attempts`` counts the failed tries of the formation, 0 if this one was not its fault;
    ``final`` says that it will not be tried again by itself, ``not_before`` else when it will.
    """

    session_id: str
    session: str
    agent_id: str | None
    reason: str
    formation_id: str | None = None
    attempts: int = 0
    final: bool = False
    not_before: datetime | None = None


class ColdPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a dry run would do with a session for one agent: ``work`` is "form", "resume" (a range
    that was given back) or "complete" (apply what was recorded, without a model).

    ``tokens`` estimates what the messages are in a prompt.
    """

    session_id: str
    session: str
    agent_id: str
    work: str
    messages: int
    tokens: int


#: Why messages are not taken up. "status": of a session that is not active; "formed_by_platform";
#: "below_threshold": too few; "failed": kept as failed; "taken", "waiting": by a claim.
Rule = Literal[
    "status",
    "formed_by_platform",
    "incognito",
    "not_quiet",
    "below_threshold",
    "failed",
    "taken",
    "waiting",
    "max_age",
    "limit",
]


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule leaves out: how many sessions, and how many messages, which count once for
    each agent of their session."""

    rule: Rule
    sessions: int
    messages: int


class ColdReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a cold run did.

    ``considered`` and ``left_out`` count sessions; ``not_due``, ``taken`` (another worker is at
    it), ``waiting`` (for the next try), ``incognito`` count sessions for each of their agents;
    ``formed`` and ``completed`` (recorded earlier, now applied) count ranges of messages.
    ``active`` are sessions in which somebody spoke again before their turn came. ``timed_out`` and
    ``given_back`` (as the run was stopped) are labels of sessions whose messages wait, with
    nothing lost and no failed try counted. ``left_out_by_…`` were due, but beyond ``--limit`` or
    ``--max-age``, or of another status. ``left_out`` counts for each rule, and in a dry run looks
    at all sessions. ``duration`` is in seconds.
    """

    started_at: datetime
    duration: float
    dry_run: bool = False
    considered: int = 0
    formed: int = 0
    completed: int = 0
    messages: int = 0
    facts_added: int = 0
    facts_revised: int = 0
    facts_removed: int = 0
    reflections: int = 0
    consolidations: int = 0
    not_due: int = 0
    taken: int = 0
    waiting: int = 0
    active: int = 0
    incognito: int = 0
    left_out_by_limit: int = 0
    left_out_by_age: int = 0
    left_out_by_status: int = 0
    left_out: tuple[LeftOut, ...] = ()
    timed_out: tuple[str, ...] = ()
    given_back: tuple[str, ...] = ()
    failed: tuple[ColdFailure, ...] = ()
    planned: tuple[ColdPlan, ...] = ()
    usage: tuple[UsageTotal, ...] = ()
    stopped_early: StopKind | None = None
    reason: str | None = None
    hint: str | None = None

    @property
    def tokens(self) -> int:
        """All tokens, in and out."""
        return sum(total.input_tokens + total.output_tokens for total in self.usage)

    @property
    def cost(self) -> float:
        """US dollars, as far as prices are known."""
        return sum(total.cost for total in self.usage)


#: Outcome of a formation report → the counter of the run's report.
_COUNTERS = {
    "applied": "formed",
    "resumed": "completed",
    "not_due": "not_due",
    "taken": "taken",
    "waiting": "waiting",
    "incognito": "incognito",
}


class Tally:
    """Counts of a run that is under way; attribute for attribute as in `ColdReport`."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._left_out: dict[Rule, list[int]] = {}
        self.timed_out: list[str] = []
        self.given_back: list[str] = []
        self.failed: list[ColdFailure] = []
        self.planned: list[ColdPlan] = []
        self.stopped_early: StopKind | None = None
        self.reason: str | None = None
        self.hint: str | None = None

    def count(self, name: str, number: int = 1) -> None:
        """Add to a counter of `ColdReport`."""
        self.counts[name] = self.counts.get(name, 0) + number

    def leave_out(self, rule: Rule, messages: int) -> None:
        """Count a session of which a rule leaves out messages."""
        counts = self._left_out.setdefault(rule, [0, 0])
        counts[0] += 1
        counts[1] += messages

    def __getitem__(self, name: str) -> int:
        return self.counts.get(name, 0)

    def stop(self, kind: StopKind, reason: str, hint: str | None = None) -> None:
        """Why the run ends early; the first reason stays."""
        if self.stopped_early is None:
            self.stopped_early, self.reason, self.hint = kind, reason, hint

    def add_formations(self, reports: Sequence[FormationReport]) -> None:
        """Count what became of ranges; those that failed are counted by who knows their tries."""
        for report in reports:
            if report.outcome == "not_due" and len(reports) > 1:
                continue  # there was something to do first
            if report.outcome in _COUNTERS and not _is_failure(report):
                self.count(_COUNTERS[report.outcome])
            if report.outcome in ("applied", "resumed"):
                self.count("messages", report.messages)
            self.count("facts_added", report.facts_added)
            self.count("facts_revised", report.facts_revised)
            self.count("facts_removed", report.facts_removed)
            self.count("reflections", sum(report.reflections.values()))
            written = sum(text.outcome == "written" for text in report.consolidations)
            self.count("consolidations", written)

    def report(
        self,
        *,
        started_at: datetime,
        duration: float,
        dry_run: bool,
        usage: tuple[UsageTotal, ...],
    ) -> ColdReport:
        """All of it."""
        return ColdReport(
            started_at=started_at,
            duration=duration,
            dry_run=dry_run,
            usage=usage,
            timed_out=tuple(self.timed_out),
            given_back=tuple(self.given_back),
            failed=tuple(self.failed),
            planned=tuple(self.planned),
            left_out=tuple(
                LeftOut(
                    rule=rule, sessions=self._left_out[rule][0], messages=self._left_out[rule][1]
                )
                for rule in get_args(Rule)
                if rule in self._left_out
            ),
            stopped_early=self.stopped_early,
            reason=self.reason,
            hint=self.hint,
            **self.counts,
        )


def failures_of(reports: Sequence[FormationReport]) -> list[FormationReport]:
    """Those that failed, for now or for good."""
    return [report for report in reports if _is_failure(report)]


def _is_failure(report: FormationReport) -> bool:
    return report.outcome == "failed" or (report.outcome == "waiting" and report.error is not None)
