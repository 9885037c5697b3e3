"""Show which replies had which memory: before changes, with origins, and in full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from edenmem.cli.app.invocation import Invocation
from edenmem.engine.history.descriptions import Section
from edenmem.engine.scopes.references import Labels
from edenmem.models.scope import Scope
from edenmem.models.told import Reply, text_key
from edenmem.text import ago, many

if TYPE_CHECKING:
    from edenmem.engine.context.told import Telling, ToldContext

#: Maximum number of sessions in a note.
_SESSIONS = 5
#: Maximum number of replies or items in a list.
_SHOWN = 20


def key_of(target_type: str, target_id: str, scope: Scope | None) -> str:
    """Return the key of a changed memory in the notes of replies, or ""."""
    if target_type == "consolidation":
        return text_key(scope) if scope is not None else ""
    return target_id if target_type in ("fact", "reflection") else ""


def note_told(run: Invocation, keys: Iterable[str]) -> None:
    """Print which sessions had memory with these keys, if any."""
    keys = [key for key in keys if key]
    if keys and (told := run.service.told.tellings(keys)):
        run.out.note(f"told before: {describe_told(run, told, versions=len(keys) == 1)}")


def describe_told(run: Invocation, told: Sequence[Telling], *, versions: bool = False) -> str:
    """Describe the sessions that had a memory, latest first."""
    names = _names(run, told)
    found: dict[str, list[Telling]] = {}
    for one in told:
        found.setdefault(one.reply.session_id or one.reply.user_id or "", []).append(one)
    parts = []
    for some in list(found.values())[:_SESSIONS]:
        known = ", ".join(map(str, sorted({one.version for one in some})))
        count = many(len(some), "reply", "replies")
        facts = (f"version {known}" if versions else "", count, ago(some[0].reply.at))
        parts.append(f"{_where(some[0].reply, names)} ({', '.join(filter(None, facts))})")
    more = len(found) - len(parts)
    return ", ".join([*parts, *([f"{more} more"] if more else [])])


def told_sections(run: Invocation, told: Sequence[Telling]) -> Iterator[Section]:
    """Yield the section of an origin that lists the replies that had the memory, if any."""
    names = _names(run, told)
    lines = [
        f"{ago(one.reply.at)}, {one.reply.kind}, {_where(one.reply, names)}:"
        f" version {one.version} ({one.reply.id})"
        for one in told[:_SHOWN]
    ]
    more = [f"and {len(told) - _SHOWN:,} more; --json shows all"] if len(told) > _SHOWN else []
    hint = "see one: edenmem context --as-told SESSION --reply REPLY"
    if lines:
        yield Section("told", tuple(("  ", line) for line in [*lines, *more, hint]))


def print_told(run: Invocation, told: ToldContext) -> None:
    """Print a context as an agent saw it; its time and later changes go to stderr."""
    run.out.one(told, lambda: _show(run, told))


def _show(run: Invocation, told: ToldContext) -> None:
    reply, items = told.reply, told.items
    where = _where(reply, run.service.scopes.labels(_owners(reply)))
    run.out.document(told.context)
    run.out.note(f"told {ago(reply.at)}, {reply.kind}, {where}: reply {reply.id}")
    others = [item for item in items if item.state != "same"]
    for item in others[:_SHOWN]:
        now = f", now version {item.version_now}" if item.version_now else ""
        what = f"{item.kind} {item.id}".strip()
        run.out.note(f"{what}: version {item.version}, {item.state} since{now}")
    run.out.note(f"{many(len(items), 'item')}, {len(items) - len(others)} unchanged since")


def _names(run: Invocation, told: Sequence[Telling]) -> Labels:
    """Load the names of the sessions and users of replies."""
    return run.service.scopes.labels([each for one in told for each in _owners(one.reply)])


def _owners(reply: Reply) -> list[Scope | str]:
    session = [Scope.session(reply.agent_id, reply.session_id)] if reply.session_id else []
    return [*session, *([reply.user_id] if reply.user_id else [])]


def _where(reply: Reply, names: Labels) -> str:
    """Name the session, or the user, of a reply."""
    if reply.session_id:
        return f"session {names[reply.session_id]}"
    return f"a search for {names[reply.user_id]}" if reply.user_id else "a search"
