"""The sources of v1 memory: a MongoDB, or files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from edenmem.errors import InputError, UsageError
from edenmem.models.v1 import (
    MEMORIES,
    V1_COLLECTIONS,
    V1Account,
    V1Damage,
    V1DamageKind,
    V1ProblemKind,
    V1Read,
)
from edenmem.settings.paths import is_mongodb, parse_path
from edenmem.settings.schema import StoreSettings
from edenmem.store.v1 import documents
from edenmem.store.v1.documents import Canonical


class Found(NamedTuple):
    """A document, or the ``problem`` of one that cannot be read; ``place`` is its ID or position.

    ``invalid_utf8``: bytes that are not UTF-8 were replaced.
    """

    place: str
    raw: Mapping[str, Any] | None = None
    invalid_utf8: bool = False
    problem: str = ""


class V1Source(ABC):
    """A read-only source of v1 memory. All methods block."""

    #: The location, without secrets.
    location: str
    #: Whether it is a database, which may be in use.
    is_live = False

    def __init__(self) -> None:
        self._damage: list[V1Damage] = []

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a hash of all stored bytes."""

    def size(self) -> int:
        """Return an estimate of the number of documents; 0 if unknown."""
        return 0

    @abstractmethod
    def collections(self) -> dict[str, str]:
        """Map the existing collections, empty ones included, to their files or own names."""

    @abstractmethod
    def _contents(self, *, accounts: bool) -> Iterator[tuple[str, str | None, Iterator[Found]]]:
        """Yield each file or collection: its name, its collection, its documents.

        The collection is None if each document determines it.
        """

    def accounts(self) -> Iterator[V1Account]:
        """Yield the host's users and agents, if the source has them."""
        for _, collection, found in self._contents(accounts=True):
            for each in found:
                if each.raw is not None:
                    account = documents.read_account(collection or "", each.raw)
                    if account is not None:
                        yield account

    def documents(self, canonical: Canonical) -> Iterator[V1Read]:
        """Yield every document of v1's collections, damaged ones included.

        ``canonical`` maps an account to its canonical ID.

        Raises:
            InputError: a file has no document of v1.
        """
        for where, collection, found in self._contents(accounts=False):
            is_v1 = collection is not None
            for each in found:
                read = _read(where, collection, each, canonical)
                is_v1 = is_v1 or read.document is not None
                yield read
            if not is_v1:
                raise no_v1_memory(self.location)

    def damage(self) -> Sequence[V1Damage]:
        """Return the damage of files, once `accounts` and `documents` are exhausted."""
        return sorted(self._damage, key=lambda each: (each.where, each.kind))

    def close(self) -> None:  # noqa: B027 - files need none
        """Close sockets."""


def _read(where: str, name: str | None, found: Found, canonical: Canonical) -> V1Read:
    """Convert a document of a file or collection."""
    raw = found.raw
    collection = documents.collection_of(name, raw or {})
    if raw is not None and collection is not None:
        return documents.read(
            collection, raw, found.place, invalid_utf8=found.invalid_utf8, canonical=canonical
        )
    problem = found.problem or "its fields match no v1 collection"
    return V1Read(
        collection=collection or MEMORIES,
        id=found.place,
        document=None,
        notes=((V1ProblemKind.UNREADABLE, f"{where} {found.place}: {problem}"),),
        damage=V1DamageKind.UNREADABLE,
    )


def no_v1_memory(location: str) -> InputError:
    """Return the error for a file without any document of v1's collections."""
    return InputError(
        f"no v1 memory in {location}: no document of {', '.join(V1_COLLECTIONS)}",
        hint="name the output of mongodump or mongoexport, or the MongoDB itself",
    )


def open_source(location: str | None, settings: StoreSettings) -> V1Source:
    """Open the source at a MongoDB URI, file or folder; by default the configured MongoDB.

    Args:
        location: The URI, or the path as text.
        settings: How to connect to MongoDB.

    Raises:
        UsageError: no location, and the configured store is not a MongoDB.
        NotFoundError: the file or folder does not exist.
        InputError: it contains no v1 memory, several databases, or several files of one collection.
        StoreError: the database cannot be reached.
    """
    named = location or settings.uri
    if is_mongodb(named):
        from edenmem.store.v1.live import LiveSource

        # The configured database only overrides the URI of the configured store.
        return LiveSource(named, settings, database="" if location else settings.database)
    if location is None:
        raise UsageError(
            "no source: the configured store is not a MongoDB",
            hint="name the source: --from mongodb://host/DATABASE, or a mongodump folder",
        )
    from edenmem.store.v1.files import FileSource

    return FileSource(parse_path(location).expanduser())
