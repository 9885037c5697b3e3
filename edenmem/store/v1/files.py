"""Read v1 memory from files of mongodump and mongoexport, plain or gzipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from edenmem.errors import InputError, NotFoundError
from edenmem.models.v1 import MEMORIES, V1_COLLECTIONS, V1Damage, V1DamageKind, V1ProblemKind
from edenmem.models.v1_documents import V1Account, V1Read
from edenmem.settings.paths import format_path
from edenmem.store.v1 import bson_stream, damage, documents, folders, json_stream
from edenmem.store.v1.damage import DamageTally
from edenmem.store.v1.documents import Canonical
from edenmem.store.v1.folders import V1File

#: Maximum number of bytes of an unreadable document to keep.
_KEPT = 64 * 1024


class _Found(NamedTuple):
    """A document ``raw``, the ``problem`` of one, or the damage at which the file ends."""

    collection: str | None
    place: str
    raw: Mapping[str, Any] | None = None
    invalid_utf8: bool = False
    problem: str = ""
    kept: bytes = b""
    size: int = 0
    damage: bson_stream.Damage | None = None


class FileSource:
    """v1 memory in a file, or in the files of a folder; a `V1Source`.

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
        if not path.exists():
            raise NotFoundError(f"no such file or folder: {format_path(path)}")
        self._path = path
        choose = folders.choose_files if path.is_dir() else folders.choose_file
        chosen = choose(path, database=database, patterns=patterns)
        self._files = chosen.files
        self._without_data = chosen.without_data
        self._damage = DamageTally()

    @property
    def location(self) -> str:
        """Return the file or folder."""
        return format_path(self._path)

    def fingerprint(self) -> str:
        """Return names, sizes and times of the files."""
        stats = [(self._name(file.path), file.path.stat()) for file in self._files]
        return " ".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)

    def collections(self) -> frozenset[str]:
        """Return the collections with a file; all, if a file's name gives no collection."""
        names = {file.collection for file in self._files}
        if None in names:
            return frozenset(V1_COLLECTIONS)
        return frozenset(documents.OLDER_COLLECTIONS.get(name, name) for name in names if name)

    def damage(self) -> Sequence[V1Damage]:
        """Return the damage found."""
        for path, collection in self._without_data:
            self._damage.add(damage.no_data(self._name(path), collection))
        self._without_data = ()
        return self._damage.damage()

    def size(self) -> int:
        """Return 0: only reading a file shows how many documents it has."""
        return 0

    def accounts(self) -> Iterator[V1Account]:
        """Yield the users and agents in the files."""
        for file in self._files:
            if file.collection not in documents.ACCOUNTS:
                continue
            for found in self._read(file):
                if found.raw is not None:
                    account = documents.read(file.collection, found.raw, found.place).document
                    if isinstance(account, V1Account):
                        yield account

    def documents(self, canonical: Canonical) -> Iterator[V1Read]:
        """Yield all documents, file by file.

        Raises:
            InputError: the file's name gives no collection, and neither does any document.
        """
        for file in self._files:
            if file.collection in documents.ACCOUNTS:
                continue
            is_v1, name = file.collection is not None, self._name(file.path)
            for found in self._read(file):
                is_v1 = is_v1 or found.collection is not None
                if found.collection in documents.ACCOUNTS:
                    continue
                read = _convert(file, found, canonical)
                if read.damage is not None:
                    self._damage.count(
                        read.damage, name, read.collection, read.id, found.size, found.problem
                    )
                yield read
            if not is_v1:
                raise folders.no_v1_memory(file.path)

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _name(self, path: Path) -> str:
        return format_path(path.relative_to(self._path) if self._path.is_dir() else path.name)

    def _read(self, file: V1File) -> Iterator[_Found]:
        """Yield the documents of a file, and record its damage."""
        name, collection, count = self._name(file.path), file.collection or "", 0
        with folders.open_file(file.path) as stream:
            read = _read_bson if file.is_bson else _read_json
            try:
                for found in read(file, stream):
                    if found.damage is not None:
                        self._damage.add(damage.ends(name, collection, found.damage, count))
                        return
                    count += 1
                    yield found
            except InputError as error:
                error.name_file(name)
                raise
        if not count and _is_empty(file):
            self._damage.add(damage.empty(name, collection))


def _convert(file: V1File, found: _Found, canonical: Canonical) -> V1Read:
    if found.raw is None or found.collection is None:
        detail = f"{format_path(file.path.name)} {found.place}: {found.problem}"
        return V1Read(
            collection=found.collection or MEMORIES,
            id=bson_stream.id_in(found.kept) or found.place,
            document=None,
            notes=((V1ProblemKind.UNREADABLE, detail),),
            damage=V1DamageKind.UNREADABLE,
        )
    return documents.read(
        found.collection,
        found.raw,
        found.place,
        invalid_utf8=found.invalid_utf8,
        canonical=canonical,
    )


def _is_empty(file: V1File) -> bool:
    with folders.open_file(file.path) as stream:
        beginning = stream.read(4096)
    return not beginning or not (file.is_bson or beginning.strip())


def _read_bson(file: V1File, stream: BinaryIO) -> Iterator[_Found]:
    for offset, raw, damaged in bson_stream.frames(stream):
        place = f"@{offset}"
        if damaged is not None:
            yield _Found(file.collection, place, damage=damaged)
            return
        try:
            document, lenient = bson_stream.decode(raw)
        except ValueError as error:
            collection = documents.OLDER_COLLECTIONS.get(file.collection or "", file.collection)
            yield _Found(collection, place, None, False, str(error), raw[:_KEPT], len(raw))
        else:
            yield _by_collection(file, place, document, lenient)


def _read_json(file: V1File, stream: BinaryIO) -> Iterator[_Found]:
    for value in json_stream.documents(stream):
        place = f"@line {value.line}"
        if value.damage is not None:
            yield _Found(file.collection, place, damage=value.damage)
        elif value.document is None:
            collection = documents.OLDER_COLLECTIONS.get(file.collection or "", file.collection)
            yield _Found(collection, place, problem=value.problem)
        else:
            yield _by_collection(file, place, value.document, False)


def _by_collection(file: V1File, place: str, raw: Mapping[str, Any], invalid_utf8: bool) -> _Found:
    collection = documents.current_collection(file.collection, raw)
    if collection is not None:
        return _Found(collection, place, raw, invalid_utf8)
    kept = repr(raw)[:1000].encode("utf-8", "replace")
    return _Found(None, place, problem="its fields match no v1 collection", kept=kept)
