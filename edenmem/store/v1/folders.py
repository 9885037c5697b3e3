"""Find the files of v1 memory in a folder, with their database, collection and format.

Ambiguous input (several databases, or several files of one collection) is an error; the caller
selects.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, NamedTuple

from edenmem.errors import AmbiguousInput, InputError, NotFoundError, UsageError
from edenmem.models.v1 import V1_COLLECTIONS
from edenmem.settings.paths import format_path
from edenmem.store.v1 import bson_stream, documents

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
        except bson_stream.UNREADABLE:
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
