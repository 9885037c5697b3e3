"""Access tokens of the server and daily usage, on every store."""

from __future__ import annotations

import msgspec

from edenmem.models.access import AccessToken, DailyUse, token_id
from edenmem.models.ids import new_id
from edenmem.models.records import AuditEntry
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, ago, make_actor, some

MIRA, OTTO, LENA = new_id(), new_id(), new_id()


def make_token(name: str = "phone", **fields: object) -> AccessToken:
    own = {"agents": (MIRA,), "created_at": NOW, "created_by": "operator", **fields}
    return AccessToken(id=token_id(name), name=name, digest="0" * 64, **own)  # type: ignore[arg-type]


def make_entry(token: AccessToken, action: str = "add_token") -> AuditEntry:
    return AuditEntry(
        id=new_id(),
        change_set_id=new_id(),
        at=NOW,
        actor=make_actor(),
        action=action,
        target_type="token",
        target_id=token.id,
        agent_id=MIRA,
    )


def add(store: Store, token: AccessToken) -> bool:
    return store.tokens.add(token, make_entry(token))


def test_a_token_round_trips(store: Store) -> None:
    limited = make_token(agents=(MIRA, OTTO), user_id=LENA, can_write=True, expires_at=ago(days=-9))
    assert add(store, limited)
    assert add(store, make_token("laptop"))
    assert store.tokens.token(limited.id) == limited
    assert [each.name for each in store.tokens.tokens()] == ["laptop", "phone"]
    assert store.tokens.token(new_id()) is None


def test_a_name_is_unique_until_its_token_is_removed(store: Store) -> None:
    first, second = make_token("phone"), make_token("Phone", can_write=True)
    assert add(store, first)
    assert not add(store, second)
    assert store.tokens.token(first.id) == first
    assert store.tokens.remove(first.id, make_entry(first, "remove_token"))
    assert not store.tokens.remove(first.id, make_entry(first, "remove_token"))
    assert store.tokens.token(first.id) is None
    assert add(store, second)
    actions = [entry.action for entry in store.log.audit(target_id=first.id)]
    assert sorted(actions) == ["add_token", "add_token", "remove_token"]


def test_a_digest_is_replaced_once_and_the_limits_stay(store: Store) -> None:
    token = make_token(agents=(MIRA, OTTO), user_id=LENA, last_used_at=ago(hours=1))
    add(store, token)
    limited = msgspec.structs.replace(token, agents=(OTTO,))
    assert store.tokens.move(token, limited)
    digest, at = "1" * 64, ago(minutes=-1)
    new = msgspec.structs.replace(token, digest=digest, created_at=at, created_by="other")
    entry = make_entry(token, "rotate_token")
    assert store.tokens.move(token, new, entry)
    assert not store.tokens.move(token, new, make_entry(token, "rotate_token"))
    assert store.tokens.token(token.id) == msgspec.structs.replace(new, agents=(OTTO,))
    (logged,) = store.log.audit(target_id=token.id, limit=1)
    assert (logged.id, len(list(store.log.audit(target_id=token.id)))) == (entry.id, 2)


def test_limits_and_last_use_are_updated_separately(store: Store) -> None:
    token = make_token(agents=(MIRA, OTTO), user_id=LENA)
    add(store, token)
    add(store, make_token("laptop"))
    for change in ({"agents": (OTTO,)}, {"last_used_at": ago(hours=1)}):
        assert store.tokens.move(token, msgspec.structs.replace(token, **change))
    read = some(store.tokens.token(token.id))
    assert (read.agents, read.last_used_at, read.user_id) == ((OTTO,), ago(hours=1), LENA)
    other = some(store.tokens.token(token_id("laptop")))
    assert (other.agents, other.last_used_at) == ((MIRA,), None)


def test_usage_is_summed_by_holder_and_day_and_dropped_after_two(store: Store) -> None:
    for day in ("2026-11-20", "2026-11-21", "2026-11-21"):
        store.tokens.add_use("anna", day, DailyUse(tokens=100, cost=0.25))
    store.tokens.add_use("lena", "2026-11-21", DailyUse(tokens=7))
    assert store.tokens.daily_use("anna", "2026-11-21") == DailyUse(tokens=200, cost=0.5)
    assert store.tokens.daily_use("anna", "2026-11-20") == DailyUse(tokens=100, cost=0.25)
    assert store.tokens.daily_use("lena", "2026-11-20") == DailyUse()
    store.tokens.add_use("lena", "2026-11-22", DailyUse(tokens=1))
    assert store.tokens.daily_use("anna", "2026-11-20") == DailyUse()
    assert store.tokens.daily_use("anna", "2026-11-21").tokens == 200
