"""What passes between client and upstream: everything, unchanged, whatever either side does."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import socket
import threading
from dataclasses import replace
from typing import Any

import httpx
import pytest

from edenmem.engine.chats.messages import CUT_OFF
from edenmem.models.scope import Scope
from tests.server.door import Door, serving, turns, with_server
from tests.server.upstream import COMMENT
from tests.support.builders import some
from tests.support.memory import add_fact
from tests.support.waiting import until

pytestmark = pytest.mark.slow


def post(door: Door, body: bytes, **headers: str) -> httpx.Response:
    with httpx.Client(trust_env=False) as client:
        return client.post(f"{door.url}/chat/completions", content=body, headers=headers)


def test_a_request_is_forwarded_byte_by_byte(door: Door) -> None:
    """Numbers, spaces, order, unknown fields: only the messages that get memory are touched."""
    body = (
        b'{"x_unknown": {"big": 123456789012345678901234567890, "float": 1.10, "a" : [ 1,2 ]},'
        b'"messages":[{"role" : "user","content":"caf\\u00e9 \\ud83d\\ude00"}],'
        b'"memory_top_k":0, "model":"empty", "temperature":0.70}'
    )
    answer = post(door, body)
    assert answer.json()["weird"] == 12345678901234567890
    forwarded = door.upstream.last.body
    assert forwarded == (
        b'{"x_unknown":{"big": 123456789012345678901234567890, "float": 1.10, "a" : [ 1,2 ]},'
        b'"messages":[{"role" : "user","content":"caf\\u00e9 \\ud83d\\ude00"}],'
        b'"model":"empty","temperature":0.70}'
    )


def test_a_text_that_was_cut_within_a_character(door: Door) -> None:
    body = b'{"messages":[{"role":"user","content":"cut \\ud83d"}], "model":"plain", "seed": 7}'
    answer = post(door, body)
    assert door.upstream.last.json == json.loads(body)
    assert door.said(answer)[0][1].startswith("cut ")


def test_a_name_of_a_field_that_was_cut_within_a_character(door: Door) -> None:
    """In the request, and in a message that gets facts."""
    add_fact(door.store, Scope.agent(door.agent.id), "The hives stand in Porto.")
    field, text = b'"cut \\ud83d": 1', b'"content":"Where are the hives? \\ud83d"'
    body = b'{%s, "messages":[{"role":"user",%s,%s}], "model":"plain"}' % (field, text, field)
    answer = post(door, body)
    assert answer.status_code == 400  # by the upstream, which knows no such field
    seen = json.loads(door.upstream.last.body)
    assert seen["cut \ud83d"] == seen["messages"][-1]["cut \ud83d"] == 1
    assert "The hives stand in Porto." in seen["messages"][-1]["content"]
    assert door.said(answer)[0][1].startswith("Where are the hives?")


def test_a_message_with_a_very_long_number_is_stored(door: Door) -> None:
    number = b"9" * 5000
    body = b'{"messages":[{"role":"user","content":"Count.","x":%s}], "model":"plain"}' % number
    assert door.said(post(door, body)) == [("user", "Count.")]  # the upstream cannot read it
    assert number in door.upstream.last.body
    body = b'{"messages":[{"role":"user","content":"Count."}], "memory_top_k":%s}' % number
    assert post(door, body).status_code == 400


def test_a_session_name_that_was_cut_within_a_character(door: Door) -> None:
    body = b'{"messages":[{"role":"user","content":"Hi."}], "model":"plain", "memory_id": %s}'
    answer = post(door, body % b'"bees \\ud83d"')
    assert "x-edenmem-left-out" not in answer.headers
    assert door.said(answer) == [("user", "Hi."), ("assistant", "answer to: Hi.")]
    assert post(door, body % b'"\\ud83d"').status_code == 400


def test_a_stream_arrives_byte_by_byte(door: Door) -> None:
    answer = door.chat("Stream, please.", stream=True)
    assert answer.content == door.upstream.sent["stream"]
    assert answer.content.startswith(COMMENT)
    assert answer.headers["x-request-id"] == "r1"
    assert door.said(answer)[-1] == ("assistant", "answer to: Stream, please.")


def test_an_encoded_stream_arrives_unchanged_and_is_read(door: Door) -> None:
    with (
        httpx.Client(trust_env=False) as client,
        client.stream(
            "POST",
            f"{door.url}/chat/completions",
            json={"model": "zipped", "messages": turns("Zip."), "stream": True},
        ) as answer,
    ):
        assert b"".join(answer.iter_raw()) == door.upstream.sent["zipped"]
        assert answer.headers["content-encoding"] == "gzip"
        assert door.said(answer)[-1] == ("assistant", "zipped answer")


def test_of_several_choices_the_first_is_kept(door: Door) -> None:
    answer = door.chat("Choose.", stream=True, model="choices")
    assert answer.content == door.upstream.sent["stream"]
    assert door.said(answer)[-1] == ("assistant", "first ö")
    whole = door.chat("Choose again.", n=3)
    assert len(whole.json()["choices"]) == 3
    assert len(door.said(whole)) == 2


def test_an_error_of_the_upstream_is_the_clients(door: Door) -> None:
    limited = door.chat("Too fast.", model="limited")
    assert limited.status_code == 429
    assert limited.headers["retry-after"] == "7"
    assert limited.headers["x-ratelimit-reset"] == "7s"
    assert limited.json()["error"]["code"] == "rate"
    assert door.said(limited) == [("user", "Too fast.")]
    strict = door.chat("Odd.", x_other=1)
    assert strict.status_code == 400
    assert "x_other" in strict.json()["error"]["message"]


def test_what_cannot_be_read_passes_and_is_not_stored(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    nonsense = door.chat("Nonsense.", model="nonsense")
    assert "answer of a chat not stored: it cannot be parsed" in caplog.messages
    door.chat(messages="none")
    assert "chat forwarded without memory: the request cannot be parsed" in caplog.messages
    assert nonsense.content == b"<html>\xff not json"
    assert "answer: it cannot be parsed" in nonsense.headers["x-edenmem-left-out"]
    assert door.said(nonsense) == [("user", "Nonsense.")]
    empty = door.chat("Empty.", model="empty")
    assert door.said(empty) == [("user", "Empty.")]
    assert b"1.1" in empty.content


def test_a_body_that_is_no_request_is_the_upstreams_to_refuse(door: Door) -> None:
    for body in (b"[1]", b'{"messages": 1, "model": "m"}'):
        post(door, body)
        assert door.upstream.last.body == body


@pytest.mark.parametrize(
    ("model", "status"), [("reset", 502), ("redirect", 502), ("unknown", 502), ("stall", 504)]
)
def test_an_upstream_that_gives_no_answer(
    door: Door, model: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    seconds = 1.0 if model == "stall" else 60.0
    settings = with_server(door.settings, upstream_timeout_seconds=seconds)
    with (
        caplog.at_level(logging.INFO, "edenmem.server"),
        serving(door.service, settings, agent=door.agent) as url,
    ):
        answer = replace(door, url=f"{url}/v1").chat(f"Please {model}.", model=model)
        # The line is written after the answer was sent.
        until(lambda: any(f"POST /v1/chat/completions {status} " in m for m in caplog.messages))
    assert answer.status_code == status
    assert door.said(answer) == [("user", f"Please {model}.")]
    (warned,) = [each for each in caplog.messages if "--upstream" in each]
    assert httpx.URL(door.upstream.url).netloc.decode() in warned
    assert "Please" not in caplog.text
    assert answer.json()["error"]["type"] == "server_error"
    assert len(door.upstream.seen) == 1


def test_a_stream_that_breaks_off_breaks_off_and_its_part_is_kept(door: Door) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        door.chat("Cut.", model="cut", stream=True, memory_id="cut")
    with httpx.Client(trust_env=False) as client:
        session = client.post(
            f"{door.url}/chat/completions",
            json={"model": "limited", "messages": turns("Cut."), "memory_id": "cut"},
        ).headers["x-edenmem-session"]
    until(lambda: len(door.said(session)) == 2)
    assert door.said(session)[1][1].startswith(f"half of an answer\n\n{CUT_OFF}: the upstream")


def test_a_client_that_hangs_up_in_a_stream(door: Door) -> None:
    with (
        httpx.Client(trust_env=False) as client,
        client.stream(
            "POST",
            f"{door.url}/chat/completions",
            json={"model": "stall", "messages": turns("Bye."), "stream": True},
        ) as answer,
    ):
        next(answer.iter_raw())
        session = answer.headers["x-edenmem-session"]
    assert door.upstream.hung_up.wait(10)
    until(lambda: len(door.said(session)) == 2)
    assert door.said(session)[1] == ("assistant", f"half of\n\n{CUT_OFF}: the client disconnected]")


def test_a_client_that_hangs_up_before_an_answer_stops_the_upstream_and_has_spoken(
    door: Door,
) -> None:
    with door.asking("Nobody waits.", model="stall"):
        assert door.upstream.reached.wait(30)
        until(lambda: door.having_heard("Nobody waits."))  # while the upstream is silent
    assert door.upstream.hung_up.wait(30)


def test_a_client_that_hangs_up_during_a_search_has_spoken(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    searching = threading.Event()

    async def search(*given: Any) -> list[Any]:
        searching.set()
        await asyncio.sleep(30)
        return []

    add_fact(door.store, Scope.agent(door.agent.id), "The ferry to Almada sails at noon.")
    monkeypatch.setattr(door.service.chats.memory, "search", search)
    with door.asking("Nobody waits for a search."):
        assert searching.wait(30)
    until(lambda: door.having_heard("Nobody waits for a search."))
    assert not door.upstream.seen


def test_headers_of_one_side_stay_there(door: Door) -> None:
    headers = {
        "Cookie": "session=1",
        "TE": "trailers",
        "X-Edenmem-Session": "a",
        "X-Custom": "kept",
        "Connection": "close, X-Hop",
        "X-Hop": "1",
        "OpenAI-Organization": "org",
        "Authorization": "Bearer key",
    }
    answer = door.chat("Headers.", model="injected", headers=headers)
    assert answer.status_code == 200
    seen = door.upstream.last
    assert [seen.header(n) for n in ("x-custom", "openai-organization", "x-hop", "cookie")] == [
        *("kept", "org"),
        *(None, None),
    ]
    assert seen.header("authorization") == "Bearer key"
    assert answer.headers["x-edenmem-session"] != "forged"
    assert "set-cookie" not in answer.headers


def test_a_header_that_is_not_ascii_passes(door: Door) -> None:
    title = "Gerät 🐝".encode()
    with httpx.Client(trust_env=False) as client:
        answer = client.post(
            f"{door.url}/chat/completions",
            json={"model": "plain", "messages": turns("From a device.")},
            headers=[(b"X-Title", title)],
        )
    assert answer.status_code == 200
    seen = some(door.upstream.last.header("x-title"))
    assert seen.encode("latin-1") == title


@pytest.mark.parametrize("name", ["user\r\nX-Evil: 1", "ü" * 300, "\x00"])
def test_no_name_gets_into_a_header(door: Door, name: str) -> None:
    answer = door.chat("Names.", user=name, memory_id="n")
    assert answer.status_code == 200
    assert "x-evil" not in answer.headers


def test_compressed_and_large_bodies(door: Door) -> None:
    body = json.dumps({"model": "plain", "messages": turns("Zipped question.")}).encode()
    answer = post(door, gzip.compress(body), **{"Content-Encoding": "gzip"})
    assert answer.json()["choices"][0]["message"]["content"] == "answer to: Zipped question."
    assert post(door, body, **{"Content-Encoding": "br"}).status_code == 415
    bomb = gzip.compress(b" " * 40_000_000)
    assert post(door, bomb, **{"Content-Encoding": "gzip"}).status_code == 413


@pytest.mark.parametrize(
    "fields",
    [
        {"memory_id": 5},
        {"memory_id": ""},
        {"memory_id": "x" * 201},
        {"memory_top_k": "many"},
        {"memory_top_k": True},
        {"memory_recency_weight": 2},
        {"memory_score_threshold": -1},
    ],
)
def test_a_wrong_field_of_ours_is_refused(door: Door, fields: dict[str, Any]) -> None:
    refused = door.chat("Wrong.", **fields)
    assert refused.status_code == 400
    assert next(iter(fields)) in refused.json()["error"]["message"]
    assert not door.upstream.seen


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("..%2ffiles", None),
        ("../files", None),
        ("a/%2e%2E/..%2f..%2ffiles", None),
        (".", None),
        ("(" * 60_000, None),
        ("%252e%252e%2ffiles", "/v1/models/%252e%252e/files"),
        ("a%3fb%23c%5C..", "/v1/models/a%3Fb%23c%5C.."),
        ("meta/llama:8b", "/v1/models/meta/llama:8b"),
    ],
)
def test_a_name_of_a_model_leads_nowhere_else(door: Door, name: str, path: str | None) -> None:
    host, port = door.url.removeprefix("http://").removesuffix("/v1").split(":")
    with socket.create_connection((host, int(port))) as client:  # no client tidies the path
        head = f"GET /v1/models/{name} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        client.sendall(head.encode())
        status = client.makefile("rb").readline().split()[1]
    assert [each.path for each in door.upstream.seen] == ([path] if path else [])
    assert path or status == b"404"


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"X-Forwarded-For": "1.2.3.4"}],
)
def test_a_page_of_another_site_and_a_reverse_proxy_need_a_token(
    door: Door, headers: dict[str, str]
) -> None:
    refused = door.chat("Hello.", headers=headers)
    assert refused.status_code in (401, 403)
    assert not door.upstream.seen
