"""What v2 must hold after a migration, computed from the documents of v1.

Written from v1's own rules: its canonical user, its lists, its shards taken by ``is_active: true``.
One dictionary after another, without a thought for speed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import md5
from typing import Any

from bson import ObjectId

from tests.v1world.memory import Item, Memory, Person, Policy, Scope, Text
from tests.v1world.world import ACCOUNTS, MEMORIES, SHARDS, USERS, Document

_HEX = re.compile("[0-9a-f]{24}")
_VERSION = re.compile(r"\s*VERSION:\s*(\d+)[ \t]*(?:\n|$)")
_WORD_COUNT = re.compile(r"^[ \t]*-- Total word count: \d+(?: --)?[ \t]*(?:\n|\Z)", re.MULTILINE)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
#: Greater numbers are milliseconds.
_SECONDS = 10**11

#: How v1 headed the parts of a text that it assembled, then and later.
_HEADERS = re.compile(r"^(?:-- User Memory for .* --|### .* memory content:)$", re.MULTILINE)
_TEXT_PART = re.compile(
    r"^#{2,3} (?:Consolidated user memory|Current consolidated shard memory"
    r"|Current Consolidated Memory):$",
    re.MULTILINE,
)
_LIST_PART = re.compile(
    r"^#{2,3} (?:Recent user directives|Shard facts|Recent shard suggestions|Facts"
    r"|Recent Suggestions to consider):$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Options:
    """The options of a run that decide what it makes."""

    shards: str = "merge"
    provenance: bool = False
    episodes: str = "leave"
    #: Whether accounts are the store's own, so that people come along.
    own_accounts: bool = True

    def arguments(self) -> list[str]:
        """Return them as a command has them."""
        given = ["--shards", self.shards, "--episodes", self.episodes]
        return [*given, "--provenance"] if self.provenance else given


# -- values --------------------------------------------------------------------------------------


def id_of(value: Any) -> str | None:
    """Return an id, however it was stored; None for what is none."""
    if isinstance(value, Mapping) and set(value) == {"$oid"}:
        value = value["$oid"]
    if isinstance(value, ObjectId):
        return str(value)
    if isinstance(value, str) and _HEX.fullmatch(value.strip().lower()):
        return value.strip().lower()
    return None


def ids_of(value: Any) -> list[str]:
    """Return the ids in a list, in order, without what is none."""
    if isinstance(value, Mapping) and "$oid" not in value:
        value = list(value.values())
    elif not isinstance(value, list):
        value = [value]
    return [found for each in value if (found := id_of(each))]


def ms_of(value: Any) -> int | None:
    """Return a time in milliseconds since 1970; None for what is none."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // _MILLISECOND
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value * 1000) if abs(value) <= _SECONDS else int(value)
    if isinstance(value, str):
        try:
            return ms_of(datetime.fromisoformat(value.strip()))
        except ValueError:
            return None
    return None


_MILLISECOND = timedelta(milliseconds=1)


def created_at(document: Document) -> int:
    """Return when a document was made."""
    for field in ("createdAt", "created_at"):
        if (found := ms_of(document.get(field))) is not None:
            return found
    return int(str(document["_id"])[:8], 16) * 1000


def updated_at(document: Document) -> int | None:
    """Return when a document was last written, if that is known."""
    found = ms_of(document.get("updatedAt"))
    return found if found is not None else ms_of(document.get("updated_at"))


def written_at(document: Document) -> int:
    """Return when the text of a document was last written."""
    for found in (ms_of(document.get("last_updated_at")), updated_at(document)):
        if found is not None:
            return found
    return created_at(document)


def clean(value: Any) -> str:
    """Return a text without what no store can hold."""
    text = _plain(value)
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def _plain(value: Any) -> str:
    """Return what a person reads in a value that should be a text."""
    if isinstance(value, Mapping):
        return "\n".join(f"{_plain(key)}: {_plain(each)}" for key, each in value.items())
    if isinstance(value, list):
        return "\n".join(map(_plain, value))
    return "" if value is None else str(value)


def kind_of(memory: Document) -> str:
    """Return the type of a memory; empty for none, and for what is no type."""
    kind = memory.get("memory_type")
    return kind.strip().lower() if isinstance(kind, str) else ""


def number_of(value: Any) -> int | None:
    """Return a limit of v1, if it is one."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return int(value) if is_number and value >= 1 else None


# -- texts ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Told:
    """The text of a document."""

    content: str
    version: int
    whole: str
    marked: bool


def text_of(document: Document) -> _Told:
    """Return the text of a document: its content, or what only its assembled copy has."""
    content, version = _split(clean(document.get("content")))
    if content:
        return _Told(content, version, content, marked=False)
    field = "fully_formed_memory"
    assembled = document.get(field) or document.get(f"{field}_shard")
    whole, version = _split(clean(assembled))
    content, inner = _split(_own_part(whole))
    return _Told(content, max(version, inner), whole if content else "", marked=bool(content))


def _split(text: str) -> tuple[str, int]:
    """Return a text without its VERSION line and v1's word counts, and its number."""
    version, found = 1, _VERSION.match(text)
    if found:
        version, text = max(int(found[1]), 1), text[found.end() :]
    return _WORD_COUNT.sub("", text).strip(), version


def _own_part(whole: str) -> str:
    """Return what of an assembled text is neither header nor a list of memories."""
    text = _HEADERS.sub("", whole)
    kept, at, is_list = [], 0, False
    parts = sorted(
        [*_TEXT_PART.finditer(text), *_LIST_PART.finditer(text)], key=lambda m: m.start()
    )
    for part in parts:
        if not is_list:
            kept.append(text[at : part.start()])
        at, is_list = part.end(), part.re is _LIST_PART
    if not is_list:
        kept.append(text[at:])
    return "\n\n".join(filter(None, (each.strip() for each in kept)))


def _versions(told: Iterable[_Told]) -> int:
    """Return the number that the last of some texts has: none goes back."""
    version = 0
    for each in told:
        version = max(version + 1, each.version)
    return version


# -- v1 ------------------------------------------------------------------------------------------


def _first(database: Mapping[str, list[Document]], collection: str) -> list[Document]:
    """Return the documents of a collection; of several with one id, the first."""
    found: dict[str | None, Document] = {}
    for each in database.get(collection, ()):
        found.setdefault(id_of(each["_id"]), each)
    return list(found.values())


class V1:
    """v1's documents, looked up."""

    def __init__(self, database: Mapping[str, list[Document]], options: Options) -> None:
        self.options = options
        self.accounts = {str(each["_id"]): each for each in database.get(ACCOUNTS, ())}
        self.people = {
            account: id_of(each.get("eden_user_id")) or account
            for account, each in self.accounts.items()
            if each.get("type") != "agent"
        }
        self.memories = {id_of(each["_id"]) or "": each for each in _first(database, MEMORIES)}
        self.user_texts = [
            each
            for each in _first(database, USERS)
            if id_of(each.get("agent_id")) and id_of(each.get("user_id"))
        ]
        self.shards = sorted(
            (each for each in _first(database, SHARDS) if id_of(each.get("agent_id"))),
            key=lambda each: (created_at(each), str(each["_id"])),
        )
        self._shards = {id(each) for each in self.shards}
        self.shard_names = self._name_shards()
        self.listings = list(self._list())
        self.agent_of_memory = self._adopt()

    def person(self, account: str) -> str:
        """Return the canonical user of an account."""
        return self.people.get(account, account)

    def related(self, memory: Document) -> frozenset[str]:
        """Return the people that a memory is about."""
        return frozenset(map(self.person, ids_of(memory.get("related_users"))))

    def _name_shards(self) -> dict[str, str]:
        taken: dict[str, set[str]] = defaultdict(set)
        names = {}
        for shard in self.shards:
            agent = id_of(shard["agent_id"])
            assert agent
            name = " ".join(clean(shard.get("shard_name")).split())
            name = name or f"shard {str(shard['_id'])[:8]}"
            numbered, n = name, 1
            while numbered in taken[agent]:
                n += 1
                numbered = f"{name} ({n})"
            taken[agent].add(numbered)
            names[str(shard["_id"])] = numbered
        return names

    def is_shard(self, document: Document) -> bool:
        """Whether a document is a shard; else it is a user's text."""
        return id(document) in self._shards

    def is_merged(self, shard: Document) -> bool:
        """Whether a shard becomes part of the agent's own memory."""
        return self.options.shards == "merge" and shard.get("is_active") is True

    def scope_of(self, document: Document) -> Scope:
        """Return the scope that a user's text or a shard becomes."""
        agent = id_of(document["agent_id"])
        assert agent
        if not self.is_shard(document):
            user = id_of(document["user_id"])
            assert user
            return Scope("user", agent, self.person(user))
        if self.is_merged(document):
            return Scope("agent", agent)
        return Scope("shard", agent, self.shard_names[str(document["_id"])])

    # -- lists -------------------------------------------------------------------------------------

    def _list(self) -> Iterator[_Listing]:
        """Give each place of each list, those of older field names first."""
        for text in sorted(self.user_texts, key=lambda each: (written_at(each), str(each["_id"]))):
            yield from self._places(text, "pending", "unabsorbed_directive_ids")
            yield from self._places(text, "pending", "unabsorbed_memory_ids")
        for shard in self.shards:
            yield from self._places(shard, "fact", "relevant_facts")
            yield from self._places(shard, "fact", "facts")
            yield from self._places(shard, "pending", "unabsorbed_memory_ids")

    def _places(self, lister: Document, role: str, field: str) -> Iterator[_Listing]:
        for memory_id in ids_of(lister.get(field)):
            yield _Listing(memory_id, role, lister, self.scope_of(lister))

    def _adopt(self) -> dict[str, str | None]:
        """Return whose each memory is; one of nobody is the agent's whose lists have it."""
        listers: dict[str, set[str]] = defaultdict(set)
        for listing in self.listings:
            listers[listing.memory].add(listing.scope.agent)
        found = {}
        for memory_id, memory in self.memories.items():
            only = listers[memory_id] if len(listers[memory_id]) == 1 else set()
            found[memory_id] = id_of(memory.get("agent_id")) or next(iter(only), None)
        return found

    def is_followed(self, listing: _Listing) -> bool:
        """Whether what a list names belongs there."""
        memory = self.memories.get(listing.memory)
        if memory is None or self.agent_of_memory[listing.memory] != listing.scope.agent:
            return False
        kind = kind_of(memory)
        if self.is_shard(listing.lister):
            return kind in ("fact", "suggestion", "")
        people = [self.person(each) for each in ids_of(memory.get("related_users"))]
        is_theirs = not memory.get("related_users") or listing.scope.owner in people
        return kind in ("directive", "fact", "suggestion", "") and is_theirs

    def uses(self) -> dict[tuple[Scope, str], list[str]]:
        """Scope and role → memories, each once, in the order of the lists.

        A memory without type may be anybody's: it goes no wider than the narrowest place.
        """
        places: dict[str, list[_Listing]] = defaultdict(list)
        for listing in self.listings:
            if self.is_followed(listing):
                places[listing.memory].append(listing)
        found: dict[tuple[Scope, str], list[str]] = defaultdict(list)
        for listing in self.listings:
            followed = places.get(listing.memory, [])
            if listing not in followed:
                continue
            if not kind_of(self.memories[listing.memory]):
                narrowest = max(_NARROW[each.scope.kind] for each in followed)
                if _NARROW[listing.scope.kind] < narrowest:
                    continue
            uses = found[listing.scope, listing.role]
            if listing.memory not in uses:
                uses.append(listing.memory)
        return found


_NARROW = {"agent": 0, "shard": 1, "user": 2}


@dataclass(frozen=True, eq=False)
class _Listing:
    memory: str
    role: str
    lister: Document
    scope: Scope


# -- what is expected ----------------------------------------------------------------------------


def expect(database: Mapping[str, list[Document]], options: Options) -> Memory:
    """Compute the memory that a run over a database makes in an empty store."""
    v1 = V1(database, options)
    uses = v1.uses()
    memory = Memory()
    memory.texts = [*_user_texts(v1), *_shard_texts(v1)]
    memory.policies = list(_policies(v1))
    spread: dict[tuple[str, str], int] = defaultdict(int)
    for (_, role), members in uses.items():
        for each in members:
            spread[each, role] += 1
    for (scope, role), members in uses.items():
        if role == "fact":
            memory.facts += _facts(v1, scope, members, spread)
        else:
            waiting = _waiting(v1, scope, members, spread)
            memory.reflections += waiting
            memory.pending[scope] = [each.content for each in waiting]
    if options.provenance:
        memory.reflections += _absorbed(v1, {each for all in uses.values() for each in all})
    if options.episodes == "keep":
        for each in _episodes(v1):
            memory.reflections.append(each)
    memory.people = _people(v1, {text.scope for text in memory.texts})
    return memory


def _user_texts(v1: V1) -> Iterator[Text]:
    pairs: dict[Scope, list[Document]] = defaultdict(list)
    for document in sorted(v1.user_texts, key=lambda each: (written_at(each), str(each["_id"]))):
        pairs[v1.scope_of(document)].append(document)
    for scope, documents in pairs.items():
        told = [(text_of(each), each) for each in documents]
        written = [(text, each) for text, each in told if text.content]
        if not written:
            continue
        text, newest = written[-1]
        before = [each for each, _ in written[:-1] if each.content != text.content]
        yield Text(
            scope,
            text.content,
            version=_versions([*before, text]),
            updated_at=written_at(newest),
            accepted=(text.whole,),
            earlier=tuple(each.content for each in before),
            marked=text.marked,
        )


def _shard_texts(v1: V1) -> Iterator[Text]:
    merged: dict[Scope, list[Document]] = defaultdict(list)
    for shard in v1.shards:
        text = text_of(shard)
        if not text.content:
            continue
        scope = v1.scope_of(shard)
        if v1.is_merged(shard):
            merged[scope].append(shard)
            continue
        yield Text(
            scope,
            text.content,
            version=text.version,
            updated_at=written_at(shard),
            accepted=(text.whole,),
            marked=text.marked,
        )
    for scope, shards in merged.items():
        told = [text_of(each) for each in shards]
        yield Text(
            scope,
            _sections((v1.shard_names[str(s["_id"])], t.content) for s, t in _both(shards, told)),
            version=max(each.version for each in told),
            updated_at=max(map(written_at, shards)),
            accepted=(
                _sections((v1.shard_names[str(s["_id"])], t.whole) for s, t in _both(shards, told)),
            ),
            marked=any(each.marked for each in told),
        )


def _both(shards: list[Document], told: list[_Told]) -> Iterable[tuple[Document, _Told]]:
    return zip(shards, told, strict=True)


def _sections(named: Iterable[tuple[str, str]]) -> str:
    return "\n\n".join(f"## {name}\n\n{text}" for name, text in named)


def _policies(v1: V1) -> Iterator[Policy]:
    merged: dict[Scope, list[tuple[str, str]]] = defaultdict(list)
    for shard in v1.shards:
        name = v1.shard_names[str(shard["_id"])]
        instructions = clean(shard.get("extraction_prompt")).strip()
        if v1.is_merged(shard):
            if instructions:
                merged[v1.scope_of(shard)].append((name, instructions))
            continue
        yield Policy(
            v1.scope_of(shard),
            instructions=instructions or None,
            consolidate_at=number_of(shard.get("max_agent_memories_before_consolidation")),
            fact_buffer_max=number_of(shard.get("max_facts_per_shard")),
            active=shard.get("is_active") is True,
        )
    for scope, named in merged.items():
        yield Policy(scope, instructions=_sections(named))


def _item(v1: V1, scope: Scope, memory: Document, **fields: Any) -> Item:
    made, changed = created_at(memory), updated_at(memory)
    own: dict[str, Any] = {
        "content": clean(memory.get("content")).strip(),
        "formed_at": made,
        "updated_at": changed if changed is not None and changed > made else None,
        "session": id_of(memory.get("source_session_id")),
        "messages": tuple(ids_of(memory.get("source_message_ids"))),
        "related": v1.related(memory),
    }
    return Item(scope, **{**own, **fields})


def _facts(
    v1: V1, scope: Scope, members: list[str], spread: Mapping[tuple[str, str], int]
) -> Iterator[Item]:
    equal: dict[str, list[Document]] = defaultdict(list)
    for memory_id in members:
        memory = v1.memories[memory_id]
        if content := clean(memory.get("content")).strip():
            equal[content].append(memory)
    for content, memories in equal.items():
        memories.sort(key=lambda each: (created_at(each), str(each["_id"])))
        messages = [m for each in memories for m in ids_of(each.get("source_message_ids"))]
        yield _item(
            v1,
            scope,
            memories[0],
            messages=tuple(dict.fromkeys(messages)),
            related=frozenset[str]().union(*(v1.related(each) for each in memories)),
            hash=md5(content.encode(), usedforsecurity=False).hexdigest(),
            merged=len(memories) > 1,
        )


def _waiting(
    v1: V1, scope: Scope, members: list[str], spread: Mapping[tuple[str, str], int]
) -> list[Item]:
    items = []
    for memory_id in sorted(members, key=lambda each: created_at(v1.memories[each])):
        item = _item(v1, scope, v1.memories[memory_id])
        if item.content:
            items.append(item)
    return items


def _absorbed(v1: V1, used: set[str]) -> Iterator[Item]:
    """What no list has any more, and of which it is plain whose text it went into."""
    written: dict[Scope, int] = {}
    for document in (*v1.user_texts, *v1.shards):
        scope = v1.scope_of(document)
        written[scope] = max(written.get(scope, 0), written_at(document))
    listed = {each.memory for each in v1.listings}
    homes = {str(each["_id"]): each for each in v1.shards}
    for memory_id, memory in v1.memories.items():
        agent = v1.agent_of_memory[memory_id]
        if memory_id in used or memory_id in listed or agent is None:
            continue
        scope = None
        if kind_of(memory) == "directive":
            people = v1.related(memory)
            if len(people) == 1:
                scope = Scope("user", agent, next(iter(people)))
        elif kind_of(memory) == "suggestion":
            shard = homes.get(id_of(memory.get("shard_id")) or "")
            if shard is not None and id_of(shard["agent_id"]) == agent:
                scope = v1.scope_of(shard)
        if scope in written:
            at = max(written[scope], created_at(memory))
            item = _item(v1, scope, memory, absorbed=True, absorbed_at=at)
            if item.content:
                yield item


def _episodes(v1: V1) -> Iterator[Item]:
    for memory_id, memory in v1.memories.items():
        session = id_of(memory.get("source_session_id"))
        agent = v1.agent_of_memory[memory_id]
        if kind_of(memory) == "episode" and session and agent:
            item = _item(v1, Scope("session", agent, session), memory)
            if item.content:
                yield item


def _people(v1: V1, scopes: set[Scope]) -> dict[str, Person]:
    """Agents with their switches; the accounts of people that have a text here."""
    found: dict[str, Person] = {}
    agents = {id_of(each["agent_id"]) for each in (*v1.user_texts, *v1.shards)}
    agents |= set(v1.agent_of_memory.values())
    for agent in agents:
        account = v1.accounts.get(agent or "")
        if account is None or account.get("type") != "agent" or account.get("deleted"):
            continue
        assert agent
        own = [each for each in v1.shards if id_of(each["agent_id"]) == agent]
        enabled = any(each.get("is_active") is True for each in own)
        known = Person(agent, is_agent=True, agent_memory=enabled if own else None)
        if v1.options.own_accounts:
            known = Person(
                agent,
                username=account["username"],
                name=account.get("name") or "",
                persona=account.get("persona") or "",
                owner=id_of(account.get("owner")),
                user_memory=account.get("user_memory_enabled") is True,
                agent_memory=enabled,
                is_agent=True,
            )
        found[agent] = known
    if v1.options.own_accounts:
        people = {scope.owner for scope in scopes if scope.kind == "user"}
        for account_id, person in v1.people.items():
            account = v1.accounts[account_id]
            if person in people and not account.get("deleted"):
                found[account_id] = Person(account_id, account["username"], person=person)
    return found
