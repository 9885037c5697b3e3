"""Which source a location names."""

from __future__ import annotations

from collections.abc import Sequence

from edenmem.errors import UsageError
from edenmem.settings.paths import is_mongodb, parse_path
from edenmem.settings.schema import StoreSettings
from edenmem.store.v1.protocol import V1Source


def open_source(
    location: str | None,
    settings: StoreSettings,
    *,
    database: str = "",
    files: Sequence[str] = (),
) -> V1Source:
    """The source at a MongoDB's URI, in a file or in a folder; without a location, in the MongoDB
    that is the configured store.

    Args:
        location: The URI, or the path as text.
        settings: How a MongoDB is reached.
        database: Which of several databases.
        files: Names of files, to choose among several of one collection.

    Raises:
        UsageError: nothing was named, and the configured store is no MongoDB.
        NotFoundError: there is no such file, folder or database.
        InputError: there is nothing of v1 in it.
        AmbiguousInput: a folder holds several databases, or several files of one collection.
        StoreError: the database cannot be reached.
    """
    named = location or settings.uri
    if is_mongodb(named):
        from edenmem.store.v1.live import LiveSource

        # What is configured of the database goes before the URI for the configured store alone.
        configured = "" if location else settings.database
        return LiveSource(named, settings, database=database or configured)
    if location is None:
        raise UsageError(
            "nothing to migrate from: the configured store is not the MongoDB that v1 is in",
            hint="name it: --from mongodb://host/DATABASE, or a folder of mongodump",
        )
    from edenmem.store.v1.files import FileSource

    return FileSource(parse_path(location).expanduser(), database=database, patterns=files)
