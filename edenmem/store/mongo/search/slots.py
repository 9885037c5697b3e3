"""The two slots for vectors in a fact's document, and the model in each.

A staged vector has the hash of the text it was made from. Programs that change only the text, such
as the platform, thereby invalidate it.
"""

from __future__ import annotations

import time
from typing import Any, Literal

import msgspec

from edenmem.errors import ConfigError
from edenmem.models.embeddings import VectorSwitch
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.collections import OWN, STAGED, STAGED_HASH, VectorSlot
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import Filter

#: The ID of the only switch document.
SWITCH_ID = "vectors"

#: Seconds for which the switch is cached. A vector written or searched in the wrong slot is found
#: by the next backfill; see `Slots.vector_update`.
_CACHE_SECONDS = 5.0

#: Indexes that only the platform creates, in each of its processes.
_PLATFORM_INDEXES = frozenset(
    {"reflection_unabsorbed_idx", "reflection_user_idx", "reflection_session_idx"}
)

#: Documents to sample at each end of a collection.
SAMPLE = 20
OWN_FIELDS = {OWN.field: "", OWN.model: ""}
STAGED_FIELDS = {STAGED.field: "", STAGED.model: "", STAGED_HASH: ""}


class Slots:
    """Knows the switch in progress, and so the slot for vectors of a model."""

    def __init__(self, db: Connection) -> None:
        self._db = db
        self._known: tuple[float, VectorSwitch | None] | None = None
        self._is_alone: bool | None = None

    def read_switch(self) -> VectorSwitch | None:
        """Read the stored switch."""
        found = self._db.switches.find_one({"_id": SWITCH_ID})
        switch = None if found is None else _switch_from(found)
        self._known = (time.monotonic(), switch)
        return switch

    def switch(self) -> VectorSwitch | None:
        """Return the switch, cached for a few seconds."""
        known = self._known
        if known is None or time.monotonic() - known[0] > _CACHE_SECONDS:
            return self.read_switch()
        return known[1]

    def forget_switch(self) -> None:
        """Drop the cached switch after a change."""
        self._known = None

    def vector_update(
        self, vector: bytes | None, model: str | None, digest: str
    ) -> tuple[Document, Document]:
        """Return the fields to set and to unset when a fact gets this text hash and vector.

        No vector of another text remains. If the cached switch was outdated, the vector is in an
        unused slot, and the fact is stale until a backfill.
        """
        unset = {**OWN_FIELDS, **STAGED_FIELDS}
        fields = codec.vector_fields(vector, model, self.storage() if vector else "array")
        if fields:
            fields = place_vector(fields, digest, self.switch())
        return fields, {name: "" for name in unset if name not in fields}

    def storage(self) -> Literal["array", "bindata"]:
        """Return the form in which vectors are written.

        Raises:
            ConfigError: it is "bindata", in a database that the platform uses.
        """
        settings = self._db.settings
        if settings.embedding_storage == "array" or settings.bindata_beside_platform:
            return settings.embedding_storage
        if self.is_beside_platform():
            raise ConfigError(
                f"store.embedding_storage is not readable by the platform, which uses "
                f"{self._db.database.name}: {settings.embedding_storage}",
                hint='edenmem config show; set store.embedding_storage = "array", or '
                "store.bindata_beside_platform = true if the platform's memory is off",
            )
        return settings.embedding_storage

    def is_beside_platform(self) -> bool:
        """Return whether the platform uses this database; cached."""
        if self._is_alone is None:
            self._is_alone = not has_platform(self._db)
        return not self._is_alone


def has_platform(db: Connection) -> bool:
    """Return whether the platform created its indexes or documents here."""
    if _PLATFORM_INDEXES & db.reflections.indexes().keys():
        return True
    for collection, fields, is_theirs in (
        (db.sessions, ("budget", "session_type"), bool),
        (db.facts, ("private",), lambda found: not found),
    ):
        for order in (1, -1):
            found = collection.find(
                {"_id": {"$exists": True}},
                dict.fromkeys(fields, 1),
                sort=[("_id", order)],
                limit=SAMPLE,
                by_id=True,
            )
            if any(is_theirs(one.keys() & set(fields)) for one in found):
                return True
    return False


def place_vector(own: Document, digest: str, switch: VectorSwitch | None) -> Document:
    """Return the fields of a vector, moved from the fact's own slot to the current one."""
    model = own.get(OWN.model)
    if switch is None or not isinstance(model, str) or not switch.is_staged(model):
        return own
    staged = {STAGED.field: own[OWN.field], STAGED.model: model, STAGED_HASH: digest}
    return {**own, **staged} if switch.phase == "settling" else staged


def slot_of(switch: VectorSwitch | None, model: str) -> VectorSlot:
    """Return the slot for vectors of a model."""
    return STAGED if switch is not None and switch.is_staged(model) else OWN


def of_this_text(model: str) -> Filter:
    """Return a filter for facts with a staged vector of a model, of their present text."""
    return {STAGED.model: model, "$expr": {"$eq": [f"${STAGED_HASH}", "$hash"]}}


def not_of_this_text(model: str) -> list[Filter]:
    """Return disjoint filters for all other facts."""
    of_another_text = {"$expr": {"$ne": [f"${STAGED_HASH}", "$hash"]}}
    return [{STAGED.model: {"$ne": model}}, {STAGED.model: model, **of_another_text}]


def vector_in(document: Document, model: str) -> bytes | None:
    """Return a document's vector of a model, from either slot."""
    is_of_text = document.get(STAGED_HASH) == document.get("hash")
    if document.get(STAGED.model) == model and is_of_text:
        return codec.decode_vector(document.get(STAGED.field))
    if document.get(OWN.model) == model:
        return codec.decode_vector(document.get(OWN.field))
    return None


def switch_document(switch: VectorSwitch) -> Document:
    """Return the document of a switch."""
    return {"_id": SWITCH_ID, **msgspec.structs.asdict(switch)}


def _switch_from(document: Document) -> VectorSwitch:
    fields: dict[str, Any] = {name: document[name] for name in VectorSwitch.__struct_fields__}
    return VectorSwitch(**{**fields, "begun_at": codec.require_moment(document, "begun_at")})
