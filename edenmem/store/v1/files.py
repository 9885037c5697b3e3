"""Find and read v1 memory in files of mongodump and mongoexport, plain or gzipped.

Ambiguous input (several databases, or several files of one collection) is an error; the caller
selects.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from edenmem.errors import AmbiguousInput, InputError, NotFoundError, UsageError
from edenmem.models.v1 import V1_COLLECTIONS, V1Account, V1DamageKind, V1Read
from edenmem.settings.paths import format_path
from edenmem.store.v1 import damage, documents, streams
from edenmem.store.v1.documents import Canonical
from edenmem.store.v1.source import Found, V1Source

COLLECTIONS = (*V1_COLLECTIONS, *documents.OLDER_COLLECTIONS, *documents.ACCOUNTS)
#: A file of a collection, whose name may begin with the database; the extension is the format.
_FILE = re.compile(
    rf"(?:(?P<database>.+)\.)?(?P<collection>{'|'.join(COLLECTIONS)})\."
    r"(?P<form>(?i:bson|json|jsonl|ndjson|ejson|metadata\.json))(?i:\.gz)?"
)
_FORM = re.compile(r".+\.(bson|json|jsonl|ndjson|ejson)(?:\.gz)?", re.IGNORECASE)
_ARCHIVE = b"\x6d\xe2\x99\x81"  # mongodump --archive
_GZIP = b"\x1f\x8b"
_SOURCES = "name the output of mongodump or mongoexport, or the MongoDB itself"


class V1File(NamedTuple):
    """A file; ``collection`` is None if each document determines it."""

    path: Path
    form: str
    collection: str | None

    @property
    def is_bson(self) -> bool:
        """Return whether the file has BSON, not JSON."""
        return self.form.lower() == "bson"


class Chosen(NamedTuple):
    """The files to read, and metadata files without documents."""

    files: Sequence[V1File]
    without_data: Sequence[V1File] = ()


def open_file(path: Path) -> BinaryIO:
    """Open a file, decompressing gzip."""
    try:
        with path.open("rb") as stream:
            zipped = stream.read(2) == _GZIP
        opened = gzip.open(path, "rb") if zipped else path.open("rb")  # noqa: SIM115 - returned
    except OSError as error:
        raise InputError(f"cannot read {format_path(path)}: {error.strerror or error}") from None
    return opened  # type: ignore[return-value]


def choose_file(path: Path, *, database: str, patterns: Sequence[str]) -> Chosen:
    """Return a single named file."""
    if database or patterns:
        raise UsageError(
            "--database and --file apply only to a folder",
            hint=f"leave them out: --from names the file {format_path(path.name)}",
        )
    _require_readable(path)
    form = _FORM.fullmatch(path.name)
    if form is None:
        raise InputError(
            f"neither BSON nor JSON by its name: {format_path(path)}",
            hint="name a mongodump folder, a .bson file, or a .json or .jsonl file",
        )
    named = _FILE.fullmatch(path.name)
    collection = named["collection"] if named else None
    if collection in documents.ACCOUNTS:
        raise no_v1_memory(path)
    return Chosen([V1File(path, form[1], collection)])


def no_v1_memory(path: Path) -> InputError:
    """Return the error for a file without any document of v1's collections."""
    return InputError(
        f"no v1 memory in {format_path(path)}: no document of {', '.join(V1_COLLECTIONS)}",
        hint=_SOURCES,
    )


def choose_files(folder: Path, *, database: str, patterns: Sequence[str]) -> Chosen:
    """Return the files of one database in a folder or its subfolders.

    Raises:
        AmbiguousInput: there are several databases, or several files of one collection.
        NotFoundError: there is no such database or file.
        InputError: there is no v1 memory.
    """
    all_files = _choose_database(folder, _databases_in(folder), database)
    files = [each for each in all_files if each.form != "metadata.json"]
    for pattern in patterns:
        if not any(_is_named(each, [pattern]) for each in files):
            raise NotFoundError(f"no file {pattern} of v1 in {format_path(folder)}")
    chosen = []
    for collection in COLLECTIONS:
        found = [each for each in files if each.collection == collection]
        named = [each for each in found if _is_named(each, patterns)] or found
        if len(found) > 1 and len(named) > 1:
            raise AmbiguousInput(
                f"{len(named)} files of the collection {collection} in {format_path(folder)}",
                option="--file",
                choices=[format_path(each.path.name) for each in named],
            )
        chosen += named
    for file in chosen:
        _require_readable(file.path)
    there = {each.collection for each in chosen}
    return Chosen(chosen, [each for each in all_files if each.collection not in there])


def _choose_database(folder: Path, found: dict[str, list[V1File]], wanted: str) -> Sequence[V1File]:
    if not found:
        raise InputError(
            f"no {', '.join(V1_COLLECTIONS)} as .bson, .json or .jsonl in {format_path(folder)}",
            hint=_SOURCES,
        )
    if wanted and wanted not in found:
        raise NotFoundError(
            f"no database {wanted!r} with v1 memory in {format_path(folder)}",
            hint=f"it has {', '.join(found)}",
        )
    if not wanted and len(found) > 1:
        raise AmbiguousInput(
            f"{len(found)} databases with v1 memory in {format_path(folder)}",
            option="--database",
            choices=list(found),
        )
    return found[wanted or next(iter(found))]


def _is_named(file: V1File, patterns: Sequence[str]) -> bool:
    """Return whether a pattern matches a file's name as messages display it."""
    name = format_path(file.path.name)
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _databases_in(folder: Path) -> dict[str, list[V1File]]:
    """Return the files of each database with v1 memory in a folder and its subfolders.

    Files without a database belong to the only known one, else to one named like the folder.
    """
    found: dict[str, list[V1File]] = {}
    for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        groups: dict[str, list[V1File]] = {}
        for path in sorted(path for path in place.iterdir() if not path.is_dir()):
            if match := _FILE.fullmatch(path.name):
                file = V1File(path, match["form"], match["collection"])
                groups.setdefault(format_path(match["database"] or ""), []).append(file)
        own = format_path(place.resolve().name)
        if len(groups) == 2 and "" in groups:
            groups = {max(groups): [file for files in groups.values() for file in files]}
        for name, files in groups.items():
            name = name or (own if own not in groups else f"./{own}")
            if name in found:
                name = f"{format_path(place.name)}/{name}"
            kinds = {file.collection for file in files if file.form != "metadata.json"}
            if not kinds <= set(documents.ACCOUNTS):
                found[name] = files
    return found


def _require_readable(path: Path) -> None:
    """Refuse what looks like damage or an empty collection, with the command that converts it."""
    if not path.is_file():  # also pipes: files are read twice
        raise InputError(f"not a file, or a broken link: {format_path(path)}")
    with open_file(path) as stream:
        try:
            beginning = stream.read(4)
        except streams.UNREADABLE:
            return  # reported when the file is read
    if beginning == _ARCHIVE:
        name = format_path(path.name)
        raise InputError(
            f"a mongodump archive: {format_path(path)}",
            hint="turn it into a folder with a scratch server:"
            f" mongorestore --archive={name} && mongodump --out FOLDER",
        )
    is_json = _FORM.fullmatch(path.name) and ".bson" not in path.name.lower()
    if beginning[:2] in (b"\xff\xfe", b"\xfe\xff") or (b"\0" in beginning and is_json):
        raise InputError(
            f"UTF-16, not UTF-8: {format_path(path)}",
            hint="convert it: iconv -f UTF-16 -t UTF-8 OLD > NEW",
        )


_CHUNK = 1024 * 1024


class FileSource(V1Source):
    """v1 memory in a file, or in the files of a folder.

    Args:
        path: The file or folder.
        database: Selects one of several databases in a folder.
        patterns: Names of files, to select among several of one collection.

    Raises:
        NotFoundError: there is no such file, folder or database.
        InputError: it contains no v1 memory.
        AmbiguousInput: the folder has several databases, or several files of one collection.
    """

    def __init__(self, path: Path, *, database: str = "", patterns: Sequence[str] = ()) -> None:
        super().__init__()
        self.location = format_path(path)
        if not path.exists():
            raise NotFoundError(f"no such file or folder: {self.location}")
        self._path = path
        choose = choose_files if path.is_dir() else choose_file
        self._files, without_data = choose(path, database=database, patterns=patterns)
        for file in without_data:
            name, collection = self._name(file.path), str(file.collection)
            detail = f"describes {collection}, but its documents are missing"
            self._damage.add(V1DamageKind.NO_DATA, name, collection, detail)

    def fingerprint(self) -> str:
        """Return a hash of the names and bytes of the files."""
        found = blake2b(digest_size=16)
        for file in self._files:
            found.update(f"{self._name(file.path)} {file.path.stat().st_size} ".encode())
            with file.path.open("rb") as stream:
                while part := stream.read(_CHUNK):
                    found.update(part)
        return found.hexdigest()

    def collections(self) -> frozenset[str]:
        """Return the collections with a file; all, if a file's name gives no collection."""
        names = {file.collection for file in self._files}
        if None in names:
            return frozenset(V1_COLLECTIONS)
        return frozenset(documents.OLDER_COLLECTIONS.get(name, name) for name in names if name)

    def accounts(self) -> Iterator[V1Account]:
        """Yield the users and agents in the files."""
        for file in self._files:
            if file.collection in documents.ACCOUNTS:
                for found in self._documents(file):
                    if found.raw is not None:
                        account = documents.read(file.collection, found.raw, found.place).document
                        if isinstance(account, V1Account):
                            yield account

    def documents(self, canonical: Canonical) -> Iterator[V1Read]:
        """Yield all documents, file by file."""
        for file in self._files:
            if file.collection in documents.ACCOUNTS:
                continue
            name, is_v1 = self._name(file.path), file.collection is not None
            for found in self._documents(file):
                is_v1 = is_v1 or found.collection is not None
                if found.collection not in documents.ACCOUNTS:
                    yield self._read(name, found, canonical)
            if not is_v1:
                raise no_v1_memory(file.path)

    def _name(self, path: Path) -> str:
        return format_path(path.relative_to(self._path) if self._path.is_dir() else path.name)

    def _documents(self, file: V1File) -> Iterator[Found]:
        """Yield the documents of a file, and record its damage."""
        name, collection, count = self._name(file.path), file.collection or "", 0
        with open_file(file.path) as stream:
            try:
                for found in (_read_bson if file.is_bson else _read_json)(file, stream):
                    if isinstance(found, streams.Damage):
                        kind, detail = damage.describe_end(found, count)
                        places, lost = (found.place,), found.missing or None
                        self._damage.add(kind, name, collection, detail, places, bytes=lost)
                        return
                    count += 1
                    yield found
            except InputError as error:
                error.name_file(name)
                raise
        if not count and _is_empty(file):
            detail = "is empty; an unknown number of documents is missing"
            self._damage.add(V1DamageKind.EMPTY, name, collection, detail)


def _is_empty(file: V1File) -> bool:
    with open_file(file.path) as stream:
        beginning = stream.read(4096)
    return not beginning or not (file.is_bson or beginning.strip())


def _read_bson(file: V1File, stream: Any) -> Iterator[Found | streams.Damage]:
    for offset, raw, damaged in streams.frames(stream):
        if damaged is not None:
            yield damaged
            return
        yield decode(file.collection, f"@{offset}", raw)


def decode(collection: str | None, place: str, raw: bytes) -> Found:
    """Decode a document of a collection, whose name may be a former one."""
    try:
        document, lenient = streams.decode(raw)
    except ValueError as error:
        current = documents.OLDER_COLLECTIONS.get(collection or "", collection)
        own, size = streams.id_in(raw), len(raw)
        return Found(current, place, problem=str(error), known_id=own, size=size)
    return _by_collection(collection, place, document, lenient)


def _read_json(file: V1File, stream: Any) -> Iterator[Found | streams.Damage]:
    for value in streams.documents(stream):
        place = f"@line {value.line}"
        if value.damage is not None:
            yield value.damage
        elif value.document is None:
            current = documents.OLDER_COLLECTIONS.get(file.collection or "", file.collection)
            yield Found(current, place, problem=value.problem)
        else:
            yield _by_collection(file.collection, place, value.document, False)


def _by_collection(
    name: str | None, place: str, raw: Mapping[str, Any], invalid_utf8: bool
) -> Found:
    collection = documents.current_collection(name, raw)
    problem = "" if collection is not None else "its fields match no v1 collection"
    return Found(collection, place, raw, invalid_utf8, problem)
