"""The outcome of each step of a formation: planned changes. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edenmem.engine.embeddings.status import demand_comparable
from edenmem.engine.formation.deduplication import Deduplicator, decide_known
from edenmem.engine.formation.extraction import Items, Task, extract
from edenmem.engine.formation.formation_input import FormationInput, Origin
from edenmem.engine.formation.quotas import gather_quotas
from edenmem.engine.formation.transcript import Cast, tidy_name, transcribe
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.llm_session import Asker
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.overview import retention_changes
from edenmem.engine.scopes.visibility import current_view
from edenmem.models.changes import (
    AddReflection,
    Change,
    ChangeSet,
    HoldItem,
)
from edenmem.models.formation import HELD, Decision, Formation, Trigger
from edenmem.models.host import Agent, Message, Session

#: Minimum length in characters of the parts in which a conversation is shown.
LEAST_CHARACTERS = 400


class Outcome(msgspec.Struct, frozen=True):
    """The changes to write, and their reasons."""

    changes: ChangeSet
    decisions: tuple[Decision, ...] = ()


class Pipeline:
    """The steps of a formation: facts with deduplication, then reflections; or both at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._settings = runtime.settings
        self._actor = runtime.actor
        self._clock = runtime.clock
        self._embedder = runtime.embedder
        self._deduplicator = Deduplicator(runtime)

    async def read(
        self,
        session: Session,
        agent: Agent,
        messages: Sequence[Message],
        formation: Formation | None = None,
    ) -> FormationInput:
        """Read what a formation needs, before paying a model.

        Args:
            session: The session of the messages.
            agent: The agent whose memory is formed.
            messages: The range.
            formation: The formation of the range; None for a note, which is not stored.

        Raises:
            EmbeddingModelMismatch: a scope has vectors of another model only, or the platform
                searches by one.
            FactKeyConflict: an index of the database refuses facts.
            StoreError: a search index is unusable.
        """
        return await in_thread(self._read, session, agent, messages, formation)

    def smaller(self, given: FormationInput) -> Pipeline | None:
        """Return a pipeline that shows half as much at a time; None if that is little already."""
        formation = self._settings.formation
        shown = min(formation.max_characters, len(given.transcript.text))
        if shown <= LEAST_CHARACTERS:
            return None
        smaller = msgspec.structs.replace(
            formation,
            max_characters=shown // 2,
            message_characters=min(formation.message_characters, shown // 2),
            tool_characters=min(formation.tool_characters, shown // 2),
        )
        settings = msgspec.structs.replace(self._settings, formation=smaller)
        return Pipeline(msgspec.structs.replace(self._runtime, settings=settings))

    async def form(
        self, task: Task, asker: Asker, given: FormationInput, known: Sequence[str] = ()
    ) -> Outcome:
        """Extract the items of a task, and compare its facts with known ones.

        Args:
            task: What to ask for.
            asker: The model.
            given: The range of messages.
            known: The facts of the same range, which reflections do not repeat.

        Raises:
            ProviderError: a model failed (in deduplication only the embedder).
        """
        settings = self._settings.formation
        items = Items()
        for part in given.parts(settings.max_characters):
            told = (*known, *(each.content for each in items.of("reflection")))
            items = items.join(await extract(task, asker, part, settings, told))
        changes: list[Change] = []
        decisions: list[Decision] = []
        if facts := items.of("fact"):
            changes, decisions = await self._deduplicator.plan(asker, given, facts)
        return await in_thread(self._conclude, given, changes, decisions, items)

    def find_nothing(self, given: FormationInput) -> Outcome:
        """Return the outcome of a range without anything to ask about."""
        return self._conclude(given, (), (), Items())

    def _conclude(
        self,
        given: FormationInput,
        changes: Sequence[Change],
        decisions: Sequence[Decision],
        items: Items,
    ) -> Outcome:
        """Return the outcome of a step: the changes of its facts, and all others. Blocks."""
        quotas, origin = given.quotas, given.origin
        limits = {quota.scope: quota.word_limit for quota in quotas.items}
        facts = [each for each in items.held if each.kind == "fact"]
        known = self._deduplicator.find_known(facts, quotas)
        waiting = (origin.held(each) for each in items.held if each not in known)
        held = {each.id: each for each in waiting}.values()
        made: list[Change] = [
            *changes,
            *(
                AddReflection(reflection=origin.reflection(new), word_limit=limits[new.scope])
                for new in items.of("reflection")
            ),
            *(HoldItem(held=each) for each in held),
        ]
        for quota in quotas.offered_for_facts:
            made += retention_changes(
                self._store,
                quota.scope,
                quota.changeable,
                quota.fact_buffer_max,
                changes,
                origin.at,
            )
        decided = (
            *decisions,
            *decide_known(known),
            *(
                Decision(
                    content=each.content, action=HELD, target_id=each.id, unconfirmed=each.reasons
                )
                for each in held
            ),
            *items.rejected,
        )
        change_set = ChangeSet(actor=self._actor, at=origin.at, changes=tuple(made), automatic=True)
        return Outcome(change_set, decided)

    def _read(
        self,
        session: Session,
        agent: Agent,
        messages: Sequence[Message],
        formation: Formation | None,
    ) -> FormationInput:
        """Read what a formation needs, and check that its facts can be stored. Blocks."""
        with self._store.database.snapshot():
            given = self._gather(session, agent, messages, formation)
            if given.is_worth_asking:
                quotas = given.quotas.for_facts
                self._deduplicator.demand_store([quota.scope for quota in quotas])
                if self._embedder is not None:
                    is_compared = self._settings.formation.dedup
                    places = [quota.changeable for quota in quotas if is_compared]
                    demand_comparable(self._store, self._settings, self._embedder.model, places)
        return given

    def _gather(
        self,
        session: Session,
        agent: Agent,
        messages: Sequence[Message],
        formation: Formation | None,
    ) -> FormationInput:
        view = current_view(self._store, session, agent).narrow_to_writers(messages)
        users = dict(view.users)
        if canonical := {user.person_id for user in users.values()} - users.keys():
            users |= self._store.host.users_by_ids(tuple(canonical))
        others = (self._store.host.agent(each) for each in session.agents if each != agent.id)
        cast = Cast(
            agent_id=agent.id,
            agents={each.id: each for each in (agent, *others) if each is not None},
            users=users,
            only_user=view.user,
        )
        transcript = transcribe(messages, cast, self._settings.formation)
        return FormationInput(
            agent=agent,
            transcript=transcript,
            quotas=gather_quotas(
                self._store,
                self._settings,
                agent,
                view,
                len(transcript.text),
                holds_all=formation is not None and formation.trigger is Trigger.PROPOSED,
            ),
            origin=Origin(
                session_id=session.id if formation else None,
                formation_id=formation.id if formation else None,
                sent={each.id: each.created_at for each in messages if each.is_readable},
                at=self._clock(),
            ),
            background=(
                session.title or "",
                session.group_id or "",
                *(user.username for user in users.values()),
                *(name for each in cast.agents.values() for name in (each.name, each.username)),
            ),
            users=tuple(tidy_name(cast.person(user)) for user in users.values()),
        )
