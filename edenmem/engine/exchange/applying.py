"""Doing what a plan says, each edit on the road of a person's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from edenmem.engine.editing import Editor
from edenmem.engine.exchange.planning import Edit
from edenmem.engine.reports import EditReport
from edenmem.errors import EdenmemError, UnavailableError

_REASON = "edited in a file"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An edit that was not made, and why."""

    edit: Edit
    reason: str
    hint: str | None = None


class ApplyReport(msgspec.Struct, frozen=True, kw_only=True):
    """How many edits were made, and those that were not."""

    done: int
    refused: tuple[Refusal, ...] = ()
    notices: tuple[str, ...] = ()


async def applied(
    edits: Sequence[Edit],
    editor: Editor,
    *,
    allow_long: bool = False,
    dry_run: bool = False,
    tell: Callable[[int], None] = lambda done: None,
) -> ApplyReport:
    """Make the edits, in order. One that is refused keeps none of the others from being made.

    Raises:
        UnavailableError: the database or a provider cannot be used; what was made before is made.
    """
    done, refused, notices = 0, list[Refusal](), dict[str, None]()
    for number, edit in enumerate(edits, 1):
        try:
            report = await _made(edit, editor, allow_long, dry_run)
        except UnavailableError:
            raise
        except EdenmemError as error:
            refused.append(Refusal(edit=edit, reason=error.message, hint=error.hint))
            continue
        done += 1
        notices |= dict.fromkeys(report.notices)
        tell(number)
    return ApplyReport(done=done, refused=tuple(refused), notices=tuple(notices))


async def _made(edit: Edit, editor: Editor, allow_long: bool, dry_run: bool) -> EditReport:
    match edit.action, edit.target:
        case "add", "fact":
            return await editor.add_fact(
                edit.scope, edit.after, allow_long=allow_long, reason=_REASON, dry_run=dry_run
            )
        case "add", "reflection":
            return await editor.add_reflection(
                edit.scope, edit.after, allow_long=allow_long, reason=_REASON, dry_run=dry_run
            )
        case "edit", "fact":
            return await editor.edit_fact(
                edit.id,
                edit.after,
                expected_version=edit.version,
                allow_long=allow_long,
                reason=_REASON,
                dry_run=dry_run,
            )
        case "edit", "reflection":
            return await editor.edit_reflection(
                edit.id,
                edit.after,
                expected_version=edit.version,
                allow_long=allow_long,
                reason=_REASON,
                dry_run=dry_run,
            )
        case "delete", "fact":
            return await editor.delete_fact(
                edit.id, expected_version=edit.version, reason=_REASON, dry_run=dry_run
            )
        case "delete", "reflection":
            return await editor.delete_reflection(
                edit.id, expected_version=edit.version, reason=_REASON, dry_run=dry_run
            )
    return await editor.edit_consolidation(
        edit.scope,
        edit.after,
        expected_version=edit.version,
        allow_long=allow_long,
        reason=_REASON,
        dry_run=dry_run,
    )
