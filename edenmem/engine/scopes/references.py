"""Resolve names and ID prefixes, the scope of command options, and the person of an account.

Every ID can be replaced by a username, the name of a session or shard, or a unique prefix of the
ID. No match and several matches are errors. A missing option never widens a scope.

`Resolver.target` resolves a reference to any kind of object.

A person is all accounts linked by ``eden_user_id``. A user scope belongs to one account, so the
memory of a person has one scope per account. These scopes are read together, but written
separately. A new or removed link moves no memory; it takes effect with the next lookup.

Every account belongs to exactly one person, whose canonical ID is the account's ``eden_user_id``
or, without one, the account's ID. Links are not transitive. Memory under the canonical ID belongs
to the person even if this account was deleted or never existed; memory under other deleted
accounts is not readable.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from edenmem.errors import AmbiguousReference, NotFoundError, ScopeError, UsageError
from edenmem.invalid import nearest_word
from edenmem.models.formation import Formation
from edenmem.models.host import Agent, Person, Session, User
from edenmem.models.ids import is_id
from edenmem.models.memory import Fact, Reflection
from edenmem.models.scope import OWNER_FIELD, Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.store.protocol.host import Reference
from edenmem.store.protocol.host import ReferenceKind as ReferenceKind
from edenmem.store.protocol.memory import AuditKey
from edenmem.store.protocol.store import Store
from edenmem.text import name_spellings, normalize_name, one_line

T = TypeVar("T")

#: Minimum length of an ID prefix, as in `Store.find`.
MIN_PREFIX = 4

#: Kinds that also have names.
_NAMED: frozenset[ReferenceKind] = frozenset({"agent", "user", "session"})

_HINTS: dict[ReferenceKind, str] = {
    "agent": "list agents: edenmem agent list; add one: edenmem agent add NAME",
    "user": "list users: edenmem user list; add one: edenmem user add NAME",
    "session": "list sessions: edenmem session list; add sessions: edenmem import FILE",
    "fact": "list facts: edenmem fact list --agent NAME",
    "reflection": "list reflections: edenmem reflection list --agent NAME",
    "formation": "list unfinished formations: edenmem cold status",
}


#: Maximum number of names to compare an unknown name with.
_COMPARED = 2_000

TargetKind = Literal["fact", "reflection", "session", "agent", "user", "entry", "scope"]

#: What a reference can name, in the order of the search.
TARGETS: tuple[TargetKind, ...] = get_args(TargetKind)

#: What can be removed and restored.
_REMOVABLE: tuple[TargetKind, ...] = ("fact", "reflection")

#: Kind of target → its noun with an article.
NOUNS: dict[TargetKind, str] = {
    **{kind: f"a {kind}" for kind in TARGETS},
    "agent": "an agent",
    "entry": "a log entry",
}

#: What `Resolver.logged_id` finds, by key.
_LOGGED: dict[AuditKey, str] = {"entry": "log entry", "target": "changed object", "run": "run"}

#: A scope as text; its last part may contain "/" and ":".
_SCOPE = re.compile(
    r"(?P<agent>.+?)/(?:agent|(?P<kind>user|group|shard|session):(?P<owner>.+))", re.DOTALL
)


class Target(NamedTuple):
    """What a reference names: an object by ID, which may have been removed, or a scope."""

    kind: TargetKind
    id: str
    scope: Scope | None = None


class Resolver:
    """Find agents, users, sessions and memories by name, ID or ID prefix.

    All methods raise `NotFoundError`, with the command to list or add objects as the hint, or
    `AmbiguousReference` with the candidates.
    """

    def __init__(self, store: Store, *, suggest: bool = False) -> None:
        self._store = store
        self._suggest = suggest

    def suggesting(self) -> Resolver:
        """Return a resolver whose errors suggest similar names, for callers who may list names."""
        return Resolver(self._store, suggest=True)

    def target(
        self,
        text: str,
        kinds: Sequence[TargetKind] = TARGETS,
        *,
        removed: bool = False,
        new_group: bool = False,
    ) -> Target:
        """Return what a reference names: an exact ID, a scope, a name, or an ID prefix.

        ``user:lena`` names only users, ``mira/user:lena`` and ``mira/agent`` are scopes.

        Args:
            text: The reference.
            kinds: The kinds of target that the caller accepts.
            removed: Also accept IDs of removed facts and reflections.
            new_group: Accept the scope of a group that does not exist yet.

        Raises:
            UsageError: the target is of another kind.
        """
        given = text.strip()
        head, colon, rest = given.partition(":")
        only = next((kind for kind in TARGETS if colon and kind == head), None)
        name = rest.strip() if only else given
        found = self._target(name, [only] if only else kinds, new_group)
        if found is None and removed and only in (None, *_REMOVABLE):
            found = self._removed(name)
        if found is None and not only:  # a better error than "not found"
            found = self._target(name, [kind for kind in TARGETS if kind not in kinds])
        if found is None or only not in (None, found.kind):
            raise self._no_target(name, only)
        if found.kind not in kinds:
            *others, last = (NOUNS[kind] for kind in kinds)
            wanted = f"{', '.join(others)} or {last}" if others else last
            raise UsageError(f"{given!r} is {NOUNS[found.kind]}", hint=f"expected {wanted}")
        return found

    def _target(
        self, text: str, kinds: Sequence[TargetKind], new_group: bool = False
    ) -> Target | None:
        """Return the best match of these kinds, or None.

        Raises:
            AmbiguousReference: several targets match equally well.
        """
        if "scope" in kinds and (parts := _SCOPE.fullmatch(text)):
            kind = parts["kind"] or "agent"
            owner: dict[str, Any] = {kind: parts["owner"]} if parts["owner"] else {}
            scope = self.scope(kind, agent=parts["agent"], new_group=new_group, **owner)
            return Target("scope", text, scope)
        found: list[tuple[TargetKind, Reference]] = []
        for kind in kinds:
            if kind == "entry" and not object_to_id(text):
                ids = self._store.log.find_audited("entry", text)
                found += [("entry", Reference(id=each, label="")) for each in ids]
            elif kind != "entry" and kind != "scope":
                found += [(kind, reference) for reference in self._find(kind, text)]
        found = _best(text, found)
        if not found:
            return None
        (kind, reference), *others = found
        if not others:
            return Target(kind, reference.id)
        if all(other == kind for other, _ in others):
            if kind == "user":  # perhaps of one person
                return Target("user", self.user(text).id)
            raise AmbiguousReference(kind, text, [_candidate(each) for _, each in found])
        candidates = [f"{kind}:{_candidate(reference)}" for kind, reference in found]
        raise AmbiguousReference("reference", text, candidates)

    def _removed(self, text: str) -> Target | None:
        """Return the removed fact or reflection with this ID or ID prefix, which the log knows."""
        if object_to_id(text):
            return None
        target_id = self._logged("target", text, "reference")
        for entry in self._store.log.audit(target_id=target_id, limit=1) if target_id else ():
            for kind in _REMOVABLE:
                if entry.target_type == kind:
                    return Target(kind, entry.target_id)
        wanted = text.lower()
        is_known = is_id(wanted) and self._store.history.versions("fact", wanted)
        return Target("fact", wanted) if is_known else None

    def logged_id(self, key: AuditKey, text: str) -> str:
        """Return the full ID of an entry, of a changed or deleted object, or of a run."""
        if (found := self._logged(key, text.strip(), key)) is None:
            raise NotFoundError(
                f"{_LOGGED[key]} not found: {text!r}",
                hint="list entries: edenmem log (a unique ID prefix of 4 digits is enough)",
            )
        return found

    def _logged(self, key: AuditKey, text: str, what: str) -> str | None:
        wanted = text.lower()
        ids = self._store.log.find_audited(key, wanted)
        if len(ids) > 1 and wanted not in ids:
            raise AmbiguousReference(what, text, list(ids))
        return wanted if wanted in ids else next(iter(ids), None)

    def _no_target(self, text: str, only: TargetKind | None) -> NotFoundError:
        if only is not None and only != "entry" and only != "scope":
            return self._unknown(only, text)
        is_short = len(text) < MIN_PREFIX and not set(text.lower()) - set("0123456789abcdef")
        if text and is_short:
            return NotFoundError(str(object_to_id(text)))
        names = [name for kind in ("agent", "user", "session") for name in self._names(kind)]
        near = nearest_word(text, names) if self._suggest else None
        return NotFoundError(
            f"{only or 'reference'} not found: {text!r}",
            hint=f"did you mean {near!r}?"
            if near
            else "use an ID, an ID prefix of 4 or more digits, a name, or a scope such as"
            " mira/user:lena",
        )

    def agent(self, text: str) -> Agent:
        """Return the agent with this username, ID or ID prefix."""
        return self._existing("agent", text, self._store.host.agent)

    def user(self, text: str) -> User:
        """Return the account with this username, ID or ID prefix.

        Among several accounts of one person the canonical one wins.
        """
        found = self._accounts(text)
        if not found:
            raise self._unknown("user", text)
        if len({user.person_id for user in found}) > 1:
            raise AmbiguousReference("user", text, list(map(_account, found)))
        return next((user for user in found if user.id == user.person_id), found[0])

    def user_id(self, text: str, *, agent_id: str | None = None) -> str:
        """Return the ID of the account with this username, ID or ID prefix.

        The full ID of a deleted or unknown account is accepted if accounts are linked to it, or if
        it owns a scope (of ``agent_id``, if set), so that its memory stays accessible.
        """
        try:
            return self.user(text).id
        except NotFoundError:
            if is_id(text):
                left = self._store.memory.scopes(
                    agent_id=agent_id, kinds=[ScopeKind.USER], user_ids=[text]
                )
                if person_with(self._store, text).accounts or any(left):
                    return text
            raise

    def account_id(
        self, text: str, *, user_id: str | None = None, agent_id: str | None = None
    ) -> str:
        """Return the ID of one account; with ``user_id``, of one of this user's accounts.

        Raises:
            UsageError: the account belongs to a different user.
        """
        found = self._accounts(text)
        if user_id is not None:
            person = person_of(self._store, user_id)
            found = [each for each in found if each.id in person.ids] or found
        if len(found) > 1:
            raise AmbiguousReference("account", text, list(map(_account, found)))
        account_id = found[0].id if found else self.user_id(text, agent_id=agent_id)
        resolve_person(self._store, user_id, account_id)
        return account_id

    def session(self, text: str) -> Session:
        """Return the session with this name, title, ID or ID prefix."""
        return self._existing("session", text, self._store.host.session)

    def fact(self, text: str) -> Fact:
        """Return the fact with this ID or ID prefix."""
        return self._existing("fact", text, self._store.memory.fact)

    def reflection(self, text: str) -> Reflection:
        """Return the reflection with this ID or ID prefix."""
        return self._existing("reflection", text, self._store.memory.reflection)

    def formation(self, text: str) -> Formation:
        """Return the formation with this ID or ID prefix."""
        return self._existing("formation", text, self._store.formations.formation)

    def shard(self, agent: Agent, text: str) -> str:
        """Return the name of the agent's shard, ignoring case."""
        policies = self._store.memory.shards(agent.id)
        names = [policy.shard for policy in policies if policy.shard]
        if text not in names:
            # A shard without a policy may still have memory.
            stored = self._store.memory.scopes(agent_id=agent.id, kinds=[ScopeKind.SHARD])
            names += [summary.scope.owner for summary in stored]
        by_id = [
            policy.shard
            for policy in policies
            if policy.shard and policy.id.startswith(text) and not object_to_id(text)
        ]
        for candidates in (
            [name for name in names if name == text],
            [name for name in names if normalize_name(name) == normalize_name(text)],
            [name for name in names if fold(name) == fold(text)],
            by_id,
        ):
            unique = sorted(set(candidates))
            if len(unique) == 1:
                return unique[0]
            if unique:
                raise AmbiguousReference("shard", text, unique)
        known = f"shards: {', '.join(sorted(set(names)))}; " if names else ""
        command = f"scope policy --agent {agent.username} --shard NAME --memory-instructions TEXT"
        raise NotFoundError(
            f"agent {agent.username!r} has no shard {text!r}",
            hint=f"{known}create one: edenmem {command}",
        )

    def group(self, agent: Agent, text: str, *, new: bool = False) -> str:
        """Return the ID of a group; ``new`` accepts a group that does not exist yet.

        The host has no list of groups: a group exists if a session or a memory refers to it. A
        unique prefix of the 24-digit ID of a stored group means this group; any other text is
        the ID itself.
        """
        group = self._full_group_id(agent, text)
        scope, memory = Scope.group(agent.id, group), self._store.memory
        if not new and not (
            any(self._store.host.sessions(group_id=group, limit=1))
            or memory.policies([scope])
            or memory.consolidations([scope])
            or any(memory.facts(FactFilter(scopes=(scope,)), limit=1))
            or any(memory.reflections([scope], limit=1))
        ):
            raise NotFoundError(
                f"no session or memory of agent {agent.username!r} has group {text!r}",
                hint="list groups: edenmem group list (a group is its ID in the sessions)",
            )
        return group

    def _full_group_id(self, agent: Agent, text: str) -> str:
        if object_to_id(text):
            return text
        stored = self._store.memory.scopes(agent_id=agent.id, kinds=[ScopeKind.GROUP])
        owners = sorted({s.scope.owner for s in stored if s.scope.owner.startswith(text)})
        if text in owners:
            return text
        owners = [owner for owner in owners if is_id(owner)]
        if len(owners) > 1:
            raise AmbiguousReference("group", text, owners)
        return owners[0] if owners else text

    def scope(
        self,
        kind: ScopeKind | str,
        *,
        agent: Agent | str | None,
        user: str | None = None,
        group: str | None = None,
        shard: str | None = None,
        session: str | None = None,
        new: bool = False,
        new_group: bool = False,
    ) -> Scope:
        """Return the scope of these options.

        ``new`` accepts a shard or group that does not exist yet, ``new_group`` only a group.

        Raises:
            ScopeError: the kind requires another option, or excludes an option.
        """
        if kind not in set(ScopeKind):
            kinds = ", ".join(ScopeKind)
            raise ScopeError(f"unknown scope: {str(kind)!r}", hint=f"scopes: {kinds}")
        kind = ScopeKind(kind)
        given = {"user_id": user, "group_id": group, "shard": shard, "session_id": session}
        _check_options(kind, given, agent)
        assert agent is not None
        owner = agent if isinstance(agent, Agent) else self.agent(agent)
        if user:
            return Scope.user(owner.id, self.user_id(user, agent_id=owner.id))
        if group:
            return Scope.group(owner.id, self.group(owner, group, new=new or new_group))
        if shard:
            try:
                return Scope.shard(owner.id, self.shard(owner, shard))
            except NotFoundError:
                if new:
                    return Scope.shard(owner.id, normalize_name(shard))
                raise
        if session:
            return Scope.session(owner.id, self._session_id(owner, session))
        return Scope.agent(owner.id)

    def _session_id(self, agent: Agent, text: str) -> str:
        """Return the ID of a session; a full ID may belong to a deleted session with memory."""
        try:
            return self.session(text).id
        except NotFoundError:
            if is_id(text):
                scope = Scope.session(agent.id, text)
                left = self._store.memory.reflections([scope], limit=1)
                if any(left) or self._store.memory.consolidations([scope]):
                    return text
            raise

    def _accounts(self, text: str) -> list[User]:
        found = (self._store.host.user(reference.id) for reference in self._find("user", text))
        return [user for user in found if user is not None]

    def _find(self, kind: ReferenceKind, text: str) -> Sequence[Reference]:
        text = text.strip()
        return find_references(self._store, kind, text) if text else ()

    def _existing(self, kind: ReferenceKind, text: str, read: Callable[[str], T | None]) -> T:
        ids = self._find(kind, text)
        if len(ids) > 1:
            raise AmbiguousReference(kind, text, [_candidate(reference) for reference in ids])
        found = read(ids[0].id) if ids else None  # may be deleted since the lookup
        if found is None:
            raise self._unknown(kind, text)
        return found

    def _unknown(self, kind: ReferenceKind, text: str) -> NotFoundError:
        if kind not in _NAMED and (objection := object_to_id(text)):
            return NotFoundError(objection, hint=_HINTS[kind])
        near = nearest_word(text, self._names(kind)) if self._suggest else None
        hint = f"did you mean {near!r}? {_HINTS[kind]}" if near else _HINTS[kind]
        return NotFoundError(f"{kind} not found: {text!r}", hint=hint)

    def _names(self, kind: ReferenceKind) -> list[str]:
        """Return names of this kind, up to `_COMPARED`; none for kinds without names."""
        names: dict[ReferenceKind, Callable[[], Iterator[str | None]]] = {
            "agent": lambda: (agent.username for agent in self._store.host.agents()),
            "user": lambda: (user.username for user in self._store.host.users()),
            "session": lambda: (each.label for each in self._store.host.sessions(limit=_COMPARED)),
        }
        found = names[kind]() if kind in names else iter(())
        return [name for name in itertools.islice(found, _COMPARED) if name]


def find_references(store: Store, kind: ReferenceKind, text: str) -> Sequence[Reference]:
    """Find a reference in any Unicode form of its accents; the given form wins."""
    for spelling in name_spellings(text):
        found = store.host.find(kind, spelling)
        if found:
            return found
    return ()


def unknown_version(what: str, version: int, known: Iterable[int]) -> NotFoundError:
    """Return the error for a version of a fact or text that does not exist."""
    versions = ", ".join(map(str, sorted(known)))
    hint = f"versions: {versions}" if versions else f"the {what} has no versions"
    return NotFoundError(f"the {what} has no version {version}", hint=hint)


def fold(name: str) -> str:
    """Return a name for comparison, ignoring case and the Unicode form."""
    return normalize_name(name).casefold()


def _check_options(
    kind: ScopeKind, given: dict[str, str | None], agent: Agent | str | None
) -> None:
    needed = OWNER_FIELD[kind]
    for field, value in given.items():
        option = "--" + field.removesuffix("_id")
        if field == needed and not value:
            raise ScopeError(f"--scope {kind} needs {option}")
        if field != needed and value:
            raise ScopeError(
                f"{option} cannot be combined with --scope {kind}",
                hint=f"omit {option}, or use --scope {option.removeprefix('--')}",
            )
    if not agent:
        raise ScopeError(f"--scope {kind} needs --agent")


def _best(
    text: str, found: Sequence[tuple[TargetKind, Reference]]
) -> list[tuple[TargetKind, Reference]]:
    """Return the best matches: by exact ID, else by name, else by ID prefix."""

    def rank(reference: Reference) -> int:
        wanted = text.lower()
        if reference.id == wanted:
            return 0
        by_prefix = reference.id.startswith(wanted) and fold(reference.label) != fold(text)
        return 2 if by_prefix else 1

    best = min((rank(reference) for _, reference in found), default=0)
    return [each for each in found if rank(each[1]) == best]


def _candidate(reference: Reference) -> str:
    if reference.label and reference.label != reference.id:
        return f"{reference.id}  {one_line(reference.label, 50)}"
    return reference.id


def _account(user: User) -> str:
    """Describe an account by ID, name and linked account."""
    link = f"  linked to {user.person_id}" if user.person_id != user.id else ""
    return f"{user.id}  {one_line(user.username, 50)}{link}"


def object_to_id(text: str) -> str | None:
    """Return why a text is neither an ID nor a prefix of one, or None."""
    if not text or any(c not in "0123456789abcdef" for c in text.strip().lower()):
        return f"not an ID: {text!r}"
    if len(text.strip()) < MIN_PREFIX:
        return f"ID prefix too short: {text!r} (at least {MIN_PREFIX} digits)"
    return None


class Labels(dict[str, str]):
    """Names by ID. ``labels[id]`` is the ID itself if the name is unknown."""

    def __missing__(self, key: str) -> str:
        return key

    def within_agent(self, scope: Scope) -> str:
        """Return the label of a scope within its agent: ``user lena``, or ``agent``."""
        return f"{scope.kind} {self[scope.owner]}" if scope.owner else scope.kind.value

    def full(self, scope: Scope) -> str:
        """Return the label of a scope with its agent: ``mira: user lena``."""
        return f"{self[scope.agent_id]}: {self.within_agent(scope)}"


def load_labels(store: Store, items: Iterable[Scope | str]) -> Labels:
    """Load the labels of scopes (agents and owners), and of IDs of agents or users.

    Agents, users and sessions take one query each. Deleted objects have no label.
    """
    accounts: dict[str, None] = {}
    sessions: dict[str, None] = {}
    labels = Labels()
    for item in items:
        if isinstance(item, str):
            accounts[item] = None
            continue
        accounts[item.agent_id] = None
        if item.user_id:
            accounts[item.user_id] = None
        elif item.session_id:
            sessions[item.session_id] = None
        elif item.owner:
            labels[item.owner] = item.owner
    if accounts:
        labels.update((one.id, one.username) for one in store.host.agents() if one.id in accounts)
        people = [account for account in accounts if account not in labels]
        if people:
            users = store.host.users_by_ids(people)
            labels.update((id, user.username) for id, user in users.items())
    if sessions:
        known = store.host.sessions_by_ids(list(sessions))
        labels.update((id, session.label) for id, session in known.items())
    return labels


def person_of(store: Store, account_id: str) -> Person:
    """Return the person of an account.

    A deleted account or unknown ID is a person with this one ID.
    """
    account = store.host.users_by_ids((account_id,)).get(account_id)
    person = person_with(store, account.person_id if account else account_id)
    return person if account_id in person.ids else Person(id=account_id, ids=(account_id,))


def person_with(store: Store, person_id: str) -> Person:
    """Return the person with this canonical ID."""
    found = store.host.accounts_of(person_id)
    accounts = tuple(each for each in found if each.person_id == person_id and not each.deleted)
    accounts = tuple(sorted(accounts, key=lambda each: (each.id != person_id, each.id)))
    is_anothers = any(each.id == person_id and each.person_id != person_id for each in found)
    ids = [] if is_anothers else [person_id]
    ids.extend(account.id for account in accounts)
    return Person(id=person_id, accounts=accounts, ids=tuple(dict.fromkeys(ids)))


def accounts_ever_of(store: Store, person: Person) -> tuple[User, ...]:
    """Return the accounts of the person by ID, including deleted ones."""
    found = store.host.accounts_of(person.id)
    return tuple(each for each in found if each.person_id == person.id or each.id in person.ids)


def resolve_person(store: Store, user_id: str | None, account_id: str | None = None) -> Person:
    """Return the person with the account ``user_id``, limited to ``account_id`` if set.

    Raises:
        UsageError: the account belongs to a different person.
    """
    person = person_of(store, user_id or account_id or "")
    if account_id is None:
        return person
    if user_id is not None and account_id not in person.ids:
        known = store.host.users_by_ids((account_id, user_id))
        names = {id: known[id].username if id in known else id for id in (account_id, user_id)}
        raise UsageError(
            f"{names[account_id]} is not an account of {names[user_id]}",
            hint="list the accounts of a user: edenmem show user:USER",
        )
    accounts = tuple(each for each in person.accounts if each.id == account_id)
    return Person(id=person.id, accounts=accounts, ids=(account_id,))


def user_scopes(agent_id: str, person: Person) -> tuple[Scope, ...]:
    """Return the user scopes of all accounts of a person, the canonical one first."""
    return tuple(Scope.user(agent_id, owner) for owner in person.ids)


def other_scopes(store: Store, scope: Scope) -> tuple[Scope, ...]:
    """Return the scopes of the person's other accounts; none unless it is a user scope."""
    if scope.kind is not ScopeKind.USER:
        return ()
    person = person_of(store, scope.owner)
    return tuple(each for each in user_scopes(scope.agent_id, person) if each != scope)
