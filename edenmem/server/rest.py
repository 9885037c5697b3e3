"""The endpoints of v1 on the current memory: user texts, reflections, shards and facts."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from edenmem.engine.edits.checks import find_objection, find_secret_in
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.errors import ConflictError, NotFoundError, UsageError
from edenmem.models.memory import Fact, FactFields, Policy, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import FactFilter
from edenmem.server.access import AccessDenied, Reach, Reading, Writing
from edenmem.server.documents import (
    BODY_ERRORS,
    ERRORS,
    STRICT,
    VERSION_ERRORS,
    FactDocument,
    IfMatch,
    Named,
    NewContent,
    NewShard,
    OptionalName,
    ReflectionDocument,
    RepeatableRoute,
    ShardDocument,
    ShardSettings,
    Switch,
    SwitchDocument,
    TextDocument,
    as_decided,
    check_etag,
    fact_document,
    reflection_document,
    set_etag,
)
from edenmem.server.problems import Refused, problem_responses

router = APIRouter(
    prefix="/api",
    tags=["memory of v1"],
    dependencies=STRICT,
    responses=ERRORS,
    route_class=RepeatableRoute,
)

#: Number of facts in a shard document; '/api/facts' lists all.
_FACTS_OF_SHARD = 50

_EMPTY: dict[int | str, dict[str, Any]] = {
    204: {"description": "Done."},
    **problem_responses(409),
}
_VERSIONED = {**BODY_ERRORS, **VERSION_ERRORS}


# -- the memory of a user ------------------------------------------------------------------------


@router.get("/agents/{agent_id}/memory", summary="Read a user's text and directives")
def read_user_memory(
    agent_id: Named, reach: Reading, response: Response, user: OptionalName = None
) -> TextDocument:
    """Return the agent's text about one account of a user, with the pending directives.

    The version of the text is the ETag."""
    agent = reach.agent(agent_id)
    account = reach.demand_account(agent, user)
    scope = Scope.user(agent.id, account)
    text = reach.service.memory.text(scope)
    version = text.version if text else 0
    set_etag(response, version)
    return TextDocument(
        agent_id=agent.id,
        user_id=account,
        content=text.consolidated_content if text else "",
        version=version,
        word_limit=reach.service.scopes.status(scope).word_limit,
        updated_at=text.updated_at if text else None,
        user_memory_enabled=agent.user_memory_enabled,
        directives=[reflection_document(each) for each in reach.service.memory.pending(scope)],
    )


@router.post("/agents/{agent_id}/memory", summary="Replace a user's text", responses=_VERSIONED)
def write_user_memory(
    agent_id: Named,
    body: NewContent,
    reach: Writing,
    response: Response,
    if_match: IfMatch = None,
    user: OptionalName = None,
) -> TextDocument:
    """Replace the text with a new version; pending directives stay pending.

    Needs ``If-Match`` (``"0"`` for the first version)."""
    agent = reach.agent(agent_id)
    scope = Scope.user(agent.id, reach.demand_account(agent, user))
    _write_text(reach, scope, body.content, if_match)
    return read_user_memory(agent_id, reach, response, user)


def _write_text(reach: Reach, scope: Scope, content: str, if_match: str | None) -> None:
    reach.demand_write(scope)
    check_content(reach, scope, content, "text")
    text = reach.service.memory.text(scope)
    version = check_etag(if_match, text.version if text else 0)
    is_person = reach.caller.user_id is not None
    with as_decided():
        reach.service.editor.edit_consolidation(
            scope, content, expected_version=version, fixes=is_person
        )


@router.patch(
    "/agents/{agent_id}/user-memory-enabled",
    summary="Turn user memory on or off",
    responses=BODY_ERRORS,
)
def switch_user_memory(agent_id: Named, body: Switch, reach: Writing) -> SwitchDocument:
    """Turn user memory on or off for all users of the agent.

    Not available with the token of a user."""
    agent = reach.agent(agent_id)
    if reach.caller.user_id is not None:
        raise AccessDenied("a user's token cannot change settings of an agent", status=403)
    reach.service.editor.set_agent(agent.id, user_memory=body.enabled)
    changed = reach.service.host.agent(agent.id) or agent
    return SwitchDocument(
        agent_id=agent.id,
        user_memory_enabled=changed.user_memory_enabled,
        agent_memory_enabled=changed.agent_memory_enabled,
    )


@router.delete(
    "/agents/{agent_id}/memory/{directive_id}",
    summary="Delete a directive",
    status_code=204,
    responses=_EMPTY,
)
def delete_directive(agent_id: Named, directive_id: Named, reach: Writing) -> None:
    """Delete a reflection about a user. A text that has absorbed the reflection stays the same."""
    agent = reach.agent(agent_id)
    found = reach.memory(directive_id)
    is_directive = isinstance(found, Reflection) and found.scope is ScopeKind.USER
    if not is_directive or found.agent_id != agent.id:
        raise NotFoundError("memory not found")
    reach.demand_write(found.home)
    reach.service.editor.delete(found.id)


# -- shards --------------------------------------------------------------------------------------


@router.get("/agents/{agent_id}/collective-memory", summary="Read the shards of an agent")
def read_shards(agent_id: Named, reach: Reading) -> list[ShardDocument]:
    """Return all shards by name, with settings, text, newest facts and suggestions."""
    agent = reach.agent(agent_id)
    return [_read_shard(reach, each) for each in reach.service.host.shards(agent.id)]


def _read_shard(reach: Reach, policy: Policy) -> ShardDocument:
    memory, scope = reach.service.memory, policy.home
    text = memory.text(scope)
    facts = memory.facts(FactFilter(scopes=(scope,)), limit=_FACTS_OF_SHARD)
    return ShardDocument(
        id=policy.id,
        name=policy.shard or "",
        memory_instructions=policy.memory_instructions,
        is_active=policy.active,
        max_facts=policy.fact_buffer_max,
        consolidate_at=policy.consolidate_at,
        content=text.consolidated_content if text else "",
        version=text.version if text else 0,
        updated_at=text.updated_at if text else None,
        facts=[fact_document(each, reach.caller) for each in facts],
        suggestions=[reflection_document(each) for each in memory.pending(scope)],
    )


@router.post(
    "/agents/{agent_id}/collective-memory",
    summary="Create a shard",
    status_code=201,
    responses=BODY_ERRORS,
)
def create_shard(
    agent_id: Named, body: NewShard, reach: Writing, response: Response
) -> ShardDocument:
    """Create a shard, with instructions for its memories."""
    agent = reach.agent(agent_id)
    scope = Scope.shard(agent.id, body.name)
    reach.demand_write(scope)
    _check_settings(body)
    if reach.service.scopes.policy(scope) is not None:
        raise ConflictError("the agent already has a shard with this name")
    settings = {"active": True, **body.changes()}
    reach.service.editor.set_policy(scope, settings, expected_version=0)
    shard = _read_shard(reach, reach.shard(agent, body.name))
    set_etag(response, shard.version)
    return shard


@router.patch(
    "/agents/{agent_id}/collective-memory/{shard_id}",
    summary="Change a shard",
    responses=_VERSIONED,
)
def change_shard(
    agent_id: Named,
    shard_id: Named,
    body: ShardSettings,
    reach: Writing,
    response: Response,
    if_match: IfMatch = None,
) -> ShardDocument:
    """Change settings of a shard, or its text (``content``, with ``If-Match``), not both.

    ``shard_id`` is the name of the shard, or its ID in v1."""
    agent = reach.agent(agent_id)
    scope, settings = reach.shard(agent, shard_id).home, body.changes()
    reach.demand_write(scope)
    if (body.content is None) == (not settings):
        raise UsageError("give either 'content' or settings of the shard, not both")
    if body.content is not None:
        _write_text(reach, scope, body.content, if_match)
    else:
        _check_settings(body)
        reach.service.editor.set_policy(scope, settings)
    shard = _read_shard(reach, reach.shard(agent, shard_id))
    set_etag(response, shard.version)
    return shard


@router.delete(
    "/agents/{agent_id}/collective-memory/{shard_id}/memory/{memory_id}",
    summary="Delete a fact or suggestion of a shard",
    status_code=204,
    responses=_EMPTY,
)
def delete_shard_memory(agent_id: Named, shard_id: Named, memory_id: Named, reach: Writing) -> None:
    """Delete a fact or a suggestion. The history keeps its versions."""
    agent = reach.agent(agent_id)
    scope = reach.shard(agent, shard_id).home
    found = reach.memory(memory_id)
    if found.home != scope:
        raise NotFoundError("memory not found")
    reach.demand_write(scope)
    reach.service.editor.delete(found.id)


# -- single memories -----------------------------------------------------------------------------


@router.patch(
    "/memory-sessions/{memory_id}",
    summary="Edit a fact or reflection",
    responses={**_VERSIONED, **problem_responses(502)},
)
async def edit_memory(
    memory_id: Named,
    body: NewContent,
    reach: Writing,
    response: Response,
    if_match: IfMatch = None,
) -> FactDocument | ReflectionDocument:
    """Replace the text of a fact or of a pending reflection.

    Needs ``If-Match`` with its version."""
    found = await in_thread(reach.memory, memory_id)
    reach.demand_write(found.home)
    version = check_etag(if_match, found.version)
    if isinstance(found, Fact):
        return await edit_fact(reach, found, body.content, version, response)
    await in_thread(check_content, reach, found.home, body.content, "reflection")
    with as_decided():
        await in_thread(reach.service.editor.edit, found.id, body.content, expected_version=version)
    after = await in_thread(reach.memory, memory_id)
    set_etag(response, after.version)
    assert isinstance(after, Reflection)
    return reflection_document(after)


async def edit_fact(
    reach: Reach,
    fact: Fact,
    content: str | None,
    version: int,
    response: Response,
    fields: FactFields | None = None,
) -> FactDocument:
    """Replace the text of a fact with its vector, or its fields; None keeps them.

    Raises:
        Refused: the text or the fields must not be stored (422).
    """
    await in_thread(check_content, reach, fact.home, content or "", "fact", fields)
    with as_decided():
        await reach.service.edit(
            lambda editor: editor.edit(fact.id, content, expected_version=version, fields=fields)
        )
    after = await in_thread(reach.fact, fact.id)
    set_etag(response, after.version)
    return fact_document(after, reach.caller)


def check_content(
    reach: Reach, scope: Scope, content: str, what: str, fields: FactFields | None = None
) -> None:
    """Check that a fact, a reflection or a text may be stored.

    Raises:
        Refused: it holds a secret or an order to the agent (422).
    """
    policy = reach.service.scopes.policy(scope)
    takes_orders = bool(policy and policy.orders)
    if why := find_objection(content, fields, what=what, takes_orders=takes_orders):
        raise Refused(422, why)


def _check_settings(settings: ShardSettings) -> None:
    """Check that a shard's instructions, which are orders by nature, have no secret.

    Raises:
        Refused: they have a secret (422).
    """
    if why := find_secret_in(settings.memory_instructions or "", "text of memory_instructions"):
        raise Refused(422, why)
