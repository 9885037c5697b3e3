"""A small world for forgetting a user, and the data of others that must not change."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edenmem.engine.erasure.forgetting import Forgetter
from edenmem.engine.erasure.reports import ForgetPlan, ForgetReport, MentionDecision
from edenmem.engine.erasure.survey import find_subject
from edenmem.models.host import Agent, CachedContext, Session, User
from edenmem.models.memory import Reflection
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.settings.schema import EmbeddingSettings, Settings
from tests.support.builders import (
    NOW,
    FixedClock,
    ago,
    make_agent,
    make_messages,
    make_session,
    make_user,
)
from tests.support.memory import add_fact, add_reflection, consolidate
from tests.support.runtime import make_runtime

if TYPE_CHECKING:
    from edenmem.models.forgetting import Subject
    from edenmem.store.protocol.store import Store

SETTINGS = Settings(embedding=EmbeddingSettings(provider="none"))


@dataclass(kw_only=True)
class Town:
    """Zenobia with two accounts, Bruno, two agents; her own session, one with Bruno in a group."""

    store: Store
    eve: Agent
    adam: Agent
    zenobia: User
    zenobia_on_discord: User
    bruno: User
    own: Session
    shared: Session
    lone: Session  # Bruno's

    def her(self, agent: Agent | None = None) -> Scope:
        """Return the scope of Zenobia."""
        return Scope.user((agent or self.eve).id, self.zenobia.id)

    def his(self, agent: Agent | None = None) -> Scope:
        """Return the scope of Bruno."""
        return Scope.user((agent or self.eve).id, self.bruno.id)

    @property
    def group(self) -> Scope:
        """Return the scope of the group with Eve."""
        return Scope.group(self.eve.id, "harbour")

    @property
    def everybody(self) -> Scope:
        """Return the agent scope of Eve."""
        return Scope.agent(self.eve.id)


def make_town(store: Store) -> Town:
    """Create the users and sessions, with a few messages."""
    eve, adam = make_agent("eve", name="Eve"), make_agent("adam")
    zenobia, bruno = make_user("zenobia"), make_user("bruno")
    discord = make_user("zen#1234", eden_user_id=zenobia.id)
    for agent in (eve, adam):
        assert store.host.add_agent(agent)
    for user in (zenobia, bruno, discord):
        assert store.host.add_user(user)
    own = make_session([eve], [zenobia], name="balcony")
    shared = make_session([eve], [discord, bruno], name="pier", group_id="harbour")
    lone = make_session([eve], [bruno], name="boat")
    for session, sender in ((own, zenobia), (shared, discord), (lone, bruno)):
        assert store.host.put_session(session)
        store.host.add_messages(
            session.id, make_messages(session, 4, sender=sender.id, name=f"{sender.username} Q")
        )
    return Town(
        store=store,
        eve=eve,
        adam=adam,
        zenobia=zenobia,
        zenobia_on_discord=discord,
        bruno=bruno,
        own=own,
        shared=shared,
        lone=lone,
    )


def fill(town: Town) -> list[str]:
    """Add memories, and return the texts that are traces of Zenobia.

    Only these contain "quince".
    """
    store, at = town.store, ago(hours=1)
    said: list[str] = []

    def hers(text: str) -> str:
        said.append(text)
        return text

    add_fact(store, town.her(), hers("She keeps quince jam."), session_id=town.own.id, formed_at=at)
    add_fact(store, town.her(town.adam), hers("She paints quince trees."), formed_at=at)
    first = add_reflection(store, town.her(), hers("Prefers quince to pears."), formed_at=at)
    second = add_reflection(store, town.her(), hers("Talks of quince at night."), formed_at=at)
    consolidate(
        store, town.her(), hers("A friend of quince."), expected_version=0, absorbed_ids=[first.id]
    )
    consolidate(store, town.her(), hers("Great friend of quince."), expected_version=1)
    talk = Scope.session(town.eve.id, town.own.id)
    add_reflection(store, talk, hers("They spoke of quince."), session_id=town.own.id, formed_at=at)
    up = add_reflection(
        store, town.group, hers("Some like quince."), propagated_from=(second.id,), formed_at=at
    )
    add_reflection(
        store, town.everybody, hers("Quince is liked."), propagated_from=(up.id,), formed_at=at
    )
    for scope, text in (
        (town.his(), "Bruno rows."),
        (town.group, "The harbour opens at six."),
        (town.everybody, "Answers are short."),
    ):
        add_fact(store, scope, text, formed_at=at)
        kept = add_reflection(store, scope, f"{text} Indeed.", formed_at=at)
        consolidate(store, scope, f"{text} So it is.", expected_version=0, absorbed_ids=[kept.id])
    store.contexts.cache_context(
        town.own.id,
        town.eve.id,
        CachedContext(xml=f"<m>{hers('quince in the cache')}</m>", fingerprint="f", built_at=NOW),
    )
    return said


def forgetter(store: Store, *, llm: Any = None, clock: FixedClock | None = None) -> Forgetter:
    """Return a forgetter of the tester, without models."""
    return Forgetter(make_runtime(store, SETTINGS, llm=llm, clock=clock or FixedClock()))


def plan_of(store: Store, **named: Any) -> ForgetPlan:
    """Return the plan for a subject."""
    return asyncio.run(forgetter(store).plan(subject_of(store, **named)))


def subject_of(store: Store, **named: Any) -> Subject:
    """Return the subject of options."""
    return find_subject(store, **named)


def forget(
    store: Store,
    decisions: Sequence[MentionDecision] = (),
    *,
    messages: bool = False,
    plan: ForgetPlan | None = None,
    **named: Any,
) -> ForgetReport:
    """Plan and execute a forgetting."""
    plan = plan or plan_of(store, **named)
    return asyncio.run(forgetter(store).forget(plan, decisions, messages=messages))


def everything_but(store: Store, traces: ForgetPlan) -> dict[str, Any]:
    """Return all data of others: memory, versions, audit entries, conversations.

    A scope whose buffer held only derived reflections counts as empty.
    """
    whole = set(traces.traces.scopes)
    derived = set(traces.derived)
    scopes = [one.scope for one in store.memory.scopes() if one.scope not in whole]
    texts = store.memory.consolidations(scopes)

    def own(reflection: Reflection) -> bool:
        return reflection.id not in derived

    return {
        "facts": list(store.memory.facts(FactFilter(scopes=tuple(scopes)), with_vectors=True)),
        "reflections": [one for one in store.memory.reflections(scopes) if own(one)],
        "pending": {
            scope.key: kept
            for scope in scopes
            if (kept := [one.id for one in store.memory.pending(scope) if own(one)])
        },
        "texts": {
            scope.key: (text.consolidated_content, text.version, text.absorbed_ids)
            for scope, text in texts.items()
            if text.version
        },
        "policies": store.memory.policies(scopes),
        "history": {
            scope.key: kept
            for scope in scopes
            if (kept := store.history.versions("consolidation", "", scope=scope))
        },
        "audit": sorted(
            (
                entry
                for entry in store.log.audit()
                if entry.scope not in whole
                and entry.target_id not in derived
                and entry.action != "forget"
            ),
            key=lambda entry: entry.id,
        ),
        "people": (
            list(store.host.agents()),
            list(store.host.users()),
            list(store.host.sessions()),
        ),
        "messages": [list(store.host.messages(session.id)) for session in store.host.sessions()],
    }
