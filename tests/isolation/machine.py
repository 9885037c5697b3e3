"""Everything that people, agents, operators and models may do, in any order.

After each step the database itself is read: each marker is in its home or nowhere, and nothing
outside of the scopes that the step may write has changed by a single byte. What a reader is given
must be all that it may see, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edenmem.engine.reports import ContextReport, SearchReport
from edenmem.engine.service import MemoryService
from edenmem.errors import NotFoundError, ScopeError, UsageError
from edenmem.models.changes import AddFact, AddReflection, Change
from edenmem.models.host import Session
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope, ScopeKind
from edenmem.settings.schema import ContextSettings, FormationSettings, SearchSettings, Settings
from edenmem.store.protocol.store import Store
from edenmem.text import word_count
from tests.isolation.raw import Document, Raw
from tests.isolation.scribe import SHARDS, Scribe, Style
from tests.isolation.world import COMMON, WORD_LIMITS, Talk, World, markers
from tests.support.builders import (
    ACTOR,
    FixedClock,
    make_agent,
    make_fact,
    make_message,
    make_reflection,
    make_user,
)
from tests.support.editing import AwaitedEditor
from tests.support.embedder import FakeEmbedder
from tests.support.memory import applied
from tests.support.runtime import make_runtime

T = TypeVar("T")

AGENTS = ("eve", "adam", "zoe")
PEOPLE = ("anna", "bruno", "carla")
LINKED = {"anna2": "anna", "bruno2": "bruno"}
#: Everything may be shown, so that what is missing is missing for no other reason.
EVERYTHING = 10_000
#: What an operator may ask for: no facts are kept of a session.
SEARCHED = [kind for kind in ScopeKind if kind is not ScopeKind.SESSION]

index = st.integers(0, 2**16)  # of something that there is by then, by its remainder
styles = st.sampled_from(
    [Style.HONEST, Style.HONEST, Style.ADVERSARY, Style.ADVERSARY, Style.BROKEN]
)
recalls = st.sampled_from(["off", "always", "always"])
recipes = st.sampled_from(["convex", "rrf", "semantic", "text", None])


def settings_of(extraction: str) -> Settings:
    """Settings under which nothing is left out for lack of room."""
    return Settings(
        formation=FormationSettings(
            extraction=extraction,  # type: ignore[arg-type]
            message_interval=1,
            min_messages=1,
            check=False,
        ),
        context=ContextSettings(
            facts_limit=EVERYTHING, reflections_limit=EVERYTHING, recall_top_k=100
        ),
        search=SearchSettings(semantic_floor=0.0),
    )


class Isolation(RuleBasedStateMachine):
    """A host with agents, people and groups, over one store."""

    def __init__(self, store: Store, raw: Raw) -> None:
        super().__init__()
        self.store = store
        self.raw = raw
        self.runner = asyncio.Runner()
        self.clock = FixedClock()
        self.world = World()
        self.scribe = Scribe(self.world)
        self.embedder = FakeEmbedder()
        self.groups = (new_id(), new_id())
        self.documents: list[Document] = []
        self.writable: set[Scope] = set()  # what the step may change
        self.forming = False
        self.turn = 0  # whose context is read next
        self.past: list[tuple[datetime, dict[Scope, set[str]]]] = []

    def teardown(self) -> None:
        self.runner.close()

    # -- who there is ------------------------------------------------------------------------

    @initialize(
        extraction=st.sampled_from(["two-step", "single"]), agents=st.integers(2, 3), shards=index
    )
    def begin(self, extraction: str, agents: int, shards: int) -> None:
        for name in AGENTS[:agents]:
            agent = make_agent(name)
            assert self.store.host.add_agent(agent)
            self.world.names[name] = agent.id
            self.world.user_memory[agent.id] = self.world.agent_memory[agent.id] = True
        for name in PEOPLE:
            self._add_account(name, None)
        for name, person in LINKED.items():
            self._add_account(name, self.world.names[person])
        self.world.person_of["f" * 24] = "f" * 24  # an account that the host does not know
        self.agents = [self.world.names[name] for name in AGENTS[:agents]]
        self.accounts = list(self.world.person_of)
        settings = settings_of(extraction)
        self.service = MemoryService(
            self.store,
            settings,
            llm=self.scribe,
            embedder=self.embedder,
            actor=ACTOR,
            clock=self.clock,
        )
        self.editor = AwaitedEditor(
            make_runtime(self.store, settings, embedder=self.embedder, clock=self.clock)
        )
        self._furnish(shards)

    def _furnish(self, shards: int) -> None:
        """A session for each person with the first agent, a group's, and shards for some."""
        eve, adam = self.agents[:2]
        for number, agent in enumerate((eve, eve, adam)):
            self._make_shard(Scope.shard(agent, SHARDS[(shards + number) % len(SHARDS)]))
        for name in PEOPLE[:2]:
            self._open({eve}, {self.world.names[name]}, None)
        self._open({eve, adam}, {self.world.names["anna2"]}, self.groups[0])
        self._open({eve}, {self.world.names["anna"], self.world.names["carla"]}, self.groups[1])
        changes: list[Change] = []
        for scope in self._every_scope():
            if scope.kind is not ScopeKind.SESSION:
                text = self._text(scope)
                vector, model = self.embedder.vector(text), self.embedder.model
                fact = make_fact(scope, text, embedding=vector, embedding_model=model)
                changes.append(AddFact(fact=fact))
            reflection = make_reflection(scope, self._text(scope))
            changes.append(AddReflection(reflection=reflection, word_limit=1000))
        applied(self.store, *changes)
        self.documents = self.raw.documents()

    def _text(self, scope: Scope) -> str:
        return f"{self.world.mark(scope)} {COMMON} old"

    def _add_account(self, name: str, person: str | None) -> None:
        user = make_user(name, eden_user_id=person)
        assert self.store.host.add_user(user)
        self.world.names[name] = user.id
        self.world.person_of[user.id] = person or user.id
        self.world.living.add(user.id)

    def _open(
        self, agents: set[str], users: set[str], group: str | None, *, incognito: bool = False
    ) -> None:
        talk = Talk(
            id=new_id(),
            name=f"session-{len(self.world.talks)}",
            agents=tuple(sorted(agents)),
            users=users,
            group=group,
            incognito=incognito,
        )
        self.world.names[talk.name] = talk.id
        self.world.talks.append(talk)
        self._put(talk)

    def _put(self, talk: Talk) -> None:
        self.store.host.put_session(
            Session(
                id=talk.id,
                name=talk.name,
                agents=talk.agents,
                users=tuple(sorted(talk.users)),
                group_id=talk.group,
                incognito=talk.incognito,
                last_activity=self.clock(),
                created_at=self.clock(),
            )
        )

    @rule(
        how=st.sampled_from(["join", "join", "leave", "leave", "open", "open", "delete"]),
        talk=index,
        account=index,
        agents=st.tuples(index, index),
        group=index,
    )
    def people_come_and_go(
        self, how: str, talk: int, account: int, agents: tuple[int, int], group: int
    ) -> None:
        self._tick()
        place, somebody = self._talk(talk), _pick(self.accounts, account)
        if how == "join":
            place.users.add(somebody)
            self._put(place)
        elif how == "leave" and place.users:
            gone = _pick(sorted(place.users), account)
            place.users.remove(gone)
            self.raw.leave(place.id, gone)
        elif how == "open":
            chosen = {_pick(self.agents, agent) for agent in agents}
            of_group = _pick((None, None, *self.groups), group)
            self._open(chosen, {somebody}, of_group, incognito=talk % 8 == 7)
        elif how == "delete" and somebody in self.world.living and len(self.world.living) > 3:
            self.world.living.remove(somebody)
            self.raw.delete_user(somebody)

    # -- conversations -----------------------------------------------------------------------

    @rule(talk=index, account=st.none() | index, by_host=st.booleans(), chatter=st.booleans())
    def speak(self, talk: int, account: int | None, by_host: bool, chatter: bool) -> None:
        """Somebody says something, maybe followed by much that no person said."""
        self._tick()
        place = self._talk(talk)
        sender = None if account is None else _pick(self._likely(place), account)
        self._say(place, sender, by_host=by_host, chatter=25 if chatter else 0)

    def _say(self, place: Talk, sender: str | None, *, by_host: bool, chatter: int) -> None:
        said = f"{self.world.mark_message(place, sender)} {COMMON} please remember this"
        messages = [make_message(place.id, said, sender=sender, created_at=self.clock())]
        messages += [
            make_message(
                place.id,
                "Of course.",
                role="assistant",
                sender=place.agents[0],
                created_at=self.clock.advance(milliseconds=1),
            )
            for _ in range(chatter)
        ]
        if sender is not None:
            place.spoke.add(sender)
        if by_host:
            self.store.host.add_messages(place.id, messages)
        else:
            place.users |= {sender} if sender else set()
            self._run(self.service.add_messages(place.id, messages))

    def _likely(self, talk: Talk) -> list[str]:
        """Accounts, those that take part already more often than strangers."""
        return [*sorted(talk.users | talk.spoke) * 9, *self.accounts]

    @rule(talk=index, account=index, style=styles, seed=index)
    def speak_and_form(self, talk: int, account: int, style: Style, seed: int) -> None:
        """What somebody says becomes memory at once."""
        place = self._talk(talk)
        self.clock.advance(minutes=5)  # a range that failed is free again
        self._say(place, _pick(self._likely(place), account), by_host=seed % 2 == 0, chatter=0)
        self._form(place, None, style, seed)

    @rule(talk=index, agent=st.none() | index, style=styles, seed=index)
    def form(self, talk: int, agent: int | None, style: Style, seed: int) -> None:
        """What was said up to now becomes memory."""
        place = self._talk(talk)
        self._form(place, None if agent is None else _pick(place.agents, agent), style, seed)

    def _form(self, place: Talk, chosen: str | None, style: Style, seed: int) -> None:
        self._tick()
        self.writable = {
            scope
            for each in ([chosen] if chosen else place.agents)
            for scope in self.world.writes(place, each)
        }
        self.scribe.begin(style, seed)
        self.forming = True
        reports = self._run(self.service.form_memories(place.id, agent_id=chosen))
        for report in reports:
            event(f"{style} formation: {report.outcome}")
        if place.incognito:
            assert [report.outcome for report in reports] == ["incognito"] * len(reports)
            assert not self.scribe.requests
        if style is Style.BROKEN:
            # an answer without the right form is none; dedup and texts alone do without one
            assert not self.scribe.expected
        self._look(honest=style is Style.HONEST)

    @precondition(lambda self: self.documents)
    @rule(number=index, style=styles, seed=index, force=st.sampled_from([True, True, False]))
    def consolidate(self, number: int, style: Style, seed: int, force: bool) -> None:
        self._tick()
        scope = _pick(self._scopes(), number)
        self.writable = {scope} if force or scope not in self.world.paused else set()
        self.scribe.begin(style, seed)
        report = self._run(self.service.consolidate(scope, force=force))
        event(f"{style} text: {report.outcome}")
        assert report.outcome in ("written", "not_due", "nothing_pending", "paused", "failed")
        self._look(honest=style is Style.HONEST)

    # -- operators ---------------------------------------------------------------------------

    @rule(
        how=st.sampled_from(["shard", "pause", "resume", "resume", "user off", "agent off", "on"]),
        agent=index,
        number=index,
    )
    def set_up(self, how: str, agent: int, number: int) -> None:
        self._tick()
        chosen = _pick(self.agents, agent)
        if how == "shard":
            self._make_shard(Scope.shard(chosen, _pick(SHARDS, number)))
        elif how in ("pause", "resume"):
            self._pause(self._any_scope(number), how == "pause")
        elif how == "user off":
            self.world.user_memory[chosen] = False
            self._run(self.editor.set_agent(chosen, user_memory=False))
        elif how == "agent off":
            self.world.agent_memory[chosen] = False
            self._run(self.editor.set_agent(chosen, agent_memory=False))
        else:
            for each in self.agents:
                self.world.user_memory[each] = self.world.agent_memory[each] = True
                self._run(self.editor.set_agent(each, user_memory=True, agent_memory=True))

    def _make_shard(self, scope: Scope) -> None:
        if scope not in self.world.shards:
            self.world.shards.add(scope)
            self._run(self.editor.set_policy(scope, {"active": True}))

    def _pause(self, scope: Scope, pause: bool) -> None:
        try:
            self._run(self.editor.set_policy(scope, {"active": not pause}))
        except NotFoundError:  # an account that is deleted
            assert scope.kind is ScopeKind.USER
            return
        (self.world.paused.add if pause else self.world.paused.discard)(scope)

    @rule(number=index, fact=st.booleans(), private=st.booleans())
    def add_by_hand(self, number: int, fact: bool, private: bool) -> None:
        self._tick()
        scope = self._any_scope(number)
        marker = self.world.mark(scope)
        add = self.editor.add_fact if fact else self.editor.add_reflection
        self.writable = {scope}
        try:
            self._run(add(scope, f"{marker} {COMMON} by hand", private=private))
        except NotFoundError:  # an account that is deleted
            self.writable = set()
            assert scope.kind is ScopeKind.USER
            return
        except UsageError:
            self.writable = set()
            assert scope in self.world.paused or (fact and scope.kind is ScopeKind.SESSION)
            return
        self._look()
        assert scope not in self.world.paused
        assert any(marker in each.content for each in self.documents)

    @precondition(lambda self: self.documents)
    @rule(number=index, how=st.sampled_from(["edit", "delete", "private", "public"]))
    def change_by_hand(self, number: int, how: str) -> None:
        self._tick()
        target = _pick(self.documents, number)
        kind = {"facts": "fact", "reflections": "reflection", "consolidations": "consolidation"}
        self.writable = {target.scope}
        marker = self.world.mark(target.scope)
        try:
            self._run(self._change(kind[target.type], target, how, f"{marker} {COMMON} edited"))
        except (UsageError, NotFoundError):
            # an absorbed reflection, or a text of somebody who is deleted
            self.writable = set()
        self._look()

    async def _change(self, kind: str, target: Document, how: str, text: str) -> None:
        if kind == "consolidation":
            stored = self.store.memory.consolidations([target.scope])[target.scope]
            await self.editor.edit_consolidation(
                target.scope, text, expected_version=stored.version
            )
        elif how == "edit":
            stored_one: Any = getattr(self.store.memory, kind)(target.id)
            await self.editor.edit(target.id, text, expected_version=stored_one.version)
        elif how == "delete":
            await self.editor.delete(target.id)
        else:
            await self.editor.set_private(target.id, how == "private")

    @precondition(lambda self: any(each.type == "consolidations" for each in self.documents))
    @rule(number=index, version=st.integers(1, 3))
    def restore_text(self, number: int, version: int) -> None:
        self._tick()
        scope = _pick([d.scope for d in self.documents if d.type == "consolidations"], number)
        self.writable = {scope}
        try:
            self._run(self.editor.restore_consolidation(scope, version))
        except NotFoundError:  # no such version, or its owner is deleted
            self.writable = set()
        self._look()

    # -- readers -----------------------------------------------------------------------------

    @rule(talk=index, agent=index, speaker=st.none() | index, recall=recalls, force=st.booleans())
    def read_context(
        self, talk: int, agent: int, speaker: int | None, recall: Any, force: bool
    ) -> None:
        self._tick(seconds=1)
        place = self._talk(talk)
        reader = _pick(place.agents, agent)
        whom = None if speaker is None else _pick(self._likely(place), speaker)
        context = self._run(
            self.service.assemble_context(
                place.id,
                agent_id=reader,
                user_id=whom,
                message=COMMON,
                recall=recall,
                force_refresh=force,
            )
        )
        self._check_context(context, self.world.reads(place, reader, whom))

    def _check_context(self, context: ContextReport, may_see: set[Scope]) -> None:
        event("context from the cache" if context.cached else "context made anew")
        assert set(context.scopes) == may_see
        self._compare(context.xml, self._known_in(may_see), self._cut_short(may_see))

    @precondition(lambda self: self.past)
    @rule(talk=index, agent=index, when=index)
    def read_the_past(self, talk: int, agent: int, when: int) -> None:
        self._tick(seconds=1)
        place = self._talk(talk)
        reader = _pick(place.agents, agent)
        moment, then = _pick(self.past, when)
        context = self._run(self.service.assemble_context(place.id, agent_id=reader, as_of=moment))
        may_see = self.world.reads(place, reader)
        expected = set().union(*(then.get(scope, set()) for scope in may_see))
        self._compare(context.xml, expected)

    @rule(talk=index, agent=index, speaker=st.none() | index)
    def search_in_session(self, talk: int, agent: int, speaker: int | None) -> None:
        self._tick(seconds=1)
        place = self._talk(talk)
        reader = _pick(place.agents, agent)
        whom = None if speaker is None else _pick(self._likely(place), speaker)
        report = self._run(
            self.service.search_facts(place.id, [COMMON], agent_id=reader, user_id=whom, top_k=100)
        )
        self._check_hits(report, self.world.reads(place, reader, whom))

    @rule(
        agent=index,
        user=st.none() | index,
        group=st.none() | index,
        shards=st.lists(st.sampled_from(SHARDS), max_size=2),
        kinds=st.just([]) | st.lists(st.sampled_from(SEARCHED), max_size=3),
        recipe=recipes,
        only=st.sampled_from(["all", "all", "of a session", "since"]),
        number=index,
        stages=st.tuples(st.booleans(), st.booleans()),
    )
    def search_as_operator(
        self,
        agent: int,
        user: int | None,
        group: int | None,
        shards: list[str],
        kinds: list[ScopeKind],
        recipe: str | None,
        only: str,
        number: int,
        stages: tuple[bool, bool],
    ) -> None:
        self._tick(seconds=1)
        chosen = _pick(self.agents, agent)
        owner = None if user is None else _pick(self.accounts, user)
        of_group = None if group is None else _pick(self.groups, group)
        may_see = self.world.operator_reads(
            chosen, user=owner, group=of_group, shards=shards, kinds=kinds
        )
        session = self._talk(number).id if only == "of a session" else None
        moment = _pick(self.past, number)[0] if only == "since" and self.past else None
        work = self.service.search(
            [COMMON],
            agent_id=chosen,
            user_id=owner,
            group_id=of_group,
            shards=shards,
            kinds=kinds,
            recipe=recipe,
            session_id=session,
            since=moment,
            recency=stages[0],
            mmr=stages[1],
            top_k=100,
        )
        if may_see is None:
            try:
                self._run(work)
            except (NotFoundError, ScopeError):
                return
            raise AssertionError("a scope was asked for without its owner, and not refused")
        try:
            report = self._run(work)
        except NotFoundError as error:  # an owner that nobody knows, and nothing is kept of
            kind = ScopeKind.USER if "user not found" in str(error) else ScopeKind.GROUP
            kept = [each for each in self.documents if each.scope in may_see]
            assert not [each for each in kept if each.scope.kind is kind]
            return
        self._check_hits(report, may_see, session, moment)

    def _check_hits(
        self,
        report: SearchReport,
        may_see: set[Scope],
        session: str | None = None,
        since: datetime | None = None,
    ) -> None:
        for hit in report.hits:
            assert hit.fact.home in may_see
        visible = {
            each.id
            for each in self.documents
            if each.type == "facts"
            and each.scope in may_see
            and (session is None or each.session_id == session)
            and (since is None or each.dated_at >= round(since.timestamp() * 1000))
        }
        found = {hit.fact.id for hit in report.hits}
        event("found something" if found else "found nothing")
        assert found <= visible
        if len(visible) < 100:
            # what has no word of the query in it need not be found
            missing = [d for d in self.documents if d.id in visible - found and COMMON in d.content]
            assert not missing, f"may be seen, and were not found: {missing}"

    # -- what always holds -------------------------------------------------------------------

    @invariant()
    def nothing_is_altered_but_what_the_step_may_write(self) -> None:
        self._look()

    @invariant()
    def each_reader_in_turn_is_shown_all_that_is_theirs(self) -> None:
        """Two sessions after each step, mostly from the cache."""
        for _ in range(2 if self.world.talks else 0):
            self.turn += 1
            place = self._talk(self.turn)
            reader = _pick(place.agents, self.turn // len(self.world.talks))
            work = self.service.assemble_context(place.id, agent_id=reader, recall="off")
            self._check_context(self._run(work), self.world.reads(place, reader))

    def _look(self, *, honest: bool = False) -> None:
        """Read the database and hold it against what was there, and against the homes."""
        before = {(each.type, each.id): each for each in self.documents}
        after = self.raw.documents()
        for each in after:
            strangers = self.world.strangers(markers(each.whole), [each.scope])
            assert not strangers, f"{strangers} got into {each.scope}"
            old = before.pop((each.type, each.id), None)
            assert each.scope in self.writable or (old and old.whole == each.whole), each
            self._check_limits(each)
            if old and old.whole != each.whole:
                self._check_target(old)
        for gone in before.values():
            assert gone.scope in self.writable, f"{gone} is gone"
            self._check_target(gone)
        known = {marker for each in after for marker in markers(each.content)}
        if honest:
            lost = self.scribe.expected - known
            assert not lost, f"{lost} were written, and are not there"
        self.documents = after
        self.writable = set()
        self.forming = False

    def _check_target(self, old: Document) -> None:
        """A model alters a fact only if it was offered just that one beside a new one."""
        if self.forming and old.type == "facts":
            assert markers(old.content) <= self.scribe.touchable, f"{old} was not offered"

    def _check_limits(self, each: Document) -> None:
        if each.type == "consolidations":
            assert word_count(each.content) <= WORD_LIMITS[each.scope.kind]
        else:
            assert len(each.content.splitlines()) == 1
            assert "\x00" not in each.content

    # -- helpers -----------------------------------------------------------------------------

    def _tick(self, seconds: float = 20) -> None:
        """Note the state as of now, and move on."""
        then: dict[Scope, set[str]] = defaultdict(set)
        for each in self.documents:
            if each.in_context:
                then[each.scope] |= markers(each.content)
        self.past.append((self.clock(), dict(then)))
        self.clock.advance(seconds=seconds)

    def _known_in(self, scopes: Iterable[Scope]) -> set[str]:
        wanted = set(scopes)
        return {
            marker
            for each in self.documents
            if each.scope in wanted and each.in_context
            for marker in markers(each.content)
        }

    def _cut_short(self, scopes: set[Scope]) -> set[str]:
        """Markers of texts of one user's accounts that are together longer than one may be."""
        texts = [
            each.content
            for each in self.documents
            if each.type == "consolidations" and each.scope in scopes and each.scope.user_id
        ]
        if len(texts) < 2 or sum(map(word_count, texts)) <= WORD_LIMITS["user"]:
            return set()
        return set().union(*map(markers, texts))

    def _compare(self, xml: str, expected: set[str], cut: Iterable[str] = ()) -> None:
        shown = markers(xml)
        event("read something" if shown else "read nothing")
        assert not shown - expected, f"shown, and not to be seen: {shown - expected}"
        missing = expected - shown - set(cut)
        assert not missing, f"to be seen, and missing: {missing}"

    def _talk(self, number: int) -> Talk:
        return _pick(self.world.talks, number)

    def _scopes(self) -> list[Scope]:
        return sorted({each.scope for each in self.documents}, key=lambda s: s.key)

    def _any_scope(self, number: int) -> Scope:
        return _pick(self._every_scope(), number)

    def _every_scope(self) -> list[Scope]:
        """The scopes of the world, whether they have anything in them or not."""
        every = [Scope.agent(agent) for agent in self.agents]
        every += sorted(self.world.shards, key=lambda scope: scope.key)
        for agent in self.agents:
            every += [Scope.group(agent, group) for group in self.groups]
            every += [Scope.user(agent, self.world.names[name]) for name in (*PEOPLE, *LINKED)]
        every += [Scope.session(agent, t.id) for t in self.world.talks for agent in t.agents]
        return every

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)


def _pick(options: Sequence[T], number: int) -> T:
    return options[number % len(options)]
