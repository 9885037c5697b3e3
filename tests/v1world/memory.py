"""Memory as the comparer sees it, whether computed from v1 or read from a database."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Scope(NamedTuple):
    """Whose memory something is; ``owner`` is an id or a shard's name, empty for the agent's."""

    kind: str
    agent: str
    owner: str = ""

    def __str__(self) -> str:
        return ":".join(filter(None, self))


@dataclass(frozen=True)
class Item:
    """A fact or a reflection. Times are milliseconds since 1970. ``id`` is empty where a migration
    is free to choose it; ``related`` is None where a database has no place for it."""

    scope: Scope
    content: str
    id: str = ""
    formed_at: int = 0
    updated_at: int | None = None
    session: str | None = None
    messages: tuple[str, ...] = ()
    related: frozenset[str] | None = frozenset()
    private: bool = False
    version: int = 1
    hash: str = ""
    previous: str | None = None
    absorbed: bool = False
    absorbed_at: int | None = None
    #: Several documents became this: the order of their messages is free.
    merged: bool = False


@dataclass(frozen=True)
class Text:
    """A scope's text. ``accepted`` are other readings of v1 that are right as well; ``earlier`` are
    contents that belong in history, oldest first; ``marked`` asks for a word of where the text came
    from in the log."""

    scope: Scope
    content: str
    version: int = 1
    updated_at: int | None = None
    #: When this version was made of what waited; never, if it came from v1.
    consolidated_at: int | None = None
    accepted: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()
    marked: bool = False


@dataclass(frozen=True)
class Policy:
    """The settings of a scope, as far as v1 has any."""

    scope: Scope
    instructions: str | None = None
    consolidate_at: int | None = None
    fact_buffer_max: int | None = None
    active: bool = True
    private: bool = False
    others: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True)
class Person:
    """An agent or a user; a switch that is None is not ours to set."""

    id: str
    username: str = ""
    name: str = ""
    persona: str = ""
    owner: str | None = None
    person: str | None = None
    user_memory: bool | None = None
    agent_memory: bool | None = None
    is_agent: bool = False


@dataclass
class Memory:
    """All of it. ``pending`` has ids in the order in which a scope's buffer gives them."""

    facts: list[Item] = field(default_factory=list)
    reflections: list[Item] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)
    policies: list[Policy] = field(default_factory=list)
    people: dict[str, Person] = field(default_factory=dict)
    pending: dict[Scope, list[str]] = field(default_factory=dict)
    #: Scope → older versions of its text, in the order of their numbers.
    history: dict[Scope, list[str]] = field(default_factory=dict)
    #: Scope → reasons that the log gives for writing its text.
    reasons: dict[Scope, list[str]] = field(default_factory=dict)
