"""Messages in, memory out: sessions and what was formed; remember, review, undo and forget."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from itertools import takewhile
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from edenmem.engine.chats.messages import read_messages
from edenmem.engine.chats.sessions import Answer, ChatRequest
from edenmem.engine.edits.reviewer import Reviewed
from edenmem.engine.history.undo import UndoOutcome
from edenmem.engine.reports import EditReport
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.scopes.visibility import current_view
from edenmem.errors import ConflictError, NotFoundError
from edenmem.models.ids import is_id
from edenmem.models.scope import ScopeKind
from edenmem.models.search import FactFilter
from edenmem.server.access import Reach, Reading, Writing
from edenmem.server.documents import (
    BODY_ERRORS,
    ERRORS,
    STRICT,
    STRICT_BODY,
    Cursor,
    FactDocument,
    Limit,
    Long,
    Name,
    Named,
    OptionalName,
    Page,
    ReflectionDocument,
    RepeatableRoute,
    ReviewDocument,
    ReviewedDocument,
    fact_document,
    page,
    reflection_document,
    review_document,
    reviewed_document,
)
from edenmem.server.problems import problem_responses
from edenmem.server.rest import check_content

router = APIRouter(
    prefix="/api",
    tags=["sessions"],
    dependencies=STRICT,
    responses=ERRORS,
    route_class=RepeatableRoute,
)

#: Number of formations, facts and reflections of a session in an answer, the latest first.
_LATEST = 200
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


class FormationDocument(BaseModel):
    """A formation: a range of messages that memory was formed from, or is being formed from."""

    id: str
    status: str
    trigger: str
    messages: int
    created_at: datetime
    updated_at: datetime


class SessionMemoryDocument(BaseModel):
    """The memory from a session, latest first; ``waiting`` messages are not formed yet."""

    session_id: str
    waiting: int
    formations: list[FormationDocument]
    facts: list[FactDocument]
    reflections: list[ReflectionDocument]


@router.get("/sessions/{session_id}/memory", summary="Read the memory from a session")
def read_session_memory(
    session_id: Named, reach: Reading, agent: OptionalName = None, user: OptionalName = None
) -> SessionMemoryDocument:
    """Return the latest 200 formations, facts and reflections of a session.

    ``session_id`` is the ID of a session, or the ``memory_id`` of the user's chat."""
    chosen = reach.agent(agent)
    session, _ = reach.chat(chosen, session_id, user)
    store, memory = reach.service.store, reach.service.memory
    found = store.formations.list_formations(
        session_id=session.id, agent_id=chosen.id, limit=_LATEST
    )
    view = current_view(store, session, chosen, own_only=reach.caller.user_id is not None)
    scopes = tuple(filter(reach.caller.may_read, view.reads))
    facts = memory.facts(FactFilter(scopes=scopes, session_id=session.id), limit=_LATEST)
    first = next(iter(store.host.messages(session.id)), None)
    reflections = memory.reflections(scopes, since=first.created_at if first else None)
    from_here = [each for each in reflections if each.session_id == session.id]
    return SessionMemoryDocument(
        session_id=session.id,
        waiting=store.formations.backlog(session.id, chosen.id, limit=0).total,
        formations=[
            FormationDocument(
                id=each.id,
                status=each.status,
                trigger=each.trigger,
                messages=len(each.message_ids),
                created_at=each.created_at,
                updated_at=each.updated_at,
            )
            for each in found
        ],
        facts=[fact_document(each, reach.caller) for each in facts],
        reflections=[reflection_document(each) for each in from_here[:_LATEST]],
    )


# -- messages in -----------------------------------------------------------------------------------


class NewMessage(BaseModel):
    """A message of a conversation, in the form of chat APIs."""

    model_config = STRICT_BODY

    role: Literal["user", "assistant", "tool"]
    content: Long
    name: Name | None = None


class NewMessages(BaseModel):
    """The newest messages of a session, its end, or all of them."""

    model_config = STRICT_BODY

    messages: Annotated[list[NewMessage], Field(min_length=1, max_length=1000)]
    agent: Name | None = None
    user: Name | None = None


class StoredDocument(BaseModel):
    """The session of stored messages, and how many of them were new."""

    session_id: str
    stored: int


@router.post("/sessions/{session_id}/messages", summary="Store messages", responses=BODY_ERRORS)
async def add_messages(
    session_id: Named, body: NewMessages, reach: Writing, request: Request
) -> StoredDocument:
    """Store messages, and form memory from them once the session is quiet.

    ``session_id`` is a name, or the ID of a session. A missing session is created. Messages that
    are stored already are skipped, as in chats."""

    def store() -> tuple[StoredDocument, str]:
        agent = reach.agent(body.agent)
        account = reach.account(agent, body.user)
        chats, host = reach.service.chats, reach.service.store.host
        asked = ChatRequest(
            agent=agent,
            user=host.user(account) if account else None,
            key=session_id,
            may_join=reach.caller.user_id is None,
            said=tuple(read_messages([each.model_dump() for each in body.messages])),
        )
        turn = chats.find_turn(asked)
        chats.store_turn(turn)
        last = list(takewhile(lambda each: each.role == "assistant", reversed(body.messages)))
        answer = "\n\n".join(each.content for each in reversed(last))
        chats.store_answer(turn.session.id, agent.id, turn.asked, Answer(content=answer))
        number = len(turn.messages) + bool(answer and turn.asked)
        return StoredDocument(session_id=turn.session.id, stored=number), agent.id

    stored, agent_id = await in_thread(store)
    request.app.state.proxy.background.form_later(stored.session_id, agent_id)
    return stored


# -- review --------------------------------------------------------------------------------------


class Decision(BaseModel):
    """A decision about an item. ``version`` is that of a stored item."""

    model_config = STRICT_BODY

    version: int | None = None
    reason: Annotated[str, Field(max_length=1000)] = ""


class Acceptance(Decision):
    """How to accept an item: as it is, with another text, or in place of a fact.

    ``anyway`` accepts an item that resembles a fact.
    """

    content: Long | None = None
    replaces: Name | None = None
    anyway: bool = False


class DecidedDocument(BaseModel):
    """The outcome: ``accept`` or ``reject``, the fact or reflection, and the entry to undo."""

    action: str
    kind: str
    target_id: str
    entry: str


def _decided(report: EditReport) -> DecidedDocument:
    return DecidedDocument(
        action=report.action,
        kind=report.target_type,
        target_id=report.target_id,
        entry=report.result.change_id if report.result else "",
    )


async def _find_item(reach: Reach, item_id: str, *, similar: bool = False) -> Reviewed:
    """Return an item that the caller may review.

    Raises:
        NotFoundError: no such item within reach.
    """
    with suppress(NotFoundError):
        found = await reach.service.review_item(item_id if is_id(item_id) else "", similar=False)
        if reach.caller.may_write(found.item.home):
            return await reach.service.review_item(item_id) if similar else found
    raise NotFoundError("no such item waits for review")


@router.get("/review", summary="List what waits for review")
def list_review(
    reach: Writing,
    agent: OptionalName = None,
    user: OptionalName = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[ReviewDocument]:
    """Return held items and memory in doubt, latest first. Needs a token that may write.

    A user's token reviews that user's memory."""

    chosen = reach.agent(agent)
    account = reach.account(chosen, user)
    accounts = reach.service.host.choose_accounts(account, None).ids if account else None
    found = reach.service.editor.items(chosen.id, user_ids=accounts)
    within = [each for each in found if reach.caller.may_write(each.home)]
    within.sort(key=lambda each: each.id)
    within.sort(key=lambda each: each.held_at, reverse=True)
    return page(
        lambda _: within, lambda each: (each.held_at, each.id), review_document, limit, cursor
    )


@router.get("/review/{item_id}", summary="Read an item", responses=problem_responses(502))
async def read_item(item_id: Named, reach: Writing) -> ReviewedDocument:
    """Return an item that waits for review, with the facts similar to it."""
    return reviewed_document(await _find_item(reach, item_id, similar=True), reach.caller)


@router.post(
    "/review/{item_id}/accept",
    summary="Accept an item",
    responses={**BODY_ERRORS, **problem_responses(502)},
)
async def accept_item(item_id: Named, body: Acceptance, reach: Writing) -> DecidedDocument:
    """Make a held item memory, or confirm a stored one. One that resembles a fact is a 409."""
    item = (await _find_item(reach, item_id)).item
    if body.content is not None:
        await in_thread(check_content, reach, item.home, body.content, item.kind)
    if body.replaces is not None:
        await in_thread(reach.fact, body.replaces)
    return _decided(await reach.service.accept_item(item.id, **body.model_dump()))


@router.post("/review/{item_id}/reject", summary="Reject an item", responses=BODY_ERRORS)
async def reject_item(item_id: Named, body: Decision, reach: Writing) -> DecidedDocument:
    """Remove a held item, or delete a stored one."""
    item = (await _find_item(reach, item_id)).item
    return _decided(await reach.service.reject_item(item.id, **body.model_dump()))


# -- remember, undo, forget ------------------------------------------------------------------------


class NewNote(BaseModel):
    """A text to remember."""

    model_config = STRICT_BODY

    text: Annotated[str, Field(min_length=1, max_length=20_000)]
    agent: Name | None = None
    user: Name | None = None


class KeptDocument(BaseModel):
    """The outcome for one statement: ADD, UPDATE, DELETE, NONE, HELD or REJECTED."""

    content: str
    action: str
    reason: str


class RememberedDocument(BaseModel):
    """What was remembered of a text."""

    facts: list[KeptDocument]


@router.post(
    "/remember", summary="Remember a text", responses={**BODY_ERRORS, **problem_responses(502)}
)
async def remember(body: NewNote, reach: Writing) -> RememberedDocument:
    """Extract facts from a text, and store what is new. Without a model it becomes one fact."""

    def resolve() -> tuple[str, str | None]:
        agent = reach.agent(body.agent)
        return agent.id, reach.account(agent, body.user)

    agent_id, account = await in_thread(resolve)
    memory = await reach.service.memory_for(
        agent_id, user=account, own_only=reach.caller.user_id is not None
    )
    if memory.can_extract:
        report = await memory.remember(body.text)
        return RememberedDocument(
            facts=[
                KeptDocument(content=each.content, action=each.action, reason=each.reason)
                for each in report.decisions
            ]
        )
    edit = await memory.add_fact(body.text)
    action = "NONE" if edit.action == "none" else "ADD"
    return RememberedDocument(facts=[KeptDocument(content=body.text, action=action, reason="")])


class Undoing(BaseModel):
    """The entry of the log to undo."""

    model_config = STRICT_BODY

    entry: Name
    reason: Annotated[str, Field(max_length=1000)] = ""


class UndoneDocument(BaseModel):
    """The outcome: ``done``, or ``already`` if the change is not in force any longer."""

    outcome: str
    undo_id: str


@router.post("/undo", summary="Undo a change", responses=BODY_ERRORS)
async def undo(body: Undoing, reach: Writing) -> UndoneDocument:
    """Undo an entry of the log. Later changes of the same memory are kept, and are a 409."""

    def revert() -> UndoneDocument:
        known = reach.service.store.log.audit_entry(body.entry) if is_id(body.entry) else None
        if known is None or known.scope is None or not reach.caller.may_read(known.scope):
            raise NotFoundError("entry not found")
        reach.demand_write(known.scope)
        step = reach.service.undo.entry(known.id, force=False, reason=body.reason)
        if step.outcome is UndoOutcome.REFUSED:
            raise ConflictError(step.why)
        return UndoneDocument(outcome=step.outcome, undo_id=step.undo_id)

    undone = await in_thread(revert)
    await reach.service.undo.make_vectors(reach.service.undo.missing)
    return undone


class Forgetting(BaseModel):
    """The fact to erase."""

    model_config = STRICT_BODY

    fact: Name


class ForgottenDocument(BaseModel):
    """What was removed, and whether everything was."""

    id: str
    removed: dict[str, int]
    complete: bool


@router.post("/forget", summary="Erase a fact", responses=BODY_ERRORS)
async def forget(body: Forgetting, reach: Writing) -> ForgottenDocument:
    """Erase a fact with its versions and copies, for good. 'edenmem forget' erases a person."""
    fact = await in_thread(reach.fact, body.fact)
    reach.demand_write(fact.home)
    erasure = reach.service.erasure
    subject = await in_thread(erasure.find_subject, facts=(fact.id,))
    report = await erasure.forget(await erasure.plan(subject))
    return ForgottenDocument(id=report.id, removed=report.removed, complete=report.complete)


# -- lists -----------------------------------------------------------------------------------------


class NamedDocument(BaseModel):
    """An agent, a user or a session."""

    id: str
    name: str
    created_at: datetime | None


@router.get("/agents", summary="List agents")
def list_agents(reach: Reading) -> list[NamedDocument]:
    """Return the agents within reach."""
    found = reach.agents if reach.caller.agents is not None else reach.service.host.agents()
    return [
        NamedDocument(id=each.id, name=each.username, created_at=each.created_at) for each in found
    ]


@router.get("/users", summary="List users")
def list_users(reach: Reading, agent: OptionalName = None) -> list[NamedDocument]:
    """Return the users that the agent has memory of; with a user's token, this user's accounts."""
    chosen, host = reach.agent(agent), reach.service.store.host
    if reach.caller.user_id is not None:
        ids = sorted(reach.caller.accounts)
    else:
        scopes = reach.service.store.memory.scopes(
            agent_id=chosen.id, kinds=[ScopeKind.USER], user_ids=None
        )
        ids = sorted({each.scope.owner for each in scopes})
    users = host.users_by_ids(ids)
    return [
        NamedDocument(id=each, name=users[each].username, created_at=users[each].created_at)
        for each in ids
        if each in users
    ]


@router.get("/sessions", summary="List sessions")
def list_sessions(
    reach: Reading,
    agent: OptionalName = None,
    user: OptionalName = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[NamedDocument]:
    """Return the sessions of the agent, latest activity first; with ``user``, those of the user."""
    chosen = reach.agent(agent)
    account = reach.account(chosen, user)
    return page(
        lambda _: reach.service.store.host.sessions(agent_id=chosen.id, user_id=account),
        lambda session: (session.last_activity or _NEVER, session.id),
        lambda session: NamedDocument(
            id=session.id, name=session.label, created_at=session.created_at
        ),
        limit,
        cursor,
    )
