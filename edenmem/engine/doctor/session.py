"""One visit to the doctor: examine, plan, mend, and examine again what was mended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from edenmem.engine.doctor.context import Patient
from edenmem.engine.doctor.examination import Doctor
from edenmem.engine.doctor.providers import Providers
from edenmem.engine.doctor.repairs import Repairs
from edenmem.engine.doctor.report import DoctorReport, FixReport
from edenmem.models.changes import Actor
from edenmem.models.ids import utc_now
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store


class Clinic:
    """A store under examination. Everything here blocks, so that Ctrl-C ends it at once."""

    def __init__(self, patient: Patient, checks: frozenset[str], *, actor: Actor) -> None:
        self._patient = patient
        self._checks = checks
        self._repairs = Repairs(patient, actor=actor)

    def examine(self, *, online: bool = False) -> DoctorReport:
        """Make the checks; ``online`` also asks the models something."""
        return Doctor(self._patient, self._checks, online=online).examine()

    def plan(self, report: DoctorReport) -> FixReport:
        """What mending would do; nothing is written."""
        return self._repairs.plan(report)

    def mend(self, plan: FixReport) -> FixReport:
        """Do it. What cannot be mended is told of, and keeps nothing else from being mended."""
        return self._repairs.run(plan)

    def examine_again(self, report: DoctorReport, fixed: FixReport) -> DoctorReport:
        """The report with the checks that something was done about as they are afterwards."""
        self._patient.forget()
        done = frozenset(repair.check for repair in fixed.repairs)
        # What was taken away for a backfill is missing from now on.
        done |= {"vectors"} & self._checks if done & {"hashes", "vector-damage"} else frozenset()
        after = {c.name: c for c in Doctor(self._patient, done).examine().checks} if done else {}
        checks = tuple(after.get(check.name, check) for check in report.checks)
        return DoctorReport(location=report.location, checks=checks, reachable=report.reachable)


@contextmanager
def clinic(
    store: Store,
    settings: Settings,
    checks: frozenset[str],
    *,
    actor: Actor,
    agent_id: str | None = None,
    files: Sequence[Path] = (),
    tell: Callable[[str, int], None] = lambda what, count: None,
    clock: Callable[[], datetime] = utc_now,
) -> Iterator[Clinic]:
    """A visit for the named ``checks`` (see `edenmem.engine.doctor.catalogue.chosen`).

    Args:
        store: The store.
        settings: The settings in force.
        checks: Names of checks.
        actor: Who the repairs are by.
        agent_id: Look at this agent's memory alone.
        files: The configuration files that were read.
        tell: Called with what is being looked at, and how many of it so far.
        clock: The time.
    """
    with Providers(settings) as providers:
        patient = Patient(
            store=store,
            settings=settings,
            providers=providers,
            now=clock(),
            agent_id=agent_id,
            files=tuple(files),
            tell=tell,
        )
        yield Clinic(patient, checks, actor=actor)
