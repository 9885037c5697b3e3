"""The examples for frameworks run as they stand, with a scripted endpoint at the network's edge."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.exhaustive import spared

EXAMPLES = Path(__file__).parents[2] / "examples"


class Upstream:
    """Answers chat completions in order, and keeps what was asked."""

    def __init__(self) -> None:
        self.script: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                upstream.requests.append(json.loads(body))
                message = {"role": "assistant", "content": None, **upstream.script.pop(0)}
                reason = "tool_calls" if message.get("tool_calls") else "stop"
                choice = {"index": 0, "message": message, "finish_reason": reason}
                usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
                answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
                data = json.dumps({**answer, "choices": [choice], "usage": usage}).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def system(self, number: int) -> str:
        """The system part of a request."""
        return str(self.requests[number]["messages"][0]["content"])


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    made = Upstream()
    yield made
    made.close()


@pytest.fixture
def environment(tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "EDENMEM_URI": f"sqlite:///{tmp_path}/memory.db",
        "EDENMEM_EMBEDDING_PROVIDER": "none",
        "OPENAI_API_KEY": "sk-test",
        "OPENAI_BASE_URL": upstream.url,
    }.items():
        monkeypatch.setenv(name, value)


def run(name: str, *arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=cwd,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_use_public_names_alone(path: Path) -> None:
    import edenmem

    named = [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("edenmem")
        for alias in node.names
    ]
    assert named
    assert {module for module, _ in named} == {"edenmem"}
    assert {name for _, name in named} <= set(edenmem.__all__)


@pytest.mark.slow
@pytest.mark.usefixtures("environment")
def test_an_agent_of_the_sdk_keeps_and_finds_a_fact(upstream: Upstream, tmp_path: Path) -> None:
    def call(name: str, **arguments: str) -> dict[str, Any]:
        function = {"name": name, "arguments": json.dumps(arguments)}
        return {"tool_calls": [{"id": f"call-{name}", "type": "function", "function": function}]}

    fact = "Lena's workshop opens on 3 March 2026."
    upstream.script += [call("keep_fact", fact=fact), {"content": "I will remember."}]
    assert run("openai_agents_tool.py", "lena", "It opens.", cwd=tmp_path) == "I will remember."
    upstream.script += [call("search_memory", query="workshop"), {"content": "On 3 March."}]
    assert run("openai_agents_tool.py", "lena", "When?", cwd=tmp_path) == "On 3 March."
    assert fact in upstream.system(2)
    assert upstream.requests[3]["messages"][-1]["content"] == f"- {fact}"


@pytest.mark.slow
@pytest.mark.usefixtures("environment")
def test_a_graph_answers_with_what_is_remembered(upstream: Upstream, tmp_path: Path) -> None:
    from edenmem import SyncMemoryService

    with SyncMemoryService.from_settings() as service:
        service.initialize()
        service.ensure_session("graph-lena", agents=["mira"], users=["lena"])
        service.memory_for("mira", user="lena").add_fact("Lena's workshop opens on 3 March 2026.")
        upstream.script += [{"content": "On 3 March."}]
        assert run("langgraph_node.py", "lena", "When?", cwd=tmp_path) == "On 3 March."
        assert "3 March 2026" in upstream.system(0)
        session = service.ensure_session("graph-lena", agents=["mira"])
        said = [message.content for message in service.service.store.host.messages(session.id)]
        assert said == ["When?", "On 3 March."]


@pytest.mark.slow
@pytest.mark.usefixtures("environment")
def test_an_application_remembers_across_chats(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastapi.testclient import TestClient

    monkeypatch.syspath_prepend(str(EXAMPLES))
    import fastapi_app

    upstream.script += [{"content": "Noted."}, {"content": "On 3 March."}]
    with TestClient(fastapi_app.app) as client:
        said = {"user": "lena", "text": "My workshop opens on 3 March."}
        assert client.post("/chats/first", json=said).json() == {"text": "Noted."}
        memory = fastapi_app.app.state.memory
        assert client.portal is not None
        lena = client.portal.call(lambda: memory.memory_for("mira", user="lena"))
        client.portal.call(lena.add_fact, "Lena's workshop opens on 3 March 2026.")
        asked = {"user": "lena", "text": "When does it open?"}
        assert client.post("/chats/second", json=asked).json() == {"text": "On 3 March."}
    assert "3 March 2026" not in upstream.system(0)
    assert "3 March 2026" in upstream.system(1)


@pytest.mark.slow
def test_an_application_without_a_key_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "fastapi_app:app"]
    ended = subprocess.run(
        server, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "OPENAI_API_KEY is not set\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["agent_loop.py", spared("langgraph_node.py"), spared("openai_agents_tool.py")]
)
def test_the_command_line_of_an_example_explains_itself(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(EXAMPLES / name), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
        )

    shown = start("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith(f"usage: {name} ")
    if name != "agent_loop.py":
        assert start().returncode == 2
        without_key = start("lena", "When?")
        assert (without_key.returncode, without_key.stdout) == (1, "")
        assert without_key.stderr == "OPENAI_API_KEY is not set\n"
    assert not list(tmp_path.iterdir())
