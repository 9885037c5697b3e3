"""The examples for frameworks run as they stand, with a scripted endpoint at the network's edge."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

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
    modules = {module for module, _ in named}
    assert {each for each in modules if not each.startswith("edenmem.integrations.")} == {"edenmem"}
    assert {name for module, name in named if module == "edenmem"} <= set(edenmem.__all__)


#: The framework of each scripted example, and answers from memory.
SCRIPTED = {
    "claude_memory_tool.py": (
        "anthropic",
        ["The workshop opens on 3 March.", "lena.md, version 2"],
    ),
    "langgraph_store.py": (
        "langgraph",
        ["You said: My workshop opens on 3 March.", "I do not know."],
    ),
    "llama_index_memory.py": ("llama_index.core", ["workshop opens on 3 March.", "user: Hello."]),
    "openai_agents_session.py": (
        "agents",
        ["I see 3 messages. The first: My workshop opens on 3 March."],
    ),
    "pydantic_ai_tools.py": ("pydantic_ai", [": Lena's workshop opens on 3 March."]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTED)
def test_an_example_without_its_framework_ends_with_one_line(name: str, tmp_path: Path) -> None:
    framework, _ = SCRIPTED[name]
    blocked = tmp_path / f"{framework.partition('.')[0]}.py"
    blocked.write_text('raise ImportError("missing")')
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1
    assert re.search(": (pip )?install ", ended.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTED)
def test_a_scripted_example_remembers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    framework, answers = SCRIPTED[name]
    if importlib.util.find_spec(framework.partition(".")[0]) is None:
        pytest.skip(f"{framework} is not installed")
    monkeypatch.setenv("EDENMEM_EMBEDDING_PROVIDER", "none")
    printed = run(name, cwd=tmp_path)
    assert [answer for answer in answers if answer not in printed] == []


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
def test_the_command_line_of_an_example_explains_itself(tmp_path: Path) -> None:
    printed = run("agent_loop.py", "--help", cwd=tmp_path)
    assert printed.startswith("usage: agent_loop.py ")
    assert not list(tmp_path.iterdir())
