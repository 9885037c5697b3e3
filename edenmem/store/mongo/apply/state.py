"""Read the state by which changes are judged, with one query for each kind of need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from edenmem.memory import Answer, Disorder, Head, Needs, State
from edenmem.memory.state import VOID, plain
from edenmem.memory.texts import new_text
from edenmem.models.backup import StoredVersion
from edenmem.models.memory import Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.settings.schema import StoreSettings
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core import collections as names
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    IN_LIMIT,
    NOT_DELETED,
    Filter,
    build_consolidated_filters,
    fact_fields,
    group_filters,
    id_parts,
    object_id,
    owner_fields,
    policy_id,
)
from edenmem.store.mongo.core.transactions import Transaction
from edenmem.store.mongo.host import host_codec
from edenmem.store.mongo.memory.history import fact_origin, history_from, text_origin
from edenmem.store.mongo.memory.memory import BUFFER
from edenmem.store.protocol.store import batched

_ID = {"_id": 1}
_WITH_VECTOR = partial(codec.fact_from, with_vector=True)
#: Maximum number of documents to count for an account; fewer already show that it is in use.
_COUNTED = 20_000
#: The flags of pending reflections; old documents lack them.
WAITING: Filter = {"$in": [False, None]}


class Loader:
    """Loads one state, inside or outside a transaction.

    Attributes:
        stored: The documents found, without vectors, by kind and ID; policies by their scope's key.
    """

    def __init__(self, db: Connection | Transaction, settings: StoreSettings) -> None:
        self._find: Callable[..., Iterable[Document]] = db.find
        self._settings = settings
        self.stored: dict[tuple[str, str], Document] = {}

    def load(self, needs: Needs, at: datetime) -> State:
        """See `Changes.load_state`."""
        owners, expiring = self._owners(needs.owners)
        state = State(
            answers=self._answers(needs.answers),
            blocks=self._blocks(needs.blocks, at),
            reflections=self._read(
                "reflection", names.REFLECTIONS, needs.reflections, codec.reflection_from
            ),
            held=self._read("held", names.HELD, needs.held, codec.held_from),
            facts=self._read(
                "fact", names.FACTS, needs.facts | expiring, _WITH_VECTOR, {"embedding_next": 0}
            ),
            owners=owners,
            keys=self._keys(needs.keys),
            texts=self._texts(needs.texts | needs.buffers | needs.repairs),
            buffers=self._buffers(needs.buffers),
            policies=self._policies(needs.policies),
        )
        self._accounts(state, needs)
        texts = (state.texts.get(scope) for scope in needs.buffers)
        self._heads(
            state,
            needs.heads
            | {("fact", each) for each in expiring}
            | {("consolidation", each.id) for each in texts if each},
        )
        state.repairs = {scope: self._disorder(state, scope) for scope in needs.repairs}
        return state

    # -- memory ------------------------------------------------------------------------------

    def _by_id(self, collection: str, ids: Iterable[str], **more: Any) -> Iterator[Document]:
        for part in id_parts(ids):
            yield from self._find(collection, {"_id": {"$in": part}, **more})

    def _read(
        self,
        kind: str,
        collection: str,
        ids: Iterable[str],
        read: Callable[[Document], Any],
        hidden: Document | None = None,
    ) -> dict[str, Any]:
        """Return the readable models with these IDs, and keep their documents."""
        found: dict[str, Any] = dict.fromkeys(ids)
        for part in id_parts(found):
            for document in self._find(collection, {"_id": {"$in": part}}, hidden):
                for model in codec.read_owned(read, [document]):
                    document.pop("embedding", None)
                    found[model.id] = model
                    self.stored[kind, model.id] = document
        return found

    def _owners(
        self, wanted: set[tuple[Scope, str]]
    ) -> tuple[dict[tuple[Scope, str], str | None], set[str]]:
        """Return the facts with these hashes, and those among them that expire."""
        found: dict[tuple[Scope, str], str | None] = dict.fromkeys(wanted)
        expiring: set[str] = set()
        for owner in group_filters(sorted({scope for scope, _ in wanted}), fact_fields):
            for part in batched(sorted({digest for _, digest in wanted}), IN_LIMIT):
                key = {**owner, "hash": {"$in": part}}
                documents = self._find(names.FACTS, key, codec.NO_VECTOR)
                for fact in codec.read_owned(codec.fact_from, documents):
                    if (fact.home, fact.hash) in found:
                        found[fact.home, fact.hash] = fact.id
                        expiring |= {fact.id} if fact.expires_at is not None else set()
        return found, expiring

    def _keys(self, wanted: set[tuple[Scope, str]]) -> dict[tuple[Scope, str], str | None]:
        found: dict[tuple[Scope, str], str | None] = dict.fromkeys(wanted)
        for scope, key in wanted:
            for document in self._find(names.FACTS, {**fact_fields(scope), "key": key}, _ID):
                found[scope, key] = str(document["_id"])
        return found

    def _texts(self, scopes: set[Scope]) -> dict[Scope, Any]:
        found: dict[Scope, Any] = dict.fromkeys(scopes)
        for filter in build_consolidated_filters(sorted(scopes)):
            for document in self._find(names.CONSOLIDATED, filter):
                if (scope := codec.find_text_scope(document)) in found:
                    found[scope] = text = codec.consolidation_from(document)
                    self.stored["consolidation", text.id] = document
        return found

    def _buffers(self, scopes: set[Scope]) -> dict[Scope, dict[str, datetime]]:
        found: dict[Scope, dict[str, datetime]] = {scope: {} for scope in scopes}
        for reflection in self._waiting(scopes):
            if reflection.home in found:  # the narrowest of several kinds owns it
                found[reflection.home][reflection.id] = reflection.formed_at
        return found

    def _waiting(self, scopes: Iterable[Scope]) -> Iterator[Reflection]:
        for owner in group_filters(sorted(scopes)):
            key = {**owner, "absorbed": WAITING}
            yield from codec.read_owned(codec.reflection_from, self._find(names.REFLECTIONS, key))

    def _policies(self, scopes: set[Scope]) -> dict[Scope, Any]:
        found: dict[Scope, Any] = dict.fromkeys(scopes)
        for part in batched({policy_id(scope): scope for scope in scopes}.items(), IN_LIMIT):
            by_id = dict(part)
            for document in self._find(names.POLICIES, {"_id": {"$in": list(by_id)}}):
                scope = by_id[document["_id"]]
                # The ID is derived from the scope; the fields may be damaged.
                found[scope] = codec.policy_from({**document, **owner_fields(scope)})
                self.stored["policy", scope.key] = document
        return found

    def _disorder(self, state: State, scope: Scope) -> Disorder | None:
        """Return the stored and the correct buffer of a scope, or None if they agree."""
        text = state.texts[scope] or new_text("", scope)
        stored = self.stored.get(("consolidation", text.id), {}).get(BUFFER)
        listed = codec.text_ids(stored)
        waiting = sorted(self._waiting([scope]), key=lambda each: each.order)
        ids = tuple(each.id for each in waiting)
        if len(listed) == len(ids) and set(listed) == set(ids):
            return None
        before, after = (
            plain(msgspec.structs.replace(text, unabsorbed_ids=each)) for each in (listed, ids)
        )
        assert before is not None
        assert after is not None
        return Disorder(before=before, after=after)

    # -- the log -----------------------------------------------------------------------------

    def _answers(self, ids: set[str]) -> dict[str, Answer | None]:
        found: dict[str, Answer | None] = dict.fromkeys(ids)
        for document in self._by_id(names.AUDIT, ids):
            found[str(document["_id"])] = Answer(
                target_id=str(document["target_id"]), void=document["status"] == VOID
            )
        return found

    def _heads(self, state: State, targets: set[tuple[str, str]]) -> None:
        """Load the last entry in history for each target, and the origin of its current version."""
        state.heads = dict.fromkeys(targets)
        versions: dict[tuple[str, str], list[StoredVersion]] = {}
        for kind in sorted({kind for kind, _ in targets}):
            ids = [key for each, key in targets if each == kind]
            for part in id_parts(ids):
                key = {"target_type": kind, "target_id": {"$in": part}}
                bare = {"snapshot": 0, "content": 0}
                for version in map(history_from, self._find(names.HISTORY, key, bare)):
                    versions.setdefault((kind, version.target_id), []).append(version)
        for target in targets:
            last = max(versions.get(target, ()), key=lambda each: each.place, default=None)
            if last is not None:
                state.heads[target] = Head(version=last.version, life=last.life)
        texts = {text.id: text for text in state.texts.values() if text is not None}
        for target in targets & self.stored.keys():
            document, (_, id) = self.stored[target], target
            fact, text = state.facts.get(id), texts.get(id)
            if fact is not None:
                state.origins[target] = fact_origin(document, fact)
            elif text is not None and text.version:
                state.origins[target] = text_origin(document, text)

    def _blocks(self, keys: set[str], at: datetime) -> dict[str, bool]:
        found = dict.fromkeys(keys, False)
        for part in batched(sorted(keys), IN_LIMIT):
            for document in self._find(names.FORGETTINGS, {"blocks": {"$in": part}}):
                closed_at = codec.moment(document.get("closed_at"))
                if closed_at is None or closed_at >= at:
                    found.update(dict.fromkeys(keys.intersection(document["blocks"]), True))
        return found

    # -- accounts ----------------------------------------------------------------------------

    def _accounts(self, state: State, needs: Needs) -> None:
        users = self._settings.users_collection
        readers: tuple[tuple[str, set[str], dict[str, Any], Any], ...] = (
            ("agent", needs.agents, state.agents, host_codec.agent_from),
            ("user", needs.users, state.users, host_codec.user_from),
        )
        for kind, ids, accounts, read in readers:
            accounts.update(dict.fromkeys(ids))
            for document in self._by_id(users, ids, type=kind, **NOT_DELETED):
                accounts[str(document["_id"])] = read(document)
                self.stored[kind, str(document["_id"])] = document
        state.ids = dict.fromkeys(needs.ids, False)
        for document in self._by_id(users, needs.ids):
            state.ids[str(document["_id"])] = True
        state.names = dict.fromkeys(needs.names, False)
        for kind, name in needs.names:
            key = {"type": kind, "username": name}
            state.names[kind, name] = any(self._find(users, key, _ID, limit=1))
        state.used = {(kind, key): self._use(kind, key) for kind, key in needs.used}

    def _use(self, kind: str, account_id: str) -> dict[str, int]:
        """Count the data of an agent, or of an account with living agents."""
        users, account = self._settings.users_collection, object_id(account_id)
        use = {"sessions": self._count(self._settings.sessions_collection, {f"{kind}s": account})}
        owner: Filter = {"agent_id": account}
        kinds: Iterable[ScopeKind] = ScopeKind
        if kind == "agent":
            use["policies"] = self._count(names.POLICIES, {**owner, "version": {"$gte": 1}})
        else:
            agents: Filter = {"type": "agent", **NOT_DELETED}
            living = [each["_id"] for each in self._find(users, agents, _ID)]
            policies = self._policies({Scope.user(str(agent), account_id) for agent in living})
            use["policies"] = sum(1 for policy in policies.values() if policy is not None)
            use["agents"] = self._count(users, {**agents, "owner": account})
            owner = {"agent_id": {"$in": living}, "scope": "user", "user_id": account}
            kinds = (ScopeKind.USER,) if living else ()
        if kinds:
            for name in (names.FACTS, names.REFLECTIONS, names.HELD):
                use[name.removeprefix("memory2_")] = self._count(name, owner)
        for each in kinds:
            key = {**owner, "scope": each.value}
            texts = self._find(names.CONSOLIDATED, key, {"consolidated_content": 1})
            stored = (codec.text(text.get("consolidated_content")) for text in texts)
            written = sum(1 for text in stored if codec.split_version_line(text)[0])
            use["texts"] = use.get("texts", 0) + written
        document = self.stored.get((kind, account_id))
        more = "" if document is None else _more_in(document, kind)
        return {**use, more: 1} if more else use

    def _count(self, collection: str, filter: Filter) -> int:
        return sum(1 for _ in self._find(collection, filter, _ID, limit=_COUNTED))


def _more_in(document: Document, kind: str) -> str:
    """Return a note if the platform stored more fields in an account than edenmem, else ""."""
    if kind == "agent":
        agent = host_codec.agent_from(document)
        ours = host_codec.agent_document(msgspec.structs.replace(agent, owner=agent.id))
    else:
        ours = host_codec.user_document(host_codec.user_from(document))
    more = sorted(document.keys() - ours.keys())
    return f"has more fields in the host's collection: {', '.join(more)}" if more else ""
