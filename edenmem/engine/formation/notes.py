"""Notes: facts from a text given to be remembered, outside any conversation.

A note passes the same steps as a formation's facts: extracted, checked, compared with known facts.
There is no range to claim and no record to resume. Facts of one part stay if a later part fails,
and repeating the text adds no duplicates.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import msgspec

from edenmem.engine.formation.attempt import report_of_changes
from edenmem.engine.formation.pipeline import Pipeline
from edenmem.engine.reports import FormationReport
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.runtime.llm_session import Asker
from edenmem.engine.runtime.runtime import Runtime, require_llm
from edenmem.engine.runtime.usage import keep_usage
from edenmem.errors import ScopeError, UsageError
from edenmem.models.changes import Change, ChangeResult, ChangeSet
from edenmem.models.formation import CallUsage, Decision
from edenmem.models.host import Agent, Message, Session, User
from edenmem.models.ids import new_id
from edenmem.settings.schema import FormationSettings
from edenmem.text import clean

#: What works without a language model.
STORE_UNCHANGED = "'edenmem fact add' stores one fact unchanged"

#: Characters of a note in the key of a scripted answer.
_KEY_CHARACTERS = 40


async def remember(
    runtime: Runtime, text: str, agent: Agent, user: User | None, *, dry_run: bool = False
) -> FormationReport:
    """Extract the facts of a text, and keep the new ones.

    Args:
        runtime: The store, the models and the settings.
        text: The text to remember; a long one is read in several parts.
        agent: The agent that remembers.
        user: The speaker, whose own facts may be formed; None for the agent's and its shards' only.
        dry_run: Ask the models and report the result, but write nothing.

    Raises:
        UsageError: the text is empty.
        ScopeError: no scope takes facts.
        ConfigError: no language model is configured.
        ProviderError: a model failed; facts of earlier parts stay.
        EmbeddingModelMismatch: a scope has vectors of another model only.
    """
    whole = demand_text(text)
    require_llm(runtime.llm, otherwise=STORE_UNCHANGED)
    assert runtime.llm is not None
    pipeline = Pipeline(runtime)
    subject = "/".join(("remember", agent.username, *([user.username] if user else [])))
    changes: list[Change] = []
    decisions: list[Decision] = []
    results: list[ChangeResult] = []
    spent: list[CallUsage] = []
    made: ChangeSet | None = None
    try:
        for part in _parts(whole, runtime.settings.formation):
            asker = Asker(runtime.llm, f"{subject}/{' '.join(part[0].split())[:_KEY_CHARACTERS]}")
            session, messages = _as_session(part, agent, user, runtime)
            given = await pipeline.read(session, agent, messages)
            if not given.quotas.for_facts:
                raise ScopeError(
                    f"no scope of {agent.username} takes a fact: its memory is off or paused",
                    hint=f"'edenmem show agent:{agent.username}' shows its switches",
                )
            try:
                outcome = await pipeline.form("facts", asker, given)
            finally:
                spent += asker.spent
            made = outcome.changes
            changes += made.changes
            decisions += outcome.decisions
            if made.changes and not dry_run:
                results += await in_thread(runtime.store.changes.apply, made)
    finally:
        if not runtime.settings.store.read_only:
            await keep_usage(runtime.store, agent.id, "remember", spent, at=runtime.clock())
    report = FormationReport(
        session_id="",
        agent_id=agent.id,
        outcome="dry_run" if dry_run else "applied",
        decisions=tuple(decisions),
        usage=tuple(spent),
        changes=msgspec.structs.replace(made, changes=tuple(changes)) if made and dry_run else None,
    )
    return report_of_changes(report, changes, results)


def demand_text(text: str) -> str:
    """Return the text, tidied.

    Raises:
        UsageError: the text is empty.
    """
    whole = clean(text).strip() if isinstance(text, str) else ""
    if not whole:
        raise UsageError("the text to remember is empty")
    return whole


def _as_session(
    texts: list[str], agent: Agent, user: User | None, runtime: Runtime
) -> tuple[Session, list[Message]]:
    """Return a session, never stored, whose only content is the text."""
    now = runtime.clock()
    session = Session(id=new_id(now), agents=(agent.id,), users=(user.id,) if user else ())
    messages = [
        Message(
            id=new_id(now),
            session_id=session.id,
            role="user",
            sender=user.id if user else None,
            content=text,
            created_at=now,
        )
        for text in texts
    ]
    return session, messages


def _parts(text: str, settings: FormationSettings) -> Iterator[list[str]]:
    """Yield pieces of the text that are shown whole, as many together as fit into a prompt."""
    pieces = [
        piece
        for paragraph in text.split("\n\n")
        for piece in textwrap.wrap(
            paragraph,
            settings.message_characters,
            replace_whitespace=False,
            drop_whitespace=False,
            break_on_hyphens=False,
        )
        if piece.strip()
    ]
    part: list[str] = []
    for piece in pieces:
        if part and sum(map(len, part)) + len(piece) > settings.max_characters:
            yield part
            part = []
        part.append(piece)
    if part:
        yield part
