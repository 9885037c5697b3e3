"""An examination: every check that is wanted, in order, whatever the ones before it met."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from edenmem.engine.doctor import memory, surroundings
from edenmem.engine.doctor.catalogue import CATALOGUE
from edenmem.engine.doctor.context import DoctorContext
from edenmem.engine.doctor.report import (
    Advice,
    CheckFinding,
    CheckResult,
    DoctorReport,
    Remark,
    State,
    worse,
)
from edenmem.errors import EdenmemError, StoreUnreachable
from edenmem.models.integrity import Finding

#: Findings that are kept of each check; all are counted.
EXAMPLES = 5

#: Checks that have something to look at only where the database is a file. On MongoDB they are
#: reported if they were asked for, or find something, such as a configuration that others can read.
_OF_FILES = frozenset({"permissions", "file"})

Look = Callable[[DoctorContext], Iterator[CheckFinding | Remark]]


class Examination(NamedTuple):
    """One walk, and the checks that it is for; without a database one that needs it is skipped."""

    title: str
    checks: frozenset[str]
    look: Look
    needs_store: bool = True


#: What a walk through memories is for.
_OF_MEMORY = frozenset(
    {"readable", "stored-form", "owners", "sources", "blank", "limits", "weak", "times"}
) | {"group-sessions", "accounts"}

EXAMINATIONS = (
    Examination("permissions", frozenset({"permissions"}), surroundings.permissions),
    Examination("the database", frozenset({"file"}), surroundings.database),
    Examination("counters", frozenset({"counters"}), surroundings.counters),
    Examination("cached contexts", frozenset({"contexts"}), surroundings.contexts),
    Examination("backups", frozenset({"backups"}), surroundings.backups),
    Examination("indexes", frozenset({"indexes", "search-indexes"}), surroundings.indexes),
    Examination("vectors", frozenset({"vectors"}), surroundings.vectors),
    Examination("languages", frozenset({"vectors"}), surroundings.languages),
    Examination("vectors as stored", frozenset({"vector-damage"}), surroundings.vector_damage),
    Examination(
        "the local model",
        frozenset({"local-model"}),
        surroundings.local_model,
        needs_store=False,
    ),
    Examination("facts", _OF_MEMORY | {"hashes", "duplicates", "versions"}, memory.facts),
    Examination("reflections", _OF_MEMORY | {"links", "buffers"}, memory.reflections),
    Examination(
        "texts",
        _OF_MEMORY - {"sources", "group-sessions", "accounts"}
        | {"versions", "buffers", "propagation"},
        memory.texts,
    ),
    Examination(
        "policies",
        frozenset({"readable", "stored-form", "owners", "times", "policies"}),
        memory.policies,
    ),
    Examination("accounts", frozenset({"accounts"}), memory.find_linked_accounts),
    Examination("twins", frozenset({"duplicates"}), memory.twins),
    Examination(
        "formations",
        frozenset({"readable", "stored-form", "claims", "recorded", "failed"}),
        memory.formations,
    ),
    Examination("shared messages", frozenset({"messages-once"}), memory.find_shared_messages),
    Examination("usage", frozenset({"usage"}), memory.find_damaged_usage),
    Examination("platform progress", frozenset({"progress"}), memory.find_lost_progress),
    Examination("history and audit", frozenset({"readable", "stored-form"}), memory.records),
)


def describe_error(error: Exception) -> str:
    """An error in words, whoever raised it."""
    if not isinstance(error, EdenmemError):
        return f"{type(error).__name__}: {error}"
    return f"{error.message}; {error.hint}" if error.hint else error.message


class _Chart:
    """What is known of one check so far."""

    def __init__(self, name: str) -> None:
        self.check = CATALOGUE[name]
        self.state = State.OK
        self.count = 0
        self.remark = ""
        self.mend = ""
        self.examples: list[Finding] = []
        self.advice: list[Advice] = []

    def note(self, seen: CheckFinding | Remark) -> None:
        if isinstance(seen, Remark):
            self.remark, self.mend = seen.text, seen.mend or self.mend
            return
        self.count += 1
        advice = seen.advice or self._usual
        if advice not in self.advice:
            self.advice.append(advice)
        weight = seen.state or self.check.state
        if worse(weight, self.state) is weight and weight is not self.state:
            self.state = weight
            self.examples = [seen.finding, *self.examples][:EXAMPLES]  # the worst comes first
        elif len(self.examples) < EXAMPLES:
            self.examples.append(seen.finding)

    @property
    def _usual(self) -> Advice:
        return Advice(self.check.meaning, self.check.mend, self.check.fixable)

    def fail(self, error: Exception) -> None:
        """The check could not be made: that is no sign of health."""
        self.state = State.PROBLEM
        self.remark = f"could not be looked at: {describe_error(error)}"

    def skip(self, why: str) -> None:
        self.state, self.remark = State.SKIPPED, why

    def result(self) -> CheckResult:
        check = self.check
        ill = self.state not in (State.OK, State.SKIPPED)
        advice = self.advice or [self._usual]
        return CheckResult(
            name=check.name,
            group=check.group,
            title=check.title,
            state=self.state,
            count=self.count,
            remark=self.remark,
            meaning=" ".join(dict.fromkeys(one.meaning for one in advice)) if ill else "",
            mend=(self.mend or "; ".join(dict.fromkeys(one.mend for one in advice))) if ill else "",
            fixable=self.count > 0 and any(one.fixable for one in advice),
            examples=tuple(self.examples),
        )


class Doctor:
    """Examines a store; changes nothing."""

    def __init__(
        self, context: DoctorContext, checks: frozenset[str], *, online: bool = False
    ) -> None:
        self._context = context
        self._checks = checks
        self._online = online
        self._reachable = False

    def examine(self) -> DoctorReport:
        """Look at everything that is wanted. What cannot be looked at is a problem of its check,
        and keeps no other from being made."""
        charts = {name: _Chart(name) for name in CATALOGUE if name in self._checks}
        obstacle = self._begin(charts)
        # What keeps the checks from being made is told, whether it was asked for or not.
        charts = {name: charts[name] for name in CATALOGUE if name in charts}
        for examination in EXAMINATIONS:
            wanted = [charts[name] for name in charts if name in examination.checks]
            if not wanted:
                continue
            if obstacle and examination.needs_store:
                for chart in wanted:
                    chart.skip(obstacle)
                continue
            self._context.tell(examination.title, 0)
            self._look(examination.look, examination.checks, charts)
        if "providers" in charts:
            for seen in self._context.providers.look(online=self._online):
                charts["providers"].note(seen)
        info = self._context.info
        if info is not None and info.kind == "mongodb" and self._checks == CATALOGUE.keys():
            charts = {
                name: chart
                for name, chart in charts.items()
                if name not in _OF_FILES or chart.state is not State.OK
            }
        return DoctorReport(
            location="" if info is None else info.location,
            checks=tuple(chart.result() for chart in charts.values()),
            reachable=self._reachable,
        )

    def _begin(self, charts: dict[str, _Chart]) -> str:
        """See whether there is a database of this version; why not, or nothing."""
        first = {name: charts.get(name) or _Chart(name) for name in ("connection", "schema")}
        error = self._look(surroundings.connection, frozenset({"connection"}), first)
        self._reachable = self._context.info is not None
        if isinstance(error, StoreUnreachable):  # each further question would wait as long
            charts["connection"] = first["connection"]
            first["schema"].skip("the database does not answer")
            return first["schema"].remark
        if first["connection"].count:
            charts["connection"] = first["connection"]
            first["schema"].skip("there is no database yet")
            return first["schema"].remark
        self._look(surroundings.schema, frozenset({"schema"}), first)
        if first["schema"].count:
            self._reachable = True  # it was read, if only to see that it is old
            charts["schema"] = first["schema"]
            if self._context.info is None:
                first["connection"].skip("the schema is not of this version")
            return "the schema is not of this version"
        if not self._reachable:
            charts["connection"] = first["connection"]
            first["schema"].skip("the database does not answer")
            return first["schema"].remark
        return ""

    def _look(
        self, look: Look, covered: frozenset[str], charts: dict[str, _Chart]
    ) -> Exception | None:
        """Note what a walk sees; what it broke off with, if it did."""
        try:
            for seen in look(self._context):
                if seen.check in charts:
                    charts[seen.check].note(seen)
        except Exception as error:  # noqa: BLE001 - whatever damage leads to is told with its checks
            for name in covered & charts.keys():
                charts[name].fail(error)
            return error
        return None

    def findings(self, check: str) -> Iterator[Finding]:
        """Everything that one check finds, as it is found.

        Raises:
            StoreError: it cannot be looked at.
        """
        for examination in EXAMINATIONS:
            if check in examination.checks:
                for seen in examination.look(self._context):
                    if isinstance(seen, CheckFinding) and seen.check == check:
                        yield seen.finding
