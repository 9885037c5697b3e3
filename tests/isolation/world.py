"""Who may see what, kept apart from the code that it is held against: nothing of the engine is
used here, and the rules are written as sets of people and sets of scopes.

Every text that is put into memory carries a marker, a word that occurs nowhere else. A marker has
one home: the only scope in which it may ever be stored and whose readers alone may read it. One
without a home must never be remembered at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from edenmem.models.scope import Scope, ScopeKind

_MARKER = re.compile(r"\bmk\d{5}q\b")

#: Words that every marked text has, so that all of them are alike to any search.
COMMON = "shared lantern"

#: The defaults of the five kinds.
WORD_LIMITS = {"session": 200, "user": 300, "group": 500, "shard": 1000, "agent": 1200}


def markers(text: str) -> set[str]:
    """The markers in a text."""
    return set(_MARKER.findall(text))


@dataclass
class Talk:
    """A session as everybody outside knows it. ``spoke`` are all accounts that ever wrote in it,
    whether the host lists them in ``users`` or not."""

    id: str
    name: str
    agents: tuple[str, ...]
    users: set[str]
    group: str | None
    incognito: bool
    spoke: set[str] = field(default_factory=set)


@dataclass
class World:
    """People, agents and sessions."""

    person_of: dict[str, str] = field(default_factory=dict)  # account → person, unknown ones too
    living: set[str] = field(default_factory=set)  # accounts that exist and are not deleted
    names: dict[str, str] = field(default_factory=dict)  # name → id of agent, person or session
    user_memory: dict[str, bool] = field(default_factory=dict)  # by agent
    agent_memory: dict[str, bool] = field(default_factory=dict)
    shards: set[Scope] = field(default_factory=set)
    paused: set[Scope] = field(default_factory=set)
    talks: list[Talk] = field(default_factory=list)
    homes: dict[str, Scope | None] = field(default_factory=dict)
    said_in: dict[str, str] = field(default_factory=dict)  # marker in a message → session
    said_by: dict[str, str | None] = field(default_factory=dict)  # marker in a message → account

    # -- markers -----------------------------------------------------------------------------

    def mark(self, home: Scope | None) -> str:
        """A new marker."""
        marker = f"mk{len(self.homes):05}q"
        self.homes[marker] = home
        return marker

    def mark_message(self, talk: Talk, sender: str | None) -> str:
        """A marker for a message: nobody's memory, but the session's own words."""
        marker = self.mark(None)
        self.said_in[marker], self.said_by[marker] = talk.id, sender
        return marker

    def strangers(self, found: Iterable[str], scopes: Iterable[Scope]) -> set[str]:
        """Those of the markers that are at home in none of the scopes."""
        allowed = set(scopes)
        return {marker for marker in found if self.homes.get(marker) not in allowed}

    # -- the rules ---------------------------------------------------------------------------

    def person(self, account: str) -> str:
        """Whose account it is; one that nobody knows is somebody of its own."""
        return self.person_of.get(account, account)

    def owners(self, person: str) -> list[str]:
        """Whose memory a person is shown: that of their living accounts, and that of the canonical
        one, which need not be alive."""
        living = {each for each, of in self.person_of.items() if of == person}
        return [person, *sorted((living & self.living) - {person})]

    def everything_of(self, scope: Scope) -> set[Scope]:
        """The scopes of the person to whom a scope belongs; of another kind, it alone."""
        if scope.kind is not ScopeKind.USER:
            return {scope}
        owners = self.owners(self.person(scope.owner))
        return {Scope.user(scope.agent_id, each) for each in {*owners, scope.owner}}

    def writer(self, talk: Talk, said: Iterable[str]) -> str | None:
        """The account for which something is written that was said in these messages: the last
        that spoke in them; if none did, the first that takes part."""
        person = self.the_one_person(talk)
        if person is None:
            return None
        owners = [each for each in self.owners(person) if each in self.living]
        spoke = [self.said_by[marker] for marker in sorted(said, reverse=True)]
        here = [each for each in owners if each in talk.users | talk.spoke]
        return next((each for each in spoke if each in owners), here[0])

    def the_one_person(self, talk: Talk, speaker: str | None = None) -> str | None:
        """The person of a session with exactly one, if one of their accounts there is alive."""
        accounts = talk.users | talk.spoke | ({speaker} if speaker else set())
        people = {self.person(account) for account in accounts}
        if len(people) != 1 or not accounts & self.living:
            return None
        return people.pop()

    def reads(self, talk: Talk, agent: str, speaker: str | None = None) -> set[Scope]:
        """What an agent may know in a session."""
        scopes = {Scope.session(agent, talk.id)}
        if self.agent_memory[agent]:
            scopes.add(Scope.agent(agent))
            scopes |= {s for s in self.shards if s.agent_id == agent and s not in self.paused}
        if talk.group:
            scopes.add(Scope.group(agent, talk.group))
        person = self.the_one_person(talk, speaker)
        if person is not None and self.user_memory[agent]:
            scopes |= {Scope.user(agent, owner) for owner in self.owners(person)}
        return scopes

    def writes(self, talk: Talk, agent: str) -> set[Scope]:
        """What a session's formation may change."""
        return set() if talk.incognito else self.reads(talk, agent) - self.paused

    def home(
        self, talk: Talk, agent: str, kind: str, shard: str | None, said: Iterable[str]
    ) -> Scope | None:
        """Where something must be put that is said to be of ``kind`` in messages with the markers
        ``said``; None: nowhere.

        A shard's name may be left out where there is only one.
        """
        of_kind = [scope for scope in self.writes(talk, agent) if scope.kind == kind]
        if kind == ScopeKind.USER:
            writer = self.writer(talk, said)
            of_kind = [scope for scope in of_kind if scope.owner == writer]
        wanted = (shard or "").strip().casefold()
        if kind == ScopeKind.SHARD and (wanted or len(of_kind) != 1):
            of_kind = [scope for scope in of_kind if scope.owner == wanted]
        return of_kind[0] if of_kind else None

    def operator_reads(
        self,
        agent: str,
        *,
        user: str | None,
        group: str | None,
        shards: list[str],
        kinds: list[ScopeKind],
    ) -> set[Scope] | None:
        """What an operator's search sees; None: it is refused."""
        own = {scope for scope in self.shards if scope.agent_id == agent}
        if set(shards) - {scope.owner for scope in own}:
            return None
        scopes = {Scope.agent(agent)} | {s for s in own if not shards or s.owner in shards}
        if group:
            scopes.add(Scope.group(agent, group))
        if user:
            owners = self.owners(self.person(user))
            scopes |= {Scope.user(agent, each) for each in (owners if user in owners else [user])}
        there = {scope.kind for scope in scopes} | {ScopeKind.SHARD}
        if set(kinds) - there:
            return None
        return {scope for scope in scopes if not kinds or scope.kind in kinds}
