"""Export memory to a Markdown folder, and read the folder back."""

from __future__ import annotations

import os
import re
import stat
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from edenmem.engine.exchange.exporter import ExportRequest
from edenmem.engine.exchange.files import (
    PARTIAL,
    lock,
    open_partial,
    remove_abandoned,
    write_error,
)
from edenmem.engine.exchange.markdown import FILES, Content, Item, Page, owner_head, parse, render
from edenmem.engine.scopes.references import load_labels
from edenmem.engine.sessions.people import People
from edenmem.errors import ConflictError, EdenmemError, InputError, NotFoundError, UsageError
from edenmem.models.ids import derived_id, is_id
from edenmem.models.memory import Fact, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.settings.paths import is_private
from edenmem.store.protocol.store import Store

_LONGEST = 80  # bytes; with an ID appended far below the limits of file systems
#: Device names reserved by Windows, with any extension.
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?\Z", re.IGNORECASE)
_UNSAFE = re.compile(r"[^\w\-. ]+")


def file_names(labels: Mapping[str, str]) -> dict[str, str]:
    """Return a unique file name for each key (such as an ID), from its label.

    Labels that a file system may confuse, because of case or accents, each get a part of their
    key. The names do not depend on the order of the labels.
    """
    names = {key: safe_name(label) for key, label in labels.items()}
    for length in (8, 24):
        met = Counter(fold_name(name) for name in names.values())
        names = {
            key: f"{name}-{_id(key)[:length]}" if not name or met[fold_name(name)] > 1 else name
            for key, name in names.items()
        }
    return names


def safe_name(label: str) -> str:
    """Return the label without characters that file names may not contain; maybe empty."""
    name = _UNSAFE.sub("-", unicodedata.normalize("NFC", label))
    name = name.encode()[:_LONGEST].decode(errors="ignore").strip(" .-")
    return f"_{name}" if _DEVICE.match(name) else name


def fold_name(name: str) -> str:
    """Return a name as compared by file systems that ignore case and Unicode forms."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _id(key: str) -> str:
    return key if is_id(key) else derived_id("name", key)


_FOLDERS = {
    ScopeKind.AGENT: "agent",
    ScopeKind.SHARD: "shards",
    ScopeKind.GROUP: "groups",
    ScopeKind.USER: "users",
    ScopeKind.SESSION: "sessions",
}
README = """\
# Memory to read and edit

This folder has a subfolder for each agent, with a subfolder for each scope. `text.md` is the
consolidated text of the scope; `facts.md` and `reflections.md` (pending consolidation) are lists.

- Edit a text or an item in place. Do not change the front matter or the comment at the end of an
  item: they identify the memory and its version.
- Write a new item without a comment: `- Anna lives in Lisbon.`
- To delete an item, remove its line, and run `edenmem import --delete`.

`edenmem import FOLDER` shows the changes, asks for confirmation, and applies them. Memory that was
changed in the meantime is reported as a conflict and left unchanged. `edenmem undo` reverts an
import.
"""


class FolderReport(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of exported files and their contents."""

    files: int
    scopes: int
    texts: int
    facts: int
    reflections: int
    removed: int = 0


class FolderExporter:
    """Export the memory of one store to a folder."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def write(self, target: Path, request: ExportRequest, *, force: bool = False) -> FolderReport:
        """Write all files.

        A new folder appears once it is complete. In an existing folder (``force``) each file is
        replaced atomically, and obsolete files are removed.

        Raises:
            ConflictError: the folder is not empty, or a file.
            UsageError: a filter is not supported.
            InputError: the folder cannot be written.
        """
        if request.types or request.since is not None:
            raise UsageError("Markdown always has whole scopes: omit --type and --since")
        exists = target.exists()
        if exists and not target.is_dir():
            raise ConflictError(f"{target} is a file", hint="specify a folder")
        if exists and not force and any(target.iterdir()):
            raise ConflictError(
                f"{target} is not empty", hint="specify another folder, or add --force"
            )
        counts = dict.fromkeys(("files", "scopes", "texts", "facts", "reflections"), 0)
        try:
            if exists:
                remove_abandoned(target, recursive=True)
                written = self._fill(target, request, counts)
                removed = _sweep(target, written)
                return FolderReport(**counts, removed=removed)
            target.parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(target.parent)
            with _open_partial_folder(target) as made:
                inner = made / "new"
                inner.mkdir(mode=0o700)
                self._fill(inner, request, counts)
                inner.rename(target)
        except OSError as error:
            raise write_error(target, error) from error
        return FolderReport(**counts)

    def _fill(self, folder: Path, request: ExportRequest, counts: dict[str, int]) -> set[Path]:
        written = {_put(folder / "README.md", README)}
        root = folder.resolve()
        for scope, place, head in self._places(request):
            if not (folder / place).resolve().is_relative_to(root):
                raise InputError(f"{folder / place} is outside the folder")
            pages = list(self._pages(scope, head))
            for content, page in pages:
                written.add(_put(folder / place / FILES[content], render(page)))
                counts["texts" if content == "text" else content] += len(page.items) or 1
            counts["scopes"] += bool(pages)
        counts["files"] = len(written)
        return written

    def _places(self, request: ExportRequest) -> Iterator[tuple[Scope, Path, dict[str, Any]]]:
        """Yield the selected scopes with their folders and front matter."""
        agent_ids = request.agent_ids or tuple(
            dict.fromkeys(summary.scope.agent_id for summary in self._store.memory.scopes())
        )
        known = load_labels(self._store, agent_ids)
        agents = file_names({id: known[id] for id in agent_ids})
        for agent_id in sorted(agent_ids):
            scopes = [
                summary.scope
                for summary in self._store.memory.scopes(
                    agent_id=agent_id, kinds=request.scopes, user_ids=request.user_ids
                )
            ]
            people = load_labels(self._store, scopes)
            for kind in ScopeKind:
                owners = [scope.owner for scope in scopes if scope.kind is kind]
                folders = file_names({owner: people[owner] for owner in owners})
                for owner in sorted(owners):
                    scope = Scope(kind, agent_id, owner)
                    place = Path(agents[agent_id]) / _FOLDERS[kind] / folders[owner]
                    if kind is ScopeKind.AGENT:
                        place = Path(agents[agent_id])
                    yield scope, place, _head(scope, known.get(agent_id), people.get(owner))

    def _pages(self, scope: Scope, head: dict[str, Any]) -> Iterator[tuple[Content, Page]]:
        text = self._store.memory.consolidations([scope]).get(scope)
        if text is not None and text.version:
            own = {"id": text.id, "version": text.version, "updated_at": text.updated_at}
            yield "text", Page(head=_of("text", head, own), text=text.consolidated_content)
        pending = self._store.memory.pending(scope)
        if pending:
            yield "reflections", _build_page("reflections", head, pending)
        facts = list(self._store.memory.facts(FactFilter(scopes=(scope,))))
        if facts:
            facts.sort(key=lambda fact: (fact.dated_at, fact.id))
            yield "facts", _build_page("facts", head, facts)


def _head(scope: Scope, agent: str | None, owner: str | None) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "agent": agent,
        "agent_id": scope.agent_id,
        "scope": scope.kind.value,
        "user_id": scope.user_id,
        "group_id": scope.group_id,
        "shard": scope.shard_name,
        "session_id": scope.session_id,
    }
    if scope.kind in (ScopeKind.USER, ScopeKind.SESSION):
        fields[scope.kind.value] = owner
    return owner_head(fields)


def _of(content: Content, head: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return {"content": content, **head, **more}


def _build_page(
    content: Content, head: dict[str, Any], memories: Sequence[Fact | Reflection]
) -> Page:
    """Return a page that lists memories, oldest first."""
    latest: datetime = max(one.updated_at or one.formed_at for one in memories)
    said = max((one.said_at for one in memories if one.said_at), default=None)
    return Page(
        head=_of(content, head, {"updated_at": latest, "said_at": said}),
        items=tuple(
            Item(
                id=one.id,
                content=one.content,
                version=one.version,
                private=one.private,
                unconfirmed=bool(one.unconfirmed),
            )
            for one in memories
        ),
    )


def _put(path: Path, text: str) -> Path:
    """Write a private file atomically, unless it already has this text."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    raw = text.encode()
    is_ours = path.is_file() and not path.is_symlink() and is_private(path.stat())
    if not is_ours or path.read_bytes() != raw:
        with open_partial(path) as file:
            file.write(raw)
            file.flush()
            Path(file.name).replace(path)
    return path


@contextmanager
def _open_partial_folder(target: Path) -> Iterator[Path]:
    """Create a temporary folder in the parent of ``target``, removed at the end."""
    with tempfile.TemporaryDirectory(
        prefix=f".{target.name}.", suffix=PARTIAL, dir=target.parent
    ) as made:
        descriptor = os.open(made, os.O_RDONLY)
        try:
            lock(descriptor)
            yield Path(made)
        finally:
            os.close(descriptor)


def _sweep(folder: Path, written: set[Path]) -> int:
    """Remove obsolete files of an earlier export; return their number."""
    removed = 0
    for path in sorted(folder.rglob("*.md")):
        if path in written or path.is_symlink() or path.name not in FILES.values():
            continue
        try:
            ours = parse(path.read_text(encoding="utf-8")) is not None
        except (InputError, UnicodeDecodeError):
            ours = False
        if ours:
            path.unlink()
            removed += 1
    return removed


_MAX_BYTES = 32 * 1024 * 1024
_MAX_FILES = 200_000


class FolderFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of an export: its path in the folder, its scope, and its contents."""

    path: str
    scope: Scope
    page: Page


class FileProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A file or an item that cannot be imported."""

    path: str
    reason: str
    line: int | None = None


def read_files(folder: Path, store: Store) -> Iterator[FolderFile | FileProblem]:
    """Read the exported files in a folder, by path; skip others.

    Links are not followed, so that nothing outside the folder is read.

    Raises:
        NotFoundError: the folder does not exist.
        InputError: the folder has too many files.
    """
    if not folder.is_dir():
        raise NotFoundError(f"no such folder: {folder}", hint="check the path")
    people = People(store)
    seen: dict[tuple[Scope, str], str] = {}
    for number, path in enumerate(_paths(folder)):
        if number == _MAX_FILES:
            raise InputError(f"{folder} has more than {_MAX_FILES:,} files")
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
            yield FileProblem(path=name, reason=f"{first} has the same {content}")
            continue
        yield FolderFile(path=name, scope=scope, page=page)


def _paths(folder: Path) -> Iterator[Path]:
    for parent, folders, found in os.walk(folder, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(found):
            path = Path(parent) / name
            if name.endswith(".md") and not name.startswith(".") and not path.is_symlink():
                yield path


def _page(path: Path) -> Page | None:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InputError("not a regular file")  # reading a pipe would block
        if found.st_size > _MAX_BYTES:
            raise InputError("the file is too large")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError("the file is not UTF-8") from error
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror}") from error
    return parse(text)


def scope_of(head: dict[str, Any], people: People) -> Scope:
    """Return the scope in a front matter, given by IDs or names.

    Raises:
        InputError: the scope, agent or user is missing or unknown.
        ScopeError: an ID required by the scope is missing.
    """
    try:
        kind = ScopeKind(head.get("scope", ""))
    except ValueError:
        raise InputError(f"unknown scope: {head.get('scope')!r}") from None
    agent_id, user_id = head.get("agent_id"), head.get("user_id")
    if agent_id is None:
        agent = people.agent(head.get("agent", ""))
        if agent is None:
            raise InputError(f"unknown agent: {head.get('agent')!r}")
        agent_id = agent.id
    if user_id is None and "user" in head:
        user = people.user(head["user"])
        if user is None:
            raise InputError(f"unknown user: {head['user']!r}")
        user_id = user.id
    if not is_id(agent_id):
        raise InputError(f"invalid agent_id: {agent_id!r:.60}")
    return Scope.from_fields(
        kind,
        agent_id,
        user_id=user_id,
        session_id=head.get("session_id"),
        group_id=head.get("group_id"),
        shard=head.get("shard"),
    )
