"""``edenmem mcp`` as clients start it: a process, its streams, and the configuration for it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from edenmem.models.scope import Scope
from edenmem.store.sqlite import SqliteStore
from tests.cli.conftest import Cli
from tests.support.builders import make_agent, make_fact, make_user
from tests.support.memory import add_facts

pytestmark = pytest.mark.slow

MIRA, LENA = make_agent("mira"), make_user("lena")
HERS = make_fact(Scope.user(MIRA.id, LENA.id), "Lena's order is OP-7731.")
#: As a client asks first; nothing else may be needed for an answer.
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a store and a configuration file that names it."""
    store = SqliteStore(tmp_path / "memory.db")
    store.database.initialize()
    store.host.add_agent(MIRA)
    store.host.add_user(LENA)
    add_facts(store, HERS)
    store.database.close()
    text = '[store]\nuri = "sqlite:///memory.db"\n[embedding]\nprovider = "none"\n'
    (tmp_path / "edenmem.toml").write_text(text)
    return tmp_path


def run(place: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "edenmem", *arguments],
        cwd=place,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_starts_it_from_the_configuration_that_is_printed(
    place: Path, tmp_path_factory: pytest.TempPathFactory, mode: str
) -> None:
    printed = run(place, "mcp", "config", "claude", "--agent", "mira", "--user", "lena", "--write")
    assert (printed.returncode, printed.stderr) == (0, "")
    server = json.loads(printed.stdout)["mcpServers"]["edenmem"]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    process = StdioServerParameters(**server, cwd=str(elsewhere), env=dict(os.environ))
    async with Client(process, mode=mode) as client:
        assert len((await client.list_tools()).tools) == 7
        found = await client.call_tool("search_facts", {"query": ["order"]})
        assert found.structured_content is not None
        assert [fact["content"] for fact in found.structured_content["facts"]] == [HERS.content]
        assert not found.is_error


def test_stdout_holds_only_the_protocol(place: Path) -> None:
    """With one agent the command notes which one it took, and stdin that ends ends it."""
    call = {"name": "list_facts", "arguments": {}}
    lines: list[dict[str, Any]] = [
        INITIALIZE,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    stdin = "no json\n" + "".join(f"{json.dumps(line)}\n" for line in lines)
    done = run(place, "mcp", "--read-only", stdin=stdin)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert {answer["jsonrpc"] for answer in answers} == {"2.0"}
    assert 1 in {answer.get("id") for answer in answers}
    assert "agent: mira" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_text_that_was_cut_within_a_character_gets_an_answer(place: Path) -> None:
    call = {
        "name": "search_facts",
        "arguments": {"query": ["OP-7731 \ud83d", "\\\\ud83d \U0001f41d"]},
    }
    lines: list[dict[str, Any]] = [
        INITIALIZE,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "edenmem", "mcp", "--user", "lena"],
        cwd=place,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(f"{json.dumps(line)}\n" for line in lines))
        process.stdin.flush()
        answers = {
            answer["id"]: answer
            for answer in (json.loads(process.stdout.readline()) for _ in range(2))
        }
        process.stdin.close()
    (fact,) = answers[2]["result"]["structuredContent"]["facts"]
    assert fact["content"] == HERS.content


@pytest.mark.parametrize(
    ("client", "table", "keys"),
    [
        ("claude", "mcpServers", {"command", "args"}),
        ("cursor", "mcpServers", {"command", "args"}),
        ("vscode", "servers", {"type", "command", "args"}),
    ],
)
def test_each_client_gets_its_own_form(
    place: Path, client: str, table: str, keys: set[str]
) -> None:
    done = run(place, "mcp", "config", client, "--agent", "mira")
    server = json.loads(done.stdout)[table]["edenmem"]
    assert server.keys() == keys
    assert Path(server["command"]).is_absolute()
    arguments = server["args"]
    assert arguments[arguments.index("--config") + 1] == str(place / "edenmem.toml")
    assert arguments[-3:] == ["mcp", "--agent", "mira"]


def test_a_configuration_names_the_only_agent_and_needs_one_of_several(place: Path) -> None:
    """A client that starts the command cannot be asked; the file broke with a second agent."""
    done = run(place, "mcp", "config", "claude", "--write")
    server = json.loads(done.stdout)["mcpServers"]["edenmem"]
    assert server["args"][-4:] == ["mcp", "--agent", "mira", "--write"]
    assert run(place, "agent", "add", "otto").returncode == 0
    refused = run(place, "mcp", "config", "claude")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--agent is missing\n  hint: one of: mira, otto" in refused.stderr


def test_the_server_that_an_http_client_needs_is_named(place: Path) -> None:
    """The client's configuration has no place for the options that decide whose memory it is."""
    done = run(place, "mcp", "config", "claude", "--agent", "mira", "--user", "lena", "--http")
    assert "mira" not in done.stdout
    assert done.stderr.endswith(" mcp --agent mira --user lena --http\n")
    command = shlex.split(done.stderr.partition("start the server with: ")[2])
    assert command[:3] == ["edenmem", "--config", str(place / "edenmem.toml")]


def test_a_person_at_a_terminal_is_told_who_starts_this(place: Path) -> None:
    told = Cli(f"sqlite:///{place}/memory.db", place).on_terminal(
        "mcp", answers=[("serving MCP on stdio", "\x04")]
    )
    assert "to configure a client: edenmem mcp config claude" in " ".join(told.out.split())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["config"], 2, "claude, cursor, vscode"),
        (["config", "emacs"], 2, "'emacs'"),
        (["setup"], 2, "one of config, not 'setup'"),
        (["config", "claude", "--agent", "nobody"], 3, "agent not found: 'nobody'"),
        (["--agent", "nobody"], 3, "agent not found: 'nobody'"),
        (["--user", "nobody"], 3, "user not found: 'nobody'"),
        (["--write", "--read-only"], 2, "is set"),
        (["--format", "json"], 2, "stdout carries the protocol"),
        (["config", "claude", "--uri", "mongodb://a:secret@h/x"], 2, "a password would be visible"),
    ],
)
def test_what_cannot_be_served_is_refused_at_once(
    place: Path, arguments: list[str], code: int, said: str
) -> None:
    done = run(place, "mcp", *arguments)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert done.stdout == ""
    assert "secret" not in done.stderr
