"""The memory tool of Claude, compared with the SDK's own tool on a folder."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from edenmem import FactFields, SyncMemoryService

pytest.importorskip("anthropic")

from anthropic.lib.tools import ToolError
from anthropic.tools import BetaLocalFilesystemMemoryTool

from edenmem.integrations.claude import EdenmemMemoryTool, SyncEdenmemMemoryTool

NOTES = "/memories/lena/notes.md"
TEXT = "Lena\nlikes tea.\n\nLena has bees.\n"


def create(path: str, text: str = TEXT) -> dict[str, Any]:
    return {"command": "create", "path": path, "file_text": text}


def view(path: str, lines: list[int] | None = None) -> dict[str, Any]:
    return {"command": "view", "path": path, "view_range": lines}


def replace(old: str, new: str, path: str = NOTES) -> dict[str, Any]:
    return {"command": "str_replace", "path": path, "old_str": old, "new_str": new}


def insert(line: int, text: str, path: str = NOTES) -> dict[str, Any]:
    return {"command": "insert", "path": path, "insert_line": line, "insert_text": text}


def delete(path: str) -> dict[str, Any]:
    return {"command": "delete", "path": path}


def rename(old: str, new: str) -> dict[str, Any]:
    return {"command": "rename", "old_path": old, "new_path": new}


COMMANDS = [
    view("/memories"),
    create(NOTES),
    create(NOTES),
    create("/memories/a.txt", ""),
    create("/memories/lena/deep/er/x.txt", "x"),
    create("/memories/.hidden", "x"),
    view("/memories"),
    view("/memories/lena"),
    view("/memories/lena/deep/er"),
    view("/memories/nothing"),
    view(NOTES),
    view(NOTES, [2, 3]),
    view(NOTES, [3, -1]),
    view("/memories/a.txt"),
    replace("likes tea", "likes coffee\nand cake"),
    replace("Lena", "Olga"),
    replace("nothing", "x"),
    replace("x", "y", "/memories/nothing"),
    insert(0, "# Notes"),
    insert(2, "Two\nlines\n"),
    insert(99, "x"),
    insert(0, "first", "/memories/a.txt"),
    view(NOTES),
    view("/memories/a.txt"),
    rename(NOTES, "/memories/a.txt"),
    rename(NOTES, "/memories/moved.md"),
    rename("/memories/lena", "/memories/olga"),
    rename("/memories/nothing", "/memories/x"),
    view("/memories"),
    view("/memories/moved.md"),
    delete("/memories/olga"),
    delete("/memories/olga"),
    delete("/memories/a.txt"),
    delete("/memories/.hidden"),
    view("/memories"),
]


def run(tool: Any, commands: list[dict[str, Any]]) -> list[str]:
    """Return the answers of a tool, without the sizes of files."""
    answers = []
    for command in commands:
        try:
            answer = tool.call(command)
        except ToolError as error:
            answer = f"error: {error.content}"
        answers.append(re.sub(r"^[\d.]+[BK]\t", "", answer, flags=re.MULTILINE))
    return answers


def test_it_answers_as_the_tool_of_the_sdk(service: SyncMemoryService, tmp_path: Path) -> None:
    tool = SyncEdenmemMemoryTool(service.memory_for("mira", user="lena"))
    expected = run(BetaLocalFilesystemMemoryTool(str(tmp_path)), COMMANDS)
    assert run(tool, COMMANDS) == expected
    (fact,) = service.memory_for("mira", user="lena").facts(shared=False)
    assert fact.key == "/memories/moved.md"
    assert fact.content.startswith("# Notes Lena Two lines")
    assert service.memory_for("mira").facts() == []


def test_what_memory_refuses_is_an_error_for_the_model(service: SyncMemoryService) -> None:
    tool = SyncEdenmemMemoryTool(service.memory_for("mira"))
    refused = run(
        tool,
        [
            view("/etc/passwd"),
            view("/memories/../etc"),
            delete("/memories"),
            create("/memories/key", "The key is sk-proj-" + "a1B2" * 12),
            create("/memories/big", "so " * 8_000),
            create("/memories/a", "x"),
            create("/memories/a/b", "x"),
            create("/memories", "x"),
        ],
    )
    assert "Path must start with /memories" in refused[0]
    assert "would escape /memories" in refused[1]
    assert refused[2] == "error: Cannot delete the /memories directory itself"
    assert "must not be remembered" in refused[3]
    assert "the limit is 16,384" in refused[4]
    assert refused[6] == "error: Error: Not a directory"
    assert refused[7] == "error: File /memories already exists"


def test_a_key_that_is_no_path_of_a_file_is_left_alone(
    service: SyncMemoryService, tmp_path: Path
) -> None:
    """Whoever may write facts must not write files where the agent runs."""
    memory = service.memory_for("mira", user="lena")
    outside = tmp_path / "outside"
    keys = [f"/memories{'/..' * 9}{outside}", str(outside), "/memories/a//b", "a", "/memories"]
    for key in keys:
        fields = FactFields(key=key, tags=("claude",), value={"text": "x"})
        memory.put_fact(f"Not a file: {key}.", fields=fields)
    tool = SyncEdenmemMemoryTool(memory)
    run(tool, [create(NOTES), rename(NOTES, "/memories/moved.md")])
    assert not outside.exists()
    assert {fact.key for fact in memory.facts(shared=False)} == {*keys, "/memories/moved.md"}


def test_a_folder_with_the_name_of_a_file_is_an_error(service: SyncMemoryService) -> None:
    memory = service.memory_for("mira", user="lena")
    for key in ("/memories/a", "/memories/a/b"):
        fields = FactFields(key=key, tags=("claude",), value={"text": "x"})
        memory.put_fact(f"The file {key}.", fields=fields)
    (refused,) = run(SyncEdenmemMemoryTool(memory), [view("/memories")])
    assert refused.startswith("error: ")


def test_edits_at_the_same_time_lose_nothing(service: SyncMemoryService) -> None:
    memory = service.memory_for("mira", user="lena").memory
    tool = EdenmemMemoryTool(memory)

    async def race() -> list[Any]:
        await tool.call(create(NOTES))
        edits = [tool.call(insert(0, f"line {n}")) for n in range(3)]
        return await asyncio.gather(*edits, return_exceptions=True)

    outcomes = service.run(race())
    refused = [each for each in outcomes if isinstance(each, ToolError)]
    text = service.run(tool.call(view(NOTES)))
    assert str(text).count("line ") == 1 + len(outcomes) - len(refused)
    assert all("version conflict" in str(each) or "changed" in str(each) for each in refused)
