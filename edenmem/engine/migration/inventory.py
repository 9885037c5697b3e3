"""Index the memory of a store as a few bytes per document: its key and a content digest.

The store is read once. Each v1 document is then looked up by ID, a text or policy by scope. The
documents left over may be surplus.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Literal

from edenmem.engine.history.trails import fingerprint, is_among
from edenmem.engine.migration.vectors import Vectors
from edenmem.models.backup import Document, RecordKind, Selection
from edenmem.models.ids import is_id
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store, batched

Memory = Fact | Reflection | Consolidation | Policy

KINDS = (
    RecordKind.POLICY,
    RecordKind.CONSOLIDATION,
    RecordKind.REFLECTION,
    RecordKind.FACT,
)

#: Fields set by the store, which are not compared.
SET_BY_STORE: dict[type, frozenset[str]] = {
    Fact: frozenset(),
    Reflection: frozenset(),
    Consolidation: frozenset({"id"}),
    Policy: frozenset({"updated_at"}),
}

_KEY = 12
_BATCH = 500
#: With more agents than this, read the whole store instead of filtering by agent.
_FEW_AGENTS = 100


def mark(model: Memory) -> int:
    """Return the 8-byte digest of a document's content."""
    return fingerprint(model, SET_BY_STORE[type(model)])


def key_of(model: Memory) -> bytes:
    """Return the key of a document."""
    if isinstance(model, Fact | Reflection):
        return key_of_id(model.id)
    return key_of_scope(model.home)


def key_of_id(id: str) -> bytes:
    """Return the key of a fact or reflection."""
    return bytes.fromhex(id) if is_id(id) else _hash(f"id {id}")


def key_of_scope(scope: Scope) -> bytes:
    """Return the key of a text or a policy."""
    return _hash(scope.key)


def _hash(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return blake2b(raw, digest_size=_KEY).digest()


class Shelf:
    """The documents of one kind: `add` all, `close`, then `find`."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._digests = array("Q")
        self._keys: Any = None
        self._marks: Any = None
        self._seen: Any = None

    def add(self, key: bytes, digest: int) -> None:
        """Add a document."""
        self._raw += key
        self._digests.append(digest)

    def close(self) -> None:
        """Sort the documents for `find`."""
        import numpy as np

        keys = np.frombuffer(bytes(self._raw), dtype=f"S{_KEY}")
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self._marks = np.frombuffer(self._digests, dtype=np.uint64)[order]
        self._seen = np.zeros(len(keys), dtype=bool)
        self._raw, self._digests = bytearray(), array("Q")

    def find(self, keys: Sequence[bytes], marks: Sequence[int]) -> list[bool]:
        """Return for each key whether its document exists with this content; mark it as seen."""
        import numpy as np

        if not len(self._keys):
            return [False] * len(keys)
        first = np.searchsorted(self._keys, np.array(keys, dtype=f"S{_KEY}"), side="left")
        found = []
        for key, digest, place in zip(keys, marks, first.tolist(), strict=True):
            places = self._places(key, place)
            same = next((each for each in places if int(self._marks[each]) == digest), None)
            chosen = places[:1] if same is None else [same]
            for each in chosen:
                self._seen[each] = True
            found.append(same is not None)
        return found

    def _places(self, key: bytes, first: int) -> list[int]:
        """Return the positions of a key; several are duplicates of a text or policy."""
        wanted = key.rstrip(b"\0")  # numpy strips trailing zeros
        places = []
        while first < len(self._keys) and self._keys[first] == wanted:
            places.append(first)
            first += 1
        return places

    def unseen(self) -> Any:
        """Return the sorted keys that `find` did not see."""
        return self._keys[~self._seen]


class Inventory:
    """The facts, reflections, texts, policies and buffers of some agents. Blocks.

    Args:
        store: The store to read.
        agents: IDs of the agents.
    """

    def __init__(self, store: Store, agents: Sequence[str]) -> None:
        self._store = store
        self.agents = frozenset(agents)
        self.shelves = {kind: Shelf() for kind in KINDS}
        self.buffers = Shelf()
        self.vectors = Vectors()
        for kind, shelf in self.shelves.items():
            for model in self._read(kind, with_vectors=True):
                if isinstance(model, Fact):
                    self.vectors.add(model)
                shelf.add(key_of(model), mark(model))
                if isinstance(model, Consolidation) and model.unabsorbed_ids:
                    self.buffers.add(key_of_scope(model.home), mark_of_buffer(model.unabsorbed_ids))
            shelf.close()
        self.buffers.close()

    def _read(self, kind: RecordKind, *, with_vectors: bool = False) -> Iterator[Memory]:
        """Read the documents that queries find; damaged ones count as missing."""
        if not self.agents:
            return
        few = tuple(sorted(self.agents)) if len(self.agents) <= _FEW_AGENTS else ()
        walk = self._store.walk.documents
        for document in walk((kind,), Selection(agent_ids=few), with_vectors=with_vectors):
            if is_sound(document) and document.agent_id in self.agents:
                assert isinstance(document.record, Memory)
                yield document.record

    def find_other_buffers(self) -> Iterator[Scope]:
        """Yield the scopes of unseen buffers, from a second read."""
        unseen = set(self.buffers.unseen().tolist())
        if unseen:
            for model in self._read(RecordKind.CONSOLIDATION):
                if key_of(model).rstrip(b"\0") in unseen:
                    yield model.home

    def read_vectors(self) -> Iterator[Fact]:
        """Yield all facts with their vectors, from a second read."""
        for model in self._read(RecordKind.FACT, with_vectors=True):
            assert isinstance(model, Fact)
            yield model

    def surplus(self, kind: RecordKind) -> Iterator[list[Memory]]:
        """Yield batches of unseen documents, from a second read."""
        import numpy as np

        unseen = self.shelves[kind].unseen()
        if not len(unseen):
            return
        for models in batched(self._read(kind), _BATCH):
            keys = np.array([key_of(model) for model in models], dtype=f"S{_KEY}")
            places = np.minimum(np.searchsorted(unseen, keys), len(unseen) - 1)
            extra = (unseen[places] == keys).tolist()
            chosen = [model for model, is_extra in zip(models, extra, strict=True) if is_extra]
            if chosen:
                yield chosen


def is_sound(document: Document) -> bool:
    """Return whether a document can be read and found by queries."""
    return document.record is not None and not document.fault and not document.oddities


def mark_of_buffer(ids: Sequence[str]) -> int:
    """Return the 8-byte digest of the ordered IDs of a buffer."""
    return int.from_bytes(_hash(" ".join(ids))[:8], "big")


def content_of(model: Memory) -> str:
    """Return the text of a document; "" for a policy."""
    match model:
        case Fact(content=content) | Reflection(content=content):
            return content
        case Consolidation(consolidated_content=content):
            return content.strip()
    return ""


class Contents:
    """The contents of v1 and their scopes, to distinguish copies from new memories."""

    def __init__(self) -> None:
        self._anywhere = array("Q")
        self._here = array("Q")
        self._sorted: Any = None

    def add(self, model: Memory) -> None:
        """Add an expected document."""
        self._anywhere.append(self._mark(model))
        self._here.append(self._mark(model, model.home))

    def describe(self, model: Memory) -> Literal["duplicate", "copy", "extra"]:
        """Classify a surplus document."""
        import numpy as np

        if self._sorted is None:
            both = (self._anywhere, self._here)
            self._sorted = [np.sort(np.frombuffer(each, dtype=np.uint64)) for each in both]
        anywhere, here = self._sorted
        if not content_of(model):
            return "extra"
        if is_among(here, self._mark(model, model.home)):
            return "duplicate"
        return "copy" if is_among(anywhere, self._mark(model)) else "extra"

    def _mark(self, model: Memory, scope: Scope | None = None) -> int:
        where = model.agent_id if scope is None else scope.key
        return int.from_bytes(_hash(f"{where} {content_of(model)}")[:8], "big")


class Found:
    """The stored documents of some items."""

    def __init__(self, store: Store, expected: Sequence[Memory]) -> None:
        scopes: dict[type, list[Scope]] = {Consolidation: [], Policy: [], Fact: []}
        ids: dict[type, list[str]] = {Fact: [], Reflection: []}
        for each in expected:
            if not isinstance(each, Reflection):
                scopes[type(each)].append(each.home)
            if isinstance(each, Fact | Reflection):
                ids[type(each)].append(each.id)
        memory = store.memory
        self.texts = memory.consolidations(scopes[Consolidation]) if scopes[Consolidation] else {}
        self.policies = memory.policies(scopes[Policy]) if scopes[Policy] else {}
        self._reflections = memory.reflections_by_ids(ids[Reflection]) if ids[Reflection] else {}
        self._facts: dict[str, Fact | None] = {}
        if ids[Fact]:
            self._facts |= memory.facts_by_ids(list(dict.fromkeys(scopes[Fact])), ids[Fact])
            for id in ids[Fact]:
                if id not in self._facts:  # maybe in another scope
                    self._facts[id] = memory.fact(id)

    def memory(self, expected: Fact | Reflection) -> Fact | Reflection | None:
        """Return the fact or reflection with this ID, from any scope."""
        if isinstance(expected, Fact):
            return self._facts.get(expected.id)
        return self._reflections.get(expected.id)
