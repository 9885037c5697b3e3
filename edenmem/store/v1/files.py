"""Find and read v1 memory in files of mongodump and mongoexport, plain or gzipped."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, NamedTuple

from edenmem.errors import InputError, NotFoundError
from edenmem.models.v1 import V1_COLLECTIONS, V1Damage, V1DamageKind
from edenmem.settings.paths import format_path
from edenmem.store.v1 import documents, streams
from edenmem.store.v1.source import Found, V1Source, no_v1_memory
from edenmem.text import many

COLLECTIONS = (*V1_COLLECTIONS, *documents.OLDER_COLLECTIONS, *documents.ACCOUNTS)
#: A file of a collection, whose name may begin with the database; the extension is the format.
_FILE = re.compile(
    rf"(?:(?P<database>.+)\.)?(?P<collection>{'|'.join(COLLECTIONS)})\."
    r"(?P<form>(?i:bson|json|jsonl|ndjson|ejson|metadata\.json))(?i:\.gz)?"
)
_FORM = re.compile(r".+\.(bson|json|jsonl|ndjson|ejson)(?:\.gz)?", re.IGNORECASE)
_ARCHIVE = b"\x6d\xe2\x99\x81"  # mongodump --archive
_GZIP = b"\x1f\x8b"
_CHUNK = 1024 * 1024


class V1File(NamedTuple):
    """A file; ``collection`` is None if each document determines it."""

    path: Path
    form: str
    collection: str | None

    @property
    def is_bson(self) -> bool:
        """Return whether the file has BSON, not JSON."""
        return self.form.lower() == "bson"

    @property
    def has_documents(self) -> bool:
        """Return whether the file has documents, not the metadata of a collection."""
        return self.form != "metadata.json"


def open_file(path: Path) -> BinaryIO:
    """Open a file, decompressing gzip."""
    try:
        with path.open("rb") as stream:
            zipped = stream.read(2) == _GZIP
        opened = gzip.open(path, "rb") if zipped else path.open("rb")  # noqa: SIM115 - returned
    except OSError as error:
        raise InputError(f"cannot read {format_path(path)}: {error.strerror or error}") from None
    return opened  # type: ignore[return-value]


def _named_file(path: Path) -> V1File:
    """Return a file that the source names."""
    form = _FORM.fullmatch(path.name)
    if form is None:
        raise InputError(
            f"neither BSON nor JSON by its name: {format_path(path)}",
            hint="name a mongodump folder, a .bson file, or a .json or .jsonl file",
        )
    named = _FILE.fullmatch(path.name)
    collection = named["collection"] if named else None
    if collection in documents.ACCOUNTS:
        raise no_v1_memory(format_path(path))
    return V1File(path, form[1], collection)


def _files_in(folder: Path) -> Sequence[V1File]:
    """Return the files of the only database in a folder or its subfolders, by collection.

    Raises:
        InputError: there are several databases, or several files of one collection, or none.
    """
    found = _databases_in(folder)
    if not found:
        raise InputError(
            f"no {', '.join(V1_COLLECTIONS)} as .bson, .json or .jsonl in {format_path(folder)}",
            hint="name the output of mongodump or mongoexport, or the MongoDB itself",
        )
    if len(found) > 1:
        raise InputError(
            f"{len(found)} databases with v1 memory in {format_path(folder)}: {', '.join(found)}",
            hint="name a folder with the files of one database",
        )
    (files,) = found.values()
    for collection in COLLECTIONS:
        same = [each for each in files if each.collection == collection and each.has_documents]
        if len(same) > 1:
            names = ", ".join(format_path(each.path.name) for each in same)
            raise InputError(
                f"{len(same)} files of the collection {collection} in {format_path(folder)}: "
                f"{names}",
                hint="leave one of them in the folder",
            )
    return sorted(files, key=lambda each: COLLECTIONS.index(str(each.collection)))


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
        if len(groups) == 2 and "" in groups:
            groups = {max(groups): [file for files in groups.values() for file in files]}
        for database, files in groups.items():
            if not {each.collection for each in files if each.has_documents} <= {
                *documents.ACCOUNTS
            }:
                name = format_path(place.resolve().name)
                found[f"{name}/{database}" if database else name] = files
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


class FileSource(V1Source):
    """v1 memory in a file, or in the files of a folder.

    Raises:
        NotFoundError: the file or folder does not exist.
        InputError: it contains no v1 memory, several databases, or several files of one collection.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.location = format_path(path)
        if not path.exists():
            raise NotFoundError(f"no such file or folder: {self.location}")
        self._path = path
        files = _files_in(path) if path.is_dir() else [_named_file(path)]
        self._files = [each for each in files if each.has_documents]
        for file in self._files:
            _require_readable(file.path)
        there = {each.collection for each in self._files}
        for file in files:
            if file.collection not in there:
                detail = f"describes {file.collection}, but its documents are missing"
                self._note(file, V1DamageKind.NO_DATA, detail)

    def fingerprint(self) -> str:
        """Return a hash of the names and bytes of the files."""
        found = blake2b(digest_size=16)
        for file in self._files:
            found.update(f"{self._name(file)} {file.path.stat().st_size} ".encode())
            with file.path.open("rb") as stream:
                while part := stream.read(_CHUNK):
                    found.update(part)
        return found.hexdigest()

    def collections(self) -> dict[str, str]:
        """Map the collections to their files; all to one whose name gives no collection."""
        found: dict[str, str] = {}
        for file in self._files:
            own = file.collection
            names = V1_COLLECTIONS if own is None else [documents.OLDER_COLLECTIONS.get(own, own)]
            found |= dict.fromkeys(names, self._name(file))
        return found

    def _name(self, file: V1File) -> str:
        path = file.path
        return format_path(path.relative_to(self._path) if self._path.is_dir() else path.name)

    def _note(
        self,
        file: V1File,
        kind: V1DamageKind,
        detail: str,
        places: tuple[str, ...] = (),
        missing: int | None = None,
    ) -> None:
        """Note damage of a whole file; ``detail`` follows its name."""
        self._damage.append(
            V1Damage(
                kind=kind,
                where=self._name(file),
                collection=file.collection or "",
                bytes=missing,
                places=places,
                detail=f"{self._name(file)} {detail}",
            )
        )

    def _contents(self, *, accounts: bool) -> Iterator[tuple[str, str | None, Iterator[Found]]]:
        for file in self._files:
            if (file.collection in documents.ACCOUNTS) is accounts:
                yield self._name(file), file.collection, self._documents(file)

    def _documents(self, file: V1File) -> Iterator[Found]:
        """Yield the documents of a file, and note its damage."""
        count = 0
        with open_file(file.path) as stream:
            try:
                for found in _read_bson(stream) if file.is_bson else _read_json(stream):
                    count += 1
                    yield found
            except streams.Damaged as damage:
                kind = V1DamageKind.ENDS_EARLY if damage.is_cut else V1DamageKind.UNREADABLE
                detail = _describe_end(damage, count)
                self._note(file, kind, detail, (damage.place,), damage.missing or None)
                return
            except InputError as error:
                error.name_file(self._name(file))
                raise
        if not count and _is_empty(file):
            detail = "is empty; an unknown number of documents is missing"
            self._note(file, V1DamageKind.EMPTY, detail)


def _describe_end(damage: streams.Damaged, documents: int) -> str:
    """Describe the damage of a file at which reading ended, after some documents."""
    how = damage.problem
    if damage.missing:
        how = f"{damage.missing:,} bytes of the last document are missing"
    verb = "ends early" if damage.is_cut else "is damaged"
    read = f"{many(documents, 'document')} {'was' if documents == 1 else 'were'} read"
    return f"{verb} at {damage.place}: {how}; {read} before it, and nothing after it"


def _is_empty(file: V1File) -> bool:
    with open_file(file.path) as stream:
        beginning = stream.read(4096)
    return not beginning or not (file.is_bson or beginning.strip())


def _read_bson(stream: BinaryIO) -> Iterator[Found]:
    for offset, raw in streams.frames(stream):
        yield decode(f"@{offset}", raw)


def decode(place: str, raw: bytes) -> Found:
    """Decode a BSON document."""
    try:
        document, invalid_utf8 = streams.decode(raw)
    except ValueError as error:
        return Found(streams.id_in(raw) or place, problem=f"{place}: {error}")
    return Found(place, document, invalid_utf8)


def _read_json(stream: BinaryIO) -> Iterator[Found]:
    for line, value in streams.documents(stream):
        place = f"@line {line}"
        yield Found(place, problem=value) if isinstance(value, str) else Found(place, value)
