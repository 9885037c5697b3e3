"""The reports of an examination and of its repairs."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from edenmem.models.integrity import Finding


class State(StrEnum):
    """The result of a check.

    A note is harmless; a warning needs attention; a problem loses, duplicates or corrupts data. A
    check is skipped if the database is unavailable. Models are untested unless they were called.
    """

    OK = "ok"
    UNTESTED = "untested"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"
    SKIPPED = "skipped"


#: States by severity; a check has the state of its worst finding.
_ORDER = (State.SKIPPED, State.OK, State.UNTESTED, State.NOTE, State.WARNING, State.PROBLEM)


def worse(one: State, other: State) -> State:
    """Return the worse of two states."""
    return max(one, other, key=_ORDER.index)


class Advice(NamedTuple):
    """The consequence of a finding, its remedy, and whether ``--fix`` applies it."""

    meaning: str
    remedy: str
    fixable: bool = False


class CheckFinding(NamedTuple):
    """A finding of a check; ``state`` and ``advice`` override those of the check."""

    check: str
    finding: Finding
    state: State | None = None
    advice: Advice | None = None


class Remark(NamedTuple):
    """Information about a check, such as a version; ``remedy`` overrides that of the check."""

    check: str
    text: str
    remedy: str = ""
    state: State = State.OK


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check: its state, the number of findings, and the first of them.

    ``title`` describes the healthy state, ``meaning`` the consequence of the findings, ``remedy``
    what to do, and ``fixable`` whether ``--fix`` does it. ``remark`` is additional information.
    """

    name: str
    group: str
    title: str
    state: State
    count: int = 0
    remark: str = ""
    meaning: str = ""
    remedy: str = ""
    fixable: bool = False
    examples: tuple[Finding, ...] = ()


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """All checks in the order of the catalog. ``reachable``: the database responded."""

    location: str
    checks: tuple[CheckResult, ...]
    reachable: bool = True

    @property
    def ill(self) -> tuple[CheckResult, ...]:
        """Return the checks with warnings and problems."""
        return tuple(c for c in self.checks if c.state in (State.WARNING, State.PROBLEM))

    @property
    def is_well(self) -> bool:
        """Return whether there are neither warnings nor problems."""
        return self.reachable and not self.ill


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """A repair, planned or done; ``refused`` has the reasons for findings left unchanged."""

    check: str
    action: str
    found: int
    repaired: int = 0
    refused: tuple[str, ...] = ()
    examples: tuple[Finding, ...] = ()


class FixReport(msgspec.Struct, frozen=True, kw_only=True):
    """The repairs of ``--fix``, planned or done; `log` and `undo` accept ``run_id``."""

    run_id: str
    dry_run: bool
    repairs: tuple[Repair, ...]
