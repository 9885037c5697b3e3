"""Chats with tokens: whose memory goes into them, whose sessions they continue, and what leaves."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from edenmem.errors import StoreUnreachable
from edenmem.models.scope import Scope
from tests.server.door import Door
from tests.support.builders import some
from tests.support.memory import add_fact, consolidate
from tests.support.waiting import until

pytestmark = pytest.mark.slow

SECRET = "Anna hides lanterns in the attic."


@pytest.fixture
def tokens(door: Door) -> dict[str, str]:
    """Tokens by the name of who has them; Anna has told a secret in a session of hers."""
    service = door.service
    if not list(service.host.sessions(user_id=door.anna.id)):
        add_fact(door.store, Scope.user(door.agent.id, door.anna.id), content=SECRET)
        told = door.chat(SECRET, headers={"X-Edenmem-User": "anna"}, memory_id="attic")
        assert told.status_code == 200
        door.upstream.reset()
    made = {}
    for name, limits in {
        "mira": {"agents": [door.agent.id]},
        "otto": {"agents": [door.other.id]},
        "boris": {"agents": [door.agent.id], "user_id": door.boris.id},
        "anna": {"agents": [door.agent.id], "user_id": door.anna.id},
    }.items():
        if any(each.name == name for each in service.tokens.list_all()):
            service.tokens.revoke(name)
        _, made[name] = service.tokens.create(name, **limits)  # type: ignore[arg-type]
    return made


def _chat(door: Door, token: str, text: str = "Lanterns?", **fields: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}", **fields.pop("headers", {})}
    return door.chat(text, headers=headers, memory_top_k=5, **fields)


def _anna_sessions(door: Door) -> list[str]:
    return [session.id for session in door.service.host.sessions(user_id=door.anna.id)]


def test_an_agent_out_of_reach_is_an_unknown_one(door: Door, tokens: dict[str, str]) -> None:
    for named in ("mira", door.agent.id, "nobody"):
        refused = _chat(door, tokens["otto"], headers={"X-Edenmem-Agent": named})
        assert refused.status_code == 404
        assert refused.json()["error"]["message"] == f"there is no agent {named!r}"
    assert not door.upstream.seen


@pytest.mark.parametrize("field", ["header", "body"])
def test_a_user_out_of_reach_is_an_unknown_one(
    door: Door, tokens: dict[str, str], field: str
) -> None:
    before = _anna_sessions(door)
    for named in ("anna", "host-anna", door.anna.id, "nobody"):
        how: dict[str, Any] = {"headers": {"X-Edenmem-User": named}}
        refused = _chat(door, tokens["boris"], **(how if field == "header" else {"user": named}))
        assert refused.status_code == 404
        assert refused.json()["error"]["message"] == f"there is no user {named!r}"
    assert not door.upstream.seen
    assert _anna_sessions(door) == before


def test_no_session_of_others_is_continued(door: Door, tokens: dict[str, str]) -> None:
    (annas,) = _anna_sessions(door)
    said = list(door.service.host.messages(annas))
    for how in (
        {"headers": {"X-Edenmem-Session": annas}},
        {"headers": {"X-Edenmem-Session": "attic"}},
        {"memory_id": annas},
        {"memory_id": "attic"},
        {"text": SECRET},  # a history that is the beginning of hers
    ):
        answer = _chat(door, tokens["boris"], **how)  # type: ignore[arg-type]
        assert answer.status_code == 200
        assert answer.headers["x-edenmem-session"] != annas
        if "text" not in how:
            assert "attic." not in door.upstream.last.body.decode()
        assert "memory_hits" not in answer.json() or SECRET not in str(answer.json()["memory_hits"])
    assert list(door.service.host.messages(annas)) == said


def test_a_named_user_joins_no_session_of_others(door: Door, tokens: dict[str, str]) -> None:
    (annas,) = [each for each in _anna_sessions(door) if door.said(each)[0][1] == SECRET]
    for name, joins in (("boris", False), ("stranger", False), ("host-anna", True)):
        headers = {"X-Edenmem-Session": annas, "X-Edenmem-User": name}
        for each in (headers, {**headers, "Authorization": f"Bearer {tokens['mira']}"}):
            answer = door.chat("Go on.", headers=each)
            assert (answer.headers["x-edenmem-session"] == annas) is joins
    session = some(door.store.host.session(annas))
    assert session.users == (door.anna.id,)


@pytest.mark.parametrize("token", ["anna", "mira", ""])
def test_a_user_who_is_looked_up_in_vain_has_a_session_once_found(
    door: Door, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    def fail(name: str) -> None:
        raise StoreUnreachable("gone")

    monkeypatch.setattr(door.service.chats, "find_user", fail)
    headers = {"Authorization": f"Bearer {tokens[token]}"} if token else {}
    text = f"I am ill, says {token or 'anyone'}."
    answer = door.chat(text, user="anna", headers=headers)
    assert answer.status_code == 200
    assert "x-edenmem-session" not in answer.headers
    assert "session: StoreUnreachable" in answer.headers["x-edenmem-left-out"]
    assert not door.having_heard(text)
    monkeypatch.undo()
    until(lambda: door.having_heard(text))
    (session,) = door.having_heard(text)
    assert session.users == (door.anna.id,)
    until(lambda: door.said(session.id) == [("user", text), ("assistant", f"answer to: {text}")])


def test_ones_own_memory_goes_into_the_chat(door: Door, tokens: dict[str, str]) -> None:
    for token, headers in (("anna", {}), ("mira", {"X-Edenmem-User": "anna"})):
        assert _chat(door, tokens[token], headers=headers).status_code == 200
        assert SECRET in door.upstream.last.body.decode()
    assert _chat(door, tokens["mira"]).status_code == 200  # of nobody in particular
    assert SECRET not in door.upstream.last.body.decode()


def test_a_token_stays_here_and_the_upstreams_key_goes_on(
    door: Door, tokens: dict[str, str]
) -> None:
    assert _chat(door, tokens["boris"]).status_code == 200
    assert door.upstream.last.header("authorization") is None
    headers = {"X-Edenmem-Token": tokens["boris"], "Authorization": "Bearer key"}
    answer = door.chat("Hello.", headers=headers)
    assert answer.status_code == 200, answer.text
    assert door.upstream.last.header("authorization") == "Bearer key"
    assert tokens["boris"] not in str(door.upstream.seen)


def test_a_token_of_all_users_does_not_learn_which_names_exist(
    door: Door, tokens: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    for named in ("boris", "nobody"):  # Boris never talked to Otto
        answer = _chat(door, tokens["otto"], headers={"X-Edenmem-User": named})
        assert answer.status_code == 200
        assert "x-edenmem-left-out" not in answer.headers
    assert (
        "chat forwarded without memory of the user: unknown user; use 'edenmem user add NAME'"
        in caplog.text
    )


def test_a_context_is_found_by_the_name_of_the_chat(door: Door, tokens: dict[str, str]) -> None:
    def ask(who: str, name: str, **params: str) -> httpx.Response:
        with httpx.Client(trust_env=False) as client:
            return client.get(
                f"{door.url.removesuffix('/v1')}/api/context",
                params={"session": name, "agent": "mira", **params},
                headers={"Authorization": f"Bearer {tokens[who]}"} if who else {},
            )

    assert _chat(door, tokens["anna"], memory_id="cellar").status_code == 200
    consolidate(door.store, Scope.user(door.agent.id, door.anna.id), SECRET, expected_version=0)
    assert SECRET in ask("anna", "cellar").json()["context"]
    assert SECRET in ask("mira", "cellar", user="anna").json()["context"]
    assert SECRET in ask("", "cellar", user="anna").json()["context"]
    unknown = ask("boris", "nothing")
    assert unknown.status_code == 404
    for answer in (ask("boris", "cellar"), ask("mira", "cellar"), ask("", "cellar")):
        assert (answer.status_code, answer.content) == (404, unknown.content)
