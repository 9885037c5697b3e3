"""Count the results of a cold run, and report them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, get_args

import msgspec

from edenmem.engine.formation.sharing import InForce
from edenmem.engine.reports import ConsolidationReport, FormationReport
from edenmem.models.formation import UsageTotal

StopKind = Literal["interrupted", "budget", "provider", "database", "configuration", "conflict"]


class ColdFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure of a session for one of its agents (None: of the whole session).

    ``attempts`` counts the failed attempts of the formation (0: this failure does not count);
    ``final``: there is no automatic retry, otherwise ``not_before`` is its earliest time.
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
    """The planned work on a session for one agent.

    ``work`` is "form", "resume" (a released range) or "complete" (apply a recorded formation,
    without a model); ``tokens`` is the estimated size of the messages in a prompt.
    """

    session_id: str
    session: str
    agent_id: str
    work: str
    messages: int
    tokens: int


#: Why messages are skipped. "formed_by_platform": the platform read them; "left_to_platform": it
#: may still read them. "status": the session is not active; "below_threshold": too few
#: messages; "failed": a failed formation; "taken", "waiting": claimed.
Rule = Literal[
    "status",
    "formed_by_platform",
    "left_to_platform",
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
    """Numbers of sessions and messages left out by a rule; messages count once per agent."""

    rule: Rule
    sessions: int
    messages: int


class ColdReport(msgspec.Struct, kw_only=True):
    """The result of a cold run, which grows during the run.

    ``considered`` counts sessions; ``not_due``, ``taken`` (by another worker), ``waiting`` (for a
    retry) and ``incognito`` count sessions per agent; ``formed`` and ``completed`` (recorded
    earlier, applied now) count ranges of messages. ``active`` counts sessions with new messages.
    ``forgotten`` counts memory that was written again after it was forgotten, and removed;
    ``forgotten_left`` what needs another ``forget``. ``expired`` counts removed facts whose time
    had come, ``notes_removed`` expired notes of replies. ``texts_waiting`` counts consolidations
    that wait for a person. ``timed_out`` and ``given_back`` (the run was stopped) list labels of
    sessions whose messages stay pending, without a failed attempt. ``left_out`` has counts per
    rule, in a dry run of all sessions. ``left_to_platform`` counts messages that the platform may
    read, ``unread`` formed messages that the platform's cursor had passed unread, ``read_twice``
    messages that the platform read during their formation, ``review_accepted`` and
    ``review_dropped`` count held items that were not reviewed in time, ``advanced`` the cursors
    that were put back and moved forward again. ``former`` is set in a database shared with the
    platform. ``duration`` is in seconds.
    """

    started_at: datetime
    duration: float = 0.0
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
    texts_waiting: int = 0
    not_due: int = 0
    taken: int = 0
    waiting: int = 0
    active: int = 0
    incognito: int = 0
    left_to_platform: int = 0
    unread: int = 0
    read_twice: int = 0
    advanced: int = 0
    former: InForce | None = None
    expired: int = 0
    forgotten: int = 0
    forgotten_left: int = 0
    notes_removed: int = 0
    review_accepted: int = 0
    review_dropped: int = 0
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
        """Return the number of input and output tokens."""
        return sum(total.input_tokens + total.output_tokens for total in self.usage)

    @property
    def cost(self) -> float:
        """Return the cost in US dollars, as far as prices are configured."""
        return sum(total.cost for total in self.usage)

    def sessions_left_out(self, rule: Rule) -> int:
        """Return the number of sessions left out by a rule."""
        return sum(each.sessions for each in self.left_out if each.rule == rule)

    def count(self, name: str, number: int = 1) -> None:
        """Add to a counter."""
        setattr(self, name, getattr(self, name) + number)

    def count_texts(self, texts: Sequence[ConsolidationReport]) -> None:
        """Count written texts, and those that wait for a person."""
        self.consolidations += sum(text.outcome == "written" for text in texts)
        self.texts_waiting += sum(text.outcome in ("stuck", "waiting_for_review") for text in texts)

    def leave_out(self, rule: Rule, messages: int) -> None:
        """Count a session with messages left out by a rule."""
        by_rule = {each.rule: each for each in self.left_out}
        known = by_rule.get(rule) or LeftOut(rule=rule, sessions=0, messages=0)
        by_rule[rule] = LeftOut(
            rule=rule, sessions=known.sessions + 1, messages=known.messages + messages
        )
        self.left_out = tuple(by_rule[each] for each in get_args(Rule) if each in by_rule)

    def stop(self, kind: StopKind, reason: str, hint: str | None = None) -> None:
        """Note why the run ends early; the first reason is kept."""
        if self.stopped_early is None:
            self.stopped_early, self.reason, self.hint = kind, reason, hint

    def add_formations(self, reports: Sequence[FormationReport]) -> None:
        """Count the outcomes of ranges, except failures."""
        for report in reports:
            if report.outcome == "not_due" and len(reports) > 1:
                continue  # earlier ranges were due
            if report.outcome in _COUNTERS and not is_failure(report):
                self.count(_COUNTERS[report.outcome])
            if report.outcome in ("applied", "resumed"):
                self.messages += report.messages
            self.read_twice += report.read_twice
            self.facts_added += report.facts_added
            self.facts_revised += report.facts_revised
            self.facts_removed += report.facts_removed
            self.reflections += sum(report.reflections.values())
            self.count_texts(report.consolidations)


#: Outcome of a formation report → the counter of the run's report.
_COUNTERS = {
    "applied": "formed",
    "resumed": "completed",
    "not_due": "not_due",
    "taken": "taken",
    "waiting": "waiting",
    "incognito": "incognito",
}


def is_failure(report: FormationReport) -> bool:
    """Return whether a range failed, temporarily or permanently."""
    return report.outcome == "failed" or (report.outcome == "waiting" and report.error is not None)
