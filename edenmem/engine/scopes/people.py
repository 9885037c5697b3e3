"""Who is who: from an account to the person behind it, and to the user scopes of that person.

A person is all accounts linked by ``eden_user_id``. A user scope belongs to one account, so that
what is known of a person is in as many scopes as the person has accounts. They are read together;
each is written alone. Nothing moves when a link comes or goes: the next look-up follows it.

Every account belongs to exactly one person: the one whose canonical id is its ``eden_user_id`` or,
failing that, its own id. Links are not followed further than that. Memory under the canonical id
is the person's even if no account has that id, or the account is deleted; memory under any other
deleted account is nobody's to read.
"""

from __future__ import annotations

from edenmem.errors import UsageError
from edenmem.models.host import Person, User
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.protocol.store import Store


def person_of(store: Store, account_id: str) -> Person:
    """The person whose account this is.

    A deleted account, and an id that no account has or is linked to, stands for itself alone.
    """
    account = store.host.users_by_ids((account_id,)).get(account_id)
    person = person_with(store, account.person_id if account else account_id)
    return person if account_id in person.ids else Person(id=account_id, ids=(account_id,))


def person_with(store: Store, person_id: str) -> Person:
    """The person with this canonical id."""
    found = store.host.accounts_of(person_id)
    accounts = tuple(each for each in found if each.person_id == person_id and not each.deleted)
    accounts = tuple(sorted(accounts, key=lambda each: (each.id != person_id, each.id)))
    is_anothers = any(each.id == person_id and each.person_id != person_id for each in found)
    ids = [] if is_anothers else [person_id]
    ids.extend(account.id for account in accounts)
    return Person(id=person_id, accounts=accounts, ids=tuple(dict.fromkeys(ids)))


def accounts_ever_of(store: Store, person: Person) -> tuple[User, ...]:
    """The accounts of the person, deleted ones too, by id."""
    found = store.host.accounts_of(person.id)
    return tuple(each for each in found if each.person_id == person.id or each.id in person.ids)


def resolve_person(store: Store, user_id: str | None, account_id: str | None = None) -> Person:
    """The person with the account ``user_id``; with ``account_id`` that account of theirs alone.

    Raises:
        UsageError: the account is not one of the user's.
    """
    person = person_of(store, user_id or account_id or "")
    if account_id is None:
        return person
    if user_id is not None and account_id not in person.ids:
        known = store.host.users_by_ids((account_id, user_id))
        names = {id: known[id].username if id in known else id for id in (account_id, user_id)}
        raise UsageError(
            f"{names[account_id]} is not an account of {names[user_id]}",
            hint="'edenmem user show USER' lists the accounts of a user",
        )
    accounts = tuple(each for each in person.accounts if each.id == account_id)
    return Person(id=person.id, accounts=accounts, ids=(account_id,))


def user_scopes(agent_id: str, person: Person) -> tuple[Scope, ...]:
    """The scopes of all of the person's accounts with this agent, the canonical one first."""
    return tuple(Scope.user(agent_id, owner) for owner in person.ids)


def other_scopes(store: Store, scope: Scope) -> tuple[Scope, ...]:
    """The scopes of the person's other accounts; none for the scope of a deleted account, and for
    other kinds of scopes."""
    if scope.kind is not ScopeKind.USER:
        return ()
    person = person_of(store, scope.owner)
    return tuple(each for each in user_scopes(scope.agent_id, person) if each != scope)
