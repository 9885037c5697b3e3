"""Search, facts, contexts and the log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from heapq import merge
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Response
from pydantic import AfterValidator

from edenmem.engine.reports import MemoryHit, MemoryKind
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.search.request import check_callers_recipe
from edenmem.errors import NotFoundError
from edenmem.models.changes import AuditEntry
from edenmem.models.host import Agent
from edenmem.models.ids import as_utc, is_id, utc_now
from edenmem.models.memory import NO_FIELDS
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.models.told import Reply, Shown, make_note, shown_facts
from edenmem.server.access import Reach, Reading, Writing
from edenmem.server.documents import (
    BODY_ERRORS,
    DATED,
    ERRORS,
    STRICT,
    VERSION_ERRORS,
    ContextDocument,
    Cursor,
    EntryDocument,
    FactChange,
    FactDocument,
    FactScope,
    IfMatch,
    Limit,
    Named,
    NewFact,
    OptionalName,
    Page,
    PassageDocument,
    RepeatableRoute,
    ReplyDocument,
    SearchDocument,
    ToldDocument,
    check_etag,
    entry_document,
    fact_document,
    hit_document,
    page,
    scope_of,
    set_etag,
)
from edenmem.server.problems import problem_responses
from edenmem.server.rest import check_content, edit_fact

router = APIRouter(
    prefix="/api",
    tags=["memory"],
    dependencies=STRICT,
    responses=ERRORS,
    route_class=RepeatableRoute,
)

_Recipe = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=200,
        json_schema_extra={"pattern": r"^(convex|rrf|semantic|text)(\+recency)?(\+mmr)?$"},
    ),
]
_Query = Annotated[str, Query(min_length=1, max_length=8_000)]
_Kinds = Annotated[list[FactScope], Query(description="Only scopes of these kinds.", max_length=4)]
_Shards = Annotated[list[str], Query(description="Only these shards.", max_length=50)]
_Tags = Annotated[list[str], Query(description="Only facts with all these tags.", max_length=50)]
_Key = Annotated[str | None, Query(max_length=512, description="Only the facts with this key.")]


_Time = Annotated[
    Annotated[datetime, AfterValidator(as_utc)] | None,
    DATED,
    Query(description="ISO 8601; UTC without an offset."),
]


@router.get("/search", summary="Search memory", responses=problem_responses(502))
async def search(
    reach: Reading,
    q: Annotated[list[_Query], Query(min_length=1, max_length=3, description="1 to 3 queries.")],
    agent: OptionalName = None,
    user: OptionalName = None,
    group: OptionalName = None,
    shard: _Shards = [],  # noqa: B006 - FastAPI copies defaults
    scope: _Kinds = [],  # noqa: B006
    within: Annotated[list[MemoryKind], Query(max_length=3)] = ["facts"],  # noqa: B006
    session: OptionalName = None,
    since: _Time = None,
    until: _Time = None,
    tag: _Tags = [],  # noqa: B006
    key: _Key = None,
    top_k: Annotated[int | None, Query(ge=1, le=100)] = None,
    recipe: _Recipe = None,
    explain: bool = False,
) -> SearchDocument:
    """Search the memory of the agent and its shards. ``user`` and ``group`` include theirs."""
    check_callers_recipe(recipe, reach.search_recipe)

    def resolve() -> tuple[Agent, str | None, str | None]:
        chosen = reach.agent(agent)
        _check_group(reach, group)
        talk = reach.session(chosen, session).id if session else None
        return chosen, reach.account(chosen, user), talk

    chosen, account, session_id = await in_thread(resolve)
    report = await reach.service.search(
        q,
        agent_id=chosen.id,
        user_id=account,
        group_id=group,
        shards=shard or None,
        kinds=[ScopeKind(kind) for kind in scope] or reach.kinds,
        within=within,
        session_id=session_id,
        since=since,
        until=until,
        tags=tag,
        key=key,
        top_k=top_k,
        recipe=recipe,
        explain=explain,
    )
    shown = [*shown_facts(hit.fact for hit in report.hits), *map(_shown, report.passages)]
    reply = Reply(at=utc_now(), kind="search", agent_id=chosen.id, session_id=None, user_id=account)
    reach.service.told.notes.add(make_note(reply, found=shown))
    return SearchDocument(
        queries=list(report.queries),
        recipe=report.recipe,
        hits=[
            hit_document(hit.fact, reach.caller, hit.score, hit.explain if explain else None)
            for hit in report.hits
        ],
        nothing_relevant=report.nothing_relevant,
        passages=[
            PassageDocument(
                kind=each.kind,
                id=each.id,
                scope=each.scope.kind,
                owner=each.scope.owner,
                content=each.content,
                at=each.at,
                score=each.score,
                unconfirmed=each.unconfirmed,
            )
            for each in report.passages
        ],
        notices=list(report.notices),
    )


def _shown(passage: MemoryHit) -> Shown:
    """Return what is noted of a reflection, or of a paragraph of a text."""
    id = "" if passage.kind == "text" else passage.id
    return Shown(passage.kind, id, passage.version, passage.scope)


def _check_group(reach: Reach, group: str | None) -> None:
    """Check that the caller can read groups.

    Raises:
        NotFoundError: the token is a user's.
    """
    if group is not None and reach.caller.user_id is not None:
        raise NotFoundError("group not found")


# -- facts ---------------------------------------------------------------------------------------


@router.get("/facts", summary="List facts")
def list_facts(
    reach: Reading,
    agent: OptionalName = None,
    user: OptionalName = None,
    group: OptionalName = None,
    shard: _Shards = [],  # noqa: B006
    scope: _Kinds = [],  # noqa: B006
    since: _Time = None,
    until: _Time = None,
    tag: _Tags = [],  # noqa: B006
    key: _Key = None,
    expired: bool = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[FactDocument]:
    """Return facts of the agent and its shards, newest or most recently corrected first.

    Add ``user`` or ``group`` to include theirs. With ``expired``: facts that have expired,
    which are left out otherwise."""
    chosen = reach.agent(agent)
    _check_group(reach, group)
    scopes = reach.service.scopes.readable(
        chosen,
        user_id=reach.account(chosen, user),
        group_id=group,
        shards=shard or None,
        kinds=[ScopeKind(kind) for kind in scope] or None,
    )
    filter = FactFilter(
        scopes=scopes,
        since=since,
        until=until,
        tags=tuple(tag),
        key=key,
        expired_at=utc_now() if expired else None,
    )
    return page(
        lambda before: reach.service.memory.facts(
            msgspec.structs.replace(filter, recent_before=before),
            limit=None if before else limit + 1,
        ),
        lambda fact: (fact.recent_at, fact.id),
        lambda fact: fact_document(fact, reach.caller),
        limit,
        cursor,
    )


@router.post(
    "/facts",
    summary="Add a fact",
    status_code=201,
    responses={
        200: {"description": "The fact existed.", "model": FactDocument},
        **BODY_ERRORS,
        **problem_responses(502),
    },
)
async def add_fact(body: NewFact, reach: Writing, response: Response) -> FactDocument:
    """Store a fact without changes. An existing fact is returned with status 200.

    Default scope: the shard, group or user in the request, the token's user, or the agent."""

    def resolve() -> Scope:
        chosen = reach.agent(body.agent)
        _check_group(reach, body.group)
        account = reach.account(chosen, body.user)
        shard = reach.shard(chosen, body.shard).shard if body.shard else None
        named = "shard" if shard else "group" if body.group else "user" if account else "agent"
        kind = body.scope or named
        made = scope_of(chosen.id, kind, account=account, shard=shard, group=body.group)
        reach.demand_write(made)
        return made

    scope = await in_thread(resolve)
    fields = body.change(NO_FIELDS)
    await in_thread(check_content, reach, scope, body.content, "fact", fields)
    report = await reach.service.edit(
        lambda editor: editor.add_fact(
            scope, body.content, private=body.private, fields=fields, reason=body.reason
        )
    )
    if report.action == "none" or (report.result and report.result.status == "duplicate"):
        response.status_code = 200
    fact = await in_thread(reach.fact, report.target_id)
    set_etag(response, fact.version)
    return fact_document(fact, reach.caller)


@router.get("/facts/{fact_id}", summary="Read a fact")
def read_fact(fact_id: Named, reach: Reading, response: Response) -> FactDocument:
    """Return a fact. Its version is the ETag."""
    fact = reach.fact(fact_id)
    set_etag(response, fact.version)
    return fact_document(fact, reach.caller)


@router.patch(
    "/facts/{fact_id}",
    summary="Edit a fact",
    responses={**BODY_ERRORS, **VERSION_ERRORS, **problem_responses(502)},
)
async def change_fact(
    fact_id: Named,
    body: FactChange,
    reach: Writing,
    response: Response,
    if_match: IfMatch = None,
) -> FactDocument:
    """Change the text or the fields of a fact; the history keeps the old ones. Needs ``If-Match``.

    Fields that are left out stay; null removes a key, a time of expiry or a value."""
    fact = await in_thread(reach.fact, fact_id)
    reach.demand_write(fact.home)
    version = check_etag(if_match, fact.version)
    fields = body.change(fact.fields)
    return await edit_fact(reach, fact, body.content, version, response, fields)


@router.delete(
    "/facts/{fact_id}",
    summary="Delete a fact",
    status_code=204,
    responses={204: {"description": "Done."}, **problem_responses(409, 412)},
)
def delete_fact(fact_id: Named, reach: Writing, if_match: IfMatch = None) -> None:
    """Delete a fact; the history keeps its versions. ``If-Match`` is optional."""
    fact = reach.fact(fact_id)
    reach.demand_write(fact.home)
    version = check_etag(if_match, fact.version, required=False)
    reach.service.editor.delete(fact.id, expected_version=version)


# -- contexts and the log ------------------------------------------------------------------------


@router.get(
    "/context", summary="Build the memory context for a prompt", responses=problem_responses(502)
)
async def context(
    reach: Reading,
    session: Annotated[str, Query(min_length=1, max_length=200)],
    agent: OptionalName = None,
    user: OptionalName = None,
    message: Annotated[str | None, Query(max_length=8_000)] = None,
    recall: Literal["off", "heuristic", "llm", "always"] | None = None,
) -> ContextDocument:
    """Build the memory context of a session, as XML.

    ``session`` is the ID of a session, or the ``memory_id`` of the user's chat. ``message`` is the
    message to answer, for recall. The context of a group chat has no user memory. With a user's
    token it has no group and session memory, and recall only for ``message``."""

    def resolve() -> tuple[str, str, str | None]:
        chosen = reach.agent(agent)
        talk, speaker = reach.chat(chosen, session, user)
        if user is None and reach.caller.user_id is not None:
            own = [each for each in talk.users if each in reach.caller.accounts]
            speaker = own[0] if own else speaker
        return chosen.id, talk.id, speaker

    agent_id, session_id, speaker = await in_thread(resolve)
    own_only = reach.caller.user_id is not None
    report = await reach.service.assemble_context(
        session_id,
        agent_id=agent_id,
        user_id=speaker,
        message=message,
        recall=recall,
        keep=False,
        own_only=own_only,
    )
    return ContextDocument(
        context=report.xml,
        built_at=report.built_at,
        recall=report.recall,
        queries=[] if own_only else list(report.queries),  # a model's may quote other people
    )


@router.get("/told", summary="List replies that were given memory")
def list_told(
    reach: Reading,
    agent: OptionalName = None,
    user: OptionalName = None,
    session: Annotated[str | None, Query(pattern="^[0-9a-f]{24}$")] = None,
    memory: Annotated[str | None, Query(pattern="^[0-9a-f]{24}$")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[ReplyDocument]:
    """Return the contexts, searches and chats that were given memory, newest first.

    ``session`` and ``memory`` are IDs: only replies of that session, and only replies that were
    given that fact or reflection. A user's token sees replies to that user."""
    chosen = reach.agent(agent)
    account = reach.account(chosen, user)
    user_ids = reach.service.host.person(account).ids if account else None
    shown = partial(ReplyDocument.model_validate, from_attributes=True)
    return page(
        lambda before: reach.service.told.replies(
            agent_id=chosen.id,
            user_ids=user_ids,
            session_id=session,
            keys=[memory] if memory else None,
            until=before,
            limit=None if before else limit + 1,
        ),
        lambda one: (one.at, one.id),
        shown,
        limit,
        cursor,
    )


@router.get("/told/{reply_id}", summary="Read what a reply was given")
def read_told(reply_id: Named, reach: Reading) -> ToldDocument:
    """Return the memory that a reply was given, as the agent saw it.

    Chats have the ID in the header ``X-Edenmem-Told``. What a user's token may not read is left
    out."""
    caller = reach.caller
    found = reach.service.told.replies(reply_id=reply_id) if is_id(reply_id) else []
    is_own = caller.user_id is None or (found and found[0].user_id in caller.accounts)
    if not (found and is_own and caller.may_reach_agent(found[0].agent_id)):
        raise NotFoundError("reply not found")
    told = reach.service.told.as_told(found[0], may_read=caller.may_read)
    return ToldDocument.model_validate(told, from_attributes=True)


@router.get("/log", summary="List changes")
def log(
    reach: Reading,
    agent: OptionalName = None,
    user: OptionalName = None,
    since: _Time = None,
    until: _Time = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[EntryDocument]:
    """Return changes of the agent's memory, newest first.

    With ``user`` or the token of a user: only changes of that user's memory."""
    chosen = reach.agent(agent)
    account = reach.account(chosen, user) if user else reach.caller.user_id
    within: list[dict[str, Any]] = [{"agent_id": chosen.id}]
    if account is not None:
        ids = reach.service.host.person(account).ids
        within = [{"scope": Scope.user(chosen.id, each)} for each in ids]

    def find(before: datetime | None) -> Iterator[AuditEntry]:
        last = min(filter(None, (until, before)), default=None)
        entries = partial(reach.service.history.entries, since=since, until=last)
        parts = (entries(**each) for each in within)
        return merge(*parts, key=lambda entry: entry.at, reverse=True)

    return page(
        find,
        lambda entry: (entry.at, entry.id),
        lambda entry: entry_document(entry, reach.caller),
        limit,
        cursor,
    )
