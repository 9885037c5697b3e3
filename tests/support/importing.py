"""Import a file as the command does."""

from __future__ import annotations

import io
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edenmem.engine.exchange.conversion import Conversion, Defaults, Survey
from edenmem.engine.exchange.files import Source
from edenmem.engine.exchange.importer import RestoreReport, import_records
from edenmem.engine.exchange.kinds import FileKind, kind_of
from edenmem.engine.reports import ImportReport
from edenmem.engine.sessions.importer import import_sessions
from edenmem.models.host import Message
from edenmem.models.ids import derived_id
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW
from tests.support.runtime import make_runtime


@dataclass(kw_only=True)
class Taken:
    """The outcome of an import."""

    survey: Survey
    facts: RestoreReport
    chats: ImportReport


def take(
    store: Store,
    data: bytes | str | Path,
    *,
    name: str = "test",
    skip_bad: bool = False,
    dry_run: bool = False,
    **defaults: Any,
) -> Taken:
    """Convert a file, and import its facts and chats."""
    runtime = make_runtime(store, clock=lambda: NOW)
    with ExitStack() as files:
        source = data if isinstance(data, Path) else source_of(data, name)
        found = convert(store, files, source, **defaults)
        options: dict[str, Any] = {"skip_bad": skip_bad, "dry_run": dry_run}
        return Taken(
            survey=found.survey,
            facts=import_records(runtime, found.facts, allow_long=True, **options),
            chats=import_sessions(
                runtime, found.chats, add_missing=found.defaults.add_missing, **options
            ),
        )


def convert(store: Store, files: ExitStack, source: Source | Path, **defaults: Any) -> Conversion:
    """Convert a file of another system, or chats."""
    kind = kind_of(source) if isinstance(source, Source) else FileKind.NOTES
    if kind is FileKind.RECORDS:
        kind = FileKind.MEM0  # a damaged file that nothing recognizes
    given = Defaults(**{"agent": "eve"} | defaults)
    return Conversion(make_runtime(store, clock=lambda: NOW), source, kind, files, given)


def source_of(data: bytes | str, name: str = "test") -> Source:
    """Return a file with this content."""
    return Source(io.BytesIO(data.encode() if isinstance(data, str) else data), name)


def facts_of(store: Store, user: str | None = "anna") -> list[Fact]:
    """Return the facts of the only agent about a user (None: of the agent's own scope)."""
    (eve,) = store.host.agents()
    scope = Scope.agent(eve.id)
    if user:
        (found,) = store.host.find("user", user)
        scope = Scope.user(eve.id, found.id)
    return list(store.memory.facts(FactFilter(scopes=(scope,))))


def messages_of(store: Store, session: str) -> list[Message]:
    """Return the messages of the session with this name."""
    return list(store.host.messages(derived_id("session", session)))
