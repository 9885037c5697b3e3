"""Export memory to a Markdown folder, and read the folder back.

Each scope is a folder with up to three files: ``text.md`` is its consolidated text, ``facts.md``
and ``reflections.md`` are lists. The front matter identifies the scope; names of files and folders
are ignored. A list item ends with a comment that has its ID and version, invisible in rendered
Markdown::

    - Anna lives in Lisbon. <!-- 6b02545b0075b8dca7747394 v2 -->

The second and further lines of an item are indented by two spaces. An item without a comment is
new.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from edenmem.engine.edits.checks import check_fields
from edenmem.engine.exchange.exporter import ExportRequest
from edenmem.engine.exchange.files import (
    PARTIAL,
    open_partial,
    remove_abandoned,
    write_error,
)
from edenmem.engine.exchange.records import NAMES, OWNERS, resolve_names
from edenmem.engine.scopes.references import load_labels
from edenmem.engine.sessions.importer import People
from edenmem.errors import ConflictError, EdenmemError, InputError, NotFoundError, UsageError
from edenmem.invalid import MISSING
from edenmem.models.ids import derived_id, is_id
from edenmem.models.memory import NO_FIELDS, Fact, FactFields, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.settings.paths import is_private, lock
from edenmem.store.protocol.store import Store

FORMAT = 1
#: The content of a file, and its name.
Content = Literal["text", "facts", "reflections"]
FILES: dict[Content, str] = {
    "text": "text.md",
    "facts": "facts.md",
    "reflections": "reflections.md",
}

#: Maximum length of a front matter in characters, far above that of any export.
_LONGEST_HEAD = 8_000
HEAD = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_MARK = re.compile(
    r"(?:\A|[ \t])<!-- ([0-9a-f]{24}) v(\d{1,9})( private)?(?: unconfirmed)?(?: (\{.*\}))? -->"
    r"[ \t]*\Z"
)
_KEYS = {
    "edenmem": int,
    "content": str,
    "agent": str,
    "agent_id": str,
    "scope": str,
    "user": str,
    "user_id": str,
    "group_id": str,
    "shard": str,
    "session": str,
    "session_id": str,
    "id": str,
    "version": int,
    "updated_at": datetime,
    "said_at": datetime,
}


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A list item; one without an ID is new. ``line`` is the number of its first line."""

    content: str
    id: str | None = None
    version: int = 0
    private: bool = False
    unconfirmed: bool = False
    fields: FactFields = NO_FIELDS
    line: int = 0


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A file: its front matter, and its text or list."""

    head: dict[str, Any]
    text: str = ""
    items: tuple[Item, ...] = ()

    @property
    def content(self) -> Content:
        """Return what the file contains."""
        content: Content = self.head["content"]
        return content


def render(page: Page) -> str:
    """Render a page; the same page always gives the same text."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Write times in ISO 8601 with milliseconds."""

    Dumper.add_representer(
        datetime,
        lambda dumper, moment: dumper.represent_scalar(
            "tag:yaml.org,2002:timestamp",
            moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        ),
    )
    head = {"edenmem": FORMAT, **{k: v for k, v in page.head.items() if v is not None}}
    front = yaml.dump(
        head,
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=1_000_000,
    )
    body = (
        f"{page.text}\n"
        if page.content == "text"
        else "".join(f"{_render_item(item)}\n" for item in page.items)
    )
    return f"---\n{front}---\n\n{body}"


def _render_item(item: Item) -> str:
    first, *others = item.content.split("\n")
    lines = [f"- {first}", *(f"  {line}" if line else "" for line in others)]
    private = " private" if item.private else ""
    doubt = " unconfirmed" if item.unconfirmed else ""
    fields = f" {fields_text(item.fields)}" if item.fields != NO_FIELDS else ""
    return "\n".join(lines) + f" <!-- {item.id} v{item.version}{private}{doubt}{fields} -->"


def fields_text(fields: FactFields) -> str:
    """Return the fields of a fact as JSON that does not end a comment."""
    return msgspec.json.encode(fields).decode().replace(">", "\\u003e")


def parse(text: str) -> Page | None:
    """Parse an exported file; return None for other files.

    Raises:
        InputError: an exported file is invalid.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    found = HEAD.match(text)
    if found is None or not _is_ours(found):
        return None
    head = _parse_head(found[1])
    body = text[found.end() :]
    if head["content"] == "text":
        return Page(head=head, text=body.strip("\n").rstrip())
    return Page(head=head, items=tuple(_items(body, text[: found.end()].count("\n") + 1)))


def _parse_head(front: str) -> dict[str, Any]:
    import yaml

    if len(front) > _LONGEST_HEAD:
        raise InputError("the front matter is too long")
    try:
        head = yaml.safe_load(front)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"invalid YAML front matter: {str(error).splitlines()[0]}") from error
    if not isinstance(head, dict):
        raise InputError("the front matter is not a mapping")
    for name, value in head.items():
        kind = _KEYS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise InputError(f"unknown field in the front matter: {name!r:.60}")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(f"invalid {name} in the front matter: {value!r:.60}")
    if head.get("edenmem") != FORMAT:
        raise InputError(f"unsupported format: {head.get('edenmem')} (supported: {FORMAT})")
    if head.get("content") not in FILES:
        raise InputError(f"invalid content in the front matter: {head.get('content')!r:.60}")
    return head


def _items(body: str, line: int) -> Iterable[Item]:
    """Yield the items of a list; ignore blank lines and headings between them."""
    current: list[str] = []
    begun = 0
    for number, row in enumerate([*body.split("\n"), "#"], line):
        begins = row.startswith(("- ", "* ")) or row in ("-", "*")
        is_blank = not row.strip()
        if current and not begins and (row.startswith("  ") or is_blank):
            current.append(row[2:])
            continue
        if not begins and not is_blank and not row.startswith("#"):
            raise InputError(
                "not a list item: begin the line with '- ', or indent it by two spaces",
                line=number,
            )
        if current:
            yield _read(current, begun)
        current, begun = [row[2:]] if begins else [], number


def _read(rows: list[str], line: int) -> Item:
    content = "\n".join(rows).rstrip()
    mark = _MARK.search(content)
    if mark is None:
        return Item(content=content.strip(), line=line)
    return Item(
        content=content[: mark.start()].strip(),
        id=mark[1],
        version=int(mark[2]),
        private=mark[3] is not None,
        fields=_read_fields(mark[4], line) if mark[4] else NO_FIELDS,
        line=line,
    )


def _read_fields(text: str, line: int) -> FactFields:
    try:
        return check_fields(msgspec.json.decode(text, type=FactFields))
    except (msgspec.MsgspecError, ValueError, UsageError) as error:
        reason = error.message if isinstance(error, UsageError) else str(error)
        raise InputError(f"invalid fields of a fact: {reason}", line=line) from error


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
    ids = {key: key if is_id(key) else derived_id("name", key) for key in labels}
    for length in (8, 24):
        met = Counter(fold_name(name) for name in names.values())
        names = {
            key: f"{name}-{ids[key][:length]}" if not name or met[fold_name(name)] > 1 else name
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

    files: int = 0
    scopes: int = 0
    texts: int = 0
    facts: int = 0
    reflections: int = 0
    removed: int = 0


def export_folder(
    store: Store, target: Path, request: ExportRequest, *, force: bool = False
) -> FolderReport:
    """Export memory to a folder.

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
        raise ConflictError(f"{target} is not empty", hint="specify another folder, or add --force")
    counts, removed = Counter[str](), 0
    try:
        if exists:
            remove_abandoned(target, recursive=True)
            removed = _sweep(target, _fill(store, target, request, counts))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(target.parent)
            with _open_partial_folder(target) as made:
                inner = made / "new"
                inner.mkdir(mode=0o700)
                _fill(store, inner, request, counts)
                inner.rename(target)
    except OSError as error:
        raise write_error(target, error) from error
    return FolderReport(**counts, removed=removed)


def _fill(store: Store, folder: Path, request: ExportRequest, counts: Counter[str]) -> set[Path]:
    """Write the files of the selected scopes, and return their paths."""
    written = {_put(folder / "README.md", README)}
    root = folder.resolve()
    for scope, path, head in select_scopes(store, request):
        if not (folder / path).resolve().is_relative_to(root):
            raise InputError(f"{folder / path} is outside the folder")
        pages = _pages(store, scope, head)
        for page in pages:
            written.add(_put(folder / path / FILES[page.content], render(page)))
            counts["texts" if page.content == "text" else page.content] += len(page.items) or 1
        counts["scopes"] += bool(pages)
    counts["files"] = len(written)
    return written


def select_scopes(
    store: Store, request: ExportRequest
) -> Iterator[tuple[Scope, Path, dict[str, Any]]]:
    """Yield the selected scopes with their folders and front matter."""
    agent_ids = request.agent_ids or tuple(
        dict.fromkeys(summary.scope.agent_id for summary in store.memory.scopes())
    )
    known = load_labels(store, agent_ids)
    agents = file_names({id: known[id] for id in agent_ids})
    for agent_id in sorted(agent_ids):
        scopes = [
            summary.scope
            for summary in store.memory.scopes(
                agent_id=agent_id, kinds=request.scopes, user_ids=request.user_ids
            )
        ]
        people = load_labels(store, scopes)
        for kind in ScopeKind:
            owners = [scope.owner for scope in scopes if scope.kind is kind]
            folders = file_names({owner: people[owner] for owner in owners})
            for owner in sorted(owners):
                scope = Scope(kind, agent_id, owner)
                path = Path(agents[agent_id]) / _FOLDERS[kind] / folders[owner]
                if kind is ScopeKind.AGENT:
                    path = Path(agents[agent_id])
                named = people.get(owner)
                head = {
                    "agent": known.get(agent_id),
                    "agent_id": agent_id,
                    "scope": kind.value,
                    "user": named if kind is ScopeKind.USER else None,
                    "user_id": scope.user_id,
                    "group_id": scope.group_id,
                    "shard": scope.shard_name,
                    "session": named if kind is ScopeKind.SESSION else None,
                    "session_id": scope.session_id,
                }
                yield scope, path, head


def _pages(store: Store, scope: Scope, head: dict[str, Any]) -> list[Page]:
    pages = []
    text = store.memory.consolidations([scope]).get(scope)
    if text is not None and text.version:
        own = {"id": text.id, "version": text.version, "updated_at": text.updated_at}
        whole = {"content": "text", **head, **own}
        pages.append(Page(head=whole, text=text.consolidated_content))
    facts = sorted(
        store.memory.facts(FactFilter(scopes=(scope,))), key=lambda one: (one.dated_at, one.id)
    )
    listed: dict[Content, Sequence[Fact | Reflection]] = {
        "reflections": store.memory.pending(scope),
        "facts": facts,
    }
    return pages + [_list(name, head, memories) for name, memories in listed.items() if memories]


def _list(content: Content, head: dict[str, Any], memories: Sequence[Fact | Reflection]) -> Page:
    """Return a page that lists memories, oldest first."""
    latest: datetime = max(one.updated_at or one.formed_at for one in memories)
    said = max((one.said_at for one in memories if one.said_at), default=None)
    return Page(
        head={"content": content, **head, "updated_at": latest, "said_at": said},
        items=tuple(
            Item(
                id=one.id,
                content=one.content,
                version=one.version,
                private=one.private,
                unconfirmed=bool(one.unconfirmed),
                fields=one.fields if isinstance(one, Fact) else NO_FIELDS,
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
        with suppress(InputError):
            if parse(read_markdown(path)) is not None:
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
    for path in markdown_files(folder):
        name = str(path.relative_to(folder))
        try:
            page = parse(read_markdown(path))
            if page is None:
                continue
            scope = scope_of(page.head, store, people)
        except EdenmemError as error:
            yield FileProblem(path=name, reason=error.message)
            continue
        first = seen.setdefault((scope, page.content), name)
        if first != name:
            yield FileProblem(path=name, reason=f"{first} has the same {page.content}")
            continue
        yield FolderFile(path=name, scope=scope, page=page)


def is_export(folder: Path) -> bool:
    """Return whether a folder has a file of an export."""
    for path in markdown_files(folder):
        with suppress(EdenmemError):
            if _is_ours(HEAD.match(read_markdown(path))):
                return True
    return False


def _is_ours(head: re.Match[str] | None) -> bool:
    return head is not None and re.search(r"^edenmem:", head[1], re.MULTILINE) is not None


def markdown_files(folder: Path) -> Iterator[Path]:
    """Yield the Markdown files in a folder and its subfolders; links and hidden ones are skipped.

    Raises:
        InputError: the folder has too many files.
    """
    number = 0
    for parent, folders, found in os.walk(folder, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(found):
            path = Path(parent) / name
            if name.endswith(".md") and not name.startswith(".") and not path.is_symlink():
                number += 1
                if number > _MAX_FILES:
                    raise InputError(f"{folder} has more than {_MAX_FILES:,} files")
                yield path


def read_markdown(path: Path) -> str:
    """Return the text of a Markdown file.

    Raises:
        InputError: the file cannot be read, is too large, or is not UTF-8.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InputError("not a regular file")  # reading a pipe would block
        if found.st_size > _MAX_BYTES:
            raise InputError("the file is too large")
        return path.read_text(encoding="utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InputError("the file is not UTF-8") from error
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror}") from error


def scope_of(head: dict[str, Any], store: Store, people: People) -> Scope:
    """Return the scope in a front matter, given by IDs or names.

    Raises:
        InputError: the scope, agent or user is missing or unknown.
        ScopeError: an ID required by the scope is missing.
    """
    data = {name: value for name, value in head.items() if NAMES.get(name) not in head}
    resolve_names(store, people, data)
    agent_id = data.get("agent_id", "")
    if not is_id(agent_id):
        raise InputError(f"invalid agent_id: {agent_id!r:.60}")
    if "scope" not in data:
        raise InputError(f"scope {MISSING}")
    owners = {name: data.get(name) for name in OWNERS}
    return Scope.from_fields(ScopeKind(data["scope"]), agent_id, **owners)
