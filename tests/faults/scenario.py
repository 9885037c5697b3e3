"""One day in the life of a memory: an import, a formation, consolidations, an operator's edits.

Every step may be taken again, as cron and people do: an import adds what is missing, a formation
takes what no other has, an operator looks first and leaves alone what is as it should be.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.service import MemoryService
from edenmem.engine.sessions.importer import import_sessions
from edenmem.models.changes import Actor, AddFact, AddReflection
from edenmem.models.host import Agent, User
from edenmem.models.ids import derived_id
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.settings.schema import ScopeSettings, ScopesSettings, Settings
from tests.support.builders import (
    NOW,
    change_set,
    make_agent,
    make_fact,
    make_reflection,
    make_user,
    writing,
)
from tests.support.editing import AwaitedEditor
from tests.support.embedder import FakeEmbedder
from tests.support.llm import FakeLLM
from tests.support.runtime import ANYTHING_GOES, make_runtime

if TYPE_CHECKING:
    from edenmem.embed.protocol import Embedder
    from edenmem.llm.protocol import LLM, LLMRequest
    from edenmem.store.protocol.store import Store

ANNA: User = make_user("anna", id=derived_id("anna"))
EVE: Agent = make_agent("eve", id=derived_id("eve"), name="Eve")
SESSION_ID = derived_id("session", "monday")

ANNA_SCOPE = Scope.user(EVE.id, ANNA.id)
EVE_SCOPE = Scope.agent(EVE.id)
SESSION_SCOPE = Scope.session(EVE.id, SESSION_ID)
SCOPES = (ANNA_SCOPE, EVE_SCOPE, SESSION_SCOPE)

SETTINGS = Settings(
    formation=ANYTHING_GOES,
    scopes=ScopesSettings(session=ScopeSettings(consolidate_at=2, word_limit=200)),
)

#: How long the next worker waits: beyond every lease and every pause between tries.
LATER = timedelta(minutes=20)

SAID = (
    "Good morning Eve, I have news for you.",
    "Good morning Anna, tell me.",
    "I moved to Porto last week.",
    "How is the new flat?",
    "Bright, but my dog Rex died in January.",
    "I am sorry to hear that.",
    "Thank you. I still work as a nurse, by the way.",
    "Do you still play the cello?",
    "I began last year, every Tuesday.",
    "And the forum?",
    "The forum opens on Fridays now, tell everybody.",
    "I will.",
)
LINE = json.dumps(
    {
        "session": "monday",
        "agent": "eve",
        "users": ["anna"],
        "messages": [
            {
                "role": "assistant" if place % 2 else "user",
                "name": "eve" if place % 2 else "anna",
                "content": content,
                "created_at": (NOW - timedelta(minutes=60 - place)).isoformat(),
            }
            for place, content in enumerate(SAID)
        ],
    }
)

#: What is known before: one fact for each decision of the model, one that is told word for word,
#: and two for the operator.
LISBON = "Anna lives in Lisbon with her family."
DOG = "Anna has a dog called Rex."
NURSE = "Anna works as a nurse."
NUTS = "Anna is allergic to nuts."
MISTYPED = "Eve answers on Modays."
STALE = "The forum is closed for repairs."
KNOWN = {ANNA_SCOPE: (LISBON, DOG, NURSE, NUTS), EVE_SCOPE: (MISTYPED, STALE)}

PORTO = "Anna lives in Porto with her family."
NO_DOG = "Anna has no dog called Rex any more."
CELLO = "Every Tuesday she plays Bach on the cello."
FORUM = "The community's board opens each Friday."
CORRECTED = "Eve answers on Mondays."
NEW_TEXT = "Eve is patient and answers on Mondays."


def prepare(store: Store) -> None:
    """Put in who takes part and what is known of them."""
    store.database.initialize()
    assert store.host.add_user(ANNA)
    assert store.host.add_agent(EVE)
    vector = FakeEmbedder().vector
    facts = [
        make_fact(
            scope,
            content,
            id=derived_id("known", content),
            embedding=vector(content),
            embedding_model="fake-embedder",
            formed_at=NOW - timedelta(days=9),
        )
        for scope, contents in KNOWN.items()
        for content in contents
    ]
    reflections = [
        make_reflection(
            scope,
            content,
            id=derived_id("thought", content),
            formed_at=NOW - timedelta(days=9 - place),
        )
        for place, (scope, content) in enumerate(
            (
                (ANNA_SCOPE, "Anna likes short answers."),
                (ANNA_SCOPE, "Anna is often tired after her shifts."),
                (EVE_SCOPE, "The community is growing."),
            )
        )
    ]
    first_text = writing(EVE_SCOPE, "Eve is patient.", word_limit=1200)
    results = store.changes.apply(
        change_set(
            *(AddFact(fact=fact) for fact in facts),
            *(AddReflection(reflection=each, word_limit=300) for each in reflections),
            first_text,
        )
    )
    assert all(result.ok for result in results)


def scripted() -> FakeLLM:
    """A model that answers the same questions with the same answers, whoever asks how often."""
    return FakeLLM(
        {
            "facts": {
                "facts": [
                    _item(PORTO, "user"),
                    _item(NO_DOG, "user"),
                    _item("Anna still works as a nurse.", "user"),
                    _item(NUTS, "user"),
                    _item(CELLO, "user"),
                    _item(FORUM, "agent"),
                ]
            },
            "dedup": _decide,
            "reflections": {
                "agent": [_thought("Fridays matter to the community.")],
                "shards": [],
                "group": [],
                "user": [_thought("Anna grieves for Rex."), _thought("Porto suits Anna.")],
                "session": [_thought("A warm talk."), _thought("News of a move.")],
            },
            "consolidate": _consolidate,
        }
    )


def _item(content: str, scope: str) -> dict[str, Any]:
    return {"content": content, "scope": scope, "shard": None, "private": False}


def _thought(content: str) -> dict[str, Any]:
    return {"content": content, "private": False}


def _decide(request: LLMRequest[Any]) -> dict[str, Any]:
    """One decision of each kind; the labels are read from the prompt, as a model reads them."""
    new: dict[str, str] = {}
    existing: dict[str, str] = {}
    for line in request.user.splitlines():
        words = line.strip().split(maxsplit=2)
        if line.startswith("N"):
            label, _, content = line.partition(": ")
            new[content] = label
        elif line.startswith("  E"):
            existing[line.partition("): ")[2]] = words[0]

    def decision(content: str, action: str, target: str, merged: str | None) -> dict[str, Any]:
        return {
            "fact": new[content],
            "reason": "because",
            "action": action,
            "target": existing[target],
            "content": merged,
        }

    return {
        "decisions": [
            decision(PORTO, "UPDATE", LISBON, PORTO),
            decision(NO_DOG, "DELETE", DOG, None),
            decision("Anna still works as a nurse.", "NONE", NURSE, None),
        ]
    }


def _consolidate(request: LLMRequest[Any]) -> dict[str, str]:
    return {"text": f"What is known by {request.key}."}


def service_of(
    store: Store, llm: LLM, embedder: Embedder, clock: Callable[[], datetime], who: str
) -> MemoryService:
    """A service for one worker."""
    actor = Actor(name=who, host="test-host", command="form")
    return MemoryService(store, SETTINGS, llm=llm, embedder=embedder, actor=actor, clock=clock)


async def run(
    store: Store, llm: LLM, embedder: Embedder, clock: Callable[[], datetime], who: str
) -> None:
    """The whole day, from wherever it was left."""
    await in_thread(import_sessions, make_runtime(store, SETTINGS, clock=clock), [LINE])
    service = service_of(store, llm, embedder, clock, who)
    await service.form_memories(SESSION_ID)
    await service.consolidate_all()
    await _edit(store, embedder, clock)


async def _edit(store: Store, embedder: Embedder, clock: Callable[[], datetime]) -> None:
    """What the operator wants to be so."""
    actor = Actor(name="operator", host="test-host", command="edit")
    editor = AwaitedEditor(
        make_runtime(store, SETTINGS, embedder=embedder, actor=actor, clock=clock)
    )
    facts = await in_thread(_facts, store, EVE_SCOPE)
    if MISTYPED in facts:
        fact = facts[MISTYPED]
        await editor.edit(fact.id, CORRECTED, expected_version=fact.version)
    if STALE in facts:
        await editor.delete(facts[STALE].id)
    text = (await in_thread(store.memory.consolidations, [EVE_SCOPE]))[EVE_SCOPE]
    if text.consolidated_content != NEW_TEXT:
        await editor.edit_consolidation(EVE_SCOPE, NEW_TEXT, expected_version=text.version)
    for reflection in await in_thread(store.memory.pending, EVE_SCOPE):
        if reflection.content == "The community is growing.":
            await editor.edit(reflection.id, "The community grows by the week.", expected_version=1)


def _facts(store: Store, scope: Scope) -> dict[str, Fact]:
    return {fact.content: fact for fact in store.memory.facts(FactFilter(scopes=(scope,)))}


def outcome(store: Store) -> dict[str, Any]:
    """Memory without ids and times: what two days that end alike have in common."""
    texts = store.memory.consolidations(SCOPES)
    reflections = {each.id: each for each in store.memory.reflections(SCOPES)}
    facts = list(store.memory.facts(FactFilter(scopes=SCOPES)))
    fact_ids = {
        entry.target_id for entry in store.log.audit(agent_id=EVE.id) if entry.target_type == "fact"
    }
    return msgspec.to_builtins(
        {
            "facts": sorted(
                (str(fact.scope), fact.content, fact.version, fact.previous_content or "")
                for fact in facts
            ),
            "reflections": sorted(
                (str(each.scope), each.content, each.version, each.absorbed)
                for each in reflections.values()
            ),
            "texts": {
                scope.key: (
                    text.consolidated_content,
                    text.version,
                    sorted(reflections[each].content for each in text.unabsorbed_ids),
                    sorted(reflections[each].content for each in text.absorbed_ids),
                )
                for scope, text in texts.items()
            },
            "histories": sorted(
                [(entry.version, entry.content, entry.action) for entry in history]
                for history in (
                    *(store.history.versions("fact", fact_id) for fact_id in fact_ids),
                    *(store.history.versions("consolidation", "", scope=scope) for scope in SCOPES),
                )
            ),
            "audit": sorted(
                (entry.action, entry.target_type, entry.status)
                for entry in store.log.audit(agent_id=EVE.id)
            ),
            "messages": [message.content for message in store.host.messages(SESSION_ID)],
            "formed": sorted(
                (each.status, each.seq, len(each.message_ids))
                for each in store.formations.list_formations()
            ),
        }
    )
