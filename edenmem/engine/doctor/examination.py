"""Run the selected checks in order; a failing check does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from edenmem.engine.doctor import memory, surroundings
from edenmem.engine.doctor.context import DoctorContext, describe_error
from edenmem.engine.doctor.memory import foreign_vectors
from edenmem.engine.doctor.report import (
    CATALOG,
    LEFT_OUT,
    Advice,
    Check,
    CheckFinding,
    CheckResult,
    DoctorReport,
    Remark,
    State,
    worse,
)
from edenmem.errors import StoreUnreachable
from edenmem.models.backup import RecordKind
from edenmem.models.integrity import Finding

#: Maximum number of examples per check; all findings are counted.
EXAMPLES = 5

#: Checks of database files. On MongoDB they are reported only if selected by name or if they find
#: something, such as a configuration file that others can read.
_OF_FILES = frozenset({"permissions", "file"})

_NO_ANSWER = "the database does not respond"
_NO_DATABASE = "no database yet"
_OUTDATED = "the schema is outdated"

Look = Callable[[DoctorContext], Iterator[CheckFinding | Remark]]


class Examination(NamedTuple):
    """A function and the checks it performs.

    ``full`` ones read all memory, and run only in a full examination. The others are skipped
    without a database if ``needs_store``.
    """

    title: str
    checks: frozenset[str]
    look: Look
    needs_store: bool = True
    full: bool = False


#: Checks performed on every kind of memory.
_OF_MEMORY = frozenset({"readable", "stored-form", "times"})
_OF_ITEMS = _OF_MEMORY | {"sources", "blank", "limits", "group-sessions"}

EXAMINATIONS = (
    Examination("permissions", frozenset({"permissions"}), surroundings.permissions),
    Examination("the database", frozenset({"file"}), surroundings.database),
    Examination("counters", frozenset({"counters"}), surroundings.stored("counters")),
    Examination("backups", frozenset({"backups"}), surroundings.backups),
    Examination("indexes", frozenset({"indexes", "search-indexes"}), surroundings.indexes),
    Examination("vectors", frozenset({"vectors"}), surroundings.vectors),
    Examination("languages", frozenset({"vectors"}), surroundings.languages),
    Examination(
        "vectors as stored",
        frozenset({"vector-damage"}),
        surroundings.stored("vector-damage"),
        full=True,
    ),
    Examination("vectors of other texts", frozenset({"vector-damage"}), foreign_vectors, full=True),
    Examination(
        "the local model",
        frozenset({"local-model"}),
        surroundings.local_model,
        needs_store=False,
    ),
    Examination("models", frozenset({"providers"}), surroundings.models, needs_store=False),
    Examination("scopes", frozenset({"owners", "buffers", "accounts"}), memory.examine_scopes),
    Examination(
        "facts",
        _OF_ITEMS | {"unconfirmed", "hashes", "duplicates"},
        memory.examine(RecordKind.FACT),
        full=True,
    ),
    Examination("expired facts", frozenset({"expired"}), memory.find_expired),
    Examination(
        "reflections", _OF_ITEMS | {"links"}, memory.examine(RecordKind.REFLECTION), full=True
    ),
    Examination(
        "texts",
        _OF_MEMORY | {"blank", "limits", "buffers", "drafts"},
        memory.examine(RecordKind.CONSOLIDATION),
    ),
    Examination("policies", _OF_MEMORY, memory.examine(RecordKind.POLICY), full=True),
    Examination("forgotten memory", frozenset({"forgotten"}), memory.find_returned),
    Examination("twins", frozenset({"duplicates"}), surroundings.stored("duplicates")),
    Examination("linked twins", frozenset({"duplicates"}), memory.twins_of_accounts),
    Examination(
        "unfinished formations",
        frozenset({"claims", "recorded", "failed"}),
        memory.find_unfinished,
    ),
    Examination("migrations", frozenset({"migrations"}), surroundings.migrations),
    Examination("platform progress", frozenset({"progress"}), surroundings.stored("progress")),
    Examination("readings", frozenset({"unread", "read-twice"}), surroundings.readings),
    Examination("the former", frozenset({"former"}), surroundings.former),
    Examination(
        "formations, history and audit",
        frozenset({"readable", "stored-form"}),
        memory.examine(RecordKind.FORMATION, RecordKind.HISTORY, RecordKind.AUDIT),
        full=True,
    ),
)


class _Chart:
    """The findings of one check so far."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self._usual = Advice(check.meaning, check.remedy, check.fixable)
        self.state = State.OK
        self.count = 0
        self.remark = ""
        self.remedy = ""
        self.examples: list[Finding] = []
        self.advice: list[Advice] = []

    def note(self, seen: CheckFinding | Remark) -> None:
        if isinstance(seen, Remark):
            self.remark, self.remedy = seen.text, seen.remedy or self.remedy
            self.state = worse(self.state, seen.state)
            return
        self.count += seen.items
        advice = seen.advice or self._usual
        if len(self.advice) < EXAMPLES and advice not in self.advice:
            self.advice.append(advice)
        weight = seen.state or self.check.state
        if worse(weight, self.state) is weight and weight is not self.state:
            self.state = weight
            self.examples = [seen.finding, *self.examples][:EXAMPLES]  # worst first
        elif len(self.examples) < EXAMPLES:
            self.examples.append(seen.finding)

    def end(self, state: State, why: str) -> None:
        """Set the state of a check that was skipped, or that failed."""
        self.state, self.remark = state, why

    def result(self) -> CheckResult:
        check = self.check
        ill = self.state not in (State.OK, State.UNTESTED, State.SKIPPED)
        advice = self.advice or [self._usual]
        remedy = self.remedy or "; ".join(dict.fromkeys(one.remedy for one in advice))
        return CheckResult(
            name=check.name,
            group=check.group,
            title=check.title,
            state=self.state,
            count=self.count,
            remark=self.remark,
            meaning=" ".join(dict.fromkeys(one.meaning for one in advice)) if ill else "",
            remedy=remedy if ill else "",
            fixable=self.count > 0 and any(one.fixable for one in advice),
            examples=tuple(self.examples),
        )


def examine(context: DoctorContext, checks: frozenset[str]) -> DoctorReport:
    """Run the selected checks, and the check that blocks them, if any. Writes nothing.

    A check that fails is a problem and does not stop others.
    """
    charts = {name: _Chart(check) for name, check in CATALOG.items()}
    blocking, obstacle = _find_obstacle(context, charts)
    info = context.info
    wanted = {name for name in charts if name in checks or name == blocking}
    if obstacle:
        for name in {"connection", "schema"} - {blocking}:
            if name == "schema" or info is None:
                charts[name].end(State.SKIPPED, obstacle)
    skipped = {name for name in wanted if charts[name].check.full and not context.is_full}
    for name in skipped:
        charts[name].end(State.SKIPPED, LEFT_OUT)
    for examination in EXAMINATIONS:
        names = examination.checks & (wanted - skipped)
        if not names or (examination.full and not context.is_full):
            continue
        if obstacle and examination.needs_store:
            for name in names:
                charts[name].end(State.SKIPPED, obstacle)
        else:
            context.progress(examination.title, 0)
            _look(context, examination.look, {name: charts[name] for name in names})
    if context.is_mongodb and checks == CATALOG.keys():
        wanted -= {name for name in _OF_FILES if charts[name].state is State.OK}
    return DoctorReport(
        location="" if info is None else info.location,
        checks=tuple(chart.result() for name, chart in charts.items() if name in wanted),
        reachable=info is not None or blocking == "schema",  # an outdated schema was read
    )


def _find_obstacle(context: DoctorContext, charts: dict[str, _Chart]) -> tuple[str, str]:
    """Check connection and schema; return which of them blocks the other checks, and why."""
    connection, schema = ({name: charts[name]} for name in ("connection", "schema"))
    error = _look(context, surroundings.connection, connection)
    if isinstance(error, StoreUnreachable):  # every further query would time out too
        return "connection", _NO_ANSWER
    if charts["connection"].count:
        return "connection", _NO_DATABASE
    _look(context, surroundings.schema, schema)
    if charts["schema"].count:
        return "schema", _OUTDATED
    return ("connection", _NO_ANSWER) if context.info is None else ("", "")


def _look(context: DoctorContext, look: Look, charts: dict[str, _Chart]) -> Exception | None:
    """Run one examination, note its findings, and return its error, if any."""
    try:
        for seen in look(context):
            if seen.check in charts:
                charts[seen.check].note(seen)
    except Exception as error:  # noqa: BLE001 - damage can raise anything; reported per check
        for chart in charts.values():
            chart.end(State.PROBLEM, f"check failed: {describe_error(error)}")
        return error
    return None


def find(context: DoctorContext, check: str) -> Iterator[Finding]:
    """Yield all findings of one check.

    Raises:
        StoreError: the check failed.
    """
    for examination in EXAMINATIONS:
        if check in examination.checks:
            for seen in examination.look(context):
                if isinstance(seen, CheckFinding) and seen.check == check:
                    yield seen.finding
