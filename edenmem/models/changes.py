"""Changes: the one road by which memory is altered.

A person's edit, a formation, a consolidation, a migration, an undo and doctor's repairs all hand
the store a `ChangeSet`. Each change has an id of its own, names the scope that its target must
belong to, and says which version it was decided on; the store refuses it if that version is gone,
does nothing if the change was applied before, and writes one audit entry with the change's id.
So a set can be written down first and applied as often as needed.

For every kind there is one that takes it back (see `edenmem.engine.history.undo`): what was
added is removed and what was removed is added with its id, texts and policies are written as they
were, as new versions. Version numbers never go back, so that a version names one text for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from itertools import takewhile

import msgspec

from edenmem.models.host import Agent, User
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact, Policy, Reflection, content_hash
from edenmem.models.records import Actor as Actor
from edenmem.models.records import AuditEntry as AuditEntry
from edenmem.models.records import ChangeResult as ChangeResult
from edenmem.models.records import ChangeStatus as ChangeStatus
from edenmem.models.records import HistoryEntry as HistoryEntry
from edenmem.models.scope import Scope


class _Change(msgspec.Struct, frozen=True, kw_only=True, tag_field="op"):
    """What all changes have: an id (also of the audit entry) and a reason in words.

    ``undoes`` is the id of the audit entry that this change takes back, if it is an undo.
    """

    id: str = msgspec.field(default_factory=new_id)
    reason: str = ""
    undoes: str | None = None


class AddFact(_Change, frozen=True, kw_only=True, tag="add_fact"):
    """Insert ``fact``. A fact with the same hash in the same scope makes it a duplicate.

    One that was removed, with its id, is thereby restored: its history goes on.
    """

    fact: Fact


def _joined(ids: Sequence[str], more: Sequence[str], dropped: Sequence[str]) -> tuple[str, ...]:
    """Return ``ids`` and ``more``, each once, without those that are dropped."""
    gone = frozenset(dropped)
    return tuple(each for each in dict.fromkeys((*ids, *more)) if each not in gone)


class ReviseFact(_Change, frozen=True, kw_only=True, tag="revise_fact"):
    """Give a fact a new text and vector; the old text goes to history.

    If the fact is gone or not of ``expected_version`` any more, ``or_add`` is inserted instead
    (formation: nothing learned may be lost), or, without it, the change is a conflict. If another
    fact of the scope has the new text already, the target is removed in its favour.

    Its sources become those it had and ``source_message_ids``, without ``dropped_source_ids``; its
    related users likewise. A revision with the text that the fact has, for the sake of these,
    leaves its vector. It is weak if the new text is, or was and stays.
    """

    scope: Scope
    fact_id: str
    expected_version: int
    content: str
    at: datetime
    embedding: bytes | None = None
    embedding_model: str | None = None
    source_message_ids: tuple[str, ...] = ()
    dropped_source_ids: tuple[str, ...] = ()
    related_users: tuple[str, ...] = ()
    dropped_users: tuple[str, ...] = ()
    weak: bool = False
    or_add: Fact | None = None

    def revise(self, fact: Fact) -> Fact:
        """``fact`` as it is afterwards."""
        digest = content_hash(self.content)
        embedding, model = self.embedding, self.embedding_model if self.embedding else None
        if embedding is None and digest == fact.hash:
            embedding, model = fact.embedding, fact.embedding_model
        sources = _joined(fact.source_message_ids, self.source_message_ids, self.dropped_source_ids)
        return msgspec.structs.replace(
            fact,
            content=self.content,
            hash=digest,
            previous_content=fact.content,
            updated_at=self.at,
            version=fact.version + 1,
            source_message_ids=sources,
            related_users=_joined(fact.related_users, self.related_users, self.dropped_users),
            weak=self.weak or (fact.weak and digest == fact.hash),
            embedding=embedding,
            embedding_model=model,
        )


class RemoveFact(_Change, frozen=True, kw_only=True, tag="remove_fact"):
    """Take a fact away; the whole of it, with its vector, goes to history."""

    scope: Scope
    fact_id: str
    expected_version: int
    at: datetime


class SetPrivacy(_Change, frozen=True, kw_only=True, tag="set_privacy"):
    """Mark a fact or reflection as private, or no longer so. Its version stays."""

    scope: Scope
    target_type: str
    target_id: str
    private: bool
    at: datetime


class AddReflection(_Change, frozen=True, kw_only=True, tag="add_reflection"):
    """Insert ``reflection`` and, unless it is absorbed, put it at the end of its scope's buffer.

    ``word_limit`` is for the consolidated document, should the buffer be its first content.
    """

    reflection: Reflection
    word_limit: int


class ReviseReflection(_Change, frozen=True, kw_only=True, tag="revise_reflection"):
    """Give a pending reflection a new text. One that is absorbed meanwhile is a conflict."""

    scope: Scope
    reflection_id: str
    expected_version: int
    content: str
    at: datetime


class RemoveReflection(_Change, frozen=True, kw_only=True, tag="remove_reflection"):
    """Take a reflection away, from its buffer too; the audit entry keeps all of it."""

    scope: Scope
    reflection_id: str
    expected_version: int
    at: datetime


class RestoreReflection(_Change, frozen=True, kw_only=True, tag="restore_reflection"):
    """Insert a reflection that was removed, with its id, and, unless it was absorbed, put it back
    into its scope's buffer at the place that its time gives it.

    ``reflection.version`` is one more than that which was removed, so that nothing decided on the
    removed one can be taken to mean this one. ``word_limit`` as for `AddReflection`.
    """

    reflection: Reflection
    word_limit: int


class WriteConsolidation(_Change, frozen=True, kw_only=True, tag="write_consolidation"):
    """Write the scope's text as version ``expected_version + 1``, in one atomic step; as
    ``as_version`` if that is greater: a text that comes from elsewhere keeps its number.

    The step also takes exactly ``absorbed_ids`` out of the buffer, marks those reflections as
    absorbed, and keeps the replaced version in history. ``expected_version`` 0: there is no text.
    With ``propagate`` it also notes that the new version is still to be propagated (see
    `edenmem.models.memory.Consolidation.unpropagated_versions`).
    """

    scope: Scope
    expected_version: int
    content: str
    word_limit: int
    at: datetime
    absorbed_ids: tuple[str, ...] = ()
    propagate: bool = False
    as_version: int = 0

    @property
    def next_version(self) -> int:
        """The number that the new version gets."""
        return max(self.expected_version + 1, self.as_version)


class RevertConsolidation(_Change, frozen=True, kw_only=True, tag="revert_consolidation"):
    """Take versions of the scope's text back, in one atomic step: what was there before them is
    written as version ``expected_version + 1``, and ``released_ids`` wait in the buffer again.

    ``content`` "" says that there is no text, as before the first version; the number grows all the
    same. Each of ``released_ids`` must be absorbed (else a conflict); it goes to the place in the
    buffer that its time gives it. ``reverted_versions`` need not be propagated any more.
    """

    scope: Scope
    expected_version: int
    content: str
    word_limit: int
    at: datetime
    released_ids: tuple[str, ...] = ()
    reverted_versions: tuple[int, ...] = ()

    @property
    def next_version(self) -> int:
        """The number that the new version gets."""
        return self.expected_version + 1


class RepairBuffer(_Change, frozen=True, kw_only=True, tag="repair_buffer"):
    """Let the scope's buffer hold exactly its reflections that are not absorbed, in order.

    The flags on the reflections are what counts. A store whose buffer is nothing but the flags
    counts them anew. A buffer that is in order is left as it is (ALREADY, no audit entry). It has
    no way back: there is nothing in a wrong buffer to go back to.
    """

    scope: Scope
    at: datetime


class WritePolicy(_Change, frozen=True, kw_only=True, tag="write_policy"):
    """Write the policy of ``policy.home``; the stored version must be ``expected_version``."""

    policy: Policy
    expected_version: int
    at: datetime


class RemovePolicy(_Change, frozen=True, kw_only=True, tag="remove_policy"):
    """Take the policy of a scope away: the defaults of its kind hold again. A shard is no more;
    whatever is in it stays, and is seen again when it gets a policy."""

    scope: Scope
    expected_version: int
    at: datetime


class SetAgentToggles(_Change, frozen=True, kw_only=True, tag="set_agent_toggles"):
    """Switch an agent's user or agent memory on or off; None leaves one as it is."""

    agent_id: str
    at: datetime
    user_memory_enabled: bool | None = None
    agent_memory_enabled: bool | None = None


class AddAgent(_Change, frozen=True, kw_only=True, tag="add_agent"):
    """Make an agent known to the host. One whose id or username is taken is a conflict."""

    agent: Agent


class RemoveAgent(_Change, frozen=True, kw_only=True, tag="remove_agent"):
    """Take away an agent that was added and never used: one that has memory, a policy or a session,
    or of which the host has stored more than edenmem did, is a conflict."""

    agent_id: str


class AddUser(_Change, frozen=True, kw_only=True, tag="add_user"):
    """Make a person's account known to the host, as `AddAgent`."""

    user: User


class RemoveUser(_Change, frozen=True, kw_only=True, tag="remove_user"):
    """Take away an account that was added and never used, as `RemoveAgent`."""

    user_id: str


Change = (
    AddFact
    | ReviseFact
    | RemoveFact
    | SetPrivacy
    | AddReflection
    | ReviseReflection
    | RemoveReflection
    | RestoreReflection
    | WriteConsolidation
    | RevertConsolidation
    | RepairBuffer
    | WritePolicy
    | RemovePolicy
    | SetAgentToggles
    | AddAgent
    | RemoveAgent
    | AddUser
    | RemoveUser
)


class ChangeSet(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that belong together, by one actor at one time.

    Each is judged alone: one that conflicts does not keep the others from being applied.
    ``automatic``: the engine decided on them by itself some time ago. What adds to memory that was
    paused, switched off or removed with its agent since, or takes from it, is refused; a person may
    change it.
    """

    id: str = msgspec.field(default_factory=new_id)
    actor: Actor
    at: datetime
    changes: tuple[Change, ...] = ()
    automatic: bool = False


#: Words of a command → what is said of all versions that it makes.
_BY_COMMAND = {
    "restore": "restore",
    "undo": "restore",
    "migrate rollback": "restore",
    "migrate": "migrate",
}


@lru_cache(maxsize=64)
def action_of_command(command: str) -> str | None:
    """What history says of every version that a command makes, or None if that is up to each
    change. Options and what they name do not count: an agent may be called "restore"."""
    words = " ".join(takewhile(lambda word: word.isalnum(), command.split()))
    return next((said for each, said in _BY_COMMAND.items() if f" {each} " in f" {words} "), None)


def action_of_new_fact(fact: Fact) -> str:
    """What history says of the first version of a fact, if its command does not say it."""
    return "form" if fact.formation_id else "add"


def version_action(change: Change, actor: Actor) -> str:
    """What history says of the version that a change makes (see `HistoryEntry.action`)."""
    match change:
        case RevertConsolidation():
            return "restore"
        case _ if by_command := action_of_command(actor.command):
            return by_command
        case AddFact(fact=fact) | ReviseFact(or_add=Fact() as fact):
            return action_of_new_fact(fact)
        case WriteConsolidation(absorbed_ids=(_, *_)):
            return "consolidate"
    return "edit"
