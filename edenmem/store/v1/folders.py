"""Find the files of v1 memory in a folder, with their database, collection and format.

Ambiguous input (several databases, or several files of one collection) is an error; the caller
selects.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, NamedTuple

from edenmem.errors import AmbiguousInput, InputError, NotFoundError, UsageError
from edenmem.models.v1 import V1_COLLECTIONS
from edenmem.settings.paths import format_path
from edenmem.store.v1 import bson_stream, documents

#: The extension determines the format.
_BSON = re.compile(r"(?P<name>.+)\.bson(?:\.gz)?", re.IGNORECASE)
_JSON = re.compile(r"(?P<name>.+)\.(?:json|jsonl|ndjson|ejson)(?:\.gz)?", re.IGNORECASE)
_METADATA = re.compile(r"(?P<name>.+)\.metadata\.json(?:\.gz)?", re.IGNORECASE)
_ARCHIVE = b"\x6d\xe2\x99\x81"  # mongodump --archive
_GZIP = b"\x1f\x8b"
#: Maximum size of metadata; options and indexes of a collection take a few kilobytes.
_MAX_METADATA = 1024 * 1024
_SOURCES = "name the output of mongodump or mongoexport, or the MongoDB itself"
COLLECTIONS = (*V1_COLLECTIONS, *documents.OLDER_COLLECTIONS, *documents.ACCOUNTS)


class V1File(NamedTuple):
    """A file of one collection.

    ``collection`` is None if each document determines it. ``database`` is empty if neither the
    file's name nor its metadata give it.
    """

    path: Path
    is_bson: bool
    collection: str | None
    database: str = ""


class Chosen(NamedTuple):
    """The files to read, and metadata files without documents."""

    files: tuple[V1File, ...]
    without_data: tuple[tuple[Path, str], ...] = ()


class _Database(NamedTuple):
    name: str
    files: list[V1File]
    without_data: list[tuple[Path, str]]


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
    _require_file(path)
    _refuse_other_forms(path)
    for pattern, is_bson in ((_BSON, True), (_JSON, False)):
        if match := pattern.fullmatch(path.name):
            collection = _collection_named(match["name"])
            if collection in documents.ACCOUNTS:
                raise no_v1_memory(path)
            return Chosen((V1File(path, is_bson, collection),))
    raise InputError(
        f"neither BSON nor JSON by its name: {format_path(path)}",
        hint="name a mongodump folder, a .bson file, or a .json or .jsonl file",
    )


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
    chosen = _choose_database(folder, _databases_in(folder), database)
    for pattern in patterns:
        if not any(_is_named(each, [pattern]) for each in chosen.files):
            raise NotFoundError(f"no file {pattern} of v1 in {format_path(folder)}")
    files = []
    for collection in COLLECTIONS:
        found = [each for each in chosen.files if each.collection == collection]
        if found:
            files.append(_choose_one(folder, collection, found, patterns))
    for file in files:
        _require_file(file.path)
        _refuse_other_forms(file.path)
    return Chosen(tuple(files), tuple(chosen.without_data))


def _choose_database(folder: Path, found: list[_Database], wanted: str) -> _Database:
    if not found:
        raise InputError(
            f"no {', '.join(V1_COLLECTIONS)} as .bson, .json or .jsonl in {format_path(folder)}",
            hint=_SOURCES,
        )
    names = [each.name for each in found]
    if wanted:
        named = [each for each in found if each.name == wanted]
        if not named:
            raise NotFoundError(
                f"no database {wanted!r} with v1 memory in {format_path(folder)}",
                hint=f"it has {', '.join(names)}",
            )
        return named[0]
    if len(found) > 1:
        raise AmbiguousInput(
            f"{len(found)} databases with v1 memory in {format_path(folder)}",
            option="--database",
            choices=names,
        )
    return found[0]


def _choose_one(
    folder: Path, collection: str, found: list[V1File], patterns: Sequence[str]
) -> V1File:
    if len(found) == 1:
        return found[0]
    named = [each for each in found if _is_named(each, patterns)]
    if len(named) == 1:
        return named[0]
    among = named or found
    raise AmbiguousInput(
        f"{len(among)} files of the collection {collection} in {format_path(folder)}",
        option="--file",
        choices=[format_path(each.path.name) for each in among],
    )


def _is_named(file: V1File, patterns: Iterable[str]) -> bool:
    """Return whether a pattern matches a file's name as messages display it."""
    name = format_path(file.path.name)
    return any(fnmatchcase(name, pattern) for pattern in patterns)


# -- searching ----------------------------------------------------------------------------------


def _databases_in(folder: Path) -> list[_Database]:
    """Return the databases with v1 memory in a folder and its subfolders."""
    inside = sorted(path for path in folder.iterdir() if path.is_dir())
    found = [each for place in (folder, *inside) for each in _databases_of(place)]
    names = [each.name for each in found]
    return [
        each._replace(name=f"{format_path(each.files[0].path.parent.name)}/{each.name}")
        if names.count(each.name) > 1
        else each
        for each in found
    ]


def _databases_of(folder: Path) -> list[_Database]:
    """Return the databases with files in one folder.

    Files without a database belong to the only known one, else to one named like the folder.
    """
    files, metadata = _files_in(folder)
    own = format_path(folder.resolve().name)
    named = sorted({file.database for file in files if file.database})
    if len(named) <= 1:
        groups = {named[0] if named else own: files}
    else:
        groups = {name: [each for each in files if each.database == name] for name in named}
        if rest := [each for each in files if not each.database]:
            groups[own if own not in named else f"./{own}"] = rest
    return [
        _Database(name, group, _without_data(group, metadata, name if len(groups) > 1 else ""))
        for name, group in groups.items()
        if any(file.collection not in (None, *documents.ACCOUNTS) for file in group)
    ]


def _without_data(
    files: Iterable[V1File], metadata: Iterable[tuple[Path, str, str]], database: str
) -> list[tuple[Path, str]]:
    there = {file.collection for file in files}
    return [
        (path, collection)
        for path, collection, described in metadata
        if collection not in there and (not database or described in ("", database))
    ]


def _files_in(folder: Path) -> tuple[list[V1File], list[tuple[Path, str, str]]]:
    """Return the files of known collections, and their metadata files."""
    files: list[V1File] = []
    metadata: list[tuple[Path, str, str]] = []
    described: dict[str, tuple[str | None, str]] = {}
    paths = sorted(path for path in folder.iterdir() if not path.is_dir())
    for path in paths:
        if match := _METADATA.fullmatch(path.name):
            collection, database = _read_metadata(path)
            own = _collection_named(match["name"]) or collection
            described[match["name"]] = own, _database_named(match["name"]) or database
            if own is not None:
                metadata.append((path, own, described[match["name"]][1]))
    for path in paths:
        if _METADATA.fullmatch(path.name):
            continue
        for pattern, is_bson in ((_BSON, True), (_JSON, False)):
            if match := pattern.fullmatch(path.name):
                collection, database = described.get(match["name"], (None, ""))
                named = _collection_named(match["name"])
                if (own := named or collection) is not None:
                    database = _database_named(match["name"]) or database
                    files.append(V1File(path, is_bson, own, database))
    return files, metadata


def _collection_named(name: str) -> str | None:
    """Return the collection in a file's name, which may begin with the database."""
    return next((each for each in COLLECTIONS if name == each or name.endswith(f".{each}")), None)


def _database_named(name: str) -> str:
    """Return the database in a file's name; empty if there is none."""
    collection = _collection_named(name)
    if collection is None or name == collection:
        return ""
    return format_path(name.removesuffix(f".{collection}"))


def _read_metadata(path: Path) -> tuple[str | None, str]:
    """Return the collection and database in a metadata file.

    mongodump shortens and escapes the names of files. Only older servers record the database.
    """
    try:
        with open_file(path) as stream:
            metadata = json.loads(stream.read(_MAX_METADATA))
    except (ValueError, RecursionError, InputError, *bson_stream.UNREADABLE):
        return None, ""  # metadata is optional
    if not isinstance(metadata, dict):
        return None, ""
    indexes = metadata.get("indexes")
    first = indexes[0] if isinstance(indexes, list) and indexes else None
    namespace = first.get("ns") if isinstance(first, dict) else None
    database = namespace.partition(".")[0] if isinstance(namespace, str) else ""
    return _collection_named(str(metadata.get("collectionName", ""))), database


def _require_file(path: Path) -> None:
    """Refuse broken links, which look like empty collections, and pipes: files are read twice."""
    if not path.is_file():
        raise InputError(f"not a file, or a broken link: {format_path(path)}")


def _refuse_other_forms(path: Path) -> None:
    """Refuse forms that look like damage, with the command that converts them."""
    with open_file(path) as stream:
        try:
            beginning = stream.read(4)
        except bson_stream.UNREADABLE:
            return  # reported when the file is read
    if beginning == _ARCHIVE:
        name = format_path(path.name)
        raise InputError(
            f"a mongodump archive: {format_path(path)}",
            hint="turn it into a folder with a scratch server:"
            f" mongorestore --archive={name} && mongodump --out FOLDER",
        )
    if beginning[:2] in (b"\xff\xfe", b"\xfe\xff") or (
        b"\0" in beginning and _JSON.fullmatch(path.name)
    ):
        raise InputError(
            f"UTF-16, not UTF-8: {format_path(path)}",
            hint="convert it: iconv -f UTF-16 -t UTF-8 OLD > NEW",
        )
