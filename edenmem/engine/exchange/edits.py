"""Apply the edits in a Markdown folder to memory.

A file records the version of each entry. If only memory has changed since, there is nothing to do;
if both have changed, that is a conflict, and the stored entry stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from edenmem.engine.edits.editor import Editor, make_edit
from edenmem.engine.exchange.folders import (
    FileProblem,
    FolderFile,
    Item,
    fields_text,
    read_files,
)
from edenmem.engine.reports import EditReport
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import EdenmemError, UnavailableError
from edenmem.models.ids import as_utc
from edenmem.models.memory import NO_FIELDS, Fact, FactFields, Reflection
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store
from edenmem.text import clean

Target = Literal["fact", "reflection", "consolidation"]
Action = Literal["add", "edit", "delete"]


#: The reason of an edit to a text that a stored fact has.
_CROSSED = "another fact still has this text; import the edit of that fact first"


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """An edit in a file, of an entry at ``version``."""

    action: Action
    target: Target
    scope: Scope
    path: str
    id: str = ""
    version: int = 0
    before: str = ""
    after: str = ""
    old_fields: FactFields = NO_FIELDS
    fields: FactFields = NO_FIELDS
    line: int | None = None

    @property
    def shown(self) -> tuple[str, str]:
        """Return what is shown before and after: the texts, and the fields if they change."""
        if self.fields == self.old_fields:
            return self.before, self.after
        old, new = (
            "" if fields == NO_FIELDS else f" {fields_text(fields)}"
            for fields in (self.old_fields, self.fields)
        )
        return f"{self.before}{old}", f"{self.after}{new}"


class Plan(msgspec.Struct, kw_only=True):
    """The edits in order, and what prevents others.

    ``missing`` counts entries whose line was removed, and that are kept; ``files`` the files read.
    """

    edits: list[Edit] = []
    conflicts: list[FileProblem] = []
    problems: list[FileProblem] = []
    missing: int = 0
    files: int = 0


def plan_edits(folder: Path, store: Store, *, delete: bool) -> Plan:
    """Compare a folder with the store, without writing.

    Args:
        folder: The folder of an export.
        store: The store.
        delete: Whether to delete entries whose line was removed.

    Raises:
        InputError: the folder does not exist.
    """
    planner = _Planner(store, delete=delete)
    for found in read_files(folder, store):
        if isinstance(found, FileProblem):
            planner.made.problems.append(found)
        else:
            planner.read(found)
    return planner.made


class _Planner:
    def __init__(self, store: Store, *, delete: bool) -> None:
        self._store = store
        self._delete = delete
        self.made = Plan()

    def read(self, file: FolderFile) -> None:
        """Compare one file."""
        self.made.files += 1
        match file.page.content:
            case "text":
                self._text(file)
            case "facts":
                facts = {
                    f.id: f for f in self._store.memory.facts(FactFilter(scopes=(file.scope,)))
                }
                self._list(file, "fact", facts)
            case _:
                pending = {one.id: one for one in self._store.memory.pending(file.scope)}
                self._list(file, "reflection", pending)

    # -- texts -------------------------------------------------------------------------------

    def _text(self, file: FolderFile) -> None:
        stored = self._store.memory.consolidations([file.scope]).get(file.scope)
        version, now = (stored.version, stored.consolidated_content) if stored else (0, "")
        known, text = int(file.page.head.get("version", 0)), _tidy(file.page.text)
        if text == _tidy(now):
            return
        if version != known:
            history = self._store.history.versions("consolidation", "", scope=file.scope)
            then = [entry.content for entry in history if entry.version == known]
            if not then or _tidy(then[-1]) != text:
                self._conflict(file, f"the text is now at version {version}, not {known}")
        elif not text:
            self._problem(file, "a text cannot be emptied")
        else:
            self.made.edits.append(
                Edit(
                    action="edit" if version else "add",
                    target="consolidation",
                    scope=file.scope,
                    path=file.path,
                    id=stored.id if stored else "",
                    version=version,
                    before=now,
                    after=text,
                )
            )

    # -- lists -------------------------------------------------------------------------------

    def _list(
        self, file: FolderFile, target: Target, stored: dict[str, Fact] | dict[str, Reflection]
    ) -> None:
        listed: set[str] = set()
        named = {item.id for item in file.page.items}
        texts = {_tidy(one.content): one.id for one in stored.values()}
        unnamed = {text: id for text, id in texts.items() if id not in named}
        staying = {
            text: item.id
            for item in file.page.items
            if item.id is not None
            and (now := stored.get(item.id)) is not None
            and (text := _tidy(item.content)) == _tidy(now.content)
        }
        for item in file.page.items:
            if item.id is None:
                twin = {**unnamed, **staying}.get(_tidy(item.content), "")
                listed.add(twin)
                if not twin:
                    self._plan_addition(file, target, item, texts)
            elif item.id in listed:
                self._problem(file, f"duplicate item: {item.id}", item.line)
            elif item.id in stored:
                listed.add(item.id)
                self._plan_change(file, target, item, stored[item.id], texts)
            else:
                self._absent(file, target, item)
        since = file.page.head.get("updated_at")
        for gone in stored.values():
            if gone.id not in listed:
                self._plan_deletion(file, target, gone, as_utc(since) if since else None)

    def _plan_addition(
        self, file: FolderFile, target: Target, item: Item, texts: Mapping[str, str]
    ) -> None:
        """Plan a new item; one with the text of an entry that stays has only lost its comment."""
        text = _tidy(item.content)
        if not text:
            self._problem(file, "empty item", item.line)
        elif target == "fact" and text in texts:
            self._conflict(file, _CROSSED, item.line)
        else:
            self.made.edits.append(self._edit("add", file, target, item, after=text))

    def _plan_change(
        self,
        file: FolderFile,
        target: Target,
        item: Item,
        stored: Fact | Reflection,
        texts: Mapping[str, str],
    ) -> None:
        text = _tidy(item.content)
        fields = stored.fields if isinstance(stored, Fact) else NO_FIELDS
        if (text, item.fields) == (_tidy(stored.content), fields):
            return
        if not text:
            self._problem(file, "empty item; remove the line to delete it", item.line)
        elif (
            stored.version == item.version
            and target == "fact"
            and (texts.get(text, item.id) != item.id)
        ):
            self._conflict(file, _CROSSED, item.line)
        elif stored.version == item.version:
            edit = self._edit("edit", file, target, item, before=stored.content, after=text)
            self.made.edits.append(msgspec.structs.replace(edit, old_fields=fields))
        elif (text, item.fields) not in self._versions(target, item):
            self._conflict(
                file,
                f"{target} {item.id} is now at version {stored.version}, not {item.version}",
                item.line,
            )

    def _absent(self, file: FolderFile, target: Target, item: Item) -> None:
        """Report an edited item that is not in the scope."""
        if (_tidy(item.content), item.fields) in self._versions(target, item):
            return  # unedited, but deleted or consolidated meanwhile
        if target == "fact" and self._store.memory.fact(str(item.id)) is not None:
            self._problem(file, f"fact {item.id} belongs to another scope", item.line)
            return
        self._conflict(file, f"{target} {item.id} no longer exists", item.line)

    def _versions(self, target: Target, item: Item) -> list[tuple[str, FactFields]]:
        """Return the texts and fields of the entry in the version that the file has."""
        if target == "fact":
            history = self._store.history.versions("fact", str(item.id))
            return [
                (_tidy(entry.content), entry.fields)
                for entry in history
                if entry.version == item.version
            ]
        known = self._store.memory.reflection(str(item.id))
        texts = {_tidy(known.content)} if known and known.version == item.version else set()
        for entry in self._store.log.audit(target_id=str(item.id)):
            if entry.before and entry.before.get("version") == item.version:
                texts.add(_tidy(str(entry.before.get("content", ""))))
        return [(text, NO_FIELDS) for text in texts]

    def _plan_deletion(
        self, file: FolderFile, target: Target, stored: Fact | Reflection, since: datetime | None
    ) -> None:
        """Handle an entry without a line: deleted in the file, or added after the export."""
        if since is None or stored.formed_at > since:
            return
        if not self._delete:
            self.made.missing += 1
        elif (stored.updated_at or stored.formed_at) > since:
            self._conflict(file, f"{target} {stored.id} has been changed since")
        else:
            self.made.edits.append(
                Edit(
                    action="delete",
                    target=target,
                    scope=file.scope,
                    path=file.path,
                    id=stored.id,
                    version=stored.version,
                    before=stored.content,
                )
            )

    # -- notes -------------------------------------------------------------------------------

    def _edit(
        self,
        action: Action,
        file: FolderFile,
        target: Target,
        item: Item,
        *,
        before: str = "",
        after: str = "",
    ) -> Edit:
        return Edit(
            action=action,
            target=target,
            scope=file.scope,
            path=file.path,
            id=item.id or "",
            version=item.version,
            before=before,
            after=after,
            fields=item.fields,
            line=item.line,
        )

    def _conflict(self, file: FolderFile, reason: str, line: int | None = None) -> None:
        self.made.conflicts.append(FileProblem(path=file.path, reason=reason, line=line))

    def _problem(self, file: FolderFile, reason: str, line: int | None = None) -> None:
        self.made.problems.append(FileProblem(path=file.path, reason=reason, line=line))


def _tidy(text: str) -> str:
    """Return a text without trailing blanks, as files contain it."""
    return "\n".join(line.rstrip() for line in clean(text).split("\n")).strip()


_REASON = "edited in a file"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An edit that was not made, and why."""

    edit: Edit
    reason: str
    hint: str | None = None


class ApplyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The number of edits made, and the refused ones."""

    done: int
    refused: tuple[Refusal, ...] = ()
    notices: tuple[str, ...] = ()


async def apply_edits(
    edits: Sequence[Edit],
    runtime: Runtime,
    *,
    allow_long: bool = False,
) -> ApplyReport:
    """Apply the edits in order; a refused edit does not stop the others.

    Raises:
        UnavailableError: the database or a provider cannot be used; earlier edits stay applied.
    """
    done, refused, notices = 0, list[Refusal](), dict[str, None]()
    for each in edits:
        try:
            report = await make_edit(runtime, partial(_apply_edit, each, allow_long))
        except UnavailableError:
            raise
        except EdenmemError as error:
            refused.append(Refusal(edit=each, reason=error.message, hint=error.hint))
            continue
        done += 1
        notices |= dict.fromkeys(report.notices)
    return ApplyReport(done=done, refused=tuple(refused), notices=tuple(notices))


def _apply_edit(edit: Edit, allow_long: bool, editor: Editor) -> EditReport:
    match edit.action, edit.target:
        case "add", "fact":
            return editor.add_fact(
                edit.scope, edit.after, fields=edit.fields, allow_long=allow_long, reason=_REASON
            )
        case "add", "reflection":
            return editor.add_reflection(
                edit.scope, edit.after, allow_long=allow_long, reason=_REASON
            )
        case "edit", "fact" | "reflection":
            return editor.edit(
                edit.id,
                edit.after,
                expected_version=edit.version,
                fields=edit.fields,
                allow_long=allow_long,
                reason=_REASON,
            )
        case "delete", _:
            return editor.delete(edit.id, expected_version=edit.version, reason=_REASON)
    return editor.edit_consolidation(
        edit.scope,
        edit.after,
        expected_version=edit.version,
        allow_long=allow_long,
        reason=_REASON,
    )
