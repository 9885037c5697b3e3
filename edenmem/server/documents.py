"""The documents that REST endpoints take and return, and checks of their requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import wraps
from inspect import iscoroutinefunction
from itertools import chain, dropwhile, islice
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from fastapi import Depends, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from edenmem.engine.context.told import ItemState
from edenmem.engine.edits.reviewer import Reviewed
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.errors import ConflictError, KeyTaken
from edenmem.models.changes import AuditEntry
from edenmem.models.memory import Fact, FactFields, Reflection, ReviewItem
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.told import ReplyKind, ShownKind
from edenmem.server.access import CALLER_KEY, Caller
from edenmem.server.problems import Refused, problem_responses

T = TypeVar("T")
M = TypeVar("M")

#: Maximum length of a field; the engine limits the words.
_MOST_CHARACTERS = 200_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STEP = timedelta(milliseconds=1)
_MOST_NUMBER = 2**31 - 1

Name = Annotated[str, Field(min_length=1, max_length=200)]
Long = Annotated[str, Field(min_length=1, max_length=_MOST_CHARACTERS)]
Named = Annotated[str, Path(min_length=1, max_length=200)]
OptionalName = Annotated[str | None, Query(min_length=1, max_length=200)]
Limit = Annotated[int, Query(ge=1, le=200, description="Maximum number of items.")]
#: A cursor: milliseconds since 1970, and the ID of the last item.
_CURSOR = re.compile(r"([0-9]{1,14})-([0-9a-f]{1,64})")
Cursor = Annotated[
    str | None,
    Query(
        description="`next_cursor` of the page before.",
        json_schema_extra={"pattern": f"^{_CURSOR.pattern}$"},
    ),
]
IfMatch = Annotated[
    str | None, Header(max_length=200, description="ETag of the version that you read.")
]
#: JSON has one kind of number: 3.0 is a whole one.
_WHOLE = BeforeValidator(
    lambda given: int(given) if isinstance(given, float) and given.is_integer() else given
)


def _check_date(value: object) -> object:
    """Check that a time begins with a date: Pydantic takes numbers as seconds since 1970."""
    is_date = isinstance(value, str) and re.match(r"[0-9]{4}-", value)
    if not is_date and isinstance(value, str | int | float):
        raise ValueError("a date is required")
    return value


DATED = BeforeValidator(_check_date)
FactScope = Literal["agent", "shard", "group", "user"]


#: Bodies with other fields or types are invalid.
STRICT_BODY = ConfigDict(extra="forbid", strict=True)


class NewContent(BaseModel):
    """The new text."""

    model_config = STRICT_BODY

    content: Long


class Switch(BaseModel):
    """On or off."""

    model_config = STRICT_BODY

    enabled: bool


class ShardSettings(BaseModel):
    """Settings of a shard, or its text. Null resets a setting to its default."""

    model_config = STRICT_BODY

    memory_instructions: Annotated[str, Field(max_length=_MOST_CHARACTERS)] | None = None
    is_active: bool = True
    max_facts: Annotated[int, Field(ge=0, le=_MOST_NUMBER), _WHOLE] | None = None
    consolidate_at: Annotated[int, Field(ge=1, le=_MOST_NUMBER), _WHOLE] | None = None
    content: Long | None = None

    def changes(self) -> dict[str, object]:
        """Return the given fields as fields of a policy."""
        names = {"is_active": "active", "max_facts": "fact_buffer_max"}
        given = self.model_dump(exclude_unset=True, exclude={"content", "name"})
        return {names.get(name, name): value for name, value in given.items()}


class NewShard(ShardSettings):
    """A new shard."""

    name: Name
    content: None = None


class FactFieldsBody(BaseModel):
    """The fields of a fact that a caller sets; see `edenmem.models.memory.Fact`."""

    model_config = STRICT_BODY

    key: str | None = None
    tags: list[str] = []
    metadata: dict[str, str] = {}
    expires_at: Annotated[datetime, Field(strict=False), DATED] | None = None
    value: dict[str, Any] | None = None

    def change(self, fields: FactFields) -> FactFields:
        """Return the fields with those of the request."""
        names = set(FactFields.__struct_fields__)
        given = self.model_dump(include=names, exclude_unset=True)
        return msgspec.structs.replace(
            fields, **{**given, "tags": tuple(given.get("tags", fields.tags))}
        )


class FactChange(FactFieldsBody):
    """A new text, new fields, or both. Fields that are left out stay."""

    content: Long | None = None


class NewFact(FactFieldsBody):
    """A new fact and its scope."""

    content: Long
    agent: Name | None = None
    scope: FactScope | None = None
    user: Name | None = None
    shard: Name | None = None
    group: Name | None = None
    private: bool = False
    reason: Annotated[str, Field(max_length=1000)] = ""


class FactDocument(BaseModel):
    """A fact. A user's token sees sources and quotes only for facts of that user."""

    id: str
    scope: ScopeKind
    agent_id: str
    user_id: str | None
    group_id: str | None
    shard: str | None
    content: str
    version: int
    formed_at: datetime
    said_at: datetime | None
    updated_at: datetime | None
    private: bool
    quote: str
    unconfirmed: str
    key: str | None
    tags: tuple[str, ...]
    metadata: dict[str, str]
    expires_at: datetime | None
    value: dict[str, Any] | None
    session_id: str | None
    source_message_ids: list[str]


class ReflectionDocument(BaseModel):
    """A reflection: v1's directive or suggestion."""

    id: str
    content: str
    unconfirmed: str
    version: int
    formed_at: datetime
    said_at: datetime | None
    updated_at: datetime | None


class TextDocument(BaseModel):
    """The text about one account of a user, with pending directives."""

    agent_id: str
    user_id: str
    content: str
    version: int
    word_limit: int
    updated_at: datetime | None
    user_memory_enabled: bool
    directives: list[ReflectionDocument]


class ShardDocument(BaseModel):
    """A shard, with settings, text, newest facts and pending suggestions."""

    id: str
    name: str
    memory_instructions: str | None
    is_active: bool
    max_facts: int | None
    consolidate_at: int | None
    content: str
    version: int
    updated_at: datetime | None
    facts: list[FactDocument]
    suggestions: list[ReflectionDocument]


class SwitchDocument(BaseModel):
    """The memory settings of an agent."""

    agent_id: str
    user_memory_enabled: bool
    agent_memory_enabled: bool


class ReviewDocument(BaseModel):
    """An item that waits for review: held, or stored as unconfirmed."""

    id: str
    state: Literal["held", "unconfirmed"]
    kind: Literal["fact", "reflection"]
    scope: ScopeKind
    agent_id: str
    user_id: str | None
    group_id: str | None
    shard: str | None
    content: str
    version: int
    held_at: datetime
    said_at: datetime | None
    private: bool
    quote: str
    reasons: str
    session_id: str | None
    source_message_ids: list[str]


class SimilarDocument(FactDocument):
    """A fact similar to an item; ``is_near``: the item resembles it."""

    is_near: bool


class ReviewedDocument(ReviewDocument):
    """An item with the facts similar to it, best first."""

    similar: list[SimilarDocument]


class HitDocument(FactDocument):
    """A fact found by a search."""

    score: float
    explain: dict[str, Any] | None


class PassageDocument(BaseModel):
    """A reflection, or a paragraph of a text, found by a search."""

    kind: str
    id: str
    scope: ScopeKind
    owner: str
    content: str
    at: datetime | None
    score: float
    unconfirmed: str


class SearchDocument(BaseModel):
    """The results of a search, best first.

    ``nothing_relevant``: facts were found, but none reached the minimum score.
    """

    queries: list[str]
    recipe: str
    hits: list[HitDocument]
    nothing_relevant: bool
    passages: list[PassageDocument]
    notices: list[str]


class ContextDocument(BaseModel):
    """The memory for a prompt, as XML."""

    context: str
    built_at: datetime
    recall: str
    queries: list[str]


class ReplyDocument(BaseModel):
    """A context, search or chat that was given memory; chats name the answered message."""

    id: str
    at: datetime
    kind: ReplyKind
    agent_id: str
    session_id: str | None
    user_id: str | None
    message_id: str | None


class ToldItemDocument(BaseModel):
    """An item of a reply, as it was then, and what happened to it since.

    A forgotten item has only its kind. ``version_now`` is 0 if it was removed."""

    kind: ShownKind
    id: str
    scope: ScopeKind | None
    version: int
    version_now: int
    state: ItemState
    content: str


class ToldDocument(BaseModel):
    """A reply, the memory that it was given, and the context as the agent saw it, as XML."""

    reply: ReplyDocument
    items: list[ToldItemDocument]
    context: str


class EntryDocument(BaseModel):
    """A change of memory: its actor and command, and the documents before and after it."""

    id: str
    at: datetime
    actor: str
    command: str
    action: str
    target_type: str
    target_id: str
    scope: ScopeKind | None
    owner: str | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    reason: str
    undoes: str | None


class Page(BaseModel, Generic[T]):
    """A page of a list. ``next_cursor`` is for the next page, null on the last page."""

    items: list[T]
    next_cursor: str | None


def page(
    find: Callable[[datetime | None], Iterable[M]],
    key: Callable[[M], tuple[datetime, str]],
    shown: Callable[[M], T],
    limit: int,
    cursor: str | None,
) -> Page[T]:
    """Return a page of items.

    Args:
        find: Returns the items, latest first, at least all from before a time, if one is given.
        key: Returns the time and the ID of an item.
        shown: Returns the document of an item.
        limit: Maximum number of items.
        cursor: `Page.next_cursor` of the page before.

    Raises:
        Refused: the cursor is invalid (422).
    """
    if cursor is None:
        rest = iter(find(None))
    else:
        if (given := _CURSOR.fullmatch(cursor)) is None:
            raise Refused(422, "query.cursor is not a cursor of this list")
        moment = _EPOCH + timedelta(milliseconds=int(given[1]))
        rest = _after(find(moment + _STEP), key, moment, given[2])
    items = list(islice(rest, limit + 1))
    more = None
    if len(items) > limit:
        moment, item_id = key(items[limit - 1])
        more = f"{round(max(moment, _EPOCH).timestamp() * 1000)}-{item_id}"
    return Page[Any](items=[shown(each) for each in items[:limit]], next_cursor=more)


def _after(
    found: Iterable[M], key: Callable[[M], tuple[datetime, str]], moment: datetime, item_id: str
) -> Iterator[M]:
    """Yield the items after the one with this time and ID, which may be gone."""
    rest: Iterator[M] = dropwhile(lambda each: key(each)[0] > moment, found)
    same = list[M]()
    for each in rest:
        if key(each)[0] < moment:
            rest = chain([each], rest)
            break
        same.append(each)
    places = [place for place, each in enumerate(same) if key(each)[1] == item_id]
    yield from chain(same[places[0] + 1 if places else 0 :], rest)


# -- from memory ---------------------------------------------------------------------------------


def fact_document(fact: Fact, caller: Caller) -> FactDocument:
    """Return a fact as visible to the caller."""
    return FactDocument(**_fact_fields(fact, caller))


def hit_document(fact: Fact, caller: Caller, score: float, explain: Any) -> HitDocument:
    """Return a search result as visible to the caller."""
    return HitDocument(**_fact_fields(fact, caller), score=score, explain=explain)


def review_document(item: ReviewItem) -> ReviewDocument:
    """Return an item for its reviewer."""
    return ReviewDocument.model_validate(item, from_attributes=True)


def reviewed_document(found: Reviewed, caller: Caller) -> ReviewedDocument:
    """Return an item with the facts similar to it, as visible to the caller."""
    similar = [
        SimilarDocument(**_fact_fields(each.fact, caller), is_near=each.is_near)
        for each in found.similar
    ]
    return ReviewedDocument(**dict(review_document(found.item)), similar=similar)


def _fact_fields(fact: Fact, caller: Caller) -> dict[str, Any]:
    fields = {name: getattr(fact, name) for name in FactDocument.model_fields}
    shows_sources = caller.user_id is None or fact.scope is ScopeKind.USER
    sources = fact.source_message_ids if shows_sources else ()
    return {
        **fields,
        "quote": fact.quote if shows_sources else "",
        "session_id": fact.session_id if shows_sources else None,
        "source_message_ids": list(sources),
    }


def reflection_document(reflection: Reflection) -> ReflectionDocument:
    """Return a reflection without its sources."""
    return ReflectionDocument.model_validate(reflection, from_attributes=True)


def entry_document(entry: AuditEntry, caller: Caller) -> EntryDocument:
    """Return an entry of the log as visible to the caller."""
    return EntryDocument(
        id=entry.id,
        at=entry.at,
        actor=entry.actor.name,
        command=entry.actor.command,
        action=entry.action,
        target_type=entry.target_type,
        target_id=entry.target_id,
        scope=entry.scope.kind if entry.scope else None,
        owner=entry.scope.owner if entry.scope else None,
        before=_visible(entry, entry.before, caller),
        after=_visible(entry, entry.after, caller),
        reason=entry.reason,
        undoes=entry.undoes,
    )


def _visible(
    entry: AuditEntry, document: dict[str, Any] | None, caller: Caller
) -> dict[str, Any] | None:
    """Return a document without the other users it names, for the token of a user.

    What is held is visible to those who may review it.
    """
    is_hidden = entry.target_type == "held" and not (
        entry.scope is not None and caller.may_write(entry.scope)
    )
    if is_hidden:
        return None
    if document is None or caller.user_id is None:
        return document
    plain: dict[str, Any] = msgspec.to_builtins(document)
    return {name: value for name, value in plain.items() if name != "related_users"}


def scope_of(
    agent_id: str, kind: str, *, account: str | None, shard: str | None, group: str | None
) -> Scope:
    """Return the scope of a kind with its owner; raise `ScopeError` without an owner."""
    owners = {"user": account, "shard": shard, "group": group}
    return Scope(ScopeKind(kind), agent_id, owners.get(kind) or "")


# -- requests ------------------------------------------------------------------------------------


async def _check_request(request: Request) -> None:
    """Check the names of the query's parameters, and the type of the body.

    Raises:
        RequestValidationError: the route does not have such a parameter.
        Refused: the body is not marked as JSON (415).
    """
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = {field.alias for field in route.dependant.query_params}
    if unknown := [name for name in request.query_params if name not in known]:
        errors = [{"type": "extra_forbidden", "loc": ("query", name)} for name in unknown]
        raise RequestValidationError([{**each, "ctx": {"what": "parameter"}} for each in errors])
    # Forms of other sites can send a body, but not with this type.
    if route.body_field is not None and not _is_json(request) and await request.body():
        raise Refused(415, "send Content-Type: application/json")


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


class RepeatableRoute(APIRoute):
    """A route that answers a repeated write with its first answer, by ``Idempotency-Key``.

    Answers are kept in memory, for some time. Without the key, and after a start of the server,
    writes are safe to repeat all the same; see the guide. A function that blocks runs in a thread
    of the store.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        @wraps(endpoint)
        async def run(**given: Any) -> Any:
            return await in_thread(endpoint, **given)

        super().__init__(path, endpoint if iscoroutinefunction(endpoint) else run, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request."""
        handle = super().get_route_handler()

        async def repeatable(request: Request) -> Response:
            key = request.headers.get("idempotency-key", "")
            if not key or request.method == "GET":
                return await handle(request)
            if len(key) > _LONGEST_KEY:
                raise Refused(422, f"Idempotency-Key must have at most {_LONGEST_KEY} characters")
            caller = request.scope.get(CALLER_KEY)
            holder = getattr(caller, "token_id", None), request.method, request.url.path, key
            wanted = hash((await request.body(), str(request.query_params)))
            known: dict[Any, tuple[int, Response | None]] = request.app.state.answers
            if holder in known:
                digest, answer = known[holder]
                if digest != wanted:
                    raise Refused(422, "the Idempotency-Key was used for another request")
                if answer is None:
                    raise Refused(409, "a request with this Idempotency-Key is in progress")
                return answer
            while len(known) >= _MOST_KEYS:
                del known[next(iter(known))]
            known[holder] = wanted, None
            try:
                answer = await handle(request)
            except BaseException:
                known.pop(holder, None)
                raise
            known[holder] = wanted, answer
            return answer

        return repeatable


#: Number of answers to repeat, and longest key of a request.
_MOST_KEYS, _LONGEST_KEY = 1000, 200

#: Dependencies of each router of REST endpoints.
STRICT = (Depends(_check_request),)

#: Errors of all REST endpoints, of those with a body, and of those that change one version.
ERRORS = problem_responses(400, 401, 403, 404, 422, 503, 504)
BODY_ERRORS = problem_responses(408, 409, 413, 415)
VERSION_ERRORS = problem_responses(412, 428)


# -- versions ------------------------------------------------------------------------------------

_TAGS = re.compile(r'(?:\A|,)\s*"([0-9]{1,18})"\s*(?=,|\Z)')


def set_etag(response: Response, version: int) -> None:
    """Set the ETag to the version of a text."""
    response.headers["ETag"] = f'"{version}"'


def check_etag(if_match: str | None, version: int, *, required: bool = True) -> int:
    """Check that ``If-Match`` has the current version, and return the version.

    Raises:
        Refused: the header is missing (428) or has another version (412).
    """
    if if_match is None:
        if not required:
            return version
        raise Refused(428, "an If-Match header with the ETag of the text is required")
    is_current = version > 0 if if_match.strip() == "*" else str(version) in _TAGS.findall(if_match)
    if not is_current:
        raise Refused(412, f"the text is at version {version}", {"ETag": f'"{version}"'})
    return version


@contextmanager
def as_decided() -> Iterator[None]:
    """Change one version.

    Raises:
        Refused: another change was first (412).
        KeyTaken: another fact of the scope has the key.
    """
    try:
        yield
    except KeyTaken:
        raise
    except ConflictError as error:
        raise Refused(412, error.message) from error
