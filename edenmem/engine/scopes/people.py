"""Find the person of an account, and the user scopes of a person.

A person is all accounts linked by ``eden_user_id``. A user scope belongs to one account, so the
memory of a person has one scope per account. These scopes are read together, but written
separately. A new or removed link moves no memory; it takes effect with the next lookup.

Every account belongs to exactly one person, whose canonical ID is the account's ``eden_user_id``
or, without one, the account's ID. Links are not transitive. Memory under the canonical ID belongs
to the person even if this account was deleted or never existed; memory under other deleted
accounts is not readable.
"""

from __future__ import annotations

from edenmem.errors import UsageError
from edenmem.models.host import Person, User
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.protocol.store import Store


def person_of(store: Store, account_id: str) -> Person:
    """Return the person of an account.

    A deleted account or unknown ID is a person with this one ID.
    """
    account = store.host.users_by_ids((account_id,)).get(account_id)
    person = person_with(store, account.person_id if account else account_id)
    return person if account_id in person.ids else Person(id=account_id, ids=(account_id,))


def person_with(store: Store, person_id: str) -> Person:
    """Return the person with this canonical ID."""
    found = store.host.accounts_of(person_id)
    accounts = tuple(each for each in found if each.person_id == person_id and not each.deleted)
    accounts = tuple(sorted(accounts, key=lambda each: (each.id != person_id, each.id)))
    is_anothers = any(each.id == person_id and each.person_id != person_id for each in found)
    ids = [] if is_anothers else [person_id]
    ids.extend(account.id for account in accounts)
    return Person(id=person_id, accounts=accounts, ids=tuple(dict.fromkeys(ids)))


def accounts_ever_of(store: Store, person: Person) -> tuple[User, ...]:
    """Return the accounts of the person by ID, including deleted ones."""
    found = store.host.accounts_of(person.id)
    return tuple(each for each in found if each.person_id == person.id or each.id in person.ids)


def resolve_person(store: Store, user_id: str | None, account_id: str | None = None) -> Person:
    """Return the person with the account ``user_id``, limited to ``account_id`` if set.

    Raises:
        UsageError: the account belongs to a different person.
    """
    person = person_of(store, user_id or account_id or "")
    if account_id is None:
        return person
    if user_id is not None and account_id not in person.ids:
        known = store.host.users_by_ids((account_id, user_id))
        names = {id: known[id].username if id in known else id for id in (account_id, user_id)}
        raise UsageError(
            f"{names[account_id]} is not an account of {names[user_id]}",
            hint="list the accounts of a user: edenmem show user:USER",
        )
    accounts = tuple(each for each in person.accounts if each.id == account_id)
    return Person(id=person.id, accounts=accounts, ids=(account_id,))


def user_scopes(agent_id: str, person: Person) -> tuple[Scope, ...]:
    """Return the user scopes of all accounts of a person, the canonical one first."""
    return tuple(Scope.user(agent_id, owner) for owner in person.ids)


def other_scopes(store: Store, scope: Scope) -> tuple[Scope, ...]:
    """Return the scopes of the person's other accounts; none unless it is a user scope."""
    if scope.kind is not ScopeKind.USER:
        return ()
    person = person_of(store, scope.owner)
    return tuple(each for each in user_scopes(scope.agent_id, person) if each != scope)
