"""A fake MongoDB Atlas: a SecantusDB server that also answers search commands.

It uses the real wire protocol and MongoDB's documented formats, and is stricter than Atlas. Like
Atlas, it answers a search in a missing index with no results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import Any

from pymongo import MongoClient

from tests.support.atlas_errors import Refused, known_fields, text
from tests.support.atlas_indexes import Index
from tests.support.atlas_query import (
    Found,
    check_search,
    check_vector_search,
    text_search,
    vector_search,
)
from tests.support.mongo_server import Databases, secantus_server

Document = dict[str, Any]
_STAGES = ("$vectorSearch", "$search", "$listSearchIndexes")
#: Fields that the driver adds to every command.
_ENVELOPE = ("$db", "lsid", "$clusterTime", "$readPreference", "apiVersion", "comment")
_SCORES = {"$vectorSearch": "vectorSearchScore", "$search": "searchScore"}


class AtlasServer:
    """The fake server.

    ``build_steps``: reads of an index's state until it is built; ``lag``: reads and searches until
    writes are visible; ``failure``: error of builds, if any; ``commands``: all search commands.
    """

    def __init__(self, databases: Databases) -> None:
        self.databases = databases
        self.uri = databases.uri
        self.reset()
        self._client: MongoClient[Document] = MongoClient(self.uri)
        self._indexes: dict[tuple[str, str], dict[str, Index]] = {}
        self._looks = 0
        self._lock = RLock()

    def reset(self) -> None:
        """Restore the defaults; indexes stay."""
        self.build_steps = 2
        self.lag = 0
        self.failure = ""
        self.commands: list[Document] = []

    def settle(self, database: str) -> None:
        """Update the indexes of a reused database to its documents."""
        for (name, collection), indexes in self._indexes.items():
            for index in indexes.values() if name == database else ():
                index.catch_up_at_once(list(self._client[database][collection].find()))

    def close(self) -> None:
        """Close the server's client."""
        self._client.close()

    def searches(self) -> list[Document]:
        """Return the received ``$vectorSearch`` and ``$search`` stages, oldest first."""
        stages = (command["pipeline"][0] for command in self.commands if "pipeline" in command)
        return [stage for stage in stages if "$listSearchIndexes" not in stage]

    def answer(self, name: str, command: Mapping[str, Any]) -> Document:
        """Answer a search command."""
        with self._lock:
            self.commands.append({key: command[key] for key in command if key not in _ENVELOPE})
            try:
                return {"ok": 1.0, **getattr(self, f"_{name}")(command)}
            except Refused as refused:
                return refused.answer

    # -- indexes -----------------------------------------------------------------------------

    def _of(self, command: Mapping[str, Any], name: str) -> dict[str, Index]:
        database, collection = command["$db"], text(name, command[name])
        if collection not in self._client[database].list_collection_names():
            self._indexes.pop((database, collection), None)
            if name != "aggregate":
                raise Refused(f"Collection '{collection}' does not exist.", 26, "NamespaceNotFound")
        return self._indexes.setdefault((database, collection), {})

    def _createSearchIndexes(self, command: Mapping[str, Any]) -> Document:
        given = known_fields(
            "createSearchIndexes",
            command,
            required=["createSearchIndexes", "indexes"],
            optional=_ENVELOPE,
        )
        known = self._of(command, "createSearchIndexes")
        made = []
        for one in given["indexes"]:
            spec = known_fields("indexes", one, required=["definition"], optional=["name", "type"])
            name = text("name", spec.get("name", "default"))
            if name in known:
                raise Refused("Duplicate Index", 68, "IndexAlreadyExists")
            made.append(Index(name, spec.get("type", "search"), spec["definition"]))
        known.update({index.name: index for index in made})
        return {"indexesCreated": [{"id": index.id, "name": index.name} for index in made]}

    def _updateSearchIndex(self, command: Mapping[str, Any]) -> Document:
        given = known_fields(
            "updateSearchIndex",
            command,
            required=["updateSearchIndex", "name", "definition"],
            optional=_ENVELOPE,
        )
        self._existing(command, "updateSearchIndex").change(given["definition"])
        return {}

    def _dropSearchIndex(self, command: Mapping[str, Any]) -> Document:
        known_fields(
            "dropSearchIndex", command, required=["dropSearchIndex", "name"], optional=_ENVELOPE
        )
        index = self._existing(command, "dropSearchIndex")
        del self._of(command, "dropSearchIndex")[index.name]
        return {}

    def _existing(self, command: Mapping[str, Any], kind: str) -> Index:
        try:
            return self._of(command, kind)[command["name"]]
        except KeyError:
            raise Refused(f"Index {command['name']!r} not found", 27, "IndexNotFound") from None

    # -- reading -----------------------------------------------------------------------------

    def _aggregate(self, command: Mapping[str, Any]) -> Document:
        known_fields(
            "aggregate",
            command,
            required=["aggregate", "pipeline", "cursor"],
            optional=[*_ENVELOPE, "maxTimeMS", "readConcern"],
        )
        first, *rest = command["pipeline"]
        for stage in rest:
            if next(iter(stage)) in _STAGES:
                name = next(iter(stage))
                raise Refused(
                    f"{name} is only valid as the first stage in a pipeline", 40602, "Location40602"
                )
        ((name, spec),) = first.items()
        if name not in _STAGES:  # it is among the rest of a stage that is not one
            raise Refused("a stage must be a document with one field", 40323, "Location40323")
        known = self._of(command, "aggregate")
        database, collection = command["$db"], command["aggregate"]

        def read() -> list[Document]:
            return list(self._client[database][collection].find())

        self._looks += 1
        if name == "$listSearchIndexes":
            documents = self._listed(spec, known, read)
        else:
            found = self._found(name, spec, known, read)
            documents = _projected(found, rest, _SCORES[name])
        namespace = f"{database}.{collection}"
        return {"cursor": {"id": 0, "ns": namespace, "firstBatch": documents}}

    def _listed(
        self, spec: Any, known: dict[str, Index], read: Callable[[], list[Document]]
    ) -> list[Document]:
        given = known_fields("$listSearchIndexes", spec, optional=["id", "name"])
        if len(given) > 1:
            raise Refused("Cannot set both 'name' and 'id' for $listSearchIndexes.")
        looked = [
            index
            for index in known.values()
            if given.get("name", index.name) == index.name and given.get("id", index.id) == index.id
        ]
        for index in looked:
            if not self.failure:
                index.step(self.build_steps, read)
            index.catch_up(self._looks, self.lag, read)
        failed = {"status": "FAILED", "message": self.failure} if self.failure else {}
        return [{**index.described(), **failed} for index in looked]

    def _found(
        self, name: str, spec: Any, known: dict[str, Index], read: Callable[[], list[Document]]
    ) -> Found:
        check, search = (
            (check_vector_search, vector_search)
            if name == "$vectorSearch"
            else (check_search, text_search)
        )
        given = check(spec)
        index = known.get(given["index"])
        if index is None or index.served is None:
            return []
        index.catch_up(self._looks, self.lag, read)
        return search(index, given)


def _projected(found: Found, stages: list[Any], score: str) -> list[Document]:
    """Apply the rest of the pipeline to the hits.

    Vectors that are not projected explicitly are an error, although Atlas returns them.
    """
    projection: Any = None
    for stage in stages:
        match stage:
            case {"$limit": int(limit)} if limit > 0 and projection is None:
                found = found[:limit]
            case {"$project": dict(given)} if projection is None:
                projection = given
            case _:
                raise Refused(f"the fake server does not support the stage {stage!r}")
    if projection is None:
        raise Refused("whole documents, vectors and all, would be sent")
    documents = []
    for document, value in found:
        shown: Document = {}
        for field, wanted in projection.items():
            if wanted == 1:
                if field in document:
                    shown[field] = document[field]
            elif wanted == {"$meta": score}:
                shown[field] = value
            else:
                raise Refused(f"the fake server cannot project {field}: {wanted!r}")
        documents.append({"_id": document["_id"], **shown})
    return documents


_SERVERS: dict[int, AtlasServer] = {}


@cache
def _extend_secantus() -> None:
    """Let fake Atlas servers answer search commands; other servers do not change."""
    from secantus import commands

    handlers = commands._HANDLERS

    def extended(name: str, is_search: Callable[[Mapping[str, Any]], bool]) -> None:
        ordinary = handlers[name]

        def handle(doc: Any, ctx: Any) -> Any:
            server = _SERVERS.get(id(ctx.storage))
            if server is None or not is_search(doc):
                return ordinary(doc, ctx)
            return server.answer(name, doc)

        handlers[name] = handle

    for name in ("createSearchIndexes", "updateSearchIndex", "dropSearchIndex"):
        extended(name, lambda doc: True)
    extended("aggregate", _has_search_stage)


def _has_search_stage(doc: Mapping[str, Any]) -> bool:
    pipeline = doc.get("pipeline")
    if not isinstance(pipeline, list):
        return False
    return any(
        isinstance(stage, Mapping) and not stage.keys().isdisjoint(_STAGES) for stage in pipeline
    )


@contextmanager
def atlas_server() -> Iterator[AtlasServer]:
    """Start a fake Atlas server on a free port, with a separate folder."""
    _extend_secantus()
    with secantus_server() as server:
        atlas = AtlasServer(server.databases)
        key = id(server.storage)
        _SERVERS[key] = atlas
        try:
            yield atlas
        finally:
            del _SERVERS[key]
            atlas.close()
