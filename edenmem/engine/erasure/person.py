"""Everything that the store has about a person, and about the subject of a receipt.

Both come from the survey of a forgetting. Read-only; all functions block.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import msgspec

from edenmem.engine.context.told import Telling
from edenmem.engine.erasure.reports import ForgetPlan, Mention, hash_id
from edenmem.engine.erasure.survey import find_subject
from edenmem.engine.exchange.files import DAMAGES
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.references import load_labels
from edenmem.engine.seals.hashes import ReceiptSubject
from edenmem.errors import NotFoundError
from edenmem.models.backup import Record, RecordKind, Selection
from edenmem.models.forgetting import Subject
from edenmem.models.host import Message, Session, User
from edenmem.models.memory import Consolidation, Fact, Held, Reflection
from edenmem.models.records import StoredEntry
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.protocol.store import Store
from edenmem.text import one_line

#: Kinds of records in the scopes of a person, memory first.
_KINDS = (
    RecordKind.CONSOLIDATION,
    RecordKind.FACT,
    RecordKind.REFLECTION,
    RecordKind.HELD,
    RecordKind.POLICY,
    RecordKind.HISTORY,
    RecordKind.AUDIT,
)
_CHUNK = 1 << 20


class PersonData(msgspec.Struct, frozen=True, kw_only=True):
    """What the store has about a person.

    ``counts`` are what `forget` would remove, ``records`` those of the person's own scopes and
    reflections derived from them, by kind. ``mentions`` are memory elsewhere that names the person,
    or was learned from the person's messages. ``messages`` are all of the sessions without others,
    and the person's own of other sessions. ``told`` are the replies to others that had
    memory of the person, ``replies`` the number of noted replies to the person. ``backups`` are the
    files of the backup folder with an ID of the person.
    """

    names: tuple[str, ...]
    accounts: tuple[User, ...]
    counts: dict[str, int]
    records: dict[str, list[Record]]
    mentions: tuple[Mention, ...]
    sessions: tuple[Session, ...]
    messages: tuple[Message, ...]
    told: tuple[Telling, ...]
    replies: int
    backups: tuple[str, ...]
    stays: tuple[str, ...]


def gather(runtime: Runtime, plan: ForgetPlan) -> PersonData:
    """Return everything that the store has about the person of a plan."""
    store, traces = runtime.store, plan.traces
    records: dict[str, list[Record]] = {}
    for document in store.walk.documents(_KINDS, Selection(traces=traces)):
        record = document.record
        if isinstance(record, StoredEntry):
            record = msgspec.structs.replace(record, salts={})
        if record is not None:
            records.setdefault(document.kind.value, []).append(record)
    derived = store.memory.reflections_by_ids(plan.derived)
    records.setdefault("reflection", []).extend(derived.values())
    sessions = store.host.sessions_by_ids((*traces.own, *traces.shared))
    messages = [each for id in traces.own for each in store.host.messages(id)]
    shared = tuple(store.host.find_message_ids(traces.accounts, traces.shared))
    return PersonData(
        names=plan.subject.names,
        accounts=tuple(store.host.users_by_ids(traces.accounts).values()),
        counts={
            kind.removesuffix(" (emptied)"): number
            for kind, number in {**plan.counts, **plan.conversations}.items()
        },
        records=records,
        mentions=plan.mentions,
        sessions=tuple(sessions.values()),
        messages=(*messages, *store.host.messages_by_ids(shared)),
        told=plan.told,
        replies=len(store.told.replies(user_ids=traces.accounts)),
        backups=tuple(_find_backups(runtime.settings.backup.folder, traces.accounts)),
        stays=plan.stays,
    )


def _find_backups(folder: str, ids: Sequence[str]) -> Iterator[str]:
    """Yield the backups of a folder that have one of these IDs, or cannot be read."""
    wanted = [id.encode() for id in ids]
    for path in sorted(Path(folder).glob("edenmem-*.jsonl.gz")) if folder else ():
        try:
            with gzip.open(path) as file:
                end = b""
                while chunk := file.read(_CHUNK):
                    if any(id in end + chunk for id in wanted):
                        yield str(path)
                        break
                    end = chunk[-32:]
        except (OSError, *DAMAGES):
            yield f"{path} (unreadable)"


def to_markdown(store: Store, data: PersonData) -> str:
    """Return the data as a document that the person can read."""
    lines = [f"# What is stored about {data.names[0] if data.names else 'this person'}", ""]

    def section(title: str, items: Iterable[str]) -> None:
        if found := [f"- {one_line(each)}" for each in items]:
            lines.extend((f"## {title}", "", *found, ""))

    section("Accounts", (f"{each.username} ({each.id})" for each in data.accounts))
    texts: dict[Scope, list[str]] = {}
    for record in chain.from_iterable(data.records.values()):
        match record:
            case Consolidation(consolidated_content=text) if text:
                texts.setdefault(record.home, []).extend(filter(None, text.splitlines()))
            case Fact():
                texts.setdefault(record.home, []).append(_describe_fact(record))
            case Reflection(content=text):
                texts.setdefault(record.home, []).append(text)
            case Held(content=text, quote=quote, reasons=why):
                parts = (f"(waits for review) {text}", quote and f"quote: {quote}", why)
                texts.setdefault(record.home, []).append("; ".join(filter(None, parts)))
    labels = load_labels(store, texts)
    for scope, items in texts.items():
        section(f"Memory: {labels.full(scope)}", items)
    section(
        "Memory elsewhere that names you, or was learned from your messages",
        (each.text or f"copies of {each.target_type} {each.target_id}" for each in data.mentions),
    )
    for session in data.sessions:
        said = (each for each in data.messages if each.session_id == session.id)
        section(
            f"Conversation: {session.label}",
            (f"{each.created_at:%Y-%m-%d %H:%M} {each.role}: {each.content}" for each in said),
        )
    section("In numbers", (f"{kind}: {number:,}" for kind, number in data.counts.items()))
    section("Backups that still have it", data.backups)
    section("Elsewhere", data.stays)
    return "\n".join(lines)


def _describe_fact(fact: Fact) -> str:
    """Return the text of a fact with its quote and fields, as the export names them."""
    fields = {"quote": fact.quote, "unconfirmed": fact.unconfirmed}
    fields |= msgspec.to_builtins(fact.fields)
    named = (
        f"{name}: {each if isinstance(each, str) else msgspec.json.encode(each).decode()}"
        for name, each in fields.items()
        if each
    )
    return "; ".join((fact.content, *named))


# -- receipts --------------------------------------------------------------------------------------


def subject_of_receipt(store: Store, told: ReceiptSubject) -> Subject | None:
    """Return the subject of a receipt, found by the hash of its ID; None if nothing is left of it.

    Looks at accounts, sessions, facts, and all scopes with memory.
    """
    wanted = {told.sha256, *told.ids_sha256}

    def first(ids: Iterable[str]) -> str | None:
        return next((id for id in ids if hash_id(id) in wanted), None)

    agents = store.host.find_agent_ids()
    agent = next((id for id in agents if hash_id(id) == told.agent_sha256), None)
    if told.agent_sha256 and agent is None and told.kind != "fact":
        return None
    try:
        match told.kind:
            case "agent":
                return find_subject(store, agent=agent) if agent else None
            case "fact":
                facts = store.walk.documents((RecordKind.FACT,))
                left = [each.id for each in facts if hash_id(each.id) in wanted]
                return find_subject(store, facts=left) if left else None
        kind = ScopeKind(told.kind)
        owners = [each.scope.owner for each in store.memory.scopes(kinds=[kind])]
        known: Iterable[str] = ()
        if kind is ScopeKind.USER:
            known = (each.id for each in store.host.users())
        elif kind is ScopeKind.SESSION:
            known = (each.id for each in store.host.sessions())
        owner = first((*owners, *known))
        if owner is None:
            return None
        of = agent if kind in (ScopeKind.USER, ScopeKind.GROUP) else None
        return find_subject(store, agent=of, **{kind.value: owner})
    except NotFoundError:
        return None
