"""Read v1 memory from files of mongodump and mongoexport, plain or gzipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from edenmem.errors import InputError, NotFoundError
from edenmem.models.v1 import V1_COLLECTIONS, V1Account, V1DamageKind, V1Read
from edenmem.settings.paths import format_path
from edenmem.store.v1 import bson_stream, damage, documents, folders, json_stream
from edenmem.store.v1.documents import Canonical
from edenmem.store.v1.folders import V1File
from edenmem.store.v1.source import Found, V1Source

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
        choose = folders.choose_files if path.is_dir() else folders.choose_file
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
                raise folders.no_v1_memory(file.path)

    def _name(self, path: Path) -> str:
        return format_path(path.relative_to(self._path) if self._path.is_dir() else path.name)

    def _documents(self, file: V1File) -> Iterator[Found]:
        """Yield the documents of a file, and record its damage."""
        name, collection, count = self._name(file.path), file.collection or "", 0
        with folders.open_file(file.path) as stream:
            try:
                for found in (_read_bson if file.is_bson else _read_json)(file, stream):
                    if isinstance(found, bson_stream.Damage):
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
    with folders.open_file(file.path) as stream:
        beginning = stream.read(4096)
    return not beginning or not (file.is_bson or beginning.strip())


def _read_bson(file: V1File, stream: Any) -> Iterator[Found | bson_stream.Damage]:
    for offset, raw, damaged in bson_stream.frames(stream):
        if damaged is not None:
            yield damaged
            return
        yield decode(file.collection, f"@{offset}", raw)


def decode(collection: str | None, place: str, raw: bytes) -> Found:
    """Decode a document of a collection, whose name may be a former one."""
    try:
        document, lenient = bson_stream.decode(raw)
    except ValueError as error:
        current = documents.OLDER_COLLECTIONS.get(collection or "", collection)
        own, size = bson_stream.id_in(raw), len(raw)
        return Found(current, place, problem=str(error), known_id=own, size=size)
    return _by_collection(collection, place, document, lenient)


def _read_json(file: V1File, stream: Any) -> Iterator[Found | bson_stream.Damage]:
    for value in json_stream.documents(stream):
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
