"""Tokens: what is stored of them, when they open nothing any more, and what forgetting does."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from edenmem.engine.tokens import TokenKeeper
from edenmem.errors import ConflictError, NotFoundError, StoreError, UsageError, WriteRefused
from edenmem.models.ids import new_id
from edenmem.store.protocol.store import Store
from edenmem.store.sqlite import SqliteStore
from tests.support.builders import FixedClock, make_agent, make_user
from tests.support.forgetting import forgetter
from tests.support.runtime import make_runtime

MIRA, OTTO, LENA, TOMAS = new_id(), new_id(), new_id(), new_id()


def keeper(store: Store, clock: FixedClock) -> TokenKeeper:
    return TokenKeeper(make_runtime(store, clock=clock))


def test_the_secret_is_nowhere_but_in_the_callers_hand(
    sqlite_store: SqliteStore, clock: FixedClock, tmp_path: Path
) -> None:
    tokens = keeper(sqlite_store, clock)
    token, secret = tokens.create("phone", agents=[MIRA, MIRA], user_id=LENA)
    assert (token.agents, token.can_write) == ((MIRA,), False)
    assert tokens.create("laptop", agents=[MIRA])[1] != secret
    sqlite_store.database.close()
    stored = sqlite_store.connections.path.read_bytes()
    assert token.digest.encode() in stored
    assert secret.rpartition("_")[2].encode() not in stored
    assert secret not in repr(token)


def test_a_token_opens_until_it_ends_or_is_revoked(sqlite_store: Store, clock: FixedClock) -> None:
    tokens = keeper(sqlite_store, clock)
    _, short = tokens.create("short", agents=[MIRA], expires_at=clock() + timedelta(hours=2))
    _, long = tokens.create("long", agents=[MIRA])
    assert tokens.check(short) is not None
    clock.advance(hours=1, minutes=59)
    assert tokens.check(short) is not None
    clock.advance(minutes=1)
    assert tokens.check(short) is None
    assert tokens.check(long) is not None
    tokens.revoke("LONG")
    assert tokens.check(long) is None
    with pytest.raises(NotFoundError):
        tokens.revoke("long")
    _, again = tokens.create("long", agents=[OTTO])
    assert tokens.check(long) is None
    assert tokens.check(again) is not None


def test_nothing_that_resembles_a_token_opens(sqlite_store: Store, clock: FixedClock) -> None:
    tokens = keeper(sqlite_store, clock)
    token, secret = tokens.create("phone", agents=[MIRA])
    _, other = tokens.create("laptop", agents=[MIRA])
    mixed = secret[:29] + other[29:]
    for wrong in (
        "",
        " ",
        "edm_",
        mixed,
        secret[:-1],
        secret + "0",
        secret + "\n",
        secret.upper(),
        token.digest,
        f"edm_{new_id()}_{'0' * 64}",
        "\ud800",
        "é" * 93,
    ):
        assert tokens.check(wrong) is None, wrong
    assert tokens.check(secret) is not None


def test_use_is_noted_once_an_hour(sqlite_store: Store, clock: FixedClock) -> None:
    tokens = keeper(sqlite_store, clock)
    _, secret = tokens.create("phone", agents=[MIRA])
    begin = clock()
    for minutes in (0, 30, 29):
        clock.advance(minutes=minutes)
        tokens.check(secret)
        assert tokens.find("phone").last_used_at == begin
    clock.advance(minutes=1)
    tokens.check(secret)
    assert tokens.find("phone").last_used_at == clock()


def test_a_store_that_is_only_read_checks_tokens_and_makes_none(
    tmp_path: Path, clock: FixedClock
) -> None:
    path = tmp_path / "memory.db"
    writer = SqliteStore(path)
    writer.database.initialize()
    _, secret = keeper(writer, clock).create("phone", agents=[MIRA])
    writer.database.close()
    reader = SqliteStore(path, read_only=True)
    tokens = keeper(reader, clock)
    assert tokens.check(secret) is not None
    with pytest.raises(WriteRefused):
        tokens.create("laptop", agents=[MIRA])
    with pytest.raises(WriteRefused):
        tokens.revoke("phone")
    reader.database.close()


def test_a_busy_store_keeps_no_token_out(
    sqlite_store: SqliteStore, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = keeper(sqlite_store, clock)
    _, secret = tokens.create("phone", agents=[MIRA])

    def refuse(*_: object) -> None:
        raise StoreError("the database is locked")

    with monkeypatch.context() as busy:
        busy.setattr(sqlite_store.tokens, "move", refuse)
        assert tokens.check(secret) is not None
    assert tokens.find("phone").last_used_at is None


def test_what_cannot_be_a_token_is_refused(sqlite_store: Store, clock: FixedClock) -> None:
    tokens = keeper(sqlite_store, clock)
    for name in ("", "-x", "a b", "a\nb", "x" * 65, "../x", "é"):
        with pytest.raises(UsageError):
            tokens.create(name, agents=[MIRA])
    with pytest.raises(UsageError):
        tokens.create("phone", agents=[])
    with pytest.raises(UsageError):
        tokens.create("phone", agents=[MIRA], expires_at=clock())
    tokens.create("phone", agents=[MIRA])
    with pytest.raises(ConflictError):
        tokens.create("Phone", agents=[MIRA])
    assert [entry.action for entry in sqlite_store.log.audit()] == ["add_token"]


def test_forgetting_closes_the_tokens_of_whom_it_is_about(store: Store, clock: FixedClock) -> None:
    for agent, name in ((MIRA, "mira"), (OTTO, "otto")):
        store.host.add_agent(make_agent(name, id=agent))
    for user, name in ((LENA, "lena"), (TOMAS, "tomas")):
        store.host.add_user(make_user(name, id=user))
    tokens = keeper(store, clock)
    tokens.create("both", agents=[MIRA, OTTO])
    tokens.create("lena", agents=[MIRA, OTTO], user_id=LENA)
    tokens.create("tomas", agents=[MIRA], user_id=TOMAS)

    def forget(**subject: str) -> dict[str, tuple[str, ...]]:
        works = forgetter(store)
        plan = asyncio.run(works.plan(works.find_subject(**subject)))
        report = asyncio.run(works.forget(plan))
        assert report.removed["tokens"] == plan.counts["tokens"]
        return {each.name: each.agents for each in tokens.list_all()}

    left = forget(user="lena", agent="mira")
    assert left == {"both": (MIRA, OTTO), "lena": (OTTO,), "tomas": (MIRA,)}
    assert forget(user="lena") == {"both": (MIRA, OTTO), "tomas": (MIRA,)}
    assert forget(agent="mira") == {"both": (OTTO,)}
