"""Quotas: what each scope of a session may take, with its instructions and existing memory.

A quota is both what a prompt says about a scope and what an answer is checked against. A scope
without a quota takes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from edenmem.engine.formation.transcript import tidy_name
from edenmem.engine.scopes.overview import (
    defaults_of,
    fact_buffer_max_of,
    in_database,
    pending_among,
    slow_model_of,
    word_limit_of,
)
from edenmem.engine.scopes.visibility import SessionView
from edenmem.models.host import Agent
from edenmem.models.scope import Scope, ScopeKind
from edenmem.settings.schema import FormationSettings, Settings
from edenmem.store.protocol.store import Store

#: Maximum number of a scope's newest pending reflections in a prompt.
PENDING_SHOWN = 40
#: Bounds of the factor on limits, for conversations of any length.
LEAST, MOST = 0.5, 2.0


def item_limit(base: int, characters: int, settings: FormationSettings) -> int:
    """Return ``base`` items scaled to the conversation's length, rounded, at least one.

    The factor is 1 at ``base_characters``, plus one with each ``log_base``-fold length, within 0.5
    and 2.
    """
    grown = math.log(max(characters, 1) / settings.base_characters, settings.log_base) + 1
    return max(1, math.floor(base * min(max(grown, LEAST), MOST) + 0.5))


class ScopeQuota(msgspec.Struct, frozen=True, kw_only=True):
    """One scope. ``heading`` names it in a prompt; it takes no facts if ``max_facts`` is 0.

    ``text`` is its consolidated text, ``pending`` its buffer, oldest first. ``doubtful`` is "mark",
    "hold" or "drop"; ``holds_all``: everything waits for review. For a user with several
    accounts, ``others`` are the scopes of the other accounts, ``open_others`` those not paused, and
    ``elsewhere`` the memory in ``others``.
    """

    scope: Scope
    heading: str
    max_facts: int
    max_reflections: int
    word_limit: int
    fact_buffer_max: int
    takes_orders: bool = False
    doubtful: str = "mark"
    holds_all: bool = False
    instructions: str = ""
    text: str = ""
    pending: tuple[str, ...] = ()
    others: tuple[Scope, ...] = ()
    open_others: tuple[Scope, ...] = ()
    elsewhere: tuple[str, ...] = ()

    @property
    def changeable(self) -> tuple[Scope, ...]:
        """Return the scopes whose facts a new fact in this scope may change."""
        return (self.scope, *self.open_others)

    @property
    def kind(self) -> ScopeKind:
        """Return the scope's kind."""
        return self.scope.kind

    @property
    def shard(self) -> str | None:
        """Return the shard's name, for a shard."""
        return self.scope.owner if self.kind is ScopeKind.SHARD else None

    def most(self, kind: str) -> int:
        """Return the maximum number of facts or of reflections."""
        return self.max_facts if kind == "fact" else self.max_reflections

    def holds(self, doubt: str) -> bool:
        """Return whether an item with this doubt, or "" without one, waits for review."""
        return self.holds_all or (bool(doubt) and self.doubtful == "hold")

    @property
    def memory(self) -> str:
        """Return the existing memory as shown in a prompt; empty if none."""
        own = _format_memory(self.text, self.pending)
        return "\n\n".join(part for part in (own, *self.elsewhere) if part)


class ScopeQuotas(msgspec.Struct, frozen=True, kw_only=True):
    """All quotas, from broad to narrow, and the models to ask.

    A model named in a policy takes precedence over the configured one. The broadest scope's model
    is used, since one call serves all scopes.
    """

    items: tuple[ScopeQuota, ...]
    fast_model: str
    slow_model: str

    @property
    def offered(self) -> tuple[ScopeQuota, ...]:
        """Return the quotas offered to a model.

        Of a person with several accounts that spoke, the last one represents all.
        """
        return tuple(quota for quota in self.items if quota is self.find(quota.kind, quota.shard))

    @property
    def for_facts(self) -> tuple[ScopeQuota, ...]:
        """Return the quotas that take facts, with all accounts that spoke."""
        return tuple(quota for quota in self.items if quota.max_facts)

    @property
    def offered_for_facts(self) -> tuple[ScopeQuota, ...]:
        """Return the quotas in `offered` that take facts."""
        return tuple(quota for quota in self.offered if quota.max_facts)

    @property
    def for_reflections(self) -> tuple[ScopeQuota, ...]:
        """Return the quotas that take reflections."""
        return tuple(quota for quota in self.items if quota.max_reflections)

    def of(self, scope: Scope) -> ScopeQuota:
        """Return the quota of this scope, which must have one."""
        return next(quota for quota in self.items if quota.scope == scope)

    def of_account(self, user_id: str | None) -> ScopeQuota | None:
        """Return the quota of this account's user scope; None if it takes nothing."""
        scopes = (quota for quota in self.items if quota.kind is ScopeKind.USER)
        return next((quota for quota in scopes if quota.scope.user_id == user_id), None)

    def find(self, kind: str, shard: str | None) -> ScopeQuota | None:
        """Return the quota that an answer names; None if unknown.

        A shard's name may differ in case, and may be missing if only one shard is offered.
        """
        of_kind = [quota for quota in self.items if quota.kind == kind]
        if kind != ScopeKind.SHARD:
            return of_kind[0] if of_kind else None
        wanted = (shard or "").strip()
        if not wanted and len(of_kind) == 1:
            return of_kind[0]
        for same in (str, str.casefold):
            for quota in of_kind:
                if same(quota.scope.owner) == same(wanted):
                    return quota
        return None


def gather_quotas(
    store: Store,
    settings: Settings,
    agent: Agent,
    view: SessionView,
    characters: int,
    *,
    holds_all: bool = False,
) -> ScopeQuotas:
    """Return the quotas of a session for a conversation of this length. Blocks.

    ``holds_all``: in all scopes everything waits for review.
    """
    scopes = tuple(dict.fromkeys((*view.writes_facts, *view.writes_reflections)))
    owned = tuple(scope for scope in view.reads if scope.kind is ScopeKind.USER)
    policies = view.policies
    texts = store.memory.consolidations((*scopes, *owned))
    buffers = pending_among(store, {scope: each.unabsorbed_ids for scope, each in texts.items()})
    pending = {scope: tuple(one.content for one in each) for scope, each in buffers.items()}

    def remembered(scope: Scope) -> str:
        text = texts.get(scope)
        return _format_memory(text.consolidated_content if text else "", pending.get(scope, ()))

    facts = item_limit(settings.formation.facts_per_scope, characters, settings.formation)
    thoughts = item_limit(settings.formation.reflections_per_scope, characters, settings.formation)
    doubtful = in_database(store, settings).formation.doubtful
    items = []
    for scope in scopes:
        policy, text = policies.get(scope), texts.get(scope)
        review = (policy and policy.review) or defaults_of(settings, scope.kind).review
        is_held = review in ("doubtful", "everything")
        is_marked = (review, doubtful) == ("nothing", "hold")
        others = tuple(each for each in owned if each != scope and scope in owned)
        quota = ScopeQuota(
            scope=scope,
            heading=_heading(scope, view),
            max_facts=facts if scope in view.writes_facts else 0,
            max_reflections=thoughts if scope in view.writes_reflections else 0,
            word_limit=word_limit_of(store, settings, scope, policy, text),
            fact_buffer_max=fact_buffer_max_of(settings, scope, policy),
            takes_orders=bool(policy and policy.orders),
            doubtful="hold" if is_held else "mark" if is_marked else doubtful,
            holds_all=holds_all or review == "everything",
            instructions=((policy.memory_instructions if policy else None) or "").strip(),
            text=text.consolidated_content if text else "",
            pending=pending.get(scope, ()),
            others=others,
            open_others=tuple(
                each for each in others if each not in policies or policies[each].active
            ),
            elsewhere=tuple(filter(None, map(remembered, others))),
        )
        items.append(quota)
    named = [policies[scope] for scope in scopes if scope in policies]
    fast_model = next(filter(None, (each.fast_model for each in named)), settings.llm.fast_model)
    slow_model = next(filter(None, (each.slow_model for each in named)), None)
    return ScopeQuotas(
        items=tuple(items),
        fast_model=fast_model,
        slow_model=slow_model or slow_model_of(store, settings, agent),
    )


def _format_memory(text: str, pending: Sequence[str]) -> str:
    recent = "\n".join(f"- {line}" for line in pending[-PENDING_SHOWN:])
    return "\n\n".join(part for part in (text.strip(), recent) if part)


def _heading(scope: Scope, view: SessionView) -> str:
    match scope.kind:
        case ScopeKind.SHARD:
            return f"shard `{' '.join(scope.owner.split())}`"
        case ScopeKind.USER:
            name = tidy_name(view.user.username) if view.user else ""
            return f"user ({name or 'the person who speaks'})"
        case ScopeKind.GROUP:
            return f"group ({tidy_name(scope.owner) or 'the group that speaks'})"
        case kind:
            return str(kind)
