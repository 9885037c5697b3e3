"""What an examination tells."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from edenmem.models.integrity import Finding


class State(StrEnum):
    """How a check went. Notes are to be known and harm nobody; a warning is to be looked at; a
    problem loses, doubles or misleads. A check is skipped if what it needs could not be had."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"
    SKIPPED = "skipped"


#: From well to bad; a check is as bad as its worst finding.
_ORDER = (State.SKIPPED, State.OK, State.NOTE, State.WARNING, State.PROBLEM)


def worse(one: State, other: State) -> State:
    """The worse of two states."""
    return max(one, other, key=_ORDER.index)


class Advice(NamedTuple):
    """What a finding means, what to do about it, and whether ``--fix`` does that."""

    meaning: str
    mend: str
    fixable: bool = False


class CheckFinding(NamedTuple):
    """One finding of a check; ``state`` where it is of another weight than the check's others,
    ``advice`` where it means something else and needs something else done."""

    check: str
    finding: Finding
    state: State | None = None
    advice: Advice | None = None


class Remark(NamedTuple):
    """What there is to say of a check that found nothing, such as a version; ``mend`` is what to do
    where that is not what the catalogue says."""

    check: str
    text: str
    mend: str = ""


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """One check: how it went, how many findings there were, and the first of them.

    ``title`` says what is so if all is well, ``meaning`` what it means if not, ``mend`` what to do
    then, and ``fixable`` whether ``--fix`` does it. ``remark`` is what else was seen.
    """

    name: str
    group: str
    title: str
    state: State
    count: int = 0
    remark: str = ""
    meaning: str = ""
    mend: str = ""
    fixable: bool = False
    examples: tuple[Finding, ...] = ()


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """All checks, in the order of the catalogue. ``reachable``: the database answered."""

    location: str
    checks: tuple[CheckResult, ...]
    reachable: bool = True

    @property
    def ill(self) -> tuple[CheckResult, ...]:
        """The checks with warnings and problems."""
        return tuple(c for c in self.checks if c.state in (State.WARNING, State.PROBLEM))

    @property
    def is_well(self) -> bool:
        """Whether there are neither warnings nor problems."""
        return self.reachable and not self.ill


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """What one check's repair does, or did: ``mended`` things, and ``refused`` those that were
    left as they are, each with the reason."""

    check: str
    action: str
    found: int
    mended: int = 0
    refused: tuple[str, ...] = ()
    examples: tuple[Finding, ...] = ()


class FixReport(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--fix`` does or did; ``run_id`` is what `log` and `undo` know it by."""

    run_id: str
    dry_run: bool
    repairs: tuple[Repair, ...]
