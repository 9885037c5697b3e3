"""Finding the files of a folder that was exported and edited since."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from edenmem.engine.exchange.markdown import Page, parse
from edenmem.engine.import_people import People
from edenmem.errors import EdenmemError, InputError
from edenmem.models.ids import is_id
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.protocol.store import Store

_LARGEST = 32 * 1024 * 1024
_MOST = 200_000


class FolderFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of an export: where it is (below the folder), whose it is, and what is in it."""

    path: str
    scope: Scope
    page: Page


class FileProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A file or an item that cannot be taken."""

    path: str
    reason: str
    line: int | None = None


def files_in(folder: Path, store: Store) -> Iterator[FolderFile | FileProblem]:
    """The files of exports in a folder, by path; others are passed over.

    Links are not followed, so that nothing outside of the folder is read.

    Raises:
        InputError: there is no such folder, or it is none of an export.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}")
    people = People(store)
    seen: dict[tuple[Scope, str], str] = {}
    for number, path in enumerate(_paths(folder)):
        if number == _MOST:
            raise InputError(f"{folder} has more files than any export")
        name = str(path.relative_to(folder))
        try:
            page = _page(path)
            if page is None:
                continue
            scope = scope_of(page.head, people)
        except EdenmemError as error:
            yield FileProblem(path=name, reason=error.message)
            continue
        content = page.head["content"]
        first = seen.setdefault((scope, content), name)
        if first != name:
            yield FileProblem(path=name, reason=f"{first} holds the same {content}")
            continue
        yield FolderFile(path=name, scope=scope, page=page)


def _paths(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent) / name
            if name.endswith(".md") and not name.startswith(".") and not path.is_symlink():
                yield path


def _page(path: Path) -> Page | None:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InputError("it is no file")  # a pipe would be waited for without end
        if found.st_size > _LARGEST:
            raise InputError("the file is too large to be of an export")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError("the file is no text in UTF-8") from error
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror}") from error
    return parse(text)


def scope_of(head: dict[str, Any], people: People) -> Scope:
    """The scope that a front matter names, by ids or by names.

    Raises:
        InputError: it names none, or somebody whom nobody knows.
        ScopeError: an id that the scope needs is missing.
    """
    try:
        kind = ScopeKind(head.get("scope", ""))
    except ValueError:
        raise InputError(f"there is no scope {head.get('scope')!r}") from None
    agent_id, user_id = head.get("agent_id"), head.get("user_id")
    if agent_id is None:
        agent = people.agent(head.get("agent", ""))
        if agent is None:
            raise InputError(f"there is no agent {head.get('agent')!r}")
        agent_id = agent.id
    if user_id is None and "user" in head:
        user = people.user(head["user"])
        if user is None:
            raise InputError(f"there is no user {head['user']!r}")
        user_id = user.id
    if not is_id(agent_id):
        raise InputError(f"agent_id {agent_id!r:.60} is no id")
    return Scope.from_fields(
        kind,
        agent_id,
        user_id=user_id,
        session_id=head.get("session_id"),
        group_id=head.get("group_id"),
        shard=head.get("shard"),
    )
