"""The command `edenmem serve`: made ready by one line, stopped and killed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from edenmem.engine.chats.messages import CUT_OFF
from edenmem.server import process
from edenmem.store.sqlite import SqliteStore
from tests.server.door import turns
from tests.server.upstream import FakeUpstream
from tests.support.waiting import until

pytestmark = pytest.mark.slow


class Served:
    """A running command. ``notes`` is what it said until it listened."""

    def __init__(self, folder: Path, upstream: FakeUpstream, *options: str) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("EDENMEM_", "OPENAI_"))}
        command = [sys.executable, "-m", "edenmem", "serve", "--port", "0"]
        notes = folder / f"notes-{len(list(folder.glob('notes-*')))}"
        with notes.open("w") as stderr:
            self.process = subprocess.Popen(
                [
                    *(*command, "--upstream", upstream.url),
                    *("--set", "embedding.provider=none", *options),
                ],
                env={
                    **clean,
                    "EDENMEM_URI": f"sqlite:///{folder / 'memory.db'}",
                    "HOME": str(folder),
                },
                cwd=folder,
                stderr=stderr,
            )
        listens = re.compile(r"base URL for clients: (\S+)\)")
        until(lambda: listens.search(notes.read_text()) or self.process.poll() is not None)
        self._path = notes
        self.notes = notes.read_text()
        found = listens.search(self.notes)
        assert found, self.notes
        self.url = found[1]

    def post(self, model: str, *texts: str) -> httpx.Response:
        body = {"model": model, "messages": turns(*texts)}
        with httpx.Client(trust_env=False) as client:
            return client.post(f"{self.url}/chat/completions", json=body, timeout=60)

    def log(self) -> str:
        """All that it said on stderr."""
        return self._path.read_text()

    def is_open(self) -> bool:
        """Whether the server takes connections."""
        try:
            return self.post("plain", "Too late.").status_code == 200
        except httpx.TransportError:
            return False

    @contextmanager
    def streamed(self, *texts: str) -> Iterator[Iterator[bytes]]:
        """A stream of which the first half has arrived."""
        body = {"model": "gated", "messages": turns(*texts), "stream": True}
        with (
            httpx.Client(trust_env=False, timeout=60) as client,
            client.stream("POST", f"{self.url}/chat/completions", json=body) as answer,
        ):
            parts = answer.iter_raw()
            assert b"first half" in next(parts)
            yield parts


def said(folder: Path) -> list[tuple[str, str]]:
    store = SqliteStore(folder / "memory.db")
    found = [
        (message.role, message.content)
        for session in store.host.sessions()
        for message in store.host.messages(session.id)
    ]
    store.database.close()
    return found


def test_chats_that_wait_survive_a_kill(tmp_path: Path, upstream: FakeUpstream) -> None:
    """They are on disk, for this user alone, and are stored in order after the next start."""
    options = ("--agent", "mira", "--set", "server.store_timeout_seconds=0.2")
    served = Served(tmp_path, upstream, *options)
    folder = tmp_path / "memory.db.waiting"
    texts = ["Alpha.", "Beta.", "Gamma."]
    with closing(sqlite3.connect(tmp_path / "memory.db")) as other:
        other.execute("BEGIN IMMEDIATE")  # nobody else can write
        for number, text in enumerate(texts, start=1):
            body = {"model": "plain", "messages": turns(text), "memory_id": "talk"}
            with httpx.Client(trust_env=False) as client:
                answer = client.post(f"{served.url}/chat/completions", json=body, timeout=60)
            assert answer.status_code == 200
            until(lambda number=number: len(list(folder.glob("*/*.chat"))) == number)
        served.process.kill()
        served.process.wait(60)
        (own,) = folder.iterdir()
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
        assert {stat.S_IMODE(each.stat().st_mode) for each in own.iterdir()} == {0o600}
    assert not said(tmp_path)
    served = Served(tmp_path, upstream, *options)
    until(lambda: len(said(tmp_path)) == 2 * len(texts))
    assert [text for role, text in said(tmp_path) if role == "user"] == texts
    assert not list(folder.glob("*/*.chat"))
    served.process.terminate()
    assert served.process.wait(60) == 0


def test_a_backup_while_chats_arrive_is_whole(tmp_path: Path, upstream: FakeUpstream) -> None:
    served = Served(tmp_path, upstream, "--agent", "mira", "--user", "anna")
    environment = {**os.environ, "EDENMEM_URI": f"sqlite:///{tmp_path / 'memory.db'}"}
    is_over = threading.Event()

    def talk(name: int) -> int:
        number = 0
        while not is_over.is_set():
            number += 1
            assert served.post("plain", f"{name}: {number}.").status_code == 200
        return number

    with ThreadPoolExecutor(4) as pool:
        talks = [pool.submit(talk, name) for name in range(4)]
        edenmem = [sys.executable, "-m", "edenmem"]
        until(lambda: len(said(tmp_path)) > 20)
        options = {"env": environment, "check": True, "capture_output": True}
        subprocess.run([*edenmem, "export", str(tmp_path / "b.jsonl.gz")], **options)  # type: ignore[call-overload]
        is_over.set()
        numbers = [each.result() for each in talks]
    served.process.terminate()
    assert served.process.wait(60) == 0
    assert len(said(tmp_path)) == 2 * sum(numbers)
    (tmp_path / "copy").mkdir()
    environment["EDENMEM_URI"] = f"sqlite:///{tmp_path / 'copy' / 'memory.db'}"
    subprocess.run([*edenmem, "init", "--yes"], **options)  # type: ignore[call-overload]
    subprocess.run([*edenmem, "import", str(tmp_path / "b.jsonl.gz")], **options)  # type: ignore[call-overload]
    assert 20 < len(said(tmp_path / "copy")) <= len(said(tmp_path))
    assert set(said(tmp_path / "copy")) <= set(said(tmp_path))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_leftovers_of_interrupted_streams_are_collected(
    tmp_path: Path, upstream: FakeUpstream
) -> None:
    """It is few objects, so a server that rarely looks for garbage would keep gigabytes."""
    served = Served(tmp_path, upstream, "--agent", "mira")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 3_000_000}}
    body = {"model": "stall", "messages": [{"role": "user", "content": [image]}], "stream": True}

    def used_mb() -> int:
        status = Path(f"/proc/{served.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) // 1000

    def interrupt() -> None:
        with (
            httpx.Client(trust_env=False) as client,
            client.stream("POST", f"{served.url}/chat/completions", json=body) as answer,
        ):
            next(answer.iter_raw())

    try:
        for _ in range(10):
            interrupt()
        before = used_mb()
        for _ in range(20):
            interrupt()
        assert used_mb() - before < 60
    finally:
        served.process.kill()
        served.process.wait()


def test_one_command_from_nothing_to_a_stop_in_the_middle_of_a_stream(
    tmp_path: Path, upstream: FakeUpstream
) -> None:
    served = Served(tmp_path, upstream, "--agent", "mira", "--user", "anna")
    for words in (
        "created the store",
        "added agent mira",
        "added user anna",
        "forwarding chats to",
    ):
        assert words in served.notes
    assert served.post("plain", "Hello.").status_code == 200
    with served.streamed("A long story.") as parts:
        served.process.send_signal(signal.SIGTERM)
        until(lambda: not served.is_open())  # nobody new is let in
        upstream.gate.set()
        assert b"".join(parts).endswith(b"data: [DONE]\n\n")
    assert served.process.wait(30) == 0
    upstream.gate.clear()
    stored = said(tmp_path)
    assert ("assistant", "first half, second half") in stored
    assert ("user", "A long story.") in stored


def test_a_kill_in_the_middle_of_a_stream(tmp_path: Path, upstream: FakeUpstream) -> None:
    served = Served(tmp_path, upstream, "--agent", "mira")
    with served.streamed("A longer story.") as parts:
        served.process.kill()
        with pytest.raises(httpx.HTTPError):
            list(parts)
    served.process.wait(30)
    assert said(tmp_path) == [("user", "A longer story.")]
    again = Served(tmp_path, upstream, "--agent", "mira")
    assert "added agent" not in again.notes
    assert again.post("plain", "A longer story.").status_code == 200
    again.process.terminate()
    assert again.process.wait(30) == 0
    assert said(tmp_path) == [
        ("user", "A longer story."),
        ("assistant", "answer to: A longer story."),
    ]


def test_a_stream_that_does_not_end_in_time_is_cut_and_kept(
    tmp_path: Path, upstream: FakeUpstream
) -> None:
    served = Served(tmp_path, upstream, "--agent", "mira", "--set", "server.shutdown_seconds=1")
    with served.streamed("An endless story.") as parts:
        served.process.terminate()
        with pytest.raises(httpx.HTTPError):
            list(parts)
    assert served.process.wait(30) == 0
    upstream.gate.set()
    (asked, answered) = said(tmp_path)
    assert asked == ("user", "An endless story.")
    assert answered[1].startswith(f"first half,\n\n{CUT_OFF}")


def test_a_request_that_does_not_end_in_time_is_told_that_the_server_stops(
    tmp_path: Path, upstream: FakeUpstream
) -> None:
    served = Served(tmp_path, upstream, "--agent", "mira", "--set", "server.shutdown_seconds=1")
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(served.post, "stall", "Wait for it.")
        until(lambda: said(tmp_path))
        served.process.terminate()
        answer = asking.result(30)
    assert served.process.wait(30) == 0
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        503,
        "the server is stopping",
    )
    assert answer.headers["retry-after"]
    assert "Traceback" not in served.log()
    assert said(tmp_path) == [("user", "Wait for it.")]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--agent", "mira", "--upstream", "ftp://x"), 2, "use --upstream URL"),
        (("--host", "192.0.2.1"), 5, "cannot listen on"),
        (("--read-only",), 2, "--no-store"),
        (("--agent", "mira", "--port", "99999"), 2, "--port"),
    ],
)
def test_what_cannot_be_served(
    tmp_path: Path, options: tuple[str, ...], code: int, words: str
) -> None:
    environment: dict[str, Any] = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("EDENMEM_", "OPENAI_"))},
        "EDENMEM_URI": f"sqlite:///{tmp_path / 'memory.db'}",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-m", "edenmem", "serve", "--port", "0", *options],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert words in done.stderr
    assert "added" not in done.stderr
    assert json.dumps(done.stdout) == '""'


async def test_small_writes_are_sent_at_once() -> None:
    """Without TCP_NODELAY each answer waited 40 ms for an acknowledgment."""
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            connection = transport.get_extra_info("socket")
            accepted.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            transport.close()

    listener = process.open_socket("127.0.0.1", 0)
    server = await asyncio.get_running_loop().create_server(Accepting, sock=listener)
    async with server:
        with socket.create_connection(listener.getsockname()[:2], timeout=20):
            assert await accepted
