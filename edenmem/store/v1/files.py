"""Read v1 memory from files of mongodump and mongoexport, plain or gzipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from edenmem.errors import NotFoundError
from edenmem.models.v1 import MEMORIES, V1_COLLECTIONS, V1Damage, V1DamageKind, V1ProblemKind
from edenmem.models.v1_documents import V1Account, V1Read
from edenmem.settings.paths import format_path
from edenmem.store.v1 import bson_stream, damage, documents, folders, json_stream
from edenmem.store.v1.damage import DamageTally
from edenmem.store.v1.documents import Canonical
from edenmem.store.v1.folders import V1File


class _Found(NamedTuple):
    """A document ``raw``, or the ``problem`` that prevents reading one.

    A problem without ``kept`` bytes affects the rest of the file. ``ends_early``: the file is
    truncated.
    """

    collection: str | None
    place: str
    raw: Mapping[str, Any] | None
    invalid_utf8: bool = False
    problem: str = ""
    kept: bytes = b""
    id: str = ""
    size: int = 0
    ends_early: bool = False
    missing: int = 0

    @property
    def is_document(self) -> bool:
        """Return whether this is a document, even a damaged one."""
        return self.raw is not None or bool(self.kept)


class FileSource:
    """v1 memory in a file, or in the files of a folder; see `edenmem.store.v1.protocol.V1Source`.

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

    def collections(self) -> frozenset[str]:
        """Return the collections with a file; all, if a file's name gives no collection."""
        if any(file.collection is None for file in self._files):
            return frozenset(V1_COLLECTIONS)
        return frozenset(file.collection for file in self._files if file.collection)

    def damage(self) -> Sequence[V1Damage]:
        """Return the damage found."""
        for path, collection in self._without_data:
            self._damage.add(damage.no_data(self._name(path), collection))
        self._without_data = ()
        return self._damage.damage()

    def counts(self) -> dict[str, int]:
        """Count documents by collection, by reading the files once.

        Raises:
            InputError: the file's name gives no collection, and neither does any document.
        """
        counted = dict.fromkeys(V1_COLLECTIONS, 0)
        for file in self._files:
            if file.collection in documents.ACCOUNTS:
                continue
            if file.is_bson and file.collection:
                with folders.open_file(file.path) as stream:
                    frames = bson_stream.frames(stream)
                    counted[file.collection] += sum(1 for each in frames if each.raw)
                continue
            is_v1 = file.collection is not None
            for found in _read(file):
                is_v1 = is_v1 or found.collection is not None
                if found.is_document and (found.collection or MEMORIES) in counted:
                    counted[found.collection or MEMORIES] += 1
            if not is_v1:
                raise folders.no_v1_memory(file.path)
        return counted

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
        """Yield all documents, file by file."""
        for file in self._files:
            if file.collection in documents.ACCOUNTS:
                continue
            for found in self._read(file):
                collection = found.collection
                if found.raw is not None and collection in V1_COLLECTIONS:
                    read = documents.read(
                        collection,
                        found.raw,
                        found.place,
                        invalid_utf8=found.invalid_utf8,
                        canonical=canonical,
                    )
                    if read.damage is not None:
                        self._damage.count(read.damage, self._name(file.path), collection, read.id)
                    yield read
                elif found.raw is None and (collection is None or collection in V1_COLLECTIONS):
                    detail = f"{format_path(file.path.name)} {found.place}: {found.problem}"
                    yield V1Read(
                        collection=collection or MEMORIES,
                        id=found.id or found.place,
                        document=None,
                        notes=((V1ProblemKind.UNREADABLE, detail),),
                        raw=found.kept,
                        damage=V1DamageKind.UNREADABLE,
                    )

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _name(self, path: Path) -> str:
        return format_path(path.relative_to(self._path) if self._path.is_dir() else path.name)

    def _read(self, file: V1File) -> Iterator[_Found]:
        """Yield the documents of a file, and record its damage."""
        name, collection = self._name(file.path), file.collection or ""
        nothing, whole = True, True
        for found in _read(file):
            nothing = False
            place = found.place.removeprefix("@")
            if file.is_bson:
                place = f"byte {int(place):,}"
            if found.ends_early:
                if whole:
                    self._damage.add(
                        damage.ends_early(
                            name, collection, place, found.problem, missing=found.missing
                        )
                    )
                whole = False
            elif not found.is_document:
                self._damage.add(damage.breaks_off(name, collection, place, found.problem))
            elif found.raw is None:
                kind = V1DamageKind.UNREADABLE
                self._damage.count(kind, name, collection, place, found.size, problem=found.problem)
            if found.is_document:
                yield found
        if nothing and _is_empty(file):
            self._damage.add(damage.empty(name, collection))


def _is_empty(file: V1File) -> bool:
    with folders.open_file(file.path) as stream:
        beginning = stream.read(4096)
    return not beginning or not (file.is_bson or beginning.strip())


def _read(file: V1File) -> Iterator[_Found]:
    with folders.open_file(file.path) as stream:
        yield from _read_bson(file, stream) if file.is_bson else _read_json(file, stream)


def _read_bson(file: V1File, stream: BinaryIO) -> Iterator[_Found]:
    for frame in bson_stream.frames(stream):
        place = f"@{frame.offset}"
        problem = frame.problem
        if not problem:
            try:
                raw, lenient = bson_stream.decode(frame.raw)
            except ValueError as error:
                problem = str(error)
            else:
                collection = file.collection or documents.collection_of(raw)
                yield _by_collection(collection, place, raw, lenient)
                continue
        yield _Found(
            file.collection,
            place,
            None,
            problem=problem,
            kept=frame.raw,
            id=bson_stream.id_in(frame.raw),
            size=frame.size or len(frame.raw),
            ends_early=frame.ends_early,
            missing=frame.missing,
        )


def _read_json(file: V1File, stream: BinaryIO) -> Iterator[_Found]:
    for value in json_stream.documents(stream):
        place = f"@line {value.line}"
        raw = value.document
        if raw is None:
            yield _Found(
                file.collection,
                place,
                None,
                problem=value.problem,
                kept=value.text.encode("utf-8", "surrogateescape"),
                size=value.size,
                ends_early=value.ends_early,
            )
        else:
            yield _by_collection(file.collection or documents.collection_of(raw), place, raw, False)


def _by_collection(
    collection: str | None, place: str, raw: Mapping[str, Any], invalid_utf8: bool
) -> _Found:
    if collection is not None:
        return _Found(collection, place, raw, invalid_utf8)
    kept = repr(raw)[:1000].encode("utf-8", "replace")
    problem = "its fields match no v1 collection"
    return _Found(None, place, None, problem=problem, kept=kept)
