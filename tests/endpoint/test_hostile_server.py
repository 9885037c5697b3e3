"""What a server may do to whoever asks it, over a real socket, for every kind of endpoint alike."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import pytest
from pydantic import BaseModel

from edenmem.embed.openai_compat import OpenAIEmbedder
from edenmem.endpoint.client import ANSWER_BYTES
from edenmem.errors import (
    ProviderAnswerInvalid,
    ProviderError,
    ProviderMisconfigured,
    ProviderTimeout,
)
from edenmem.llm.openai_compat import OpenAILLM
from edenmem.llm.protocol import LLMRequest
from edenmem.rerank.endpoint import EndpointReranker
from edenmem.settings.schema import EmbeddingSettings, LLMSettings, SearchSettings
from tests.support.fake_openai import completion
from tests.support.waiting import no_waits

pytestmark = pytest.mark.slow

KEY = "sk-test-5ecret5ecret5ecret"
GOOD = json.dumps(completion('{"text": "x"}').body).encode()


class RawServer:
    """Answers every request with what ``write`` writes to the socket; keeps what it was sent."""

    def __init__(self, write: Callable[[socket.socket], None]) -> None:
        self.received: list[bytes] = []
        self.finished = threading.Semaphore(0)  # one more for each answer that ended or broke off
        self._write = write
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                try:
                    self.received.append(_read_request(connection))
                    self._write(connection)
                except OSError:  # the client has had enough
                    pass
                finally:
                    self.finished.release()


def _read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536) or b"\r\n\r\n"
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (
            int(line[15:])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        ),
        0,
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def response(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "Connection: close"]
    if not any(line.lower().startswith("content-type") for line in headers):
        lines.append("Content-Type: application/json")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


@contextmanager
def answering(answer: bytes) -> Iterator[RawServer]:
    """A server that answers so whatever it is asked."""
    with RawServer(lambda connection: connection.sendall(answer)) as server:
        yield server


@pytest.fixture(autouse=True)
def waits() -> Iterator[list[float]]:
    with no_waits() as waited:
        yield waited


class Text(BaseModel):
    text: str


async def _ask(url: str, **limits: Any) -> object:
    llm = OpenAILLM(LLMSettings(base_url=url, api_key=KEY, retries=1, **limits))
    request = LLMRequest(task="t", key="k", model="m", system="s", user="secret words", answer=Text)
    try:
        return (await llm.ask(request)).value
    finally:
        await llm.close()


async def _embed(url: str, **limits: Any) -> object:
    settings = EmbeddingSettings(
        base_url=url, api_key=KEY, model="m", dimensions=2, retries=1, batch_size=1, **limits
    )
    embedder = OpenAIEmbedder(settings)
    try:
        return (await embedder.embed(["secret words"])).vectors
    finally:
        await embedder.close()


async def _rerank(url: str, **limits: Any) -> object:
    settings = SearchSettings(
        rerank_url=url,
        rerank_api_key=KEY,
        rerank_model="m",
        rerank_retries=1,
        **{f"rerank_{name}": value for name, value in limits.items()},
    )
    reranker = EndpointReranker(settings)
    try:
        return await reranker.score("secret words", ["a"])
    finally:
        await reranker.close()


Call = Callable[..., Awaitable[object]]
CALLS: list[Call] = [_ask, _embed, _rerank]


@pytest.fixture(params=CALLS, ids=["llm", "embedding", "rerank"])
def call(request: pytest.FixtureRequest) -> Call:
    chosen: Call = request.param
    return chosen


def url_of(server: RawServer) -> str:
    return f"http://127.0.0.1:{server.port}/v1"


# -- redirects -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["301 x", "302 x", "303 x", "307 x", "308 x"])
async def test_neither_key_nor_words_follow_a_redirect_to_another_server(
    call: Call, status: str
) -> None:
    with answering(response(b"{}")) as other:
        to_other = response(b"", f"Location: {url_of(other)}/x", status=status)
        with answering(to_other) as server:
            with pytest.raises(ProviderMisconfigured, match="redirects"):
                await call(url_of(server))
            assert len(server.received) == 1, "another try would be redirected again"
        assert other.received == []


@pytest.mark.parametrize(
    "target",
    ["http://[::1", "//elsewhere.example/v1", "ftp://x/", "http://127.0.0.1:1/", "", "\x80"],
)
async def test_a_redirect_to_nonsense_is_an_error(call: Call, target: str) -> None:
    moved = response(b"", f"Location: {target}", status="307 x")
    with answering(moved) as server, pytest.raises(ProviderError):
        await call(url_of(server))


# -- bodies that do not end ----------------------------------------------------------------------


def _endless(connection: socket.socket) -> None:
    connection.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    part = b"%x\r\n%s\r\n" % (2**20, b" " * 2**20)
    while True:
        connection.sendall(part)


async def test_a_body_without_end_is_given_up(call: Call) -> None:
    with RawServer(_endless) as server:
        with pytest.raises(ProviderAnswerInvalid, match="more than"):
            await call(url_of(server))
        assert server.finished.acquire(timeout=30), "the connection was closed"


async def test_a_packed_bomb_is_not_unpacked(call: Call) -> None:
    """Known failure: some hundred kilobytes of gzip are a gigabyte of blanks."""
    packer = zlib.compressobj(1, wbits=31)
    packed = b"".join(packer.compress(b" " * 2**20) for _ in range(128)) + packer.flush()
    bomb = response(packed, "Content-Encoding: gzip")
    with answering(bomb) as server:
        await _warm_up(call)
        tracemalloc.start()
        try:
            with pytest.raises(ProviderAnswerInvalid, match="more than"):
                await call(url_of(server))
            assert tracemalloc.get_traced_memory()[1] < 5 * ANSWER_BYTES
        finally:
            tracemalloc.stop()


async def _warm_up(call: Call) -> None:
    """Load what the first request loads."""
    with answering(response(b"{}")) as server, pytest.raises(ProviderError):
        await call(url_of(server))


async def test_a_packed_answer_is_read() -> None:
    packed = response(gzip.compress(GOOD, mtime=0), "Content-Encoding: GZip")
    with answering(packed) as server:
        assert await _ask(url_of(server)) == Text(text="x")


@pytest.mark.parametrize(
    ("packing", "body"),
    [("gzip, gzip", GOOD), ("gzip", GOOD), ("deflate", GOOD)],
)
async def test_what_cannot_be_unpacked_is_an_error(call: Call, packing: str, body: bytes) -> None:
    answer = response(body, f"Content-Encoding: {packing}")
    with answering(answer) as server, pytest.raises(ProviderAnswerInvalid):
        await call(url_of(server))


async def test_a_trickle_ends_with_the_time(call: Call) -> None:
    stopped = threading.Event()

    def trickle(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not stopped.wait(0.02):
            connection.sendall(b" ")

    with RawServer(trickle) as server:
        try:
            with pytest.raises(ProviderTimeout, match="within"):
                await call(url_of(server), timeout_seconds=0.3)
        finally:
            stopped.set()


# -- nonsense ------------------------------------------------------------------------------------

NONSENSE = {
    "nothing": b"",
    "no http": b"220 mail.example ESMTP\r\n",
    "http 0.9": b"hello",
    "status of letters": b"HTTP/1.1 OK fine\r\n\r\n",
    "status of four digits": b"HTTP/1.1 2000 x\r\n\r\n",
    "header without end": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300_000,
    "header without colon": b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    "length of letters": b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n{}",
    "negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    "chunks of nonsense": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    "promised and not sent": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
    "invalid utf-8": response(b'{"a": "\xff\xfe\xfa"}'),
    "utf-16 by its mark": response(b"\xff\xfe{"),
    "charset that is no text": response(b"hello", "Content-Type: text/plain; charset=rot13"),
    "charset unknown": response(b"hello", "Content-Type: text/html; charset=utf-99"),
    "html": response(b"<html>Welcome</html>", "Content-Type: text/html"),
    "deep nesting": response(b"[" * 200_000),
    "deep objects": response(b'{"choices":' * 50_000),
    "a number of many digits": response(b'{"usage": ' + b"9" * 5000 + b"}"),
    "numbers of json that are none": response(b'{"choices": NaN, "data": Infinity}'),
    "a surrogate alone": response(b'{"choices": [{"message": {"content": "\\ud83d"}}]}'),
    "an error with 200": response(b'{"error": {"message": "the model failed", "code": 502}}'),
    "an error that is text": response(b'{"error": "no"}'),
    "null": response(b"null"),
    "null in all places": response(b'{"choices": null, "data": null, "results": null}'),
    "choices of null": response(b'{"choices": [null], "data": [null], "results": [null]}'),
    "message of null": response(b'{"choices": [{"message": null, "finish_reason": null}]}'),
    "message of text": response(b'{"choices": [{"message": "x"}]}'),
    "retry of nonsense": response(
        b"{}", "Retry-After: Sun, 01 Mar 99999999999999999999 12:00:09 GMT", status="429 x"
    ),
    "retry with a strange zone": response(
        b"{}", "Retry-After: Sun, 01 Mar 2026 12:00:09 +99999999999999999999", status="503 x"
    ),
    "retry never": response(b"{}", "Retry-After-Ms: 1e308", "Retry-After: 1e400", status="503 x"),
    "error of bytes": response(b"\xff\xfe\xfa" * 1000, status="500 x"),
    "error that is deep": response(b"[" * 200_000, status="500 x"),
    "error with odd parts": response(
        b'{"error": {"message": {"a": [1]}, "code": [], "param": {}, "type": 7}}', status="400 x"
    ),
    "error of a megabyte": response(
        b'{"error": {"message": "' + b"max input " * 100_000 + b'"}}', status="400 x"
    ),
    "key in the error": response(
        b'{"error": {"message": "bad key ' + KEY.encode() + b'"}}', status="400 x"
    ),
    "escapes": response(b'{"error": {"message": "\\u001b]0;x\\u0007\\u202e"}}', status="400 x"),
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "only continue": b"HTTP/1.1 100 Continue\r\n\r\n" * 50,
    "switching protocols": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\n\r\n",
    "redirect without a place": response(b"", status="307 x"),
    "cookies": response(b"{}", *(f"Set-Cookie: a{i}=b" for i in range(50))),
}


#: Answers whose form matters: each kind of endpoint reads its own fields.
FORMS = (
    "null in all places",
    "choices of null",
    "message of text",
    "deep objects",
    "key in the error",
)


@pytest.mark.parametrize(
    ("call", "name"),
    [(_ask, name) for name in NONSENSE]
    + [(call, name) for call in (_embed, _rerank) for name in FORMS],
)
async def test_nonsense_is_an_error_in_one_line_without_the_key(call: Call, name: str) -> None:
    with answering(NONSENSE[name]) as server, pytest.raises(ProviderError) as caught:
        await call(url_of(server))
    said = f"{caught.value.message} {caught.value.hint}"
    assert said.isprintable()
    assert len(said) < 1500
    assert KEY not in said


async def test_a_failure_of_the_model_behind_the_endpoint_is_told() -> None:
    answer = NONSENSE["an error with 200"]
    with (
        answering(answer) as server,
        pytest.raises(ProviderAnswerInvalid, match="the model failed"),
    ):
        await _ask(url_of(server))
