"""Show which replies had which memory: before changes, with origins, and in full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from edenmem.cli.app.invocation import Invocation
from edenmem.engine.history.descriptions import Section
from edenmem.engine.scopes.references import Labels
from edenmem.models.scope import Scope
from edenmem.models.told import Reply, Sighting, text_key
from edenmem.text import ago, many

if TYPE_CHECKING:
    from edenmem.engine.context.told import Telling, ToldContext, ToldItem

#: Maximum number of sessions in a note.
_SESSIONS = 5
#: Maximum number of replies or items in a list.
_SHOWN = 20


def key_of(target_type: str, target_id: str, scope: Scope | None) -> str:
    """Return the key of a changed memory in the notes of replies, or ""."""
    if target_type == "consolidation":
        return text_key(scope) if scope is not None else ""
    return target_id if target_type in ("fact", "reflection") else ""


def note_seen(run: Invocation, keys: Iterable[str]) -> None:
    """Print who has seen memory with these keys, if anyone has."""
    keys = [key for key in keys if key]
    if keys and (seen := run.service.told.seen(keys)):
        run.out.note(f"told before: {describe_seen(run, seen)}")


def describe_seen(run: Invocation, seen: Sequence[Sighting]) -> str:
    """Describe the sessions that have seen a memory, latest first."""
    names = _names(run, seen)
    parts = []
    for one in seen[:_SESSIONS]:
        known = f"version {', '.join(map(str, one.versions))}" if one.versions else ""
        facts = (known, many(one.replies, "reply", "replies"), ago(one.last_at))
        parts.append(f"{_where(one, names)} ({', '.join(filter(None, facts))})")
    if more := len(seen) - len(parts):
        parts.append(f"{more} more")
    return ", ".join(parts)


def told_sections(run: Invocation, told: Sequence[Telling]) -> Iterator[Section]:
    """Yield the section of an origin that lists the replies that had the memory, if any."""
    if not told:
        return
    names = _names(run, [one.reply for one in told])
    lines = []
    for one in told[:_SHOWN]:
        reply, where = one.reply, _where(one.reply, names)
        lines.append(f"{ago(reply.at)}, {reply.kind}, {where}: version {one.version} ({reply.id})")
    if more := len(told) - len(lines):
        lines.append(f"and {more:,} more; --json shows all")
    lines.append("see one: edenmem context --as-told SESSION --reply REPLY")
    yield Section("told", tuple(("  ", line) for line in lines))


def print_told(run: Invocation, told: ToldContext) -> None:
    """Print a context as an agent saw it; its time and later changes go to stderr."""
    run.out.one(told, lambda: _show(run, told))


def _show(run: Invocation, told: ToldContext) -> None:
    reply = told.reply
    where = _where(reply, _names(run, [reply]))
    run.out.document(told.context.xml)
    run.out.note(f"told {ago(reply.at)}, {reply.kind}, {where}: reply {reply.id}")
    others = [item for item in told.items if item.state != "same"]
    for item in others[:_SHOWN]:
        run.out.note(_describe_item(run, item))
    if len(others) > _SHOWN:
        run.out.note(f"and {len(others) - _SHOWN} more; --json shows all")
    same = len(told.items) - len(others)
    run.out.note(f"{many(len(told.items), 'item')}, {same} unchanged since")


def _describe_item(run: Invocation, item: ToldItem) -> str:
    if item.scope is None:
        return f"{item.kind}: forgotten"
    what = run.service.scopes.labels([item.scope]).full(item.scope) if not item.id else item.id
    now = f", now version {item.version_now}" if item.state == "changed" else ""
    return f"{item.kind} {what}: version {item.version}, {item.state} since{now}"


def _names(run: Invocation, owners: Sequence[Reply | Sighting]) -> Labels:
    """Load the names of the sessions and users of replies."""
    sessions = [Scope.session(one.agent_id, one.session_id) for one in owners if one.session_id]
    return run.service.scopes.labels([*sessions, *(one.user_id for one in owners if one.user_id)])


def _where(one: Reply | Sighting, names: Labels) -> str:
    """Name the session, or the user, of a reply."""
    if one.session_id:
        return f"session {names[one.session_id]}"
    return f"a search for {names[one.user_id]}" if one.user_id else "a search"
