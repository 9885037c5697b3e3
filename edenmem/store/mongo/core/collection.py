"""A collection that translates the driver's errors, in cursors too.

Nothing else in the package calls pymongo's collections. No message contains a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from pymongo import UpdateMany, UpdateOne
from pymongo import errors as driver
from pymongo.errors import BulkWriteError, OperationFailure
from pymongo.operations import SearchIndexModel

from edenmem.errors import ConflictError, InputError, StoreError, StoreUnreachable, WriteRefused

Document = dict[str, Any]
Sort = Sequence[tuple[str, int]]

#: Times that Python cannot represent are read as the driver's type.
CODEC_OPTIONS: CodecOptions[Any] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_LENIENT_OPTIONS = CODEC_OPTIONS.with_options(unicode_decode_error_handler="replace")
#: Documents per batch of a cursor; vectors make them large.
BATCH = 500
_DUPLICATE_KEY = 11000


class Read(NamedTuple):
    """A document read leniently, and the error in its bytes."""

    document: Document
    error: Exception | None = None


class Page(NamedTuple):
    """Documents of one answer; ``is_cut`` if more of them exist."""

    documents: Iterator[Read]
    is_cut: bool


def read_bson(raw: bytes) -> Read:
    """Decode a document leniently.

    Times that Python cannot represent become a type of the driver. Invalid UTF-8 is an error of
    this document only, and the broken characters are replaced.
    """
    try:
        return Read(bson.decode(raw, CODEC_OPTIONS))
    except BSONError as error:
        return Read(bson.decode(raw, _LENIENT_OPTIONS), error)


def _split(batch: bytes) -> Iterator[Read]:
    """Yield the documents of a batch; each begins with its length."""
    place = 0
    while place < len(batch):
        size = int.from_bytes(batch[place : place + 4], "little")
        yield read_bson(batch[place : place + size])
        place += size


class Collection:
    """A collection at ``location``; ``read_only`` refuses every write."""

    def __init__(self, raw: Any, location: str, *, read_only: bool = False) -> None:
        self._raw = raw
        self._location = location
        self._read_only = read_only

    def __repr__(self) -> str:
        return f"Collection({self._location!r})"

    # -- reading -----------------------------------------------------------------------------

    def find(
        self,
        filter: Mapping[str, Any],
        projection: Mapping[str, Any] | None = None,
        *,
        sort: Sort = (),
        limit: int = 0,
        by_id: bool = False,
    ) -> Iterator[Document]:
        """Yield documents in batches; a sort without an index may use the server's disk.

        ``by_id`` reads along the index on IDs, which ``sort`` must begin with.
        """
        with translate_errors(self._location):
            cursor = self._raw.find(filter, projection, limit=limit, batch_size=BATCH)
            if sort:
                cursor = cursor.sort(list(sort)).allow_disk_use(True)
            if by_id:
                cursor = cursor.hint([("_id", 1)])
        return self._drain(cursor)

    def read_page(
        self,
        filter: Mapping[str, Any],
        projection: Mapping[str, Any] | None = None,
        *,
        limit: int,
        start: Any = None,
        by_id: bool = False,
    ) -> Page:
        """Read the documents of one answer, of at most 16 MB, and leave no cursor open.

        Args:
            filter: The filter.
            projection: The fields to read.
            limit: Maximum number of documents.
            start: The ID to start from, ``by_id``; None: the first.
            by_id: Read in the order of the index on IDs.
        """
        with translate_errors(self._location):
            cursor = self._raw.find_raw_batches(filter, projection, limit=limit, batch_size=limit)
            if by_id:
                cursor = cursor.sort("_id", 1).hint([("_id", 1)])
            if start is not None:
                cursor = cursor.min([("_id", start)])
            with cursor:
                batch: bytes = next(cursor, b"")
                return Page(_split(batch), is_cut=cursor.alive)

    def walk_by_id(
        self, filter: Mapping[str, Any], projection: Mapping[str, Any] | None = None
    ) -> Iterator[Read]:
        """Yield all documents by ID of any type, page by page."""
        last: Any = None
        later: dict[str, Any] = {**filter, "_id": {"$exists": True}}
        while True:
            page = self.read_page(later, projection, limit=BATCH, start=last, by_id=True)
            number = 0
            for read in page.documents:
                number, last = number + 1, read.document["_id"]
                yield read
            if not page.is_cut and number < BATCH:
                return
            later = {**filter, "_id": {"$ne": last}}

    def find_one(
        self,
        filter: Mapping[str, Any],
        projection: Mapping[str, Any] | None = None,
        *,
        sort: Sort = (),
    ) -> Document | None:
        """Return the first document, or None."""
        return next(self.find(filter, projection, sort=sort, limit=1), None)

    def aggregate(
        self, pipeline: Sequence[Mapping[str, Any]], *, max_seconds: float | None = None
    ) -> Iterator[Document]:
        """Yield the results of a pipeline; ``max_seconds`` limits the time on the server."""
        options = {} if max_seconds is None else {"maxTimeMS": max(1, int(max_seconds * 1000))}
        with translate_errors(self._location):
            cursor = self._raw.aggregate(list(pipeline), **options)
        return self._drain(cursor)

    def distinct(self, field: str, filter: Mapping[str, Any] | None = None) -> list[Any]:
        """Return the distinct values of a field."""
        with translate_errors(self._location):
            return list(self._raw.distinct(field, filter or {}))

    def count(self, filter: Mapping[str, Any], *, limit: int = 0) -> int:
        """Count matching documents, up to ``limit`` if given."""
        options = {"limit": limit} if limit else {}
        with translate_errors(self._location):
            return int(self._raw.count_documents(filter, **options))

    def estimate_count(self) -> int:
        """Return the number of documents from the collection's metadata."""
        with translate_errors(self._location):
            return int(self._raw.estimated_document_count())

    def indexes(self) -> dict[str, Any]:
        """Map index names to their descriptions."""
        with translate_errors(self._location):
            return dict(self._raw.index_information())

    def answers_search(self) -> bool:
        """Return whether the server has search commands, as Atlas does.

        Raises:
            StoreError: the server failed for another reason.
        """
        with translate_errors(self._location):
            try:
                self._raw.aggregate([{"$listSearchIndexes": {}}]).close()
            except NotImplementedError:  # a mock of a server
                return False
            except OperationFailure as error:
                if error.code in NO_SEARCH_COMMANDS:
                    return False
                raise
        return True

    def _drain(self, cursor: Any) -> Iterator[Document]:
        with translate_errors(self._location), cursor:
            yield from cursor

    # -- writing -----------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Refuse writes in read-only mode, and translate errors of the others."""
        if self._read_only:
            raise WriteRefused(f"MongoDB at {self._location} is open for reading only")
        with translate_errors(self._location):
            yield

    def insert_one(self, document: Document) -> None:
        """Insert a document; raises pymongo's DuplicateKeyError."""
        with self._writing():
            self._raw.insert_one(document)

    def insert_new(self, documents: Sequence[Document]) -> dict[int, str]:
        """Insert the documents that violate no unique index, in one round trip.

        Returns:
            The positions of the others, each with the name of the violated index.

        Raises:
            StoreError: a document was refused for another reason.
        """
        if not documents:
            return {}
        try:
            with self._writing():
                self._raw.insert_many(documents, ordered=False)
        except BulkWriteError as error:
            return self._duplicates(error)
        return {}

    def update_one(
        self, filter: Mapping[str, Any], update: Mapping[str, Any], *, upsert: bool = False
    ) -> int:
        """Return how many documents matched or were created; raises pymongo's DuplicateKeyError."""
        with self._writing():
            result = self._raw.update_one(filter, update, upsert=upsert)
        return int(result.matched_count) + (result.upserted_id is not None)

    def update_many(self, filter: Mapping[str, Any], update: Mapping[str, Any]) -> int:
        """Update documents; return how many matched."""
        with self._writing():
            return int(self._raw.update_many(filter, update).matched_count)

    def delete_one(self, filter: Mapping[str, Any]) -> bool:
        """Delete a document; return whether one matched."""
        with self._writing():
            return int(self._raw.delete_one(filter).deleted_count) > 0

    def delete_many(self, filter: Mapping[str, Any]) -> int:
        """Delete documents; return how many matched."""
        with self._writing():
            return int(self._raw.delete_many(filter).deleted_count)

    def bulk(self, operations: Sequence[UpdateOne | UpdateMany]) -> tuple[int, set[int]]:
        """Update in one round trip, in any order.

        Returns:
            How many documents matched or were created, and the positions of the updates that
            violated a unique index (two concurrent upserts of one document).
        """
        if not operations:
            return 0, set()
        try:
            with self._writing():
                result = self._raw.bulk_write(list(operations), ordered=False)
        except BulkWriteError as error:
            failed = set(self._duplicates(error))
            return int(error.details.get("nMatched", 0)), failed
        return int(result.matched_count) + int(result.upserted_count), set()

    def upsert(self, operations: Sequence[UpdateOne]) -> None:
        """Update or create documents, in any order.

        Of two concurrent first writes of a document, the second finds it on retry.
        """
        left = list(operations)
        while left:
            left = [left[place] for place in sorted(self.bulk(left)[1])]

    def _duplicates(self, error: BulkWriteError) -> dict[int, str]:
        failures = error.details.get("writeErrors") or []
        others = [f for f in failures if f.get("code") != _DUPLICATE_KEY]
        if others or error.details.get("writeConcernErrors") or not failures:
            reason = str(others[0].get("errmsg", "")) if others else "not acknowledged"
            raise StoreError(
                f"bulk write was refused in part by MongoDB at {self._location}: {reason}",
                hint="run it again; what was written is recognized",
            ) from error
        return {int(failure["index"]): index_in(failure) for failure in failures}

    # -- indexes -----------------------------------------------------------------------------

    def create_index(self, keys: Sort, **options: Any) -> None:
        """Create an index.

        Raises:
            DuplicateKeyError: pymongo's; stored documents violate a unique index.
            ConflictError: a different index has this name or these fields.
            StoreError: the server refused, for example because a unique index does not fit the
                shard key.
        """
        with self._writing():
            try:
                self._raw.create_index(list(keys), **options)
            except OperationFailure as error:
                if error.code not in INDEX_CONFLICTS:
                    raise
                raise ConflictError(
                    f"cannot create index {options.get('name')}: {reason_of(error)}",
                    hint="'edenmem index list' shows the indexes that exist",
                ) from error

    def drop_index(self, name: str) -> None:
        """Drop an index; a missing one is no error."""
        with self._writing():
            try:
                self._raw.drop_index(name)
            except OperationFailure as error:
                if error.code != INDEX_NOT_FOUND:
                    raise

    # -- search indexes ----------------------------------------------------------------------

    def search_indexes(self) -> dict[str, Document]:
        """Map the names of search indexes to their descriptions."""
        found = self.aggregate([{"$listSearchIndexes": {}}])
        return {str(index.get("name")): index for index in found}

    def create_search_index(self, name: str, type: str, definition: Mapping[str, Any]) -> None:
        """Start building a search index."""
        model = SearchIndexModel(definition=definition, name=name, type=type)
        with self._writing():
            self._raw.create_search_index(model)

    def update_search_index(self, name: str, definition: Mapping[str, Any]) -> None:
        """Start rebuilding a search index; the old one answers until the new one is ready."""
        with self._writing():
            self._raw.update_search_index(name, definition)

    def drop_search_index(self, name: str) -> None:
        """Drop a search index."""
        with self._writing():
            self._raw.drop_search_index(name)

    # -- the collection itself ---------------------------------------------------------------

    def create(self) -> None:
        """Create the collection, which must not exist."""
        with self._writing():
            self._raw.database.create_collection(self._raw.name)

    def drop(self) -> None:
        """Drop the collection with its documents and indexes."""
        with self._writing():
            self._raw.drop()


#: UserNotFound and AuthenticationFailed: wrong user or password.
_BAD_CREDENTIALS = frozenset({11, 18})
#: Unauthorized: the user lacks a privilege.
FORBIDDEN = 13
#: Codes of servers without search commands: CommandNotFound (4 to 7), CommandNotSupported (7,
#: Enterprise), SearchNotEnabled (8), an unrecognized stage (4 to 6), and $listSearchIndexes outside
#: Atlas (7).
NO_SEARCH_COMMANDS = frozenset({59, 115, 31082, 40324, 6047401})
#: IndexOptionsConflict and IndexKeySpecsConflict: another index has the name, or the fields.
INDEX_CONFLICTS = frozenset({85, 86})
INDEX_NOT_FOUND = 27
_CANNOT_CREATE_INDEX = 67
_INDEX_IN = re.compile(r" index: (\S+) dup key")
#: TransactionTooOld, TransactionTooLarge, TransactionTooLargeForCache.
_TOO_LARGE = frozenset({225, 257, 388})
_WRITE_CONFLICT = 112
_NOT_PRIMARY = frozenset({189, 10107, 11600, 11602, 13435, 13436})


class TransactionTooLarge(StoreError):
    """A transaction exceeds the server's limit."""


def location_of(uri: str) -> str:
    """Return ``uri`` without user, password and options, for display.

    Everything up to the last ``@`` is removed, so that an unescaped password is removed too.
    """
    scheme, separator, rest = uri.partition("://")
    hosts = rest.rpartition("@")[2].partition("?")[0].rstrip("/")
    return f"{scheme}://{hosts}" if separator else "mongodb"


def bad_uri(uri: str) -> StoreError:
    """Return the error for an invalid URI, without the driver's message, which quotes parts."""
    return StoreError(
        f"invalid MongoDB URI: {location_of(uri)}",
        hint="use mongodb://user:password@host:port/database; characters such as @ : / % in the "
        "user name or password must be percent-encoded",
    )


@contextmanager
def translate_errors(location: str) -> Iterator[None]:
    """Raise `StoreError` for errors of the driver, except duplicate keys and bulk writes.

    The caller handles those. A value that no document can hold is an `InputError`.
    """
    try:
        yield
    except (driver.DuplicateKeyError, driver.BulkWriteError):
        raise
    except (driver.PyMongoError, driver.DocumentTooLarge) as error:
        raise _translate(error, location) from error
    except (BSONError, UnicodeEncodeError, OverflowError) as error:
        raise InputError(
            f"MongoDB cannot store a value: {error}",
            hint="remove lone surrogates and numbers beyond 64 bits",
        ) from error


def _translate(error: Exception, location: str) -> StoreError:
    match error:
        case driver.ServerSelectionTimeoutError():
            return StoreUnreachable(
                f"cannot reach MongoDB at {location}",
                hint="check that the server is running, and check host, port and TLS options "
                "(on Atlas: that this address is on the access list)",
            )
        case driver.NotPrimaryError():
            return _not_primary(location)
        case driver.NetworkTimeout(__cause__=driver.OperationFailure(code=code)) if (
            code == _WRITE_CONFLICT
        ):
            return StoreError(
                f"gave up on a transaction at {location}: other clients keep changing the same "
                "documents",
                hint="try again later",
            )
        case driver.ExecutionTimeout() | driver.NetworkTimeout() | driver.WTimeoutError():
            return StoreError(
                f"MongoDB at {location} did not answer in time", hint="try again later"
            )
        case driver.ConfigurationError() | driver.InvalidURI():
            return StoreError(
                f"invalid connection options for MongoDB at {location}",
                hint="check the options of the URI and, for mongodb+srv, the DNS name",
            )
        case driver.ConnectionFailure():
            return StoreError(f"lost the connection to MongoDB at {location}", hint="try again")
        case driver.DocumentTooLarge():
            return StoreError(
                "document exceeds MongoDB's limit of 16 MB",
                hint="write fewer or shorter items at once",
            )
        case driver.OperationFailure(code=code) if code in _NOT_PRIMARY:
            return _not_primary(location)
        case driver.OperationFailure(code=code) if code in _TOO_LARGE:
            return TransactionTooLarge(
                f"transaction is too large for MongoDB at {location}: {reason_of(error)}",
                hint="write fewer or shorter items at once",
            )
        case driver.OperationFailure():
            return StoreError(
                f"MongoDB at {location} refused: {reason_of(error)}", hint=_hint_for(error)
            )
        case _:
            return StoreError(f"MongoDB at {location} failed: {type(error).__name__}")


@contextmanager
def raise_whole() -> Iterator[None]:
    """Raise a bulk write's conflict or size error as the transaction's, with its retry label.

    Bulk writes report these as failures of one document, or without the label on which the driver
    retries the transaction.
    """
    try:
        yield
    except driver.OperationFailure as error:
        failures = (error.details or {}).get("writeErrors") or [error.details or {}]
        code = failures[0].get("code", error.code)
        if code != _WRITE_CONFLICT and code not in _TOO_LARGE:
            raise
        labels = ["TransientTransactionError"] if code == _WRITE_CONFLICT else []
        details = {**failures[0], "errorLabels": labels}
        reason = str(details.get("errmsg") or error)
        raise driver.OperationFailure(reason, code, details) from error


def reason_of(error: driver.OperationFailure) -> str:
    """Return the server's message, with the code and its name.

    The command that some errors quote is removed: it may contain stored data.
    """
    details = error.details or {}
    reason = str(details.get("errmsg") or error).partition(" to execute command {")[0]
    name = details.get("codeName")
    return f"{reason} ({name}, code {error.code})" if name else f"{reason} (code {error.code})"


def _hint_for(error: driver.OperationFailure) -> str | None:
    """Return a hint for a code with a single meaning."""
    if error.code in _BAD_CREDENTIALS:
        return "check user, password and authSource"
    if error.code == FORBIDDEN:
        return "give the user a role that allows this"
    if error.code == _CANNOT_CREATE_INDEX and "shard key" in str(error):
        return "a unique index of a sharded collection must begin with its shard key"
    return None


def index_in(details: Mapping[str, Any]) -> str:
    """Return the name of the index in a duplicate key error; "" if the server does not name it."""
    found = _INDEX_IN.search(str(details.get("errmsg") or ""))
    return found[1] if found else ""


def _not_primary(location: str) -> StoreError:
    return StoreError(
        f"MongoDB at {location} has no writable primary",
        hint="try again when the replica set has elected a primary",
    )
