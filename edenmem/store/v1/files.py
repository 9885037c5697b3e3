"""v1 in files: what mongodump and mongoexport leave, plain or gzipped."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from edenmem.errors import InputError, NotFoundError, UsageError
from edenmem.models.v1 import MEMORIES, V1_COLLECTIONS, V1ProblemKind
from edenmem.models.v1_documents import V1Account, V1Read
from edenmem.store.v1 import bson_stream, documents, json_stream

#: The end of a name tells what a file holds.
_BSON = re.compile(r"(?P<name>.+)\.bson(?:\.gz)?", re.IGNORECASE)
_JSON = re.compile(r"(?P<name>.+)\.(?:json|jsonl|ndjson|ejson)(?:\.gz)?", re.IGNORECASE)
_METADATA = re.compile(r".*\.metadata\.json(?:\.gz)?", re.IGNORECASE)
_ARCHIVE = b"\x6d\xe2\x99\x81"  # mongodump --archive
_GZIP = b"\x1f\x8b"
#: Options and indexes of one collection are a few kilobytes.
_MOST_METADATA = 1024 * 1024
_COLLECTIONS = (*V1_COLLECTIONS, *documents.ACCOUNTS)


class _File(NamedTuple):
    """``collection`` is None if each document must tell it."""

    path: Path
    is_bson: bool
    collection: str | None


class _Found(NamedTuple):
    collection: str | None
    place: str
    raw: Mapping[str, Any] | None
    invalid_utf8: bool = False
    problem: str = ""
    kept: bytes = b""
    id: str = ""


class FileSource:
    """v1 in a file, or in the files of a folder; see `edenmem.store.v1.protocol.V1Source`.

    Raises:
        NotFoundError: there is no such file or folder.
        InputError: there is nothing of v1 in it.
        UsageError: the folder holds more than one database.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise NotFoundError(f"there is no file or folder {path}")
        self._path = path
        self._files = _files_of_folder(path) if path.is_dir() else [_file(path)]

    @property
    def location(self) -> str:
        """The file or folder."""
        return str(self._path)

    def counts(self) -> dict[str, int]:
        """Documents by collection, counted by reading through the files once."""
        counted = dict.fromkeys(V1_COLLECTIONS, 0)
        for file in self._files:
            if file.collection in documents.ACCOUNTS:
                continue
            if file.is_bson and file.collection:
                with _open(file.path) as stream:
                    counted[file.collection] += sum(1 for _ in bson_stream.frames(stream))
                continue
            for found in _read(file):
                if (collection := found.collection or MEMORIES) in counted:
                    counted[collection] += 1
        return counted

    def accounts(self) -> Iterator[V1Account]:
        """The users and agents that were dumped with it."""
        for file in self._files:
            if file.collection not in documents.ACCOUNTS:
                continue
            for found in _read(file):
                if found.raw is not None:
                    account = documents.read(file.collection, found.raw, found.place).document
                    if isinstance(account, V1Account):
                        yield account

    def documents(self, canonical: Mapping[str, str]) -> Iterator[V1Read]:
        """All documents, file by file."""
        for file in self._files:
            if file.collection in documents.ACCOUNTS:
                continue
            for found in _read(file):
                collection = found.collection
                if found.raw is not None and collection in V1_COLLECTIONS:
                    yield documents.read(
                        collection,
                        found.raw,
                        found.place,
                        invalid_utf8=found.invalid_utf8,
                        canonical=canonical,
                    )
                elif found.raw is None and (collection is None or collection in V1_COLLECTIONS):
                    detail = f"{file.path.name} {found.place}: {found.problem}"
                    yield V1Read(
                        collection=collection or MEMORIES,
                        id=found.id or found.place,
                        document=None,
                        notes=((V1ProblemKind.UNREADABLE, detail),),
                        raw=found.kept,
                    )

    def close(self) -> None:
        """Nothing is kept open."""


def _read(file: _File) -> Iterator[_Found]:
    with _open(file.path) as stream:
        yield from _read_bson(file, stream) if file.is_bson else _read_json(file, stream)


def _read_bson(file: _File, stream: BinaryIO) -> Iterator[_Found]:
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
                yield _whose(collection, place, raw, lenient)
                continue
        known = bson_stream.id_in(frame.raw)
        yield _Found(file.collection, place, None, False, problem, frame.raw, known)


def _read_json(file: _File, stream: BinaryIO) -> Iterator[_Found]:
    for value in json_stream.documents(stream):
        place = f"@line {value.line}"
        raw = value.document
        if raw is None:
            kept = value.text.encode("utf-8", "surrogateescape")
            yield _Found(file.collection, place, None, False, value.problem, kept)
        else:
            yield _whose(file.collection or documents.collection_of(raw), place, raw, False)


def _whose(
    collection: str | None, place: str, raw: Mapping[str, Any], invalid_utf8: bool
) -> _Found:
    if collection is not None:
        return _Found(collection, place, raw, invalid_utf8)
    kept = repr(raw)[:1000].encode("utf-8", "replace")
    return _Found(None, place, None, False, "nothing tells which collection it is of", kept)


def _open(path: Path) -> BinaryIO:
    try:
        with path.open("rb") as stream:
            zipped = stream.read(2) == _GZIP
        opened = gzip.open(path, "rb") if zipped else path.open("rb")  # noqa: SIM115 - returned
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    return opened  # type: ignore[return-value]


# -- which files ---------------------------------------------------------------------------------


def _file(path: Path) -> _File:
    """One file that was named."""
    _demand_file(path)
    _refuse_archive(path)
    for pattern, is_bson in ((_BSON, True), (_JSON, False)):
        if match := pattern.fullmatch(path.name):
            return _File(path, is_bson, _collection_named(match["name"]))
    raise InputError(
        f"{path} is neither BSON nor JSON, judged by its name",
        hint="name a folder of mongodump, a .bson file, or a .json or .jsonl file",
    )


def _demand_file(path: Path) -> None:
    """Refuse a link to nothing, which must not look like an empty collection, and a pipe: files
    are read more than once."""
    if not path.is_file():
        raise InputError(f"{path} cannot be read: it is no file, or a link to none")


def _refuse_archive(path: Path) -> None:
    with _open(path) as stream:
        try:
            beginning = stream.read(4)
        except bson_stream.UNREADABLE:
            return  # read later, and reported with all that can still be read
    if beginning == _ARCHIVE:
        raise InputError(
            f"{path} is an archive of mongodump, which cannot be read",
            hint="dump into a folder: mongodump --out FOLDER, without --archive",
        )


def _collection_named(name: str) -> str | None:
    """The collection that a file is called after: by itself, or after its database."""
    return next((each for each in _COLLECTIONS if name == each or name.endswith(f".{each}")), None)


def _files_of_folder(folder: Path) -> list[_File]:
    files = _collections_in(folder)
    if not _has_v1(files):
        inside = {
            each: found
            for each in sorted(path for path in folder.iterdir() if path.is_dir())
            if _has_v1(found := _collections_in(each))
        }
        if len(inside) > 1:
            raise UsageError(
                f"{folder} holds {len(inside)} databases with memory of v1: "
                + ", ".join(each.name for each in inside),
                hint="name the folder of one of them",
            )
        files = next(iter(inside.values()), [])
    if not files:
        raise InputError(
            f"{folder} has no {', '.join(V1_COLLECTIONS)} as .bson, .json or .jsonl",
            hint="name what mongodump or mongoexport wrote, or the MongoDB itself",
        )
    return files


def _has_v1(files: list[_File]) -> bool:
    return any(file.collection in V1_COLLECTIONS for file in files)


def _collections_in(folder: Path) -> list[_File]:
    """At most one file for each collection: BSON before JSON, plain before gzipped."""
    found: dict[str, _File] = {}
    paths = sorted(path for path in folder.iterdir() if not path.is_dir())
    for pattern, is_bson in ((_BSON, True), (_JSON, False)):
        for path in paths:
            match = pattern.fullmatch(path.name)
            if match is None or _METADATA.fullmatch(path.name):
                continue
            name = _collection_named(match["name"]) or _collection_of_metadata(path, match["name"])
            if name is not None:
                _demand_file(path)
                found.setdefault(name, _File(path, is_bson, name))
    return [found[name] for name in _COLLECTIONS if name in found]


def _collection_of_metadata(path: Path, name: str) -> str | None:
    """The name that the metadata beside a file give its collection, if the file's own tells none
    (mongodump shortens and escapes names)."""
    for file in (
        path.with_name(f"{name}.metadata.json"),
        path.with_name(f"{name}.metadata.json.gz"),
    ):
        if not file.exists():
            continue
        try:
            with _open(file) as stream:
                metadata = json.loads(stream.read(_MOST_METADATA))
        except (ValueError, RecursionError, *bson_stream.UNREADABLE):
            return None  # the data are what counts
        if isinstance(metadata, dict):
            return _collection_named(str(metadata.get("collectionName", "")))
    return None
