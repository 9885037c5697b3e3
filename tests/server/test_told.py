"""What a chat, a search and a context were given is noted, and read within reach alone."""

from __future__ import annotations

import pytest

from edenmem.models.ids import utc_now
from edenmem.models.scope import Scope
from edenmem.server.proxy.background import Background
from tests.server.door import Door
from tests.server.town import GROUPS, LENA, LENAS, LENAS_FACT, REPLY, TOMAS_FACT, VISIT, Town
from tests.support.memory import add_fact

pytestmark = pytest.mark.slow


def test_a_chat_is_noted_with_the_turn_of_its_user(
    running_door: Door, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    fact = add_fact(
        door.store, Scope.user(door.agent.id, door.anna.id), "Anna sails.", formed_at=utc_now()
    )
    monkeypatch.setattr(Background, "form_later", lambda *_, **__: None)
    answer = door.chat("Who am I?", user="anna", memory_id="told")
    (reply,) = door.store.told.replies(reply_id=answer.headers["x-edenmem-told"])
    session_id = answer.headers["x-edenmem-session"]
    assert (reply.kind, reply.user_id, reply.session_id) == ("chat", door.anna.id, session_id)
    assert reply.message_id == door.messages(answer)[0].id
    told = door.service.told.as_told(reply)
    assert [item.id for item in told.items] == [fact.id]
    assert told.context in str(door.upstream.last.messages[0]["content"])

    headers = {"X-Edenmem-Store": "no"}
    again = door.chat("Who am I?", user="anna", memory_id="untold", headers=headers)
    door.service._runtime.told.flush()
    (reply,) = door.store.told.replies(reply_id=again.headers["x-edenmem-told"])
    assert door.store.host.session(reply.session_id or "") is None

    assert "x-edenmem-told" not in door.chat("Hello!", user="stranger").headers


async def test_a_search_and_a_context_are_noted(town: Town) -> None:
    async with town.client("mira") as client:
        params = {"agent": "mira", "user": "lena", "q": LENAS, "within": ["facts", "texts"]}
        assert (await client.get("/api/search", params=params)).json()["passages"]
        await client.get("/api/context", params={"agent": "mira", "session": VISIT})
        town.service._runtime.told.flush()
        listed = (await client.get("/api/told", params={"agent": "mira", "limit": 2})).json()
        assert [one["kind"] for one in listed["items"]] == ["context", "search"]
        search = await client.get(f"/api/told/{listed['items'][1]['id']}")
        assert {item["kind"] for item in search.json()["items"]} == {"fact", "text"}
        rest = {"agent": "mira", "limit": 2, "cursor": listed["next_cursor"]}
        assert [
            one["id"] for one in (await client.get("/api/told", params=rest)).json()["items"]
        ] == [REPLY]
        of_fact = {"agent": "mira", "memory": TOMAS_FACT}
        assert (await client.get("/api/told", params=of_fact)).json()["items"] == []
        wrong = (await client.get("/api/told", params={"memory": "x"})).json()
        assert wrong["detail"] == "query.memory must match ^[0-9a-f]{24}$"


async def test_a_user_reads_only_replies_to_that_user_and_no_group_memory(town: Town) -> None:
    async with town.client("lena") as client:
        listed = (await client.get("/api/told", params={"memory": LENAS_FACT})).json()["items"]
        assert [(one["id"], one["user_id"]) for one in listed] == [(REPLY, LENA)]
        told = (await client.get(f"/api/told/{REPLY}")).json()
    assert [item["id"] for item in told["items"]] == [LENAS_FACT]
    assert LENAS in told["context"]
    assert GROUPS not in told["context"]
    async with town.client("tomas") as client:
        assert (await client.get("/api/told")).json()["items"] == []
    async with town.client("mira") as client:
        assert GROUPS in (await client.get(f"/api/told/{REPLY}")).json()["context"]
