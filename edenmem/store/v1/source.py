"""Open the source that a location names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from edenmem.errors import UsageError
from edenmem.settings.paths import is_mongodb, parse_path
from edenmem.settings.schema import StoreSettings

if TYPE_CHECKING:
    from edenmem.store.v1.files import FileSource
    from edenmem.store.v1.live import LiveSource

    V1Source: TypeAlias = FileSource | LiveSource


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
