"""Recall: whether a message needs memories that are not in the prompt yet, and fetching them.

A context is served whatever happens here: what fails, or is late, is said in the note, and is never
shown as "nothing was found". A reply never waits for memory longer than
``context.recall_timeout_seconds``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.visibility import SessionView
from edenmem.errors import ConfigError, EdenmemError, ProviderError
from edenmem.models.formation import CallUsage
from edenmem.models.host import Agent, Message, Session
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact
from edenmem.text import one_line

if TYPE_CHECKING:
    from edenmem.engine.search.searcher import Searcher


_PHRASES = re.compile(
    r"""\b(?:
        (?:do|did|can|could|don't|didn't)\ (?:you|we|i)\ (?:still\ )?(?:remember|recall|mention)
      | (?:remember|recall)\ (?:when|what|who|where|how|why|which|whether|if|the\ (?:time|day))
      | remind\ me
      | what\ (?:did|had|have)\ (?:i|we|you|he|she|they)\ (?:sa(?:y|id)|tell|told|decided?|agreed?)
      | what\ (?:was|were)\ (?:that|those|it)
      | (?:you|i|we|he|she|they)\ (?:told|mentioned|discussed|talked\ about|agreed|decided)
      | (?:as|like)\ (?:i|we|you)\ said
      | last\ time
      | (?:in|from|search)\ (?:your|my|the)\ memor(?:y|ies)
    )\b""",
    re.X | re.I,
)
_QUESTION_WORD = re.compile(r"how|what|when|where|which|who|whom|whose|why", re.I)
_PAST = re.compile(
    r"ago|earlier|mentioned|previously|said|told|yesterday|(?:did|had|was|were)(?:n't)?", re.I
)
_CALENDAR = re.compile(
    r"""(?:mon|tues|wednes|thurs|fri|satur|sun)day
      | january|february|march|april|may|june|july|august
      | (?:septem|octo|novem|decem)ber""",
    re.X | re.I,
)
_FIRST_PERSON = re.compile(r"i(?:'\w+)?", re.I)

# Each run of marks is looked at once, from its start: a message of dots alone stays linear.
_SENTENCE_END = re.compile(r"(?<![.!?…。！？\n])[.!?…。！？\n]++(?:[\s\"'”’)\]]++|\Z)")
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_MARKUP = re.compile(r"&\w+;|<[^<>]*>")

#: So many names that the context does not have are a sign; one may be a typing error.
UNKNOWN_NAMES = 2


def sign(message: str, known: str) -> str | None:
    """Why ``message`` seems to need memories that ``known`` does not hold, or None.

    The signs: a phrase that asks to remember; a question word and a word of the past in one
    sentence; two or more capitalised names that are not in ``known`` (a context's XML). Words are
    whole words, so that "somehow" is no "how", and the first one of a sentence is no name.
    """
    text = message.replace("’", "'")
    phrase = _PHRASES.search(" ".join(text.split()))
    if phrase:
        return f'it says "{phrase[0].lower()}"'
    sentences = _SENTENCE_END.split(text)
    for sentence in sentences:
        words = [_bare(word) for word in _WORD.findall(sentence)]
        asks = next(filter(_QUESTION_WORD.fullmatch, words), None)
        past = next(filter(_PAST.fullmatch, words), None)
        if asks and past:
            return f'it asks about the past ("{asks.lower()}", "{past.lower()}")'
    names = _without_known(_names(sentences), known)
    if len(names) >= UNKNOWN_NAMES:
        return "it names what the context does not have: " + ", ".join(names[:4])
    return None


def _names(sentences: list[str]) -> list[str]:
    """Capitalised words that do not begin a sentence, each once."""
    names: dict[str, str] = {}
    for sentence in sentences:
        if sentence.isupper():
            continue  # somebody shouts; that is no list of names
        for name in map(_bare, _WORD.findall(sentence)[1:]):
            if name[0].isupper() and not (
                _CALENDAR.fullmatch(name) or _FIRST_PERSON.fullmatch(name)
            ):
                names.setdefault(name.casefold(), name)
    return list(names.values())


def _without_known(names: list[str], known: str) -> list[str]:
    if len(names) < UNKNOWN_NAMES:
        return []
    text = _MARKUP.sub(" ", known.replace("’", "'"))
    seen = {_bare(word).casefold() for word in _WORD.findall(text)}
    return [name for name in names if name.casefold() not in seen]


def _bare(word: str) -> str:
    return word.removesuffix("'s")


RecallMode = Literal["off", "heuristic", "llm", "always"]

#: Of the time that recall has, for the model: so much is left that what it cost is still known.
_SHARE_OF_MODEL = 0.9

MAX_QUERIES = 3
#: A query is words to find facts of some 30 words by; the end of a long message adds only noise.
QUERY_CHARACTERS = 500


class RecallResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was fetched for a message. ``note`` says why, why not, or what failed."""

    note: str
    queries: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    usage: tuple[CallUsage, ...] = ()


class RecallPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to search for, if anything; ``note`` says why."""

    note: str
    queries: tuple[str, ...] = ()
    usage: tuple[CallUsage, ...] = ()


class Recaller:
    """Decides by one of the modes whether to search, and searches what the session may read.

    ``llm`` is needed by the mode of that name only, ``searcher`` by all but ``off``.
    """

    def __init__(self, runtime: Runtime, *, searcher: Searcher | None) -> None:
        self._store = runtime.store
        self._settings = runtime.settings
        self._llm = runtime.llm
        self._searcher = searcher
        self._clock = runtime.clock

    async def recall(
        self,
        mode: RecallMode,
        message: str | None,
        *,
        session: Session,
        agent: Agent,
        view: SessionView,
        known: str,
    ) -> RecallResult:
        """The facts that ``message`` asks for, in the words of ``mode``.

        Args:
            mode: See `edenmem.settings.schema.ContextSettings`.
            message: What the agent is about to answer; None: the newest message of a person.
            session: The conversation.
            agent: Who is about to answer.
            view: What may be read; nothing outside its scopes is searched.
            known: The context as it stands; names in it are no reason to search.
        """
        if mode == "off":
            return RecallResult(note="off")
        import asyncio

        limit = self._settings.context.recall_timeout_seconds
        plan = RecallPlan(note=mode)
        try:
            async with asyncio.timeout(limit):
                if message is None:
                    message = await in_thread(self._newest_message, session)
                if not message or not message.strip():
                    return RecallResult(note=f"{mode}: there is no message to recall memories for")
                plan = await self.plan(mode, message, session, agent, view, known)
                if not plan.queries:
                    return RecallResult(note=plan.note, usage=plan.usage)
                return await self._search(plan, view)
        except TimeoutError:
            # What was found by then is not kept: half of an answer looks like all of it.
            note = f"{plan.note}; left out: not done within {limit:g} s"
            return RecallResult(note=note, queries=plan.queries, usage=plan.usage)
        except EdenmemError as error:
            return RecallResult(
                note=f"{mode}: failed, so nothing was searched: {error.message}",
                usage=error.usage if isinstance(error, ProviderError) else (),
            )

    async def plan(
        self,
        mode: RecallMode,
        message: str,
        session: Session,
        agent: Agent,
        view: SessionView,
        known: str,
    ) -> RecallPlan:
        """Decide what to search for; the arguments are those of `recall`.

        Raises:
            ConfigError: a model is to decide, and none is configured.
            ProviderError: the model failed.
        """
        if mode == "llm":
            return await self._ask(message, session, agent, view)
        reason = "every message is searched for" if mode == "always" else sign(message, known)
        if reason is None:
            return RecallPlan(note=f"{mode}: no sign that the message needs memories")
        return RecallPlan(note=f"{mode}: {reason}", queries=recall_queries((message,)))

    async def _search(self, plan: RecallPlan, view: SessionView) -> RecallResult:
        if self._searcher is None:
            note = f"{plan.note}; there is nothing to search with"
            return RecallResult(note=note, queries=plan.queries, usage=plan.usage)
        try:
            report = await self._searcher.search(
                plan.queries, view.reads, top_k=self._settings.context.recall_top_k
            )
        except EdenmemError as error:
            return RecallResult(
                note=f"{plan.note}; the search failed: {error.message}",
                queries=plan.queries,
                usage=plan.usage,
            )
        notices = "".join(f"; {notice}" for notice in report.notices)
        return RecallResult(
            note=f"{plan.note}; {len(report.hits)} found{notices}",
            queries=plan.queries,
            facts=tuple(hit.fact for hit in report.hits),
            usage=plan.usage,
        )

    def _newest_message(self, session: Session) -> str | None:
        """What a person said last, if it is among the messages that recall looks at."""
        newest = self._store.host.messages(
            session.id, newest=self._settings.context.recall_messages
        )
        spoken = [m.content for m in newest if m.role == "user" and not m.trigger]
        return spoken[-1] if spoken else None

    # -- by a model ----------------------------------------------------------------------------

    async def _ask(
        self, message: str, session: Session, agent: Agent, view: SessionView
    ) -> RecallPlan:
        from edenmem.engine.formation.transcript import tidy_name
        from edenmem.engine.runtime.answers import RecallAnswer
        from edenmem.engine.runtime.llm_session import Asker
        from edenmem.engine.runtime.usage import keep_usage

        if self._llm is None:
            raise ConfigError("no language model is configured")
        conversation = await in_thread(self._conversation, message, session, agent, view)
        asker = Asker(
            self._llm,
            f"{session.label}/{agent.username}/{one_line(message, 80)}",
            timeout=self._settings.context.recall_timeout_seconds * _SHARE_OF_MODEL,
        )
        try:
            answer = await asker.ask(
                "recall",
                RecallAnswer,
                model=self._settings.llm.fast_model,
                now=self._clock(),
                agent=tidy_name(agent.label) or "an agent",
                conversation=conversation,
            )
        finally:
            await keep_usage(self._store, agent.id, "recall", asker.spent, at=self._clock())
        queries = recall_queries(answer.queries)
        note = "llm: the model wrote queries" if queries else "llm: no search is needed"
        return RecallPlan(note=note, queries=queries, usage=tuple(asker.spent))

    def _conversation(self, message: str, session: Session, agent: Agent, view: SessionView) -> str:
        from edenmem.engine.formation.transcript import Cast, transcribe

        wanted = self._settings.context.recall_messages
        messages = list(self._store.host.messages(session.id, newest=wanted))
        if not any(m.role == "user" and m.content == message for m in messages[-1:]):
            messages.append(self._unsaid(message, session, messages))
        agents = [self._store.host.agent(other) for other in session.agents if other != agent.id]
        senders = [m.sender for m in messages if m.sender]
        cast = Cast(
            agent_id=agent.id,
            agents={each.id: each for each in (*agents, agent) if each is not None},
            users=self._store.host.users_by_ids((*session.users, *senders)),
            only_user=view.user,
        )
        return transcribe(messages[-wanted:], cast, self._settings.formation).text

    def _unsaid(self, message: str, session: Session, messages: Sequence[Message]) -> Message:
        """The message as the session will have it, if the host has not stored it yet."""
        now = self._clock()
        latest = max((m.created_at for m in messages), default=now)
        return Message(
            id=new_id(now),
            session_id=session.id,
            role="user",
            content=message,
            created_at=max(now, latest),
        )


def recall_queries(texts: Sequence[str]) -> tuple[str, ...]:
    """Return texts as queries: each on one line, not too long and not too many."""
    lines = (one_line(text)[:QUERY_CHARACTERS].rstrip() for text in texts)
    return tuple(dict.fromkeys(line for line in lines if line))[:MAX_QUERIES]
