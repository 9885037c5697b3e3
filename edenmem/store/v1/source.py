"""The sources of v1 memory: a MongoDB, or files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from edenmem.errors import UsageError
from edenmem.models.v1 import MEMORIES, V1Account, V1Damage, V1DamageKind, V1ProblemKind, V1Read
from edenmem.settings.paths import is_mongodb, parse_path
from edenmem.settings.schema import StoreSettings
from edenmem.store.v1 import documents
from edenmem.store.v1.damage import DamageTally
from edenmem.store.v1.documents import Canonical


class Found(NamedTuple):
    """A document of a collection, or the ``problem`` of one that cannot be read.

    ``known_id`` is the ID at the beginning of an unreadable document, ``size`` its length.
    """

    collection: str | None
    place: str
    raw: Mapping[str, Any] | None = None
    invalid_utf8: bool = False
    problem: str = ""
    known_id: str = ""
    size: int = 0


class V1Source(ABC):
    """A read-only source of v1 memory. All methods block."""

    #: The location, without secrets.
    location: str
    #: Whether it is a database, which may be in use.
    is_live = False

    def __init__(self) -> None:
        self._damage = DamageTally()

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a hash of all stored bytes."""

    def size(self) -> int:
        """Return an estimate of the number of documents; 0 if unknown."""
        return 0

    @abstractmethod
    def collections(self) -> frozenset[str]:
        """Return the existing collections, empty ones included."""

    @abstractmethod
    def accounts(self) -> Iterator[V1Account]:
        """Yield the host's users and agents, if the source has them."""

    @abstractmethod
    def documents(self, canonical: Canonical) -> Iterator[V1Read]:
        """Yield every document of v1's collections, damaged ones included.

        ``canonical`` maps an account to its canonical ID.

        Raises:
            InputError: a file has no document of v1.
        """

    def damage(self) -> Sequence[V1Damage]:
        """Return the damage found, once `accounts` and `documents` are exhausted."""
        return self._damage.damage()

    def close(self) -> None:  # noqa: B027 - files need none
        """Close sockets."""

    def _read(self, where: str, found: Found, canonical: Canonical) -> V1Read:
        """Convert a document of a file or collection, and count its damage."""
        if found.raw is None or found.collection is None:
            read = V1Read(
                collection=found.collection or MEMORIES,
                id=found.known_id or found.place,
                document=None,
                notes=((V1ProblemKind.UNREADABLE, f"{where} {found.place}: {found.problem}"),),
                damage=V1DamageKind.UNREADABLE,
            )
        else:
            read = documents.read(
                found.collection,
                found.raw,
                found.place,
                invalid_utf8=found.invalid_utf8,
                canonical=canonical,
            )
        if read.damage is not None:
            self._damage.count(
                read.damage, where, read.collection, read.id, found.size, found.problem
            )
        return read


def open_source(
    location: str | None,
    settings: StoreSettings,
    *,
    database: str = "",
    files: Sequence[str] = (),
) -> V1Source:
    """Open the source at a MongoDB URI, file or folder; by default the configured MongoDB.

    Args:
        location: The URI, or the path as text.
        settings: How to connect to MongoDB.
        database: Selects one of several databases.
        files: Names of files, to select among several of one collection.

    Raises:
        UsageError: no location, and the configured store is not a MongoDB.
        NotFoundError: there is no such file, folder or database.
        InputError: it contains no v1 memory.
        AmbiguousInput: a folder has several databases, or several files of one collection.
        StoreError: the database cannot be reached.
    """
    named = location or settings.uri
    if is_mongodb(named):
        from edenmem.store.v1.live import LiveSource

        # The configured database only overrides the URI of the configured store.
        configured = "" if location else settings.database
        return LiveSource(named, settings, database=database or configured)
    if location is None:
        raise UsageError(
            "no source: the configured store is not a MongoDB",
            hint="name the source: --from mongodb://host/DATABASE, or a mongodump folder",
        )
    from edenmem.store.v1.files import FileSource

    return FileSource(parse_path(location).expanduser(), database=database, patterns=files)
