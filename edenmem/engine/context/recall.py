"""Recall: decide whether a message needs memories that are not in the context, and fetch them.

A failed or late recall never blocks the context: the note reports it, and it never looks like
"nothing found". A reply waits at most ``context.recall_timeout_seconds`` for memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.runtime import Runtime, require_llm
from edenmem.engine.scopes.visibility import SessionView
from edenmem.errors import EdenmemError, ProviderError
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

# The lookbehind matches each run of marks once, so that a message of dots alone stays linear.
_SENTENCE_END = re.compile(r"(?<![.!?…。！？\n])[.!?…。！？\n]++(?:[\s\"'”’)\]]++|\Z)")
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_MARKUP = re.compile(r"&\w+;|<[^<>]*>")

#: Number of unknown names that trigger recall; a single one may be a typo.
UNKNOWN_NAMES = 2


def sign(message: str, known: str) -> str | None:
    """Return why ``message`` seems to need memories that ``known`` lacks, or None.

    The signs: a phrase that asks to remember; a question word and a word of the past in one
    sentence; two or more capitalized names that are not in ``known`` (the XML of a context).
    Only whole words match ("somehow" does not match "how"), and the first word of a sentence
    does not count as a name.
    """
    text = message.replace("’", "'")
    phrase = _PHRASES.search(" ".join(text.split()))
    if phrase:
        return f'phrase "{phrase[0].lower()}"'
    sentences = _SENTENCE_END.split(text)
    for sentence in sentences:
        words = [_bare(word) for word in _WORD.findall(sentence)]
        asks = next(filter(_QUESTION_WORD.fullmatch, words), None)
        past = next(filter(_PAST.fullmatch, words), None)
        if asks and past:
            return f'question about the past ("{asks.lower()}", "{past.lower()}")'
    names = _without_known(_names(sentences), known)
    if len(names) >= UNKNOWN_NAMES:
        return "names not in the context: " + ", ".join(names[:4])
    return None


def _names(sentences: list[str]) -> list[str]:
    """Return the distinct capitalized words that do not begin a sentence."""
    names: dict[str, str] = {}
    for sentence in sentences:
        if sentence.isupper():
            continue  # shouting, not names
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

#: The model's share of the time limit; the rest is enough to record its usage.
_SHARE_OF_MODEL = 0.9

MAX_QUERIES = 3
#: Facts have about 30 words; the end of a long message adds only noise to a query.
QUERY_CHARACTERS = 500


class Recall(msgspec.Struct, frozen=True, kw_only=True):
    """The queries for a message, if any, and the facts they found.

    ``note`` gives the reason, ``failure`` is the message of an error.
    """

    note: str
    failure: str = ""
    queries: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    usage: tuple[CallUsage, ...] = ()


class Recaller:
    """Decide whether to search, and search the scopes that the session may read.

    Only the mode ``llm`` needs a language model; all modes but ``off`` need ``searcher``.
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
    ) -> Recall:
        """Fetch the facts that ``message`` needs.

        Args:
            mode: See `edenmem.settings.schema.ContextSettings`.
            message: Message to answer (None: the newest user message).
            session: The conversation.
            agent: The agent that is about to answer.
            view: The readable scopes; the search is limited to them.
            known: XML of the context; names in it do not trigger a search.
        """
        if mode == "off":
            return Recall(note="off")
        import asyncio

        limit = self._settings.context.recall_timeout_seconds
        plan = Recall(note=mode)
        try:
            async with asyncio.timeout(limit):
                if message is None:
                    message = await in_thread(self._newest_message, session)
                if not message or not message.strip():
                    return Recall(note=f"{mode}: no message to recall memories for")
                plan = await self.plan(mode, message, session, agent, view, known)
                return await self._search(plan, view) if plan.queries else plan
        except TimeoutError:
            # Partial results are dropped: they would look complete.
            note = f"{plan.note}; timed out after {limit:g} s"
            return msgspec.structs.replace(plan, note=note)
        except EdenmemError as error:
            return Recall(
                note=f"{mode}: failed before the search",
                failure=error.message,
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
    ) -> Recall:
        """Choose the queries, with the arguments of `recall`.

        Raises:
            ConfigError: the mode is ``llm``, and no model is configured.
            ProviderError: the model failed.
        """
        if mode == "llm":
            return await self._ask(message, session, agent, view)
        reason = "searches for every message" if mode == "always" else sign(message, known)
        if reason is None:
            return Recall(note=f"{mode}: the message does not seem to need memories")
        return Recall(note=f"{mode}: {reason}", queries=recall_queries((message,)))

    async def _search(self, plan: Recall, view: SessionView) -> Recall:
        assert self._searcher is not None
        try:
            report = await self._searcher.search(
                plan.queries, view.reads, top_k=self._settings.context.recall_top_k
            )
        except EdenmemError as error:
            note = f"{plan.note}; search failed"
            return msgspec.structs.replace(plan, note=note, failure=error.message)
        notices = "".join(f"; {notice}" for notice in report.notices)
        found = "nothing relevant" if report.nothing_relevant else f"{len(report.hits)} found"
        return msgspec.structs.replace(
            plan,
            note=f"{plan.note}; {found}{notices}",
            facts=tuple(hit.fact for hit in report.hits),
        )

    def _newest_message(self, session: Session) -> str | None:
        """Return the last user message among the messages that recall reads, or None."""
        newest = self._store.host.messages(
            session.id, newest=self._settings.context.recall_messages
        )
        spoken = [m.content for m in newest if m.role == "user" and not m.trigger]
        return spoken[-1] if spoken else None

    # -- by a model ----------------------------------------------------------------------------

    async def _ask(self, message: str, session: Session, agent: Agent, view: SessionView) -> Recall:
        from edenmem.engine.formation.transcript import tidy_name
        from edenmem.engine.runtime.answers import RecallAnswer
        from edenmem.engine.runtime.llm_session import Asker
        from edenmem.engine.runtime.usage import keep_usage

        llm = require_llm(self._llm)
        conversation = await in_thread(self._conversation, message, session, agent, view)
        asker = Asker(
            llm,
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
        note = "llm: the model wrote queries" if queries else "llm: no search needed"
        return Recall(note=note, queries=queries, usage=tuple(asker.spent))

    def _conversation(self, message: str, session: Session, agent: Agent, view: SessionView) -> str:
        from edenmem.engine.formation.transcript import Cast, transcribe

        wanted = self._settings.context.recall_messages
        messages = list(self._store.host.messages(session.id, newest=wanted))
        if not any(m.role == "user" and m.content == message for m in messages[-1:]):
            messages.append(self._unstored(message, session, messages))
        agents = [self._store.host.agent(other) for other in session.agents if other != agent.id]
        senders = [m.sender for m in messages if m.sender]
        cast = Cast(
            agent_id=agent.id,
            agents={each.id: each for each in (*agents, agent) if each is not None},
            users=self._store.host.users_by_ids((*session.users, *senders)),
            only_user=view.user,
        )
        return transcribe(messages[-wanted:], cast, self._settings.formation).text

    def _unstored(self, message: str, session: Session, messages: Sequence[Message]) -> Message:
        """Return the message in the form in which the host will store it."""
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
    """Return distinct one-line queries, limited in length and number."""
    lines = (one_line(text)[:QUERY_CHARACTERS].rstrip() for text in texts)
    return tuple(dict.fromkeys(line for line in lines if line))[:MAX_QUERIES]
